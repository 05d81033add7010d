"""The script of effects that happen at most once, on servers and in memory alike."""

from typing import Any

import pytest

from duly._core import ops
from duly._core.keys import OnceKeys
from duly.memory.clock import Clock
from duly.memory.engine import Engine
from tests.clock import ServerClock
from tests.lua.harness import NOW, Refused, Wire

ASKING = ops.Asking("orders", "a", sent=NOW, fence=NOW + 1, deliveries=1, crashes=0, redrives=0)


class Effect:
    """One effect on a server, and the same in memory: every call must get the same reply."""

    def __init__(self, wire: Wire, name: str) -> None:
        self.wire = wire
        self.keys = OnceKeys("duly", name)
        self._engine = Engine(Clock())
        self.sequence = 0

    def ask(self, asking: ops.Asking = ASKING, ttl: float = 60, sequence: int | None = None, **changes: Any) -> Any:
        if sequence is None:
            self.sequence += 1
            sequence = self.sequence
        call = ops.once(self.keys, asking._replace(**changes), ttl)
        answer = self.wire.carry(call, b"tests", sequence)
        assert answer == self._engine.call(call, b"tests", sequence)
        return answer

    def left(self) -> int:
        left: int = self.wire.run("PTTL", self.keys.key("once"))
        return left


@pytest.fixture
def effect(wire: Wire, queue_name: str, clock: ServerClock) -> Effect:
    return Effect(wire, queue_name)


def test_only_the_first_delivery_that_asks_may(effect: Effect) -> None:
    assert effect.ask() == 1
    assert effect.ask() == 0
    assert effect.ask(id="b") == 0
    assert effect.ask(queue="others") == 0


def test_a_repeated_call_gets_the_same_reply(effect: Effect) -> None:
    assert [effect.ask(sequence=7), effect.ask(sequence=7), effect.ask(sequence=8)] == [1, 1, 0]
    with pytest.raises(Refused, match="OVERTAKEN"):
        effect.wire.carry(ops.once(effect.keys, ASKING, 60), b"tests", 6)


def test_a_message_that_was_given_back_may_again(effect: Effect) -> None:
    effect.ask()

    assert effect.ask(fence=NOW + 5, deliveries=2) == 1
    assert effect.ask(fence=NOW + 5, deliveries=2) == 0  # the new delivery is stored


def test_a_message_whose_consumer_died_may_not_and_never_will(effect: Effect) -> None:
    effect.ask()

    assert effect.ask(fence=NOW + 5, deliveries=2, crashes=1) == 0
    assert effect.ask(fence=NOW + 6, deliveries=3, crashes=1) == 0  # a retry of the refused delivery


def test_a_message_that_crashed_before_it_asked_may(effect: Effect) -> None:
    assert effect.ask(fence=NOW + 5, deliveries=2, crashes=1) == 1
    assert effect.ask(fence=NOW + 6, deliveries=3, crashes=1) == 1


def test_a_late_delivery_may_not_if_a_later_one_may(effect: Effect) -> None:
    effect.ask(fence=NOW + 5, deliveries=2)

    assert effect.ask() == 0


def test_a_redriven_message_may_not_and_never_will(effect: Effect) -> None:
    """Its counts are reset, so it is unknown whether it had died of crashes."""
    effect.ask(fence=NOW + 5, deliveries=2)

    assert effect.ask(fence=NOW + 6, deliveries=1) == 0
    assert effect.ask(fence=NOW + 7, deliveries=3) == 0


def test_a_recycled_message_is_another_one(effect: Effect) -> None:
    effect.ask()

    assert effect.ask(sent=NOW + 3, fence=NOW + 5, deliveries=2) == 0


def test_a_stored_delivery_expires_after_its_ttl(effect: Effect) -> None:
    effect.ask(ttl=60)
    assert effect.left() == pytest.approx(60_000, abs=5_000)
    effect.ask(ttl=1000, id="b")
    effect.ask(ttl=1000, fence=NOW + 5, deliveries=2, crashes=1)
    assert effect.left() == pytest.approx(60_000, abs=5_000)  # a refusal does not prolong it
