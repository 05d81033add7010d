"""The machine's own record of messages: their keys, their options, and those that have begun. Nothing is read back."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

from duly._core import codec, replies
from duly._core.outgoing import Outgoing
from tests.lua.harness import SECOND

TOLERANCE_US = SECOND // 10
"""As far as this, deliveries that were kept back by their rate catch up."""


class _Sent(NamedTuple):
    key: str | None
    priority: int
    due: int
    """No delivery before this, by the queue's clock."""


class Journal:
    """The other side of the account, kept from calls and their answers."""

    def __init__(self) -> None:
        self._sent: dict[str, _Sent] = {}
        self.begun: set[str] = set()
        """Delivered since their last send, and not over: their lanes are theirs."""
        self.blocking: set[str] = set()
        """Dead letters that a lane waits for."""
        self.promised: set[str] = set()
        """Dead letters that their lanes waited for, redriven: they are next, regardless of their due times."""
        self._deliveries: list[tuple[int, int, float, int]] = []

    def copy(self) -> Self:
        """Copy the record of this moment."""
        other = type(self)()
        other._sent = dict(self._sent)
        other.begun, other.blocking, other.promised = set(self.begun), set(self.blocking), set(self.promised)
        other._deliveries = list(self._deliveries)
        return other

    def sent(self, messages: Sequence[Outgoing], answer: Any, now: int, ahead: int) -> None:
        """Note what a send has stored, or put in the place of another."""
        rows = [] if isinstance(answer, int) else answer[1:]
        outcomes = {at: (what, id_.decode()) for at, what, id_ in zip(rows[0::3], rows[1::3], rows[2::3], strict=True)}
        for position, message in enumerate(messages, 1):
            outcome, id_ = outcomes.get(position, (None, message.id))
            if outcome in (None, replies.REPLACED):
                due = _due(message.when, now, ahead)
                self._sent[id_] = _Sent(_key_of(message), message.priority, due)
                self.begun.discard(id_)

    def key_of(self, id_: str) -> str | None:
        """Return the key that a message was sent with."""
        return self._sent[id_].key

    def priority_of(self, id_: str) -> int:
        """Return the priority that a message was sent with."""
        return self._sent[id_].priority

    def not_before(self, id_: str) -> int:
        """Return the time before which a message must not be delivered."""
        return self._sent[id_].due

    def due(self, id_: str, due: int) -> None:
        """Note another due time."""
        self._sent[id_] = self._sent[id_]._replace(due=due)

    def no_later(self, id_: str, now: int) -> None:
        """Note that a message is due now, if it was not before."""
        self.due(id_, min(self._sent[id_].due, now))

    def block(self, ids: Iterable[str]) -> None:
        """Note dead letters that their lanes wait for."""
        self.blocking |= set(ids)

    def ended(self, live: set[str], dead: set[str]) -> None:
        """Note the remaining messages."""
        self.begun &= live
        self.promised &= live - self.begun
        self.blocking &= dead

    def delivered(self, now: int, count: int, interval: float, *, was_kept: bool) -> bool:
        """Note a claim with a rate, and return whether no interval up to now had more than the rate allows.

        `was_kept`: the rate kept deliveries back before this claim; otherwise it has nothing to catch up with.
        """
        # A rate that is raised holds at once, even for earlier deliveries.
        self._deliveries = [(at, many, min(each, interval), owed) for at, many, each, owed in self._deliveries]
        if not count:
            return True
        self._deliveries.append((now, count, interval, TOLERANCE_US if was_kept else 0))
        worth = 0.0
        for number, (at, many, each, owed) in enumerate(reversed(self._deliveries), 1):
            worth += many * each
            if worth > (now - at) + owed + interval + number:  # times are whole
                return False
        return True


def _key_of(message: Outgoing) -> str | None:
    return codec.read_record(codec.stamped(0, 0, message.part)).key


def _due(when: str, now: int, ahead: int) -> int:
    if when[0] == "+":
        return now + int(when[1:])
    return int(when[1:]) + ahead if when[0] == "=" else now
