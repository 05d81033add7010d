"""Histories that chance would hardly make, with the judgement of the machine after every step."""

from collections.abc import Iterator

import pytest

from duly._core import ops
from duly.options import Keep
from tests.binaries import Kind
from tests.lua.harness import SECOND
from tests.model.machine import STREAMS, Draft, QueueMachine, machine_in, started_world

STREAM = STREAMS[0]
PLAIN = Draft(10, None, 0, None, None, None, replace=False)


@pytest.fixture
def machine(kind: Kind) -> Iterator[QueueMachine]:
    with started_world(kind) as world:
        machine = machine_in(world)()
        yield machine
        judge(machine)
        machine.teardown()


def judge(machine: QueueMachine) -> None:
    for name in ("i1_conservation", "i2_one_place", "i4_one_lease", "i7_lanes", "i8_limits", "i9_no_leftovers"):
        getattr(machine, f"check_{name}")()


def send(machine: QueueMachine, *batch: Draft) -> list[str]:
    machine._send(STREAM, list(batch), {}, "each")
    return machine.ids[-len(batch) :]


def claim(machine: QueueMachine, limit: int = 1, lease: float = 30, suspects: ops.Suspects = "with") -> list[str]:
    before = len(machine.receipts)
    machine.claim(STREAM, limit, lease, "leave", suspects, Keep())
    judge(machine)
    return [receipt.id for receipt in machine.receipts[before:]]


def ack(machine: QueueMachine, id_: str) -> None:
    (receipt,) = [each for each in machine.receipts if each.id == id_ and machine._is_live(each)]
    machine._settle(STREAM, "ack", [ops.Settle(*receipt)], 0, Keep(), is_kept=False)


@pytest.mark.parametrize("verb", ["cancel", "purge", "retry", "crash"])
def test_a_lane_goes_on_when_the_body_of_its_message_was_lost(machine: QueueMachine, verb: str) -> None:
    first, second = send(machine, PLAIN._replace(key="k"), PLAIN._replace(key="k"))
    assert claim(machine, 2) == [first]
    machine.lost_bodies.add(first)
    machine.queue.lose_body(first)
    machine.engine.lose_body(machine.keys, first)

    if verb == "cancel":
        machine._cancel(STREAM, first)
    elif verb == "purge":
        machine.steer(STREAM, "purge", "leased", 10)
    elif verb == "retry":
        machine._settle(STREAM, "retry", [ops.Settle(*machine.receipts[0])], 0, Keep(), is_kept=True)
    else:
        machine._move_clocks(31 * SECOND)

    assert claim(machine) == [second]


@pytest.mark.parametrize("verb", ["cancel", "purge", "expire"])
def test_what_a_lane_is_handed_to_is_not_hidden_by_a_clock_that_steps_back(machine: QueueMachine, verb: str) -> None:
    ttl = 100 if verb == "expire" else None
    first, second, _ = send(machine, PLAIN._replace(key="k", ttl=ttl), *[PLAIN._replace(key="k")] * 2)
    assert claim(machine, 2) == [first]
    if verb == "expire":
        machine._settle(STREAM, "release", [ops.Settle(*machine.receipts[0])], 0, Keep(), is_kept=True)
    machine._move_clocks(200 * SECOND)
    if verb == "cancel":
        machine._cancel(STREAM, first)
    elif verb == "purge":
        machine.steer(STREAM, "purge", "leased", 10)
    else:
        machine.tidy(STREAM, [], 0, Keep(), None)
    machine._move_clocks(-150 * SECOND)

    assert claim(machine) == [second]


def test_a_claim_looks_past_a_long_lane_and_parks_a_bounded_part_of_it(machine: QueueMachine) -> None:
    batch = [PLAIN._replace(key="k")] * 400
    first, *_ = send(machine, *batch)
    for _ in range(3):
        send(machine, *batch)
    other, plain = send(machine, PLAIN._replace(key="k2"), PLAIN)

    assert claim(machine, 3) == [first]
    assert len(machine.state.parked) == 1000
    assert claim(machine, 3) == [other, plain]
    assert len(machine.state.parked) == 1599
    machine.steer(STREAM, "purge", "parked", 1000)
    machine.steer(STREAM, "purge", "parked", 1000)


def test_suspects_keep_their_lanes_while_others_go_past_them(machine: QueueMachine) -> None:
    lanes = [PLAIN._replace(key=key) for key in ("k", "k2", "k")]
    first, second, third = send(machine, *lanes)
    assert claim(machine, 2, lease=0.5) == [first, second]
    machine._move_clocks(SECOND)
    (plain,) = send(machine, PLAIN)

    assert claim(machine, 3, suspects="none") == [plain]
    assert claim(machine, 3, suspects="alone") == [first]
    ack(machine, first)
    assert claim(machine, 3, suspects="none") == [third]


def test_the_next_of_a_lane_is_the_first_by_priority_and_due_time(machine: QueueMachine) -> None:
    late, early, high = (
        PLAIN._replace(key="k", when=2),
        PLAIN._replace(key="k", when=1),
        PLAIN._replace(key="k", priority=5),
    )
    (first,) = send(machine, PLAIN._replace(key="k"))
    assert claim(machine) == [first]
    last, before_it, first_of_all = send(machine, late, early, high)
    machine._move_clocks(3 * SECOND)
    assert claim(machine, 5) == []

    order = []
    for _ in range(3):
        ack(machine, first)
        (first,) = claim(machine, 5)
        order.append(first)
    assert order == [first_of_all, before_it, last]
    ack(machine, first)


def test_a_long_lane_takes_turns_with_what_came_after_it(machine: QueueMachine) -> None:
    first, second, *_ = send(machine, *[PLAIN._replace(key="k")] * 4)
    (plain,) = send(machine, PLAIN)
    machine._move_clocks(SECOND)
    assert claim(machine, 6) == [first, plain]
    (later,) = send(machine, PLAIN)
    machine._move_clocks(SECOND)
    ack(machine, first)

    assert claim(machine) == [later]
    assert claim(machine) == [second]
