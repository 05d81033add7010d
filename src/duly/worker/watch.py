"""What a worker watches while there is nothing to claim: queues by their tokens, groups by what they hear.

On a server that is one connection for each of the two.
"""

import time
from collections.abc import Callable, Sequence

from duly.worker.listener import listener_for
from duly.worker.queue_runtime import QueueRuntime
from duly.worker.waiter import waiter_for
from duly.worker.wake_state import WakeState


class Watch:
    """Watches runtimes. `on_change` is called when `woken` has something to say."""

    def __init__(self, runtimes: Sequence[QueueRuntime], on_change: Callable[[], None]) -> None:
        link = runtimes[0].source.link
        self._by_keys = {runtime.source.keys: runtime for runtime in runtimes if runtime.source.wake_state is None}
        self._by_wake_state = {
            runtime.source.wake_state: runtime for runtime in runtimes if runtime.source.wake_state is not None
        }
        self._waiter = waiter_for(link, on_change)
        self._listener = listener_for(link, on_change) if self._by_wake_state else None

    async def go_on(self) -> None:
        """Watch all runtimes that want it."""
        queues = [runtime for runtime in self._by_keys.values() if runtime.source.is_watched]
        if queues:
            await self._waiter.watch([runtime.source.keys for runtime in queues], max(s.source.period for s in queues))
        members = self._listening()
        if members and self._listener is not None:
            await self._listener.watch(members, max(self._by_wake_state[member].source.period for member in members))

    def woken(self) -> list[QueueRuntime]:
        """Take what has come: the runtimes that are worth a look."""
        found = [self._by_keys[keys] for keys in self._waiter.tokens()]
        if self._listener is not None:
            found += [self._by_wake_state[member] for member in self._listener.woken(self._listening())]
        return found

    async def aclose(self) -> list[QueueRuntime]:
        """Watch nothing more. Of those that are returned a token may be lost, and somebody else must know."""
        if self._listener is not None:
            await self._listener.aclose()
        return [self._by_keys[keys] for keys in await self._waiter.aclose()]

    def _listening(self) -> list[WakeState]:
        """Tell who is watched, and does not rest."""
        now = time.monotonic()
        return [
            member
            for member, runtime in self._by_wake_state.items()
            if runtime.source.is_watched and member.rests_until <= now
        ]
