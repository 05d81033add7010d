"""`duly bench`: it measures all figures, and leaves nothing behind."""

import json
import subprocess
import sys

import pytest

import duly
from duly import bench
from duly.bench import benchmarks, server_use
from duly.bench.bench import _own_namespace
from duly.bench.figure import Figure, Sample, figures
from duly.cli.bench import _row
from duly.options import checked_name
from tests import warm
from tests.cli.shell import bench_apps
from tests.conftest import StartedServer


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return warm.run([sys.executable, "-m", "duly", "bench", *arguments], timeout=110)


def test_it_runs_every_benchmark_and_leaves_no_key(server: StartedServer, queue_name: str) -> None:
    url = server("valkey").url

    done = run("--url", url, "--namespace", queue_name, "--messages", "1500", "--rounds", "1", "--json")

    assert done.returncode == 0, done.stderr
    found = {each["name"]: each["value"] for each in json.loads(done.stdout)["figures"]}
    assert len(found) == 19
    nothing = {"delayed messages that were early", "messages of a lost consumer that were lost"}
    assert all((value == 0) == (name in nothing) for name, value in found.items()), found
    assert bench_apps(url, queue_name) == []


def test_the_queue_is_deleted_even_if_a_benchmark_fails(server: StartedServer, queue_name: str) -> None:
    def stop(title: str, _done: int) -> None:
        if title == "a worker":
            assert bench_apps(url, queue_name)
            raise KeyboardInterrupt

    url = server("valkey").url
    with duly.Duly(url, namespace=queue_name) as app, pytest.raises(KeyboardInterrupt):
        bench.run(app, messages=200, on_progress=stop)
    assert bench_apps(url, queue_name) == []


def test_queues_of_the_namespace_are_left_alone(server: StartedServer, queue_name: str) -> None:
    def stop(_title: str, done: int) -> None:
        if done == 4:
            assert [queue.ready for queue in map(stats, ("bench", "orders"))] == [1, 1]
            raise KeyboardInterrupt

    with duly.Duly(server("valkey").url, namespace=queue_name) as app:

        def stats(name: str) -> duly.Stats:
            return app.queue(name).stats()

        app.queue("bench").send("mine")
        app.queue("orders").send("mine")
        with pytest.raises(KeyboardInterrupt):
            bench.run(app, messages=200, on_progress=stop)
        assert [queue.ready for queue in map(stats, ("bench", "orders"))] == [1, 1]
        assert app.workers() == []


@pytest.mark.parametrize("namespace", ["shop", "{shop}", "x" * 128])
def test_the_temporary_namespace_is_a_valid_one(namespace: str) -> None:
    found = _own_namespace(namespace)

    assert checked_name(found, "namespace") == found
    assert found != _own_namespace(namespace)


def test_a_run_that_would_fill_the_server_is_refused(
    server: StartedServer, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = {"maxmemory": "10000000", "used_memory": "9000000"}
    monkeypatch.setattr(server_use, "_info", lambda _app: info)
    with duly.Duly(server("valkey").url, namespace=queue_name) as app:
        with pytest.raises(duly.UsageError, match="1,000 messages need about 0 MB, and the server has 1 MB free"):
            bench.run(app, messages=1000, body_bytes=200)
        assert bench_apps(server("valkey").url, queue_name) == []


def test_cost_is_left_out_where_the_server_refuses_info(
    server: StartedServer, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_use, "_info", lambda _app: {})
    with duly.Duly(server("valkey").url, namespace=queue_name) as app:
        found = [each.unit for each in benchmarks.batches(benchmarks.Load(app, app.queue("bench"), 10, "."))]
        app.queue("bench").delete()

    assert found == ["/s", "/s"]


def test_rounds_become_a_median_and_a_range() -> None:
    found = figures([[Sample("rate", value, "/s"), Sample("wait", 1.0, "ms")] for value in (3.0, 1.0, 8.0)])

    assert found == (
        Figure("rate", 3.0, "/s", (3.0, 1.0, 8.0)),
        Figure("wait", 1.0, "ms", (1.0, 1.0, 1.0)),
    )
    assert _row(found[0]) == ("rate", "3 /s", "1 to 8", "noisy")
    assert _row(found[1]) == ("wait", "1.00 ms", "", "")
    assert _row(Figure("rate", 3.0, "/s", (3.0,))) == ("rate", "3 /s", "", "one sample")


def test_a_benchmark_without_a_result_is_an_error(
    server: StartedServer, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with duly.Duly(server("valkey").url, namespace=queue_name) as app:
        monkeypatch.setattr(duly.Queue, "receive", lambda *_: [])
        with pytest.raises(duly.DulyError, match="0 of 200 delayed messages arrived"):
            benchmarks.delays(benchmarks.Load(app, app.queue("bench"), 1, "."))


@pytest.mark.parametrize(
    "arguments", [("--url", "memory://"), ("--messages", "0"), ("--body-bytes", "-1"), ("--rounds", "0")], ids=" ".join
)
def test_impossible_measurements_are_misuse(arguments: tuple[str, ...], tmp_path: object) -> None:
    done = run(*arguments)

    assert done.returncode == 2
    assert done.stderr.startswith("duly: ")
    assert not done.stdout
