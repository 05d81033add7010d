"""Waits for entries of topics and for the bells of groups. On a server, one connection serves some groups of a worker.

Waiting takes nothing: every member of a group wakes, in every process, and the claim decides which one gets the entry.
XREAD answers with all streams that have news, so no group is preferred.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from duly._async.link import AsyncLink
from duly._async.memory import AsyncMemoryLink
from duly._core.publishing import parsed_id
from duly._core.resp import Arg
from duly.worker.blocking_call import BlockingCall
from duly.worker.source import Source
from duly.worker.wake_state import EntryId, WakeState, written_id


class _GroupSources:
    """The groups that are watched, and when the next rest of a group ends."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = list(sources)
        self.rested_at: float = math.inf
        """When the next group that rests is to be watched again."""

    async def take(self, limit: int) -> list[Source]:  # noqa: ARG002
        """Return nothing: groups have no wake tokens."""
        return []

    def _listening(self) -> list[tuple[Source, WakeState]]:
        """List the groups that are watched and do not rest."""
        now = time.monotonic()
        members = [(source, source.wake_state) for source in self._sources if source.wake_state and source.wants_watch]
        rests = (member.rests_until for _, member in members)
        self.rested_at = min((moment for moment in rests if moment > now), default=math.inf)
        return [(source, member) for source, member in members if member.rests_until <= now]


class ServerGroupWaiter(_GroupSources):
    """Watches streams of a server. `on_change` is called when `woken` has something to return."""

    def __init__(self, link: AsyncLink, sources: Sequence[Source], on_change: Callable[[], None]) -> None:
        super().__init__(sources)
        self._block = BlockingCall(link, on_change)
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


class MemoryGroupWaiter(_GroupSources):
    """Watches topics of `memory://`. When its clock is moved, all groups wake."""

    def __init__(self, link: AsyncMemoryLink, sources: Sequence[Source], on_change: Callable[[], None]) -> None:
        super().__init__(sources)
        self._engine = link.engine
        self._loop = asyncio.get_running_loop()
        self._on_change = on_change
        self._callbacks: dict[Source, Callable[[], None]] = {}
        self._woken: dict[Source, None] = {}
        self._engine.clock.watch(self._on_move)

    def is_watching(self, source: Source) -> bool:
        """Return whether a group is watched."""
        return source in self._callbacks

    async def watch(self, limit: int, some: Collection[Source] | None = None) -> list[Source]:  # noqa: ARG002 - nothing is taken
        """Watch all groups, or `some`, that want it."""
        for source, member in self._listening():
            if source not in self._callbacks and (some is None or source in some):
                self._callbacks[source] = self._callback_for(source)
                self._engine.subscribe(member.keys, self._callbacks[source], source.claims_at)
        return []

    def woken(self) -> list[Source]:
        """Take the groups that have woken."""
        woken_sources, self._woken = self._woken, {}
        return list(woken_sources)

    async def aclose(self) -> list[Source]:
        """Watch nothing more. Nothing was taken."""
        self._engine.clock.unwatch(self._on_move)
        for source, callback in self._callbacks.items():
            self._engine.unsubscribe(source.keys, callback)
        return []

    def _callback_for(self, source: Source) -> Callable[[], None]:
        return lambda: self._call_in_loop(self._on_wake, source)

    def _on_wake(self, source: Source) -> None:
        del self._callbacks[source]
        self._woken[source] = None
        self._on_change()

    def _on_move(self) -> None:
        self._call_in_loop(self._wake_all)

    def _wake_all(self) -> None:
        self._woken.update(dict.fromkeys(self._sources))  # including groups that rest
        self._on_change()

    def _call_in_loop(self, function: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function, *args)


GroupWaiter = ServerGroupWaiter | MemoryGroupWaiter


def group_waiter_for(
    link: AsyncLink | AsyncMemoryLink, sources: Sequence[Source], on_change: Callable[[], None]
) -> GroupWaiter:
    """Make the waiter that fits a link."""
    kind: Any = MemoryGroupWaiter if isinstance(link, AsyncMemoryLink) else ServerGroupWaiter
    waiter: GroupWaiter = kind(link, sources, on_change)
    return waiter
