"""Waits for entries of topics and for the bells of groups. One connection serves some groups of a worker.

Waiting takes nothing: every member of a group wakes, in every process, and the claim decides which one gets the entry.
XREAD answers with all streams that have news, so no group is preferred.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence

from duly._async.link import AsyncLink
from duly._core.publishing import parsed_id
from duly._core.resp import Arg
from duly.worker.blocking_call import BlockingCall
from duly.worker.source import Source, awake
from duly.worker.wake_state import EntryId, WakeState, written_id


class GroupWaiter:
    """Watches streams of a server. `on_change` is called when `woken` has something to return."""

    def __init__(self, link: AsyncLink, sources: Sequence[Source], on_change: Callable[[], None]) -> None:
        self._sources = list(sources)
        self.rested_at: float = math.inf
        """When the next group that rests is to be watched again."""
        self._block = BlockingCall(link, sources[0].keys, on_change)
        self._asked: dict[bytes, EntryId] = {}
        """The streams of the pending call, and the ids that it waits behind."""

    def is_watching(self, source: Source) -> bool:
        """Return whether the pending call ends for everything that is new to a group."""
        known = {} if source.wake_state is None else source.wake_state.known
        return self._block.is_pending and self._suffices(known)

    async def watch(self, limit: int, some: Collection[Source] | None = None) -> list[Source]:  # noqa: ARG002 - nothing is taken
        """Watch all groups, or `some`, that want it. A pending call that would miss an entry is ended."""
        listening = [(source, member) for source, member in self._listening() if some is None or source in some]
        wanted = _earliest([member for _, member in listening])
        if await self._block.may_begin(suffices=self._suffices(wanted)) and wanted:
            self._asked = wanted
            seconds = max(source.period for source, _ in listening)
            command: list[Arg] = [b"XREAD", b"COUNT", 1, b"BLOCK", max(round(seconds * 1000), 1), b"STREAMS", *wanted]
            await self._block.begin([*command, *map(written_id, wanted.values())], seconds)
        return []

    def _listening(self) -> list[tuple[Source, WakeState]]:
        """List the groups that are watched and do not rest."""
        listening, self.rested_at = awake(self._sources)
        return [(source, source.wake_state) for source in listening if source.wake_state is not None]

    async def take(self, limit: int) -> list[Source]:  # noqa: ARG002
        """Return nothing: groups have no wake tokens."""
        return []

    def _suffices(self, wanted: Mapping[bytes, EntryId]) -> bool:
        return all(key in self._asked and self._asked[key] <= id_ for key, id_ in wanted.items())

    def woken(self) -> list[Source]:
        """Take the reply, and return the groups that it is new to: a claim may have seen the entry in the meantime.

        The server refuses the whole call if one of its keys is not a stream. Then all groups are returned, and their
        claims show which key it is.
        """
        reply = self._block.reply()
        if reply is None:
            return [source for source, _ in self._listening()] if self._block.take_refusal() else []
        news = {key: parsed_id(entries[0][0].decode()) for key, entries in reply}
        return [source for source, member in self._listening() if member.has_news(news)]

    async def aclose(self) -> list[Source]:
        """Watch nothing more. Nothing was taken."""
        await self._block.aclose()
        return []


def _earliest(members: Sequence[WakeState]) -> dict[bytes, EntryId]:
    """Name each stream once, with the earliest id that a group knows: servers ignore a second mention."""
    wanted: dict[bytes, EntryId] = {}
    for member in members:
        for key, id_ in member.known.items():
            wanted[key] = min(wanted.get(key, id_), id_)
    return wanted
