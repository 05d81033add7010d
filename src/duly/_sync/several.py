"""Receives from several queues with one wait, for programs that consume them in one thread.

On one server, one BLPOP names the wake keys of all queues. On a cluster, the queues of each slot take turns.
"""

import contextlib
import math
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from duly._core import ops, patience
from duly._sync.app import Duly
from duly._sync.delivery import Delivery
from duly._sync.pool import Pool
from duly._sync.queue import Queue
from duly._sync.wire import UNREACHABLE, Wire
from duly.errors import DulyError

_TURN: Final = 0.2
"""Seconds that a wait lasts for the queues of one slot, if there are several slots."""
_MOST_NAMED: Final = 64
"""Queues that one BLPOP names."""
_PASSED_ON_WITHIN: Final = 1.0
"""Seconds that a consumer which leaves tries to wake another one. All consumers poll after a while anyway."""


class _Source:
    """A queue, and when to claim from it."""

    def __init__(self, queue: Queue[Any]) -> None:
        self.queue = queue
        self.wake_key: bytes = queue._keys.key("wake")
        self.claim_at = 0.0
        self.is_exact = False
        """Whether a message is due at that time."""
        self.fruitless = 0
        """Claims in a row at a due time that still lies ahead: the server's clock stands still."""
        self.is_watched = False
        """Whether no wake token is left for other consumers, who then rely on this one."""

    def plan(self, next_in: float | None, lease: float, *, is_full: bool) -> None:
        """Plan the next claim after one that returned `next_in`. `is_full`: it took as many messages as it might."""
        now = time.monotonic()
        if is_full or next_in == 0:
            self.claim_at, self.is_exact, self.is_watched = now, False, False
            return
        pause, exact = patience.pause_before(next_in, math.inf, patience.looking_period(lease), self.fruitless)
        self.claim_at, self.is_exact, self.is_watched = now + pause, exact, True
        self.fruitless = self.fruitless + 1 if exact else 0


class Several:
    """One consumer of several queues. One thread receives, and any thread may interrupt it."""

    def __init__(self, app: Duly, lease: float) -> None:
        self._link = app._link
        self._lease = lease
        self._sources: dict[str, _Source] = {}
        """By the name of the queue. The queue that was served last is at the end."""
        self._turn = 0
        self._lock = threading.Lock()
        self._is_interrupted = False
        self._blocked: tuple[Pool, Wire] | None = None

    def receive(self, limits: Mapping[Queue[Any], int], wait: float) -> list[Delivery[Any]]:
        """Lease messages of one of these queues, up to its limit, and wait up to `wait` seconds for the first.

        Leases are renewed until the deliveries are settled. The queues take turns. Returns [] if no message was due in
        that time, or after an interruption.
        """
        give_up_at = time.monotonic() + wait
        self._take_on(limits)
        named = {queue.name: limit for queue, limit in limits.items()}
        try:
            while True:
                found = self._claim_due(named)
                if found or self._is_interrupted or time.monotonic() >= give_up_at or not named:
                    return found
                self._wait(give_up_at)
        finally:
            self._is_interrupted = False  # the caller reads afterwards what has changed

    def interrupt(self) -> None:
        """Let `receive` return at once. If none runs, the next one does."""
        self._is_interrupted = True
        with self._lock:
            blocked = self._blocked
        if blocked is not None:
            pool, wire = blocked
            with contextlib.suppress(DulyError, UNREACHABLE):
                pool.unblock(wire, lambda: self._blocked is not blocked)

    def leave(self) -> None:
        """Stop receiving, and let other consumers watch the queues."""
        self._take_on({})

    def _take_on(self, queues: Mapping[Queue[Any], int]) -> None:
        """Watch these queues, and no others."""
        for name in self._sources.keys() - {queue.name for queue in queues}:
            gone = self._sources.pop(name)
            if gone.is_watched:
                with contextlib.suppress(DulyError):
                    self._link.run(ops.wake(gone.queue._keys), patience=_PASSED_ON_WITHIN)
        for queue in queues:
            if queue.name not in self._sources:
                self._sources[queue.name] = _Source(queue)

    def _claim_due(self, limits: Mapping[str, int]) -> list[Delivery[Any]]:
        now = time.monotonic()
        for name, source in list(self._sources.items()):
            if source.claim_at <= now and (found := self._claim(source, limits[name])):
                self._sources[name] = self._sources.pop(name)
                return found
        return []

    def _claim(self, source: _Source, limit: int) -> list[Delivery[Any]]:
        queue = source.queue
        claimed = queue._claimed(queue._claim(limit=limit, lease=self._lease, then="stay"))
        try:
            source.plan(claimed.next_in, self._lease, is_full=len(claimed.ids) >= limit)
            return queue._deliveries(claimed, self._lease, renew=True)
        except BaseException:  # a signal handler has raised
            queue._give_back(claimed)
            raise

    def _wait(self, give_up_at: float) -> None:
        """Wait until a queue has a wake token, or until the next claim is planned."""
        sources = self._next_turn()
        first = min(self._sources.values(), key=lambda each: each.claim_at)
        end = min(first.claim_at, give_up_at)
        if len(sources) < len(self._sources):
            end = min(end, time.monotonic() + _TURN)
        seconds = end - time.monotonic()
        if seconds <= 0:
            return
        exact = first.is_exact and end == first.claim_at
        keys = [each.queue._keys for each in sources]
        woken = self._link.wait_for_any_token(keys, seconds, exact=exact, blocks=self._note_blocked)
        with self._lock:
            self._blocked = None
        is_cut = woken is None and not self._is_interrupted and time.monotonic() < end - 0.01
        for each in sources:  # after a lost connection, any of their tokens may be lost
            if is_cut or each.wake_key == woken:
                each.claim_at = 0.0

    def _next_turn(self) -> list[_Source]:
        """Return the queues that the next wait names, in the order in which a server prefers them."""
        groups: dict[int, list[_Source]] = {}
        for each in self._sources.values():
            groups.setdefault(each.queue._keys.slot if self._link.is_spread else 0, []).append(each)
        portions = [
            group[start : start + _MOST_NAMED]
            for group in groups.values()
            for start in range(0, len(group), _MOST_NAMED)
        ]
        self._turn += 1
        return portions[self._turn % len(portions)]

    def _note_blocked(self, pool: Pool, wire: Wire) -> bool:
        with self._lock:
            self._blocked = pool, wire
        return not self._is_interrupted
