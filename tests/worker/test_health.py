"""`duly worker --health`: probes and metrics of a worker process, and of the children of a supervisor."""

import asyncio
import os
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import duly
from duly.worker import Worker
from duly.worker.health import HealthServer
from duly.worker.vitals import LoopProbe, QueueVitals, Vitals, VitalsSocket, read_vitals
from tests.cli.test_worker_command import MODULE, Command
from tests.servers import Server
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
HEALTHY = Vitals(7, None, 4, 2, (QueueVitals("orders", 3, 40, 1.5),))


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class TestAnswers:
    """The server that answers probes."""

    def test_a_worker_without_trouble_is_healthy(self) -> None:
        with HealthServer("127.0.0.1", 0, lambda: [HEALTHY]) as server:
            assert get(server.port, "/healthz") == (200, "ok\n")
            assert get(server.port, "/healthz?verbose") == (200, "ok\n")
            assert get(server.port, "/")[0] == 404

    def test_one_process_in_trouble_makes_the_worker_unhealthy(self) -> None:
        with HealthServer("127.0.0.1", 0, lambda: [HEALTHY, Vitals(8, "the worker is stopping")]) as server:
            assert get(server.port, "/healthz") == (503, "process 2 (pid 8): the worker is stopping\n")

    def test_metrics_name_the_process_and_the_queue(self) -> None:
        with HealthServer("127.0.0.1", 0, lambda: [HEALTHY, Vitals(8, "the worker is stopping")]) as server:
            status, text = get(server.port, "/metrics")
        assert status == 200
        assert "# TYPE duly_process_handled_total counter" in text
        assert 'duly_process_handled_total{process="1",queue="orders"} 40' in text
        assert 'duly_process_in_flight{process="1",queue="orders"} 3' in text
        assert 'duly_process_healthy{process="1"} 1' in text
        assert 'duly_process_healthy{process="2"} 0' in text

    @pytest.mark.parametrize("page", ["docs/metrics.md", "docs/zh/metrics.md"])
    def test_the_pages_list_all_metrics(self, page: str) -> None:
        with HealthServer("127.0.0.1", 0, lambda: [HEALTHY]) as server:
            _, text = get(server.port, "/metrics")
        served = re.findall(r"^# TYPE (\w+)", text, re.MULTILINE)
        assert re.findall(r"^\| `(duly_process_\w+)` \|", (ROOT / page).read_text(), re.MULTILINE) == served

    def test_a_port_in_use_is_refused_before_the_worker_starts(self) -> None:
        with (
            HealthServer("127.0.0.1", 0, lambda: [HEALTHY]) as server,
            pytest.raises(duly.UsageError, match=f"cannot listen on 127.0.0.1:{server.port}: .* Choose another port"),
        ):
            HealthServer("127.0.0.1", server.port, lambda: [HEALTHY])


class TestSockets:
    """The way from a child to its parent."""

    def test_a_child_shows_its_state(self, tmp_path: Path) -> None:
        assert read_vitals(str(tmp_path), os.getpid()).trouble == "the process is starting"
        with VitalsSocket(str(tmp_path), lambda: HEALTHY):
            for _ in range(3):
                assert read_vitals(str(tmp_path), os.getpid()) == HEALTHY
        assert list(tmp_path.iterdir()) == []


class TestEventLoop:
    """An event loop that a handler blocks."""

    def test_a_loop_that_runs_answers(self) -> None:
        async def main() -> float:
            probe, loop = LoopProbe(), asyncio.get_running_loop()
            probe.blocked_for(loop)
            await asyncio.sleep(0.01)
            return probe.blocked_for(loop)

        assert asyncio.run(main()) == 0.0

    def test_a_loop_that_does_not_run_is_blocked_since_the_first_question(self) -> None:
        probe, loop = LoopProbe(), asyncio.new_event_loop()
        assert probe.blocked_for(loop) == 0.0
        time.sleep(0.05)
        assert 0.05 <= probe.blocked_for(loop) < 60
        loop.close()


async def test_a_worker_is_healthy_between_its_start_and_its_stop(queue_name: str) -> None:
    app = duly.AsyncDuly("memory://")
    queue = app.queue(queue_name)

    @queue.handler(concurrency=5)
    async def handle(body: object) -> None: ...

    worker = Worker(app)
    assert worker.vitals().trouble == "the worker is starting"
    async with worker:
        vitals = worker.vitals()
        assert (vitals.trouble, vitals.concurrency, vitals.queues[0].name) == (None, 5, queue_name)
        worker.stop()
        assert worker.vitals().trouble == "the worker is stopping"


@contextmanager
def running(place: Path, url: str, queue: str, *options: str) -> Iterator[tuple[Command, int]]:
    """Run `duly worker` with probes, and give the port of these."""
    (place / "shop.py").write_text(MODULE)
    command = Command(place, url, queue, "shop:app", "--health", "127.0.0.1:0", *options)
    try:
        command.wait_log("worker.health")
        found = re.search(r"worker\.health .*port=(\d+)", command.log)
        assert found is not None, command.log
        yield command, int(found[1])
    finally:
        command.process.send_signal(signal.SIGTERM)
        command.process.wait(60)


@pytest.mark.fault
def test_a_worker_is_unhealthy_while_its_server_is_away(tmp_path: Path, queue_name: str) -> None:
    with Server("valkey") as server, running(tmp_path, server.url, queue_name) as (command, port):
        wait_until(lambda: get(port, "/healthz")[0] == 200, "it is healthy", lambda: command.log)
        server.kill9()
        wait_until(lambda: get(port, "/healthz")[0] == 503, "it is unhealthy", lambda: command.log)
        assert get(port, "/healthz")[1].endswith(f"{server.url} does not answer\n")
        server.start()
        wait_until(lambda: get(port, "/healthz")[0] == 200, "it is healthy again", lambda: command.log)


@pytest.mark.fault
def test_a_worker_with_children_is_healthy_if_all_of_them_are(tmp_path: Path, queue_name: str) -> None:
    with Server("valkey") as server, running(tmp_path, server.url, queue_name, "--processes", "2") as (command, port):
        wait_until(lambda: get(port, "/healthz")[0] == 200, "all are healthy", lambda: command.log)
        with duly.Duly(server.url) as app:
            app.queue(queue_name).send_many(range(20))
            wait_until(lambda: handled(port) == 20, "their metrics count all messages", lambda: get(port, "/metrics"))
        child = int(re.findall(r"process\.started .*pid=(\d+)", command.log)[0])
        os.kill(child, signal.SIGSTOP)
        wait_until(lambda: f"(pid {child})" in get(port, "/healthz")[1], "one does not answer", lambda: command.log)
        os.kill(child, signal.SIGKILL)
        wait_until(lambda: get(port, "/healthz")[0] == 200, "it is replaced", lambda: command.log)


def handled(port: int) -> int:
    return sum(map(int, re.findall(r"duly_process_handled_total\{.*\} (\d+)", get(port, "/metrics")[1])))
