"""Watches queues and groups that have nothing to claim: queues by their wake tokens, groups by their streams.

The queues are divided into bundles. Each bundle has its own connection to block on. One call polls all its idle queues
every few seconds, in case a wake-up was lost. A bundle in which nothing has changed costs nothing.
"""

import itertools
import logging
import math
import random
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from duly._async.memory import AsyncMemoryLink
from duly._core import ops
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
        make: Any = MemoryWaiter if isinstance(link, AsyncMemoryLink) else GroupWaiter if has_groups else QueueWaiter
        self.waiter: QueueWaiter | GroupWaiter | MemoryWaiter = make(link, sources, lambda: on_change(self))
        self._period = min(source.period for source in sources)
        """Seconds between two polls of all idle queues, which also find a call whose reply is overdue."""
        self.check_at: float = math.inf
        self.plan_check(random.uniform(0.5, 1.0))  # noqa: S311

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
            Bundle(some, self._note_change, has_groups=True) for some in _divided(groups, _GROUPS)
        ]
        self._bundles = [Bundle(some, self._note_change, has_groups=False) for some in _divided(queues, _QUEUES)]
        self._bundles += self._bundles_of_groups
        self._bundle_of = {source: bundle for bundle in self._bundles for source in bundle.sources}
        self._changed: dict[Bundle, None] = {}
        """Bundles whose call has ended."""
        self._incomplete: dict[Bundle, None] = {}
        """Bundles that do not watch all the sources that they should."""
        self.check_at: float = min(bundle.check_at for bundle in self._bundles)
        """When to poll for missed wake-ups."""

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

    async def watch_all(self, limit: int) -> list[Source]:
        """Watch all sources that want it. Return up to `limit` sources whose wake tokens were there already."""
        found: list[Source] = []
        for bundle in list(self._incomplete):
            if len(found) >= limit:
                break
            if bundle.unclaimed and bundle.waited < len(bundle.sources):  # wait for one claim per source at most
                bundle.waited += 1
                continue
            bundle.waited = 0
            del self._incomplete[bundle]
            taken = await bundle.waiter.watch(limit - len(found))
            if taken:
                self._incomplete[bundle] = None
            found += taken
        return found

    async def watch_some(self, some: Collection[Source]) -> list[Source]:
        """Watch only `some` sources until the next `watch_all`. Return those whose wake tokens were there already."""
        found: list[Source] = []
        for bundle in {self._bundle_of[source]: None for source in some}:
            if bundle in self._incomplete:
                own = [source for source in some if self._bundle_of[source] is bundle]
                found += await bundle.waiter.watch(len(own), own)
        return found

    async def watch_groups(self) -> None:
        """Watch all groups that want it. This takes no wake tokens, so a full worker may do it."""
        for bundle in [bundle for bundle in self._incomplete if bundle.has_groups]:
            del self._incomplete[bundle]
            await bundle.waiter.watch(0)

    async def take(self, limit: int) -> list[Source]:
        """Take wake tokens of one bundle that is not watched. The next call takes those of another bundle."""
        bundle = next((bundle for bundle in self._incomplete if not bundle.has_groups), None)
        if bundle is None:
            return []
        del self._incomplete[bundle]
        self._incomplete[bundle] = None  # at the end
        return await bundle.waiter.take(limit)

    def rested_at(self) -> float:
        """Return when the next rest of a group ends."""
        return min((bundle.waiter.rested_at for bundle in self._bundles_of_groups), default=math.inf)

    def note_rested(self, now: float) -> None:
        """Watch groups again whose rest has ended."""
        for bundle in self._bundles_of_groups:
            if bundle.waiter.rested_at <= now:
                self._incomplete[bundle] = None

    async def missed(self, now: float) -> list[Source]:
        """Find idle queues that have messages although no wake-up came: it may have been lost.

        One call polls all idle queues of a bundle. Queues that are known to have messages have timers.
        """
        found: list[Source] = []
        for bundle in self._bundles:
            if bundle.check_at > now:
                continue
            bundle.plan_check()
            self._incomplete[bundle] = None
            if idle := [source for source in bundle.sources if source.is_idle]:
                found += await _occupied(idle)
        self.check_at = min(bundle.check_at for bundle in self._bundles)
        return found

    async def aclose(self) -> list[Source]:
        """Stop watching, and return the queues whose wake token may have been taken."""
        found: list[Source] = []
        for bundle in self._bundles:
            watched = await bundle.waiter.aclose()
            found += [source for source in watched if not source.is_idle]
            if idle := [source for source in watched if source.is_idle]:
                found += await _occupied(idle)
        return found


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


def _divided(sources: Sequence[Source], size: int) -> list[Sequence[Source]]:
    """Divide sources into bundles of nearly equal size. Neighbours stay together: they are claimed from in turn."""
    bundles = -(-len(sources) // size)
    ends = [len(sources) * number // bundles for number in range(bundles + 1)] if bundles else []
    return [sources[begin:end] for begin, end in itertools.pairwise(ends)]
