"""A full server must still drain: at maxmemory, with noeviction, consumers go on and sends are refused."""

from dataclasses import replace
from typing import Any

import pytest

from duly._core import ops
from duly._core.keys import RegistryKeys, ScheduleKeys
from duly.options import Keep
from tests.lua.harness import Queue, Refused, Wire, fill, free
from tests.lua.test_repeats import WRITING, Prepare

REFUSED = ("send", "send_checked", "fire")

every_draining_call = pytest.mark.parametrize(
    "prepare",
    [
        prepare
        for name, prepares in WRITING.items()
        if name not in (*REFUSED, "correct", "commit")
        for prepare in prepares
    ],
    ids=lambda f: f.__name__[1:],
)


@every_draining_call
def test_a_script_that_settles_or_manages_runs_on_a_full_server(
    fillable: Wire, queue_name: str, prepare: Prepare
) -> None:
    queue = Queue(fillable, queue_name)
    call = prepare(queue)
    fill(fillable)
    before = queue.dump()
    queue.call(call, sequence=100)
    after = queue.dump()
    assert after != before
    queue.call(call, sequence=100)  # I6, full or not
    assert queue.dump() == after


@pytest.mark.parametrize("prepare", [p for name in REFUSED for p in WRITING[name]], ids=lambda f: f.__name__[1:])
@pytest.mark.parametrize("options", [{}, {"max_length": 100}, {"max_bytes": 1}], ids=str)
def test_a_send_is_refused_and_writes_nothing(
    fillable: Wire, queue_name: str, prepare: Prepare, options: dict[str, Any]
) -> None:
    queue = Queue(fillable, queue_name)
    queue.send("expired", ttl=0.000001)
    queue.options = replace(queue.options, **options)
    call = prepare(queue)
    fill(fillable)
    before = queue.dump()
    with pytest.raises(Refused, match="OOM"):
        queue.call(call, sequence=100)
    assert queue.dump() == before
    free(fillable)
    queue.call(call, sequence=100)  # the same call again is a new one: the first stored nothing
    assert queue.dump() != before


@pytest.mark.parametrize("prepare", [p for name in REFUSED for p in WRITING[name]], ids=lambda f: f.__name__[1:])
def test_a_send_that_was_answered_before_is_answered_again(fillable: Wire, queue_name: str, prepare: Prepare) -> None:
    queue = Queue(fillable, queue_name)
    call = prepare(queue)
    answer = queue.call(call, sequence=100)
    fill(fillable)
    assert queue.call(call, sequence=100) == answer


def test_leases_that_ran_out_are_taken_back(fillable: Wire, queue_name: str) -> None:
    queue = Queue(fillable, queue_name, crash_limit=2)
    queue.hold("a", lease=0.000001)
    fill(fillable)
    assert queue.claim(lease=0.000001).reclaimed[0].is_dead is False
    assert queue.claim().reclaimed[0].is_dead is True
    assert queue.dump().places("a") == ["dead"]


def test_a_full_server_is_emptied_by_its_consumers(fillable: Wire, queue_name: str) -> None:
    queue = Queue(fillable, queue_name, done=Keep(count=0))
    for number in range(30):
        queue.send(f"a{number}", body=b"." * 1_000_000)
    fillable.run("CONFIG", "SET", "maxmemory", "20mb")
    with pytest.raises(Refused, match="OOM"):
        queue.send("one more")
    while (claimed := queue.claim()).ids:
        queue.call(ops.ack(queue.keys, queue.options, [ops.Settle(i.decode(), claimed.fence, 0) for i in claimed.ids]))
    queue.send("one more")
    assert set(queue.dump().msgs) == {"one more"}


def test_a_queue_is_tidied(fillable: Wire, queue_name: str) -> None:
    queue = Queue(fillable, queue_name, dead=Keep(count=0), done=Keep(count=0))
    keeping = Queue(fillable, queue_name)
    keeping.bury("dead")
    keeping.send("expired", ttl=0.000001)
    fill(fillable)
    assert queue.tidy() is False
    assert queue.dump().msgs == {}


def test_workers_keep_sending_heartbeats(fillable: Wire, queue_name: str) -> None:
    keys = RegistryKeys(queue_name)
    fill(fillable)
    for call in (ops.beat(keys, "a", b"info", 60), ops.beat(keys, "b", b"info", 0), ops.depart(keys, "b")):
        assert fillable.carry(call, b"tests", 1) == 1
    assert len(fillable.carry(ops.workers(keys), b"tests", 1)) == 1  # `a` was silent for more than 0 seconds


def test_a_schedule_is_registered(fillable: Wire, queue_name: str) -> None:
    """Programs declare their schedules when they start, and the worker that empties the server is one of them."""
    keys = ScheduleKeys(queue_name)
    fill(fillable)
    assert fillable.carry(ops.register(keys, "report", "one"), b"tests", 1) == b""
    replaced = fillable.carry(ops.register(keys, "report", "another"), b"tests", 2)
    assert replaced.endswith(b"one")


def test_a_consumer_that_leaves_passes_its_watch_on(fillable: Wire, queue_name: str) -> None:
    queue = Queue(fillable, queue_name)
    queue.send("a", delay=1000)
    assert queue.claim(then="watch").ids == []  # no token: this one watches
    fill(fillable)
    fillable.carry(ops.wake(queue.keys), b"tests", 1)
    assert fillable.run("LLEN", queue.keys.key("wake")) == 1
