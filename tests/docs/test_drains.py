"""The drain of the page on arq moves every message once, wherever it is killed."""

import importlib.util
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import redis
from redis.client import Pipeline

import duly
from tests import warm
from tests.conftest import StartedServer

ROOT = Path(__file__).parents[2]


def old_url(url: str) -> str:
    """Return another database than that of Duly: the old system may well be on another server."""
    return url.removesuffix("/0") + "/1"


def load(example: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{example}", ROOT / "examples" / f"{example}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


arq = load("44_drain_arq")


class Killed(BaseException):
    """The end of the process, for a drain."""


class Fuse:
    """Ends the process at the n-th call to the old server: before it is sent, or before its answer is read."""

    def __init__(self, calls: int, *, is_sent: bool, end: Callable[[], None]) -> None:
        self.calls = calls
        self._is_sent = is_sent
        self._end = end

    def run(self, call: Callable[[], Any]) -> Any:
        self.calls -= 1
        if self.calls == 0 and not self._is_sent:
            self._end()
        answer = call()
        if self.calls == 0:
            self._end()
        return answer


class FusedPipeline(Pipeline):
    fuse: Fuse

    def execute(self, *args: Any, **options: Any) -> Any:
        run = super().execute
        return self.fuse.run(lambda: run(*args, **options))


class FusedRedis(redis.Redis):
    fuse: Fuse

    def execute_command(self, *args: Any, **options: Any) -> Any:
        run: Callable[..., Any] = super().execute_command
        return self.fuse.run(lambda: run(*args, **options))

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> Pipeline:
        made = FusedPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)
        made.fuse = self.fuse
        return made


def end_here() -> None:
    raise Killed


def kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fused(url: str, calls: int, *, is_sent: bool, end: Callable[[], None] = end_here) -> FusedRedis:
    client = FusedRedis(connection_pool=redis.ConnectionPool.from_url(old_url(url)))
    client.fuse = Fuse(calls, is_sent=is_sent, end=end)
    return client


def arq_line(job_id: str, order: str, function: str = "close", due_ms: int = 0) -> str:
    """Write a line as the program in arq's environment does."""
    return json.dumps({"id": job_id, "due_ms": due_ms, "function": function, "args": [order], "kwargs": {}})


def fill_arq(old: redis.Redis, name: str) -> list[object]:
    for order in "abc":
        old.zadd(f"{name}:queue", {f"{name}-{order}": 1})
        old.set(f"arq:job:{name}-{order}", b"only arq can read this")
        old.set(f"arq:retry:{name}-{order}", 2)
    return [{"task": "close", "args": [order], "kwargs": {}} for order in "abc"]


def drain_arq(old: redis.Redis, name: str, queue: duly.Queue) -> None:
    lines = [arq_line(f"{name}-{order}", order) for order in "abc"] if old.exists(f"{name}:queue") else []
    arq.drain(lines, old, queue, {"close": "close"}, arq_queue=f"{name}:queue")


@dataclass(frozen=True)
class Case:
    """An old system: how it is filled, which returns the bodies that must arrive, and how it is drained."""

    fill: Callable[[redis.Redis, str], list[object]]
    drain: Callable[[redis.Redis, str, duly.Queue], object]


CASES = {
    "arq": Case(fill_arq, drain_arq),
}


@pytest.fixture
def url(server: StartedServer) -> str:
    return server("valkey").url


def consume(queue: duly.Queue) -> list[object]:
    """Take and finish all that there is, whenever it is due."""
    for message in queue.list("delayed", limit=1000):
        queue.promote(message.id)
    taken = []
    while batch := queue.receive(limit=1000, wait=0):
        taken += [d.body for d in batch]
        queue.ack_many(batch)
    return taken


def count(bodies: list[object]) -> Counter[str]:
    return Counter(map(repr, bodies))


