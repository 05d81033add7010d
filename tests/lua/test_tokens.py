"""take_tokens and occupied: calls of a worker for many queues at once."""

from dataclasses import replace

import pytest

from duly._core import ops
from duly._core.call import Call
from duly._core.schedules import Plan, written_plan
from duly.options import Keep
from tests.lua.harness import Queue, Wire


@pytest.fixture
def queues(wire: Wire, queue_name: str) -> list[Queue]:
    return [Queue(wire, f"{queue_name}{number}") for number in range(5)]


def take(queues: list[Queue], limit: int) -> Call[list[int]]:
    return ops.take_tokens(queues[0].keys, [queue.keys.key("wake") for queue in queues], limit)


def tokens(queues: list[Queue]) -> list[int]:
    return [queue.dump().wake for queue in queues]


def test_all_tokens_that_are_there_are_taken_at_once(queues: list[Queue]) -> None:
    for number in (1, 3, 4):
        queues[number].send("a")
    assert queues[0].call(take(queues, 16)) == [2, 4, 5]
    assert tokens(queues) == [0] * 5


def test_no_more_tokens_are_taken_than_asked_for(queues: list[Queue]) -> None:
    for queue in queues:
        queue.send("a")
    assert queues[0].call(take(queues, 2)) == [1, 2]
    assert tokens(queues) == [0, 0, 1, 1, 1]


def test_tokens_are_taken_in_the_order_named(queues: list[Queue]) -> None:
    for queue in queues:
        queue.send("a")
    turned = [*queues[3:], *queues[:3]]
    assert queues[0].call(take(turned, 3)) == [1, 2, 3]
    assert tokens(queues) == [0, 1, 1, 0, 0]


def test_a_repeat_names_the_tokens_that_the_first_call_took(queues: list[Queue]) -> None:
    queues[1].send("a")
    assert queues[0].call(take(queues, 16), sequence=7) == [2]
    queues[2].send("b")
    assert queues[0].call(take(queues, 16), sequence=7) == [2]
    assert tokens(queues) == [0, 0, 1, 0, 0], "a repeat took a token that its caller will never hear of"


def test_a_late_copy_of_a_call_that_took_nothing_takes_nothing(queues: list[Queue]) -> None:
    assert queues[0].call(take(queues, 16), sequence=7) == []
    queues[1].send("a")
    assert queues[0].call(take(queues, 16), sequence=7) == []
    assert tokens(queues) == [0, 1, 0, 0, 0]


def test_no_message_is_touched(queues: list[Queue]) -> None:
    queues[1].send("a", delay=5)
    before = queues[1].dump()
    queues[0].call(take(queues, 16))
    after = queues[1].dump()
    assert (before.wake, after.wake) == (1, 0)
    assert after == replace(before, wake=0)


def test_queues_are_occupied_that_have_a_message_or_a_schedule(queues: list[Queue]) -> None:
    assert queues[0].call(ops.occupied([queue.keys for queue in queues])) == []
    queues[1].send("a", delay=3600)
    queues[2].hold("b")
    plan = written_plan(Plan(None, 3600_000_000, "UTC", "one", b""))
    queues[3].call(ops.schedule(queues[3].keys, "report", plan))
    assert queues[0].call(ops.occupied([queue.keys for queue in queues])) == [2, 3, 4]


@pytest.mark.parametrize("priority", range(10))
def test_a_message_of_any_priority_occupies_its_queue(queues: list[Queue], priority: int) -> None:
    queues[3].send("a", priority=priority)
    assert queues[0].call(ops.occupied([queue.keys for queue in queues])) == [4]


def test_dead_and_finished_messages_do_not_occupy_a_queue(wire: Wire, queue_name: str) -> None:
    queue = Queue(wire, queue_name, done=Keep(count=5))
    queue.call(ops.ack(queue.keys, queue.options, queue.hold("a")))
    queue.bury("b")
    state = queue.dump()
    assert (state.places("a"), state.places("b")) == (["done"], ["dead"])
    assert queue.call(ops.occupied([queue.keys])) == []
