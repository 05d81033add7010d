"""The consumer of a queue: it leases messages, renews their leases, and settles them."""

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

import dramatiq
from dramatiq.errors import ConnectionClosed, DecodeError

import duly
from duly import _port

_LOG: Final = logging.getLogger("duly.dramatiq")
_MOST: Final = 250
"""Messages per claim."""
_PAUSE: Final = 1.0
"""Seconds after which a message runs again whose retry was not stored."""


class LeasedMessage(dramatiq.MessageProxy):
    """A message that a worker has. Its lease is renewed until it is settled."""

    def __init__(self, message: dramatiq.Message[Any], delivery: "duly.Delivery[bytes]") -> None:
        super().__init__(message)
        self.delivery = delivery
        self.runs_again = False
        """Whether the server has not stored the message that was to follow this one."""

    @property
    def failure(self) -> str:
        """Why Dramatiq gives it up."""
        error = self._exception
        return "the actor has failed" if error is None else f"{type(error).__name__}: {error}"


class DulyConsumer(dramatiq.Consumer):
    """An iterator over the messages of a queue. One thread iterates, and any thread settles."""

    def __init__(self, queue: "duly.Queue[bytes]", prefetch: int, timeout: float) -> None:
        self._queue = queue
        self._prefetch = prefetch
        self._timeout = timeout
        self._fetched: deque[duly.Delivery[bytes]] = deque()
        self._held: set[duly.Delivery[bytes]] = set()
        """Messages that the worker has."""
        self._settled = threading.Condition()

    def __next__(self) -> LeasedMessage | None:
        """Return the next message, or None if none was due in the timeout."""
        if not self._fetched:
            self._fetch()
        while self._fetched:
            delivery = self._fetched.popleft()
            if delivery.lost:
                continue  # it was redelivered, cancelled or purged before
            message = self._opened(delivery)
            if message is not None:
                with self._settled:
                    self._held.add(delivery)
                return message
        return None

    def ack(self, message: Any) -> None:
        """Finish a message, or return it to the queue if the server has not stored the one that was to follow it."""
        if message.runs_again:
            _LOG.warning(
                "message %s runs again: the server did not store its retry, or the message after it", message.message_id
            )
            self._settle(message, lambda: message.delivery.defer(_PAUSE))
        else:
            self._settle(message, message.delivery.ack)

    def nack(self, message: Any) -> None:
        """Make a message dead."""
        self._settle(message, lambda: _port.reject_quietly(message.delivery, message.failure))

    def requeue(self, messages: Iterable[Any]) -> None:
        """Return messages that were not started to the queue."""
        for message in messages:
            self._settle(message, message.delivery.release)

    def close(self) -> None:
        """Return messages to the queue that the worker has not seen."""
        while self._fetched:
            with contextlib.suppress(duly.DulyError):
                self._fetched.popleft().release()

    def _fetch(self) -> None:
        with self._settled:
            room = self._prefetch - len(self._held)
            if room <= 0:
                self._settled.wait(self._timeout)
                room = self._prefetch - len(self._held)
        if room <= 0:
            return
        try:
            self._fetched.extend(self._queue.receive(limit=min(room, _MOST), wait=self._timeout, renew=True))
        except duly.Unavailable as error:
            raise ConnectionClosed(error) from error

    def _opened(self, delivery: "duly.Delivery[bytes]") -> LeasedMessage | None:
        """Decode a message. None: Dramatiq did not write it, and it is dead."""
        try:
            message: dramatiq.Message[Any] = dramatiq.Message.decode(delivery.raw)
        except (DecodeError, TypeError, KeyError) as error:
            _LOG.error("message %s of queue %r is dead: Dramatiq did not write it", delivery.id, delivery.queue)
            reason = f"decode: {error}"
            _concluded(lambda: _port.reject_quietly(delivery, reason))
            return None
        if isinstance(message.options.get("eta"), int | float):
            del message.options["eta"]  # the server has kept the time
        return LeasedMessage(message, delivery)

    def _settle(self, message: LeasedMessage, settle: Callable[[], None]) -> None:
        _concluded(settle)
        with self._settled:
            self._held.discard(message.delivery)
            self._settled.notify()


def _concluded(settle: Callable[[], None]) -> None:
    """Settle a message. A lost lease changes nothing, and is logged."""
    try:
        settle()
    except duly.LeaseLost as error:
        _LOG.warning("%s", error)
    except duly.Unavailable as error:
        raise ConnectionClosed(error) from error
