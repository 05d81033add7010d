"""Watches queues and groups that have nothing to claim: queues by their wake tokens, groups by their streams.

The queues are divided into bundles. Each bundle has its own connection to block on. One call polls all its idle queues
every few seconds, in case a wake-up was lost. A bundle in which nothing has changed costs nothing. On a cluster, the
queues of a bundle share a slot: no command may name keys of two slots.
"""

import itertools
import logging
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from duly._async.memory import AsyncMemoryLink
from duly._core import ops
from duly._core.topology import Node
from duly.errors import DulyError
from duly.worker.group_waiter import GroupWaiter
from duly.worker.logs import event
from duly.worker.memory_waiter import MemoryWaiter
from duly.worker.queue_waiter import QueueWaiter
from duly.worker.source import Source

_LOG: Final = logging.getLogger("duly.worker")

_QUEUES: Final = 64
"""Queues per bundle. A larger bundle costs more per wake-up, and smaller ones need more connections."""

_GROUPS: Final = 21
"""Groups per bundle. Each has three keys."""

_MOST_BLOCKS: Final = 256
"""Connections that block on one node. Servers accept 10,000 connections by default, of all processes."""


class Bundle:
    """Queues or groups that share one blocking call."""

    def __init__(self, sources: Sequence[Source], on_change: Callable[["Bundle"], None], *, has_groups: bool) -> None:
        self.sources = sources
        self.has_groups = has_groups
        self.unclaimed: set[Source] = set()
        """Sources that are about to be claimed from. The next call begins after that, or it would have to be ended."""
        self.waited = 0
        """Claims that the next call has waited for."""
        link = sources[0].link
        self.has_connection: bool = not isinstance(link, AsyncMemoryLink)
        """Whether it blocks on a connection to a node."""
        self.is_under_way = False
        """Whether a call of its waiter has not ended. The next one waits, even if its slot has moved since."""
        self.is_counted = False
        """Whether it is one of the blocks of the node `counted_at`."""
        self.counted_at: Node | None = None
        make: Any = MemoryWaiter if not self.has_connection else GroupWaiter if has_groups else QueueWaiter
        self.waiter: QueueWaiter | GroupWaiter | MemoryWaiter = make(link, sources, lambda: on_change(self))
        self._period = min(source.period for source in sources)
        """Seconds between two polls of all idle queues, which also find a call whose reply is overdue."""
        self.check_at: float = math.inf
        self.plan_check(random.uniform(0.5, 1.0))  # noqa: S311

    @property
    def node(self) -> Node | None:
        """The node that serves its queues."""
        return self.sources[0].node

    def plan_check(self, periods: float = 1.0) -> None:
        """Poll all idle queues after this number of periods."""
        self.check_at = time.monotonic() + self._period * periods


