"""Compares the calls that servers have confirmed with the records of the server that answers now."""

import logging
import time
from collections.abc import Callable
from typing import Final

from duly._async.asking import AsyncAsker
from duly._async.pool import AsyncPool
from duly._async.primitives import Lock
from duly._async.routing import AsyncRouter
from duly._core.keys import QueueKeys
from duly._core.resp import ErrorReply
from duly._core.rollback import MAX_COMPARED, Confirmed, Incarnation, Ledger, Lost, warning

_LOG: Final = logging.getLogger("duly")


class AsyncRollbacks:
    """Finds confirmed calls that were rolled back, and logs them. Tasks or threads may share it."""

    def __init__(self, router: AsyncRouter) -> None:
        self._router = router
        self._lock = Lock()
        self._ledger = Ledger()
        self.on_rolled_back: Callable[[], object] | None = None
        """Called after confirmed calls were lost: leases may be lost as well."""

    @property
    def total(self) -> int:
        """Confirmed calls that were lost, since the process started."""
        return self._ledger.rolled_back

    def of(self, keys: QueueKeys, pool: AsyncPool) -> Confirmed | None:
        """Return the confirmed calls of a queue. None: there are too many queues to watch."""
        confirmed = self._ledger.by_queue.get(keys.prefix)
        return self._ledger.opened(keys, pool.incarnation, time.monotonic()) if confirmed is None else confirmed

    async def compare(self, confirmed: Confirmed, pool: AsyncPool, wire: AsyncAsker) -> None:
        """Compare all queues that have moved to a server process together. Later calls would overwrite the records."""
        async with self._lock:
            if confirmed.by is pool.incarnation:  # another caller has compared it
                return
            before, node = confirmed.by, self._router.node_of(confirmed.keys)
            moved = [each for each in self._moved_from(before) if self._router.node_of(each.keys) == node]
            lost = [found for each in moved[:MAX_COMPARED] if (found := await _lost(each, wire))]
            for each in {*moved, confirmed}:
                each.begin_again(pool.incarnation)
            if lost:
                self._report(pool.incarnation, before, lost)

    def _moved_from(self, before: Incarnation) -> list[Confirmed]:
        return self._ledger.of_server(before, time.monotonic())

    def _report(self, now: Incarnation, before: Incarnation, lost: list[Lost]) -> None:
        self._ledger.rolled_back += sum(each.calls for each in lost)
        _LOG.warning("%s", warning(now, before, lost))
        if self.on_rolled_back is not None:
            self.on_rolled_back()


async def _lost(confirmed: Confirmed, wire: AsyncAsker) -> Lost | None:
    """Return the lost calls on a queue. A user without the permission to read their records finds none."""
    now = time.monotonic()
    streams = confirmed.streams(now)
    if not streams:
        return None
    try:
        records = await wire.ask([b"MGET", *map(confirmed.keys.call, streams)])
    except ErrorReply:  # or the slot of this queue has moved on
        return None
    return confirmed.lost(dict(zip(streams, records, strict=True)), now)
