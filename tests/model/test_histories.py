"""Histories that chance would hardly make, with the judgement of the machine after every step."""

from collections.abc import Callable, Iterator

import pytest

from duly import _lua
from duly._core import ops
from duly.options import Keep
from tests.binaries import Kind
from tests.conftest import need
from tests.lua.harness import SECOND
from tests.model.checked_queue import STREAMS
from tests.model.machine import Draft, QueueMachine, machine_in
from tests.model.world import Broken, started_world

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


def lose_a_body(machine: QueueMachine, verb: str) -> None:
    """A lane goes on when the body of the message that it belongs to was lost."""
    first, second = send(machine, PLAIN._replace(key="k"), PLAIN._replace(key="k"))
    assert claim(machine, 2) == [first]
    machine.lost_bodies.add(first)
    machine.queue.lose_body(first)
    machine.engine.lose_body(machine.keys, first)

    if verb == "cancel":
        machine._cancel(STREAM, first, running=True)
    elif verb == "purge":
        machine.steer(STREAM, "purge", "leased", 10)
    elif verb == "retry":
        machine._settle(STREAM, "retry", [ops.Settle(*machine.receipts[0])], 0, Keep(), is_kept=True)
    else:
        machine._move_clocks(31 * SECOND)

    assert claim(machine) == [second]


def step_back(machine: QueueMachine, verb: str) -> None:
    """A message that gets a lane is not hidden by a clock that steps back."""
    ttl = 100 if verb == "expire" else None
    first, second, _ = send(machine, PLAIN._replace(key="k", ttl=ttl), *[PLAIN._replace(key="k")] * 2)
    assert claim(machine, 2) == [first]
    if verb == "expire":
        machine._settle(STREAM, "release", [ops.Settle(*machine.receipts[0])], 0, Keep(), is_kept=True)
    machine._move_clocks(200 * SECOND)
    if verb == "cancel":
        machine._cancel(STREAM, first, running=True)
    elif verb == "purge":
        machine.steer(STREAM, "purge", "leased", 10)
    else:
        machine.tidy(STREAM, [], 0, Keep(), None)
    machine._move_clocks(-150 * SECOND)

    assert claim(machine) == [second]


def replace(machine: QueueMachine, verb: str) -> None:
    """A message that had a lane, and is replaced or dropped, leaves it to the next, and a consumer is woken."""
    lane = PLAIN._replace(key="k")
    first, second, _ = send(machine, lane._replace(dedup="x", replace=True), lane, lane)
    assert claim(machine, 3) == [first]
    machine._settle(STREAM, "retry", [ops.Settle(*machine.receipts[0])], 25, Keep(), is_kept=True)
    machine.claim(STREAM, 1, 30, "watch", "with", Keep())
    assert machine.state.wake == 0

    other = PLAIN._replace(key="k2", when=20, dedup="x", replace=True)
    if verb == "replace":
        send(machine, other)
    else:
        machine._send(STREAM, [other._replace(dedup=None)], {"max_length": 3}, "drop")

    assert machine.state.wake == 1
    assert claim(machine) == [second]


def redrive_at_end(machine: QueueMachine, verb: str) -> None:
    """A dead letter that its lane waits for and that is redriven to the end leaves the lane to the next."""
    first, second = send(machine, *[PLAIN._replace(key="k")] * 2)
    assert claim(machine, 2) == [first]
    machine._settle(STREAM, "reject", [ops.Settle(*machine.receipts[0])], 0, Keep(), is_kept=False, on_dead="block")
    assert claim(machine) == []
    machine.redrive(STREAM, 1, at_end=True, named=[])

    assert claim(machine, 2) == [second]


HISTORIES: dict[str, tuple[Callable[[QueueMachine, str], None], tuple[str, ...]]] = {
    "lose_a_body": (lose_a_body, ("cancel", "purge", "retry", "crash")),
    "step_back": (step_back, ("cancel", "purge", "expire")),
    "replace": (replace, ("replace", "drop")),
    "redrive_at_end": (redrive_at_end, ("redrive",)),
}


@pytest.mark.parametrize(("name", "verb"), [(name, verb) for name, (_, verbs) in HISTORIES.items() for verb in verbs])
def test_a_lane_is_passed_on(machine: QueueMachine, name: str, verb: str) -> None:
    HISTORIES[name][0](machine, verb)


MUTANTS = [
    ("lose_a_body", "cancel", "cancel", "lease and lease.key or not flaw_of", "not flaw_of"),
    ("lose_a_body", "purge", "purge", "lease and lease.key or not flaw_of", "not flaw_of"),
    ("step_back", "cancel", "cancel", "store_clock(keys.meta, now)", ""),
    ("step_back", "purge", "purge", "store_clock(keys.meta, now)", ""),
    ("step_back", "expire", "tidy", "store_clock(keys.meta, now)", ""),
    ("replace", "replace", "send_checked", "if leave_lane(plan.keys, id, record, plan.now) then", "if false then"),
    ("replace", "drop", "send_checked", "if leave_lane(plan.keys, id, record, plan.now) then", "if false then"),
    (
        "replace",
        "replace",
        "send_checked",
        "if leave_lane(plan.keys, id, record, plan.now) then\n    leave_wake_token(plan.keys.wake)",
        "if leave_lane(plan.keys, id, record, plan.now) then",
    ),
    ("redrive_at_end", "redrive", "redrive", "if owner == id and at_end then", "if false then"),
]
"""History, how it goes, and a mistake in a script that it finds."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "verb", "script", "original", "mistake"), MUTANTS)
def test_a_history_finds(name: str, verb: str, script: str, original: str, mistake: str) -> None:
    need("valkey")
    text = _lua.script(script).text
    assert text.count(original) == 1, "the mistake is not made where it should be"
    with started_world(texts={script: text.replace(original, mistake)}) as world, pytest.raises(Broken):
        HISTORIES[name][0](machine_in(world)(), verb)


def test_a_claim_skips_a_long_lane_and_parks_a_bounded_part_of_it(machine: QueueMachine) -> None:
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


def test_a_long_lane_takes_turns_with_later_messages(machine: QueueMachine) -> None:
    first, second, *_ = send(machine, *[PLAIN._replace(key="k")] * 4)
    (plain,) = send(machine, PLAIN)
    machine._move_clocks(SECOND)
    assert claim(machine, 6) == [first, plain]
    (later,) = send(machine, PLAIN)
    machine._move_clocks(SECOND)
    ack(machine, first)

    assert claim(machine) == [later]
    assert claim(machine) == [second]


def test_a_limit_may_end_within_the_ticks_of_a_send(machine: QueueMachine) -> None:
    """The send finds the limit, and its last message is stored after the end. The consumer that met it has a timer."""
    limits = {"rate": "20/s", "max_in_flight": 2}
    send(machine, PLAIN, PLAIN, PLAIN)
    machine.meet_a_limit(STREAM, 4, limits, 1, "watch", 100_000, "ack")
    machine.meet_a_limit(STREAM, 3, limits, 2, "watch", 0, "reject")
    machine.send_plain(stream=STREAM, count=2, is_repeated=False)
