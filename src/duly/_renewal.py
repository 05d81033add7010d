"""Renews leases while consumers work, in one thread per app that wakes only when a renewal is due.

The thread, and for asyncio apps its own link, let code that blocks the event loop keep its leases.
"""

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from duly._core import ops, patience
from duly._core.call import Call
from duly._core.keys import QueueKeys
from duly.errors import DulyError

_LOG: Final = logging.getLogger("duly")
_BATCH: Final = 1000


class Renewed(Protocol):
    """A delivery whose lease is renewed."""

    lost: bool

    @property
    def id(self) -> str: ...
    @property
    def fence(self) -> int: ...
    @property
    def priority(self) -> int: ...
    @property
    def is_settled(self) -> bool: ...


class _Entry:
    __slots__ = ("delivery", "keys", "lease", "renew_at", "stop_at")

    def __init__(self, delivery: Renewed, keys: QueueKeys, lease: float, stop_at: float, now: float) -> None:
        # Weak: the lease of a delivery that was dropped without a settle is not renewed forever.
        self.delivery = weakref.ref(delivery)
        self.keys = keys
        self.lease = lease
        self.stop_at = stop_at
        self.renew_at = patience.renew_at(now, lease)


class Renewer:
    """Renews leases at a third of their length, until the message is settled, lost or over `max_runtime`."""

    def __init__(self, run: Callable[[Call[list[int]]], list[int]]) -> None:
        self._run = run
        self._entries: list[_Entry] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_stopping = False

    def add(self, deliveries: Iterable[Renewed], keys: QueueKeys, lease: float, max_runtime: float | None) -> None:
        """Renew the leases of these deliveries from now on. Do nothing after `stop`."""
        now = time.monotonic()
        stop_at = float("inf") if max_runtime is None else now + max_runtime
        with self._changed:
            if self._is_stopping:
                return  # the app is closed: a new thread would never end
            self._entries += [_Entry(delivery, keys, lease, stop_at, now) for delivery in deliveries]
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="duly-renewer", daemon=True)
                self._thread.start()
            self._changed.notify()

    def stop(self) -> None:
        """Renew no more leases, and end the thread."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._entries = [entry for entry in self._entries if self._is_wanted(entry)]
                if self._is_stopping:
                    return
                now = time.monotonic()
                due = [entry for entry in self._entries if entry.renew_at <= now]
                if not due:
                    next_at = min((entry.renew_at for entry in self._entries), default=None)
                    self._changed.wait(None if next_at is None else next_at - now)
                    continue
            self._renew(due)

    def _is_wanted(self, entry: _Entry) -> bool:
        delivery = entry.delivery()
        return (
            delivery is not None and not delivery.is_settled and not delivery.lost and time.monotonic() < entry.stop_at
        )

    def _renew(self, due: list[_Entry]) -> None:
        by_queue: dict[int, list[tuple[_Entry, Any]]] = {}
        for entry in due:
            delivery = entry.delivery()
            if delivery is not None and not delivery.is_settled:
                by_queue.setdefault(id(entry.keys), []).append((entry, delivery))
            entry.renew_at = patience.renew_at(time.monotonic(), entry.lease)
        for rows in by_queue.values():
            for first in range(0, len(rows), _BATCH):
                self._extend(rows[first : first + _BATCH])

    def _extend(self, rows: list[tuple[_Entry, Any]]) -> None:
        keys = rows[0][0].keys
        try:
            lost = self._run(ops.extend(keys, [(delivery, entry.lease) for entry, delivery in rows], renews=True))
        except DulyError as error:
            _LOG.warning("leases of %s could not be renewed, trying again: %s", keys.title, error)
            return
        for position in lost:
            delivery = rows[position][1]
            if not delivery.is_settled:
                delivery.lost = True
                _LOG.warning("the lease of message %s of %s was lost", delivery.id, keys.title)
