"""The effects of a fail-over on a queue, and the calls that clients may still make: one history for each promise."""

from collections.abc import Iterator, Sequence

import pytest

from duly._core import ops
from duly.options import Keep
from tests.binaries import Kind
from tests.conftest import need
from tests.lua.harness import SECOND
from tests.model.checked_queue import STREAMS, Receipt
from tests.model.machine import Draft, QueueMachine, machine_in
from tests.model.mistaken_clients import StreamPerConnection
from tests.model.world import Broken, World, started_world

ONE, TWO = STREAMS
PLAIN = Draft(10, None, 0, None, None, None, replace=False)


@pytest.fixture
def world(kind: Kind) -> Iterator[World]:
    with started_world(kind) as world:
        yield world


@pytest.fixture
def machine(world: World) -> Iterator[QueueMachine]:
    machine = machine_in(world)()
    yield machine
    machine.teardown()


def send(machine: QueueMachine, stream: bytes = ONE) -> str:
    machine._send(stream, [PLAIN], {}, "each")
    return machine.ids[-1]


def claim(machine: QueueMachine, stream: bytes = ONE) -> list[Receipt]:
    held = len(machine.receipts)
    machine.claim(stream, 10, 30, "leave", "with", Keep())
    return machine.receipts[held:]


def settle(machine: QueueMachine, receipt: Receipt, verb: str = "ack", stream: bytes = ONE) -> None:
    machine._settle(stream, verb, [ops.Settle(*receipt)], 0, Keep(), is_kept=False)


def fail_over(machine: QueueMachine, lost: int, repeating: Sequence[bytes] = ()) -> None:
    machine.fail_over(lost, 0, repeating)
    machine.check_i1_conservation()
    machine.check_i2_one_place()


def test_a_lost_send_is_gone(machine: QueueMachine) -> None:
    kept = send(machine)
    send(machine)

    fail_over(machine, lost=1)

    assert [receipt.id for receipt in claim(machine)] == [kept]


def test_a_lost_send_that_is_repeated_is_stored_once(machine: QueueMachine) -> None:
    id_ = send(machine)

    fail_over(machine, lost=1, repeating=(ONE,))
    machine.lose_a_reply_and_repeat(ONE)

    assert [receipt.id for receipt in claim(machine)] == [id_]
    assert machine.stats.sent == 1


def test_a_repeat_gets_the_reply_that_survived(machine: QueueMachine) -> None:
    send(machine)
    (receipt,) = claim(machine)
    settle(machine, receipt)
    send(machine, TWO)
    before = machine.state

    fail_over(machine, lost=0, repeating=STREAMS)

    assert machine.state == before


def test_a_message_whose_ack_was_lost_is_delivered_again(machine: QueueMachine) -> None:
    send(machine)
    (receipt,) = claim(machine)
    settle(machine, receipt)

    fail_over(machine, lost=1)
    machine._move_clocks(31 * SECOND)

    (again,) = claim(machine)
    assert again.id == receipt.id
    assert machine.state.counts[receipt.id].crashes == 1


@pytest.mark.parametrize("verb", ["ack", "retry", "reject", "extend"])
def test_a_lease_that_survived_can_be_settled(machine: QueueMachine, verb: str) -> None:
    send(machine)
    (receipt,) = claim(machine)
    settle(machine, receipt)

    fail_over(machine, lost=1)
    settle(machine, receipt, verb)

    is_over = verb != "extend"
    assert (receipt.id in machine.state.leases) is not is_over


@pytest.mark.parametrize("verb", ["ack", "retry", "reject", "extend"])
def test_a_lease_that_was_lost_cannot_be_settled(machine: QueueMachine, verb: str) -> None:
    send(machine)
    (stale,) = claim(machine)

    fail_over(machine, lost=1)
    before = machine.state
    settle(machine, stale, verb)
    assert machine.state == before

    (receipt,) = claim(machine, TWO)
    assert receipt.fence > stale.fence
    settle(machine, stale, verb)
    assert machine._is_live(receipt)


def test_a_claim_that_is_repeated_after_a_fail_over_is_a_new_one(machine: QueueMachine) -> None:
    send(machine)
    (stale,) = claim(machine)

    fail_over(machine, lost=1, repeating=(ONE,))

    receipt = machine.receipts[-1]
    assert receipt.id == stale.id
    assert receipt.fence > stale.fence
    assert machine._is_live(receipt)


def test_a_call_before_one_that_survived_is_refused(machine: QueueMachine) -> None:
    send(machine)
    send(machine)
    send(machine)

    fail_over(machine, lost=1)

    machine._arrive_late(machine.callers[ONE].made[0], ONE)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_stream_for_each_connection_carries_a_call_out_twice(lost: int) -> None:
    need("valkey")
    with started_world() as world:
        machine = machine_in(world, StreamPerConnection)()
        send(machine, ONE)
        send(machine, TWO)
        with pytest.raises(Broken, match="carried out twice"):
            fail_over(machine, lost, (ONE,))


def test_fences_need_a_clock_that_is_not_behind(machine: QueueMachine) -> None:
    """The machine would notice a new primary whose clock shows the times of the old one again."""
    send(machine)
    claim(machine)
    fail_over(machine, lost=1)
    machine._set_clocks(machine.now - SECOND)

    with pytest.raises(Broken, match="a fence that does not grow"):
        claim(machine, TWO)
