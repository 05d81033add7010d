"""`duly bench`: it measures all figures, and leaves nothing behind."""

import json
import subprocess
import sys

import pytest

import duly
from duly import bench
from duly.bench import benchmarks
from tests import warm
from tests.conftest import StartedServer


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return warm.run([sys.executable, "-m", "duly", "bench", *arguments], timeout=110)


def test_it_runs_every_benchmark_and_leaves_no_key(server: StartedServer, queue_name: str) -> None:
    url = server("valkey").url

    done = run("--url", url, "--namespace", queue_name, "--messages", "1500", "--json")

    assert done.returncode == 0, done.stderr
    found = {each["name"]: each["value"] for each in json.loads(done.stdout)["figures"]}
    assert all(value > 0 for name, value in found.items() if "early" not in name), found
    assert found["delayed messages that were early"] == 0
    with duly.Duly(url, namespace=queue_name) as app:
        assert app.queues() == []


def test_the_queue_is_deleted_even_if_a_benchmark_fails(server: StartedServer, queue_name: str) -> None:
    def stop(title: str, _done: int) -> None:
        if title == "a worker":
            raise KeyboardInterrupt

    with duly.Duly(server("valkey").url, namespace=queue_name) as app:
        with pytest.raises(KeyboardInterrupt):
            bench.run(app, messages=200, on_progress=stop)
        assert app.queues() == []


def test_a_benchmark_without_a_result_is_an_error(
    server: StartedServer, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with duly.Duly(server("valkey").url, namespace=queue_name) as app:
        monkeypatch.setattr(duly.Queue, "receive", lambda *_: [])
        with pytest.raises(duly.DulyError, match="0 of 200 delayed messages arrived"):
            benchmarks.delays(benchmarks.Load(app, app.queue("bench"), 1, "."))


@pytest.mark.parametrize(
    "arguments", [("--url", "memory://"), ("--messages", "0"), ("--body-bytes", "-1")], ids=" ".join
)
def test_impossible_measurements_are_misuse(arguments: tuple[str, ...], tmp_path: object) -> None:
    done = run(*arguments)

    assert done.returncode == 2
    assert done.stderr.startswith("duly: ")
    assert not done.stdout
