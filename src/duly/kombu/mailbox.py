"""The messages of one channel: fetched and not yet delivered, or delivered and not yet settled."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import duly
from duly import _port
from duly.kombu.envelope import Broadcast, Leased, Raw

_LOG: Final = logging.getLogger("duly.kombu")
_AHEAD: Final = 10
"""Messages that are fetched before the program asks for them, if the channel has no prefetch count."""

Item = Leased | Broadcast
Settle = Callable[[duly.Delivery[Any]], object]


@dataclass(eq=False)
class Consumed:
    """A queue that a channel consumes."""

    name: str
    """The name that kombu has for it."""
    queue: duly.Queue[bytes] | None
    """None: it gets the messages of a fanout exchange."""
    no_ack: bool
    callback: Callable[[Raw], object]
    tags: list[str] = field(default_factory=list)


class Mailbox:
    """Messages of one channel. Threads share it, by the lock of `changed`."""

    def __init__(
        self, changed: threading.Condition, settle_later: Callable[[Settle, duly.Delivery[Any]], bool]
    ) -> None:
        """Take `settle_later`, which repeats a settle that did not reach the server, or returns False."""
        self._changed = changed
        self._settle_later = settle_later
        self.prefetch = 0
        """The number of messages that may be delivered and not settled; 0: any number."""
        self.consumed: dict[str, Consumed] = {}
        self._fetched: deque[tuple[Consumed, Item]] = deque()
        self._held: dict[str, tuple[Consumed | None, Item]] = {}
        """By delivery tag."""

    def __len__(self) -> int:
        """Return the number of messages that are delivered and not settled."""
        return len(self._held)

    @property
    def room(self) -> int:
        """The number of messages that may be fetched."""
        if not self.prefetch:
            return max(_AHEAD - len(self._fetched), 0)
        return max(self.prefetch - len(self._held) - len(self._fetched), 0)

    @property
    def waiting(self) -> int:
        """The number of messages that wait to be delivered."""
        return len(self._fetched)

    @property
    def has_broadcasts(self) -> bool:
        """Whether a message of a fanout exchange waits to be delivered."""
        return any(isinstance(item, Broadcast) for _, item in self._fetched)

    def add(self, consumed: Consumed, items: list[Item]) -> None:
        """Add messages that were fetched."""
        self._fetched += [(consumed, item) for item in items]

    def deliver(self, count: int) -> int:
        """Call the consumers with the first `count` messages that wait, and return their number."""
        for done in range(count):
            with self._changed:
                if not self._fetched:  # the callback has cancelled a consumer
                    return done
                consumed, item = self._fetched.popleft()
                self._held[item.tag] = consumed, item
            raw = self.opened(item)
            if raw is None:
                continue
            if consumed.no_ack:
                self.ack(item.tag)
            consumed.callback(raw)
        return count

    def hold(self, item: Leased) -> None:
        """Keep a message that the program has asked for."""
        with self._changed:
            self._held[item.tag] = None, item

    def opened(self, item: Item) -> Raw | None:
        """Decode a message. One that kombu has not written is dead."""
        try:
            return item.opened()
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            _LOG.error("%s is not a message of kombu, and is dead: %s", item.tag, error)
            self.reject(item.tag, f"not a message of kombu: {error}")
            return None

    def ack(self, tag: str) -> None:
        """Finish a message."""
        self._settle(tag, duly.Delivery.ack)

    def reject(self, tag: str, reason: str) -> None:
        """Make a message dead."""
        self._settle(tag, lambda delivery: _port.reject_quietly(delivery, reason))

    def requeue(self, tag: str, limit: int) -> None:
        """Return a message to its queue. After `limit` deliveries, it is dead."""
        with self._changed:
            consumed, item = self._held.get(tag, (None, None))
            if isinstance(item, Broadcast):
                del self._held[tag]
                if consumed is not None and consumed.name in self.consumed:
                    self._fetched.append((consumed, item))
                self._changed.notify_all()
                return
        if item is not None and item.delivery.deliveries > limit:
            reason = f"requeued after {item.delivery.deliveries} deliveries, and the delivery_limit is {limit}"
            _LOG.warning("message %s of queue %r is dead: %s", item.delivery.id, item.delivery.queue, reason)
            self.reject(tag, reason)
        else:
            self._settle(tag, duly.Delivery.release)

    def cancel(self, consumed: Consumed) -> None:
        """Return the messages of a queue that were fetched and not delivered."""
        with self._changed:
            unwanted = [item for each, item in self._fetched if each is consumed]
            self._fetched = deque((each, item) for each, item in self._fetched if each is not consumed)
        self.release(unwanted)

    def release_held(self) -> None:
        """Return all messages that were delivered and not settled."""
        with self._changed:
            unsettled = [item for _, item in self._held.values()]
            self._held.clear()
        self.release(unsettled)

    def release(self, items: list[Item]) -> None:
        """Return messages to their queues. If the server does not answer, their leases expire."""
        leased = [item.delivery for item in items if item.delivery is not None]
        for count, delivery in enumerate(leased):
            try:
                delivery.release()
            except duly.LeaseLost as error:
                _LOG.warning("%s", error)
            except duly.Unavailable as error:
                _LOG.warning("%d messages are redelivered after their lease: %s", len(leased) - count, error)
                return

    def _settle(self, tag: str, settle: Settle) -> None:
        with self._changed:
            _, item = self._held.pop(tag, (None, None))
        if item is not None and item.delivery is not None:
            try:
                settle(item.delivery)
            except duly.LeaseLost as error:
                _LOG.warning("%s", error)
            except duly.Unavailable:
                if not self._settle_later(settle, item.delivery):
                    raise
        with self._changed:
            self._changed.notify_all()