@pytest.mark.parametrize("consumers", ["idle", "quick"])
@pytest.mark.parametrize("is_sent", [False, True], ids=["before a call", "after a call"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_drain_that_is_killed_anywhere_and_run_again_moves_each_message_once(
    case: Case, is_sent: bool, consumers: str, url: str, queue_name: str
) -> None:
    with redis.Redis.from_url(old_url(url)) as old, duly.Duly(url) as app:
        kills = 0
        while True:
            name = f"{queue_name[-40:]}.{kills}"
            queue = app.queue(name)
            expected = case.fill(old, name)
            client = fused(url, kills + 1, is_sent=is_sent)
            try:
                case.drain(client, name, queue)
            except Killed:
                kills += 1
            else:
                break
            finally:
                client.close()
            arrived = consume(queue) if consumers == "quick" else []
            case.drain(old, name, queue)

            assert count(arrived + consume(queue)) == count(expected), f"killed at call {kills}"
            assert list(old.scan_iter(f"*{name}*")) == []
            queue.delete()

    assert kills > len(expected)  # at least one kill for each message: the fuse was in the way of all of them


def run_and_die(case: str, url: str, name: str) -> None:
    """Act as the process that is killed: between the send of the second message and its removal from the old system."""
    queue = duly.Duly(url).queue(name)
    client = fused(url, -1, is_sent=False, end=kill_this_process)
    send = queue.send

    def send_and_light(*args: Any, **options: Any) -> duly.MessageId:
        sent = send(*args, **options)
        if queue.stats().live == 2:
            client.fuse.calls = 1
        return sent

    queue.send = send_and_light  # type: ignore[method-assign]
    CASES[case].drain(client, name, queue)


@pytest.mark.parametrize("case", CASES)
def test_a_process_killed_between_send_and_removal_is_made_good_by_the_next(
    case: str, url: str, queue_name: str
) -> None:
    name = queue_name[-40:]
    with redis.Redis.from_url(old_url(url)) as old, duly.Duly(url) as app:
        queue = app.queue(name)
        expected = CASES[case].fill(old, name)
        code = "import sys; from tests.docs import test_drains; test_drains.run_and_die(*sys.argv[1:])"
        done = warm.run([sys.executable, "-c", code, case, url, name], cwd=ROOT, timeout=60)
        assert done.returncode == -signal.SIGKILL
        assert queue.stats().live == 2

        CASES[case].drain(old, name, queue)

        assert count(consume(queue)) == count(expected)
        assert queue.stats().duplicates == 1


def test_an_id_of_ones_own_is_not_enough_when_consumers_are_quick(url: str, queue_name: str) -> None:
    """Why the drains use dedup: a finished id may be used again."""
    with duly.Duly(url) as app:
        queue = app.queue(queue_name)
        queue.send("a", id="old-1")
        assert consume(queue) == ["a"]
        queue.send("a", id="old-1")

        assert consume(queue) == ["a"]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_drain_that_finds_nothing_reports_it(
    case: Case, url: str, queue_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with redis.Redis.from_url(old_url(url)) as old, duly.Duly(url) as app:
        case.drain(old, queue_name, app.queue(queue_name))
        nothing = capsys.readouterr().err
        case.fill(old, queue_name)
        case.drain(old, queue_name, app.queue(queue_name))

    assert nothing.startswith("nothing was found in ")
    assert queue_name in nothing
    assert capsys.readouterr().err == ""


def test_arq_jobs_keep_their_times_and_those_without_a_new_name_stay(url: str, queue_name: str) -> None:
    key, later = f"{queue_name}:queue", int(time.time() + 3600) * 1000
    with redis.Redis.from_url(old_url(url)) as old, duly.Duly(url) as app:
        queue = app.queue(queue_name)
        old.zadd(key, {"1": later, "2": later})
        lines = [arq_line("1", "a", due_ms=later), arq_line("2", "b", "tell"), arq_line("3", "c"), '{"id": "4"}', "{"]

        counted = arq.drain(lines, old, queue, {"close": "close"}, arq_queue=key)
        unread = [outcome for outcome in counted if outcome.startswith("cannot be read: ")]

        assert (counted["moved"], counted["left alone"], counted["gone"], len(unread)) == (1, 1, 1, 2)
        assert [(each.body["args"], each.due_at) for each in queue.list("delayed")] == [
            (["a"], datetime.fromtimestamp(later / 1000, UTC))
        ]
        assert old.zrange(key, 0, -1) == [b"2"]
        old.delete(key)
