"""`duly worker` as a command: handlers, output, exit status, and that no process stays behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import redis

import duly
from tests.conftest import StartedServer
from tests.servers import Server
from tests.waiting import wait_until
from tests.warm import WarmPopen

DEADLINE = 60.0

MODULE = """
import os, time
from pathlib import Path
import duly

app = duly.Duly(os.environ["URL"])
queue = app.queue(os.environ["QUEUE"], lease=5)
idle = duly.Duly("memory://")

def note(text):
    with open("noted", "a") as file:
        file.write(f"{text}\\n")

@queue.handler(concurrency=4)
def handle(body):
    if body == "long":
        note(f"long {os.getpid()}")
        while not Path("finish").exists():
            time.sleep(0.01)
    note(body)
"""


class Command:
    """A run of `duly worker` in a separate directory."""

    def __init__(self, place: Path, url: str, queue: str, *options: str) -> None:
        self.place = place
        self._log = place / "log"
        with self._log.open("wb") as log:
            self.process = WarmPopen(
                [sys.executable, "-m", "duly", "worker", *options],
                cwd=place,
                stdin=subprocess.DEVNULL,
                stderr=log,
                stdout=log,
                env={**os.environ, "URL": url, "QUEUE": queue, "PYTHONDONTWRITEBYTECODE": "1"},
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def noted(self) -> list[str]:
        """The lines that the handlers wrote."""
        with suppress(FileNotFoundError):
            return (self.place / "noted").read_text().split("\n")[:-1]
        return []

    def wait_log(self, text: str, count: int = 1) -> None:
        self.wait_until(lambda: self.log.count(text) >= count, f"{text} was logged {count} times")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(condition, what, lambda: f"{self.log}\n{self.noted}")

    def wait_gone(self) -> None:
        self.wait_until(lambda: self.pids() == [], "all processes are gone")

    def pids(self) -> list[int]:
        """Return the processes that run in the directory."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and (entry / "cwd").readlink() == self.place:
                    found.append(int(entry.name))
        return found

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=DEADLINE)


@contextmanager
def running(place: Path, url: str, queue: str, *options: str) -> Iterator[Command]:
    (place / "shop").mkdir(exist_ok=True)
    (place / "shop" / "jobs.py").write_text(MODULE)
    command = Command(place, url, queue, *options)
    try:
        yield command
    finally:
        command.process.kill()
        command.process.wait()
        for pid in command.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def run(place: Path, *options: str) -> tuple[int, str]:
    with running(place, "memory://", "orders", *options) as command:
        return command.process.wait(timeout=DEADLINE), command.log


def change(file: Path, text: str) -> None:
    """Replace a file atomically. If it were written in place, two changes could be seen."""
    draft = file.with_suffix(".draft")
    draft.write_text(text)
    draft.replace(file)


@pytest.fixture
def url(server: StartedServer) -> str:
    return server("valkey").url


@pytest.fixture
def queue(url: str, queue_name: str) -> Iterator["duly.Queue"]:
    with duly.Duly(url) as app:
        yield app.queue(queue_name)


def test_help_has_an_example_and_every_option(tmp_path: Path) -> None:
    status, shown = run(tmp_path, "--help")

    assert status == 0
    assert "duly worker shop.jobs:app --processes 4" in shown
    for option in ("processes", "concurrency", "queues", "grace", "reload", "log-level", "log-format"):
        assert f"--{option}" in shown


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "Missing argument 'TARGET'. Example: duly worker shop.jobs:app --processes 4"),
        (["shop.missing:app"], "no module named 'shop.missing'"),
        (["shop.jobs:nothing"], "Apps found there: shop.jobs:app, shop.jobs:idle"),
        (["shop.jobs:note"], "needs arguments"),
        (["shop/jobs.py"], "write the module with dots: shop.jobs:app"),
        (["shop.jobs:idle"], "define a handler"),
        (["shop.jobs:app", "--queues", "nope"], "no handler for queue nope"),
        (["shop.jobs:app", "--queues", "a:0"], "the weight of queue 'a' must be from 1 to 1000"),
        (["shop.jobs:app", "--queues", "a,a"], "named twice"),
        (["shop.jobs:app", "--grace", "-1"], "--grace: '-1' is not a duration"),
        (["shop.jobs:app", "--grace", "soon"], "--grace: 'soon' is not a duration. Write 500ms, 30s"),
        (["shop.jobs:app", "--url", "redis://x"], "the server is the app's: set DULY_URL, or give duly.Duly(...)"),
        (["shpo:app"], "Start it in the directory of shpo.py, or set PYTHONPATH"),
        (["shpo.jobs:app"], "Start it in the directory that has shpo in it, or set PYTHONPATH"),
        (["shop.jobs:app", "--concurrency", "0"], "concurrency must be"),
        (["shop.jobs:app", "--processes", "0"], "--processes must be from 1"),
        (["shop.jobs:app", "--log-level", "loud"], "log level must be one of"),
        (["shop.jobs:app", "--log-format", "xml"], "log format must be one of"),
    ],
)
def test_misuse_is_explained(tmp_path: Path, options: list[str], words: str) -> None:
    status, shown = run(tmp_path, *options)

    assert (status, words in shown, "Traceback" in shown) == (2, True, False), shown


