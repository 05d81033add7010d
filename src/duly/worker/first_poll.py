"""Finds the queues that are empty when a worker starts: one call for a bundle, instead of a claim for each queue.

The first claim of a worker is not preceded by a poll. It shows whether the server answers, and lets the user claim.
"""

from duly.worker.claim_plan import ClaimPlan
from duly.worker.source import Source
from duly.worker.watcher import Bundle, Watcher


class FirstPoll:
    """Polls each bundle of queues once, before the first claim from one of them."""

    def __init__(self, watcher: Watcher, plan: ClaimPlan) -> None:
        self._watcher = watcher
        self._plan = plan
        self._bundles = {
            source: bundle
            for bundle in watcher.bundles
            if len(bundle.sources) > 1 and not bundle.has_groups  # a group is never idle
            for source in bundle.sources
        }
        """The bundles that were not polled yet, by their queues."""

    def take(self, source: Source) -> Bundle | None:
        """Return the bundle to poll before a claim from this source. None: it was polled, or is not to be."""
        bundle = self._bundles.get(source)
        if bundle is not None:
            for each in bundle.sources:
                del self._bundles[each]
        return bundle

    async def poll(self, bundle: Bundle) -> None:
        """Claim from no queue of a bundle that has no messages: its wake token announces the next one."""
        asked = [source for source in bundle.sources if self._plan.may_be_empty(source)]
        occupied = set(await self._watcher.occupied(asked))
        for source in asked:
            if source not in occupied and self._plan.may_be_empty(source):
                self._plan.note_empty(source)