class Watcher:
    """Watches the sources of a worker. `on_change` is called when `woken` has something to return."""

    def __init__(self, sources: Sequence[Source], on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        queues = [source for source in sources if source.wake_state is None]
        groups = [source for source in sources if source.wake_state is not None]
        self._bundles_of_groups = [
            Bundle(some, self._note_change, has_groups=True) for some in _bundled(groups, _GROUPS)
        ]
        self._bundles = [Bundle(some, self._note_change, has_groups=False) for some in _bundled(queues, _QUEUES)]
        self._bundles += self._bundles_of_groups
        self._bundle_of = {source: bundle for bundle in self._bundles for source in bundle.sources}
        self._changed: dict[Bundle, None] = {}
        """Bundles whose call has ended."""
        self._incomplete: dict[Bundle, None] = {}
        """Bundles that do not watch all the sources that they should."""
        self.check_at: float = min(bundle.check_at for bundle in self._bundles)
        """When to poll for missed wake-ups."""
        self._blocks: Counter[Node | None] = Counter()
        """Bundles that block on each node."""
        self._has_logged_limit = False

    def _note_change(self, bundle: Bundle) -> None:
        self._changed[bundle] = None
        self._on_change()

    def woken(self) -> list[Source]:
        """Return the sources that have woken."""
        found: list[Source] = []
        while self._changed:
            bundle, _ = self._changed.popitem()
            found += bundle.waiter.woken()
            self._incomplete[bundle] = None
        return found

    def expect_claim(self, source: Source) -> None:
        """Note that a source is about to be claimed from."""
        self._bundle_of[source].unclaimed.add(source)

    def note_claim(self, source: Source) -> None:
        """Note that a source was claimed from, or cannot be claimed from now."""
        self._bundle_of[source].unclaimed.discard(source)
        self.note_room(source)

    def note_room(self, source: Source) -> None:
        """Note that a watched source has room. It may not be part of the pending call, for lack of room."""
        bundle = self._bundle_of[source]
        if not bundle.waiter.is_watching(source):
            self._incomplete[bundle] = None

    @property
    def is_complete(self) -> bool:
        """Whether all sources are watched that should be."""
        return not self._incomplete

    def incomplete(self) -> list[Bundle]:
        """Return the bundles that do not watch all the sources that they should, and could begin to."""
        return [bundle for bundle in self._incomplete if not bundle.is_under_way]

    def may_watch(self, bundle: Bundle) -> bool:
        """Return whether to call `watch` for an incomplete bundle now. It waits for one claim per source at most."""
        if bundle.unclaimed and bundle.waited < len(bundle.sources):
            bundle.waited += 1
            return False
        bundle.waited = 0
        del self._incomplete[bundle]
        bundle.is_under_way = self._has_block_for(bundle)
        return bundle.is_under_way

    async def watch(self, bundle: Bundle, limit: int) -> list[Source]:
        """Watch all sources of a bundle that want it. Return up to `limit` whose wake tokens were there already."""
        try:
            taken = await bundle.waiter.watch(limit)
        finally:
            bundle.is_under_way = False
        if taken:
            self._incomplete[bundle] = None
        return taken

    def parts_to_watch(self, some: Collection[Source]) -> dict[Bundle, tuple[Source, ...]]:
        """Return for which bundles to call `watch_some`, and with which of `some` sources."""
        parts: dict[Bundle, tuple[Source, ...]] = {}
        for bundle in {self._bundle_of[source]: None for source in some}:
            if bundle in self._incomplete and not bundle.is_under_way and self._has_block_for(bundle):
                bundle.is_under_way = True
                parts[bundle] = tuple(source for source in some if self._bundle_of[source] is bundle)
        return parts

    async def watch_some(self, bundle: Bundle, some: Collection[Source]) -> list[Source]:
        """Watch only `some` sources until the next `watch`. Return those whose wake tokens were there already."""
        try:
            return await bundle.waiter.watch(len(some), some)
        finally:
            bundle.is_under_way = False

    def groups_to_watch(self) -> list[Bundle]:
        """Return the bundles of groups to call `watch` for. It takes no wake tokens, so a full worker may do it."""
        bundles = [bundle for bundle in self._incomplete if bundle.has_groups and not bundle.is_under_way]
        for bundle in bundles:
            del self._incomplete[bundle]
            bundle.is_under_way = self._has_block_for(bundle)
        return [bundle for bundle in bundles if bundle.is_under_way]

    def bundle_to_take(self) -> Bundle | None:
        """Return a bundle of queues that is not watched, to call `take` for. The next call returns another one."""
        bundle = next((bundle for bundle in self.incomplete() if not bundle.has_groups), None)
        if bundle is not None:
            del self._incomplete[bundle]
            self._incomplete[bundle] = None  # at the end
            bundle.is_under_way = True
        return bundle

    async def take(self, bundle: Bundle, limit: int) -> list[Source]:
        """Take up to `limit` wake tokens of a bundle."""
        try:
            return await bundle.waiter.take(limit)
        finally:
            bundle.is_under_way = False

    def _has_block_for(self, bundle: Bundle) -> bool:
        """Return whether a bundle may block on its node. If not, its queues are polled, and one line is logged."""
        if not bundle.has_connection:
            return True
        node = bundle.node
        if bundle.is_counted and bundle.counted_at == node:
            return True
        if bundle.is_counted:  # its slot has moved
            self._blocks[bundle.counted_at] -= 1
        bundle.is_counted = self._blocks[node] < _MOST_BLOCKS
        if bundle.is_counted:
            bundle.counted_at = node
            self._blocks[node] += 1
        elif not self._has_logged_limit:
            self._has_logged_limit = True
            event(_LOG, logging.WARNING, "watch.limited", blocks=_MOST_BLOCKS, effect="the other queues are polled")
        return bundle.is_counted

    def rested_at(self) -> float:
        """Return when the next rest of a group ends."""
        return min((bundle.waiter.rested_at for bundle in self._bundles_of_groups), default=math.inf)

    def note_rested(self, now: float) -> None:
        """Watch groups again whose rest has ended."""
        for bundle in self._bundles_of_groups:
            if bundle.waiter.rested_at <= now:
                self._incomplete[bundle] = None

    def due(self, now: float) -> list[Bundle]:
        """Return the bundles whose idle queues are to be polled, and plan the next poll."""
        bundles = [bundle for bundle in self._bundles if bundle.check_at <= now]
        for bundle in bundles:
            bundle.plan_check()
            self._incomplete[bundle] = None
        self.check_at = min(bundle.check_at for bundle in self._bundles)
        return bundles

    async def missed(self, bundle: Bundle) -> list[Source]:
        """Find idle queues that have messages although no wake-up came: it may have been lost.

        One call polls all idle queues of a bundle. Queues that are known to have messages have timers.
        """
        return await self.occupied([source for source in bundle.sources if source.is_idle])

    async def occupied(self, some: Sequence[Source]) -> list[Source]:
        """Return the queues of a bundle that have messages. Return all of them if the call fails."""
        return await _occupied(some) if some else []

    @property
    def bundles(self) -> Sequence[Bundle]:
        """All bundles, to leave them at the end."""
        return self._bundles

    async def leave(self, bundle: Bundle) -> list[Source]:
        """Stop watching a bundle, and return the queues whose wake token may have been taken."""
        watched = await bundle.waiter.aclose()
        found = [source for source in watched if not source.is_idle]
        return found + await self.occupied([source for source in watched if source.is_idle])


async def _occupied(idle: Sequence[Source]) -> list[Source]:
    """Return the queues that have messages. Return all of them if the call fails."""
    call = ops.occupied([source.keys for source in idle])
    try:
        found = await idle[0].link.run_on(call)
    except DulyError as error:
        event(_LOG, logging.DEBUG, "watch.failed", queue=idle[0].runtime.name, error=str(error))
        return list(idle)
    now = time.monotonic()
    for source in idle:
        source.polled_at = now
    return [idle[position] for position in found]


def _bundled(sources: Sequence[Source], size: int) -> list[Sequence[Source]]:
    """Divide sources into bundles. On a cluster, the sources of a bundle share a slot."""
    if not sources or not sources[0].link.is_spread:
        return _divided(sources, size)
    of_slot: dict[int, list[Source]] = {}
    for source in sources:
        of_slot.setdefault(source.keys.slot, []).append(source)
    return [bundle for some in of_slot.values() for bundle in _divided(some, size)]


def _divided(sources: Sequence[Source], size: int) -> list[Sequence[Source]]:
    """Divide sources into bundles of nearly equal size. Neighbours stay together: they are claimed from in turn."""
    bundles = -(-len(sources) // size)
    ends = [len(sources) * number // bundles for number in range(bundles + 1)] if bundles else []
    return [sources[begin:end] for begin, end in itertools.pairwise(ends)]
