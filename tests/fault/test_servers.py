"""The test servers themselves: what fault tests stand on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis

from tests.binaries import Kind
from tests.clock import ServerClock
from tests.servers import Server

pytestmark = pytest.mark.fault


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_server_answers_on_its_port_and_its_socket(kind: Kind) -> None:
    with Server(kind) as server:
        for url in (server.url, server.unix_url):
            with redis.Redis.from_url(url) as client:
                assert client.info("server")["process_id"] == server.pid


def test_messages_on_disk_survive_kill_and_restart(kind: Kind) -> None:
    config = {"appendonly": "yes", "appendfsync": "always"}
    with Server(kind, config) as server, redis.Redis.from_url(server.url) as client:
        client.set("a", "1")
        before = server.pid

        server.kill9()
        server.restart()

        assert not is_running(before)
        assert client.get("a") == b"1"


def test_a_closed_server_leaves_neither_process_nor_files(kind: Kind) -> None:
    server = Server(kind)
    pid = server.pid

    server.close()

    assert not is_running(pid)
    assert not server.directory.exists()


def test_a_server_that_cannot_start_reports_the_reason(kind: Kind) -> None:
    with pytest.raises(RuntimeError, match="no-such-option"):
        Server(kind, {"no-such-option": "1"})


def test_a_server_dies_with_a_killed_test_run(tmp_path: Path) -> None:
    code = "from tests.servers import Server; import time; print(Server('valkey').pid, flush=True); time.sleep(60)"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}  # no process is left to remove its files
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment) as run:
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        assert is_running(pid)

        os.kill(run.pid, signal.SIGKILL)
        run.wait()

    deadline = time.monotonic() + 60
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_clock_step_moves_the_time_of_the_server(kind: Kind, server_clock: ServerClock) -> None:
    with (
        Server(kind, environment=server_clock.environment()) as server,
        redis.Redis.from_url(server.url) as client,
    ):

        def is_ahead(by: float) -> bool:
            before = time.time()
            seconds, microseconds = client.time()
            return before - 1 < float(seconds + microseconds / 1e6) - by < time.time() + 1

        assert is_ahead(0)
        server_clock.step(3600.25)
        assert is_ahead(3600.25)
        server_clock.step(-7200.5)
        assert is_ahead(-3600.25)
        assert client.eval("return redis.call('TIME')[1]", 0)