@pytest.mark.fault
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["shop.missing:app"], "no module named 'shop.missing'"),
        (["shop.jobs:app", "--queues", "nope"], "no handler for queue nope"),
        (["shop.jobs:idle"], "define a handler"),
    ],
)
def test_misuse_in_children_is_reported_by_the_parent(tmp_path: Path, options: list[str], words: str) -> None:
    status, shown = run(tmp_path, *options, "--processes", "2")

    assert (status, words in shown, "Traceback" in shown) == (2, True, False), shown
    assert shown.count("process.started") == 2


def test_an_error_of_the_module_is_shown(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import duly\nvalue = 1 / 0\n")

    status, shown = run(tmp_path, "broken:app")

    assert status == 2
    assert "ZeroDivisionError: division by zero" in shown
    assert "value = 1 / 0" in shown


@pytest.mark.fault
@pytest.mark.slow
class TestServing:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_one_process_works_and_stops_gracefully(
        self, tmp_path: Path, url: str, queue: "duly.Queue", number: signal.Signals
    ) -> None:
        with running(tmp_path, url, queue.name, "shop.jobs:app", "--queues", queue.name) as command:
            command.wait_log("worker.started")
            assert command.pids() == [command.process.pid]
            queue.send_many([str(each) for each in range(50)])
            command.wait_until(lambda: len(command.noted) == 50, "all are handled")

            assert command.stop(number) == 0
            assert sorted(map(int, command.noted)) == list(range(50))
            assert f"worker.serving target=shop.jobs:app queues={queue.name}:1" in command.log

    def test_a_running_handler_may_finish(self, tmp_path: Path, url: str, queue: "duly.Queue") -> None:
        with running(tmp_path, url, queue.name, "shop.jobs:app", "--processes", "1") as command:
            queue.send("long")
            command.wait_until(lambda: len(command.noted) == 1, "the handler runs")
            command.process.send_signal(signal.SIGTERM)
            command.wait_log("worker.stopping")
            (tmp_path / "finish").touch()

            assert command.process.wait(timeout=DEADLINE) == 0
            assert command.noted[1:] == ["long"]
            assert queue.stats().acked == 1

    @pytest.mark.parametrize("processes", [[], ["--processes", "2"]])
    def test_a_second_signal_ends_it_at_once(
        self, tmp_path: Path, url: str, queue: "duly.Queue", processes: list[str]
    ) -> None:
        with running(tmp_path, url, queue.name, "shop.jobs:app", "--grace", "10m", *processes) as command:
            workers = 2 if processes else 1
            command.wait_log("worker.started", workers)
            queue.send("long")
            command.wait_until(lambda: len(command.noted) == 1, "the handler runs")
            command.process.send_signal(signal.SIGTERM)
            command.wait_log("worker.stopping", workers)  # all of them: two pending signals of a process count as one

            assert command.stop() == 1
            command.wait_gone()
            assert queue.stats().ready == 1

    def test_a_process_that_is_killed_is_replaced_and_its_message_is_not_lost(
        self, tmp_path: Path, url: str, queue: "duly.Queue"
    ) -> None:
        with running(tmp_path, url, queue.name, "shop.jobs:app", "--processes", "2") as command:
            command.wait_log("worker.started", 2)
            queue.send("long")
            command.wait_until(lambda: len(command.noted) == 1, "the handler runs")
            os.kill(int(command.noted[0].split()[1]), signal.SIGKILL)
            (tmp_path / "finish").touch()
            command.wait_log("worker.started", 3)
            command.wait_until(lambda: "long" in command.noted, "the message is delivered again")

            assert command.stop() == 0
            assert "signal=SIGKILL" in command.log

    def test_children_finish_and_end_when_the_parent_is_killed(
        self, tmp_path: Path, url: str, queue: "duly.Queue"
    ) -> None:
        with running(tmp_path, url, queue.name, "shop.jobs:app", "--processes", "2") as command:
            command.wait_log("worker.started", 2)  # a child whose parent dies during its start logs nothing
            queue.send("long")
            command.wait_until(lambda: len(command.noted) == 1, "the handler runs")
            command.process.kill()
            command.wait_log("worker.stopping", 2)
            (tmp_path / "finish").touch()

            command.wait_gone()
            assert command.noted[1:] == ["long"]
            assert queue.stats().acked == 1

    def test_a_stop_during_the_import_ends_all_processes(self, tmp_path: Path, url: str, queue: "duly.Queue") -> None:
        (tmp_path / "slow.py").write_text("import time\nopen('importing', 'w').close()\ntime.sleep(600)\n")
        with running(tmp_path, url, queue.name, "slow:app", "--processes", "1") as command:
            command.wait_until((tmp_path / "importing").exists, "the import is under way")

            assert command.stop() == 0
            assert command.pids() == []

    def test_reload_serves_the_new_code(self, tmp_path: Path, url: str, queue: "duly.Queue") -> None:
        with running(tmp_path, url, queue.name, "shop.jobs:app", "--reload") as command:
            command.wait_log("worker.started")
            change(tmp_path / "shop" / "jobs.py", "this is not valid Python")
            command.wait_log("SyntaxError")
            command.wait_log("upon the next change")
            change(tmp_path / "shop" / "jobs.py", MODULE.replace("note(body)", "note('new ' + body)"))
            command.wait_log("worker.started", 2)
            queue.send("x")
            command.wait_until(lambda: command.noted != [], "the message is handled")

            assert command.noted == ["new x"]
            assert "reload.file_changed path=shop/jobs.py" in command.log
            assert command.stop(signal.SIGINT) == 0

    def test_json_lines_of_parent_and_children(self, tmp_path: Path, url: str, queue: "duly.Queue") -> None:
        options = ["shop.jobs:app", "--processes", "2", "--log-format", "json"]
        with running(tmp_path, url, queue.name, *options) as command:
            command.wait_log("worker.started", 2)

            assert command.stop() == 0
            events = [json.loads(line)["event"] for line in command.log.splitlines()]
            assert (events[0], events[-1]) == ("worker.serving", "supervisor.stopped")
            assert events.count("worker.stopped") == 2


@pytest.mark.fault
@pytest.mark.parametrize("processes", [[], ["--processes", "2"]], ids=["one", "supervised"])
def test_a_server_that_refuses_the_user_from_the_beginning_ends_it(tmp_path: Path, processes: list[str]) -> None:
    with Server("valkey", {"requirepass": "right"}) as own:
        url = own.url.replace("://", "://:wr0ng@")
        with running(tmp_path, url, "orders", "shop.jobs:app", *processes) as command:
            status = command.process.wait(timeout=DEADLINE)
            shown = command.log

    assert status == 1
    said = [line for line in shown.splitlines() if line.startswith("duly: ")]
    assert said
    assert all(line.endswith("Check user and password in the URL, redis://USER:PASSWORD@host") for line in said)
    assert 1 <= shown.count("claim.failed") <= 2
    assert "Traceback" not in shown
    assert "wr0ng" not in shown


@pytest.mark.fault
@pytest.mark.parametrize("processes", [[], ["--processes", "2"]], ids=["one", "supervised"])
def test_a_server_that_may_evict_messages_ends_it(tmp_path: Path, processes: list[str]) -> None:
    settings = {"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}
    with (
        Server("valkey", settings) as own,
        running(tmp_path, own.url, "orders", "shop.jobs:app", *processes) as command,
    ):
        status = command.process.wait(timeout=DEADLINE)
        shown = command.log

    assert status == 1
    said = [line for line in shown.splitlines() if line.startswith("duly: ")]
    assert said
    assert all("CONFIG SET maxmemory-policy noeviction" in line for line in said)
    assert "Traceback" not in shown


@pytest.mark.fault
def test_a_permission_that_is_lost_later_is_waited_for(tmp_path: Path) -> None:
    with Server("valkey") as own, redis.Redis.from_url(own.url) as admin:
        admin.execute_command("ACL", "SETUSER", "joe", "on", "nopass", "~*", "&*", "+@all")
        with running(tmp_path, own.url.replace("://", "://joe:x@"), "orders", "shop.jobs:app") as command:
            command.wait_log("worker.started")
            command.wait_until(lambda: admin.info("clients")["blocked_clients"] == 1, "it waits for messages")
            admin.execute_command("ACL", "SETUSER", "joe", "-evalsha")
            with duly.Duly(own.url) as app:
                app.queue("orders").send("first")
                command.wait_log("claim.failed")
                admin.execute_command("ACL", "SETUSER", "joe", "+evalsha")
                command.wait_until(lambda: command.noted == ["first"], "the message is handled")

            assert command.stop() == 0
