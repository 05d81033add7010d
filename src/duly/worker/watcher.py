"""What a worker watches while there is nothing to claim: queues by their tokens, groups by what they hear.

The queues are divided into bundles. Each bundle has a connection of its own to block on, and is looked at as a whole
every few seconds, in case a wake-up was lost. Only bundles in which something has changed cost anything.
"""

import itertools
import logging
import math
import random
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from duly._core import ops
from duly.errors import DulyError
from duly.worker.group_waiter import GroupWaiter, group_waiter_for
from duly.worker.logs import event
from duly.worker.queue_waiter import QueueWaiter, queue_waiter_for
from duly.worker.source import Source

_LOG: Final = logging.getLogger("duly.worker")

_QUEUES: Final = 64
"""Queues of a bundle: a larger one costs more for each wake-up, smaller ones take more connections."""

_GROUPS: Final = 21
"""Groups of a bundle: each has three keys."""


class Bundle:
    """Some queues or groups that wait together."""

    def __init__(self, sources: Sequence[Source], on_change: Callable[["Bundle"], None], *, has_groups: bool) -> None:
        self.sources = sources
        self.has_groups = has_groups
        self.unclaimed: set[Source] = set()
        """Those that are about to be claimed from. The next block waits for them, or it would have to be ended soon."""
        self.waited = 0
        """Claims that it has waited for."""
        make: Any = group_waiter_for if has_groups else queue_waiter_for
        self.waiter: QueueWaiter | GroupWaiter = make(sources[0].link, sources, lambda: on_change(self))
        self._period = min(source.period for source in sources)
        """Seconds between two looks at all idle queues, and at whether a block has not come back."""
        self.check_at = math.inf
        self.plan_check(random.uniform(0.5, 1.0))  # noqa: S311

    def plan_check(self, periods: float = 1.0) -> None:
        """Look at all idle queues after so many periods."""
        self.check_at = time.monotonic() + self._period * periods


class Watcher:
    """Watches the sources of a worker. `on_change` is called when `woken` has something to say."""

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
        """Bundles that have something to say."""
        self._incomplete: dict[Bundle, None] = {}
        """Bundles that do not watch all that they should."""
        self.check_at = min(bundle.check_at for bundle in self._bundles)
        """When to look for what was forgotten."""

    def _note_change(self, bundle: Bundle) -> None:
        self._changed[bundle] = None
        self._on_change()

    def woken(self) -> list[Source]:
        """Take what has come: the sources that are worth a look."""
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
        """Note that a source was claimed from, or cannot be now."""
        self._bundle_of[source].unclaimed.discard(source)
        self.note_room(source)

    def note_room(self, source: Source) -> None:
        """Note that more of a watched source could be claimed: it may have been left out for want of room."""
        bundle = self._bundle_of[source]
        if not bundle.waiter.is_watching(source):
            self._incomplete[bundle] = None

    @property
    def is_complete(self) -> bool:
        """Whether everything is watched that should be."""
        return not self._incomplete

    async def watch_all(self, limit: int) -> list[Source]:
        """Watch all that want it. Return sources that are worth a look at once: at most `limit` for their tokens."""
        found: list[Source] = []
        for bundle in list(self._incomplete):
            if len(found) >= limit:
                break
            if bundle.unclaimed and bundle.waited < len(bundle.sources):  # then others of it have waited long enough
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
        """Watch only some, and as `go_on` all of them later. Return sources that are worth a look at once."""
        found: list[Source] = []
        for bundle in {self._bundle_of[source]: None for source in some}:
            if bundle in self._incomplete:
                own = [source for source in some if self._bundle_of[source] is bundle]
                found += await bundle.waiter.watch(len(own), own)
        return found

    async def watch_groups(self) -> None:
        """Watch all groups that want it: nothing is taken by it, so a full worker may do it, too."""
        for bundle in [bundle for bundle in self._incomplete if bundle.has_groups]:
            del self._incomplete[bundle]
            await bundle.waiter.watch(0)

    async def take(self, limit: int) -> list[Source]:
        """Take tokens that lie there, of one bundle that is not watched, and of another one the next time."""
        bundle = next((bundle for bundle in self._incomplete if not bundle.has_groups), None)
        if bundle is None:
            return []
        del self._incomplete[bundle]
        self._incomplete[bundle] = None  # as the last
        return await bundle.waiter.take(limit)

    def rested_at(self) -> float:
        """Tell when the next group has rested."""
        return min((bundle.waiter.rested_at for bundle in self._bundles_of_groups), default=math.inf)

    def note_rested(self, now: float) -> None:
        """Watch again for groups that have rested."""
        for bundle in self._bundles_of_groups:
            if bundle.waiter.rested_at <= now:
                self._incomplete[bundle] = None

    async def missed(self, now: float) -> list[Source]:
        """Find queues that have something to come although none of their wake-ups came: it may have been lost.

        One call serves all idle queues of a bundle. Queues that are known to have something to come have timers.
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
        """Watch nothing more, and return the queues of which a token may have been taken."""
        found: list[Source] = []
        for bundle in self._bundles:
            watched = await bundle.waiter.aclose()
            found += [source for source in watched if not source.is_idle]
            if idle := [source for source in watched if source.is_idle]:
                found += await _occupied(idle)
        return found


async def _occupied(idle: Sequence[Source]) -> list[Source]:
    """Find the queues that have something to come; all of them, if the server refuses to say."""
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
    """Divide into bundles, as equal as can be. Neighbours stay together: they are claimed from one after another."""
    bundles = -(-len(sources) // size)
    ends = [len(sources) * number // bundles for number in range(bundles + 1)] if bundles else []
    return [sources[begin:end] for begin, end in itertools.pairwise(ends)]
