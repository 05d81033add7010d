"""What a worker watches while there is nothing to claim: queues by their tokens, groups by what they hear.

On a server that is one connection for each of the two.
"""

import time
from collections.abc import Callable, Sequence

from duly.worker.hearing import Hearing
from duly.worker.listener import listener_for
from duly.worker.station import Station
from duly.worker.waiter import waiter_for


class Watch:
    """Watches stations. `on_change` is called when `woken` has something to say."""

    def __init__(self, stations: Sequence[Station], on_change: Callable[[], None]) -> None:
        link = stations[0].link
        self._by_keys = {station.keys: station for station in stations if station.hearing is None}
        self._by_hearing = {station.hearing: station for station in stations if station.hearing is not None}
        self._waiter = waiter_for(link, on_change)
        self._listener = listener_for(link, on_change) if self._by_hearing else None

    async def go_on(self) -> None:
        """Watch all stations that want it."""
        queues = [station for station in self._by_keys.values() if station.is_watched]
        if queues:
            await self._waiter.watch([station.keys for station in queues], max(s.period for s in queues))
        members = self._listening()
        if members and self._listener is not None:
            await self._listener.watch(members, max(self._by_hearing[member].period for member in members))

    def woken(self) -> list[Station]:
        """Take what has come: the stations that are worth a look."""
        found = [self._by_keys[keys] for keys in self._waiter.tokens()]
        if self._listener is not None:
            found += [self._by_hearing[member] for member in self._listener.woken(self._listening())]
        return found

    async def aclose(self) -> list[Station]:
        """Watch nothing more. Of those that are returned a token may be lost, and somebody else must know."""
        if self._listener is not None:
            await self._listener.aclose()
        return [self._by_keys[keys] for keys in await self._waiter.aclose()]

    def _listening(self) -> list[Hearing]:
        """Tell who is watched, and does not rest."""
        now = time.monotonic()
        return [
            member for member, station in self._by_hearing.items() if station.is_watched and member.rests_until <= now
        ]
