"""Waits for entries of topics and for the bells of groups, for some groups of a worker: on a server, on one connection.

Nothing is taken by waiting: all that wait hear it, in every process. The claim decides who gets what. XREAD answers
with all streams that have news, so no group is preferred.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from duly._async.link import AsyncLink
from duly._async.memory import AsyncMemoryLink
from duly._core.call import Arg
from duly._core.publishing import parsed_id
from duly.worker.block import Block
from duly.worker.source import Source
from duly.worker.wake_state import EntryId, WakeState, written_id


class _Members:
    """The groups that are listened for, and when the next of them has rested."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = list(sources)
        self.rested_at = math.inf
        """When to watch again for one that rests now."""

    async def take(self, limit: int) -> list[Source]:  # noqa: ARG002
        """There is nothing to take."""
        return []

    def _listening(self) -> list[tuple[Source, WakeState]]:
        """List who is watched, and does not rest."""
        now = time.monotonic()
        members = [(source, source.wake_state) for source in self._sources if source.wake_state and source.wants_watch]
        rests = (member.rests_until for _, member in members)
        self.rested_at = min((moment for moment in rests if moment > now), default=math.inf)
        return [(source, member) for source, member in members if member.rests_until <= now]


class ServerListener(_Members):
    """Watches streams of a server. `on_change` is called when `woken` has something to say."""

    def __init__(self, link: AsyncLink, sources: Sequence[Source], on_change: Callable[[], None]) -> None:
        super().__init__(sources)
        self._block = Block(link, on_change)
        self._asked: dict[bytes, EntryId] = {}
        """What the call that is out names, and behind which ids."""

    def is_watching(self, source: Source) -> bool:
        """Tell whether a call is out that would hear whatever is new to a group."""
        known = {} if source.wake_state is None else source.wake_state.known
        return self._block.is_out and self._suffices(known)

    async def watch(self, limit: int, some: Collection[Source] | None = None) -> list[Source]:  # noqa: ARG002 - nothing is taken
        """Watch for all, or `some`, that want it. A call that is out and would miss something is ended."""
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
        """Take what was heard, and tell to whom it is new: a claim may have seen it since the call was begun.

        A call is refused as a whole if one of its keys is no stream, say. Then all look, to find out whose it is.
        """
        reply = self._block.reply()
        if reply is None:
            return [source for source, _ in self._listening()] if self._block.take_refusal() else []
        news = {key: parsed_id(entries[0][0].decode()) for key, entries in reply}
        return [source for source, member in self._listening() if member.is_new(news)]

    async def aclose(self) -> list[Source]:
        """Watch nothing more. Nothing was taken."""
        await self._block.aclose()
        return []


def _earliest(members: Sequence[WakeState]) -> dict[bytes, EntryId]:
    """Name each stream once, behind the earliest id that a member knows: servers ignore a second mention of it."""
    wanted: dict[bytes, EntryId] = {}
    for member in members:
        for key, id_ in member.known.items():
            wanted[key] = min(wanted.get(key, id_), id_)
    return wanted


class MemoryListener(_Members):
    """Watches topics of `memory://`. When its clock is moved, all groups are worth a look."""

    def __init__(self, link: AsyncMemoryLink, sources: Sequence[Source], on_change: Callable[[], None]) -> None:
        super().__init__(sources)
        self._engine = link.engine
        self._loop = asyncio.get_running_loop()
        self._on_change = on_change
        self._callbacks: dict[Source, Callable[[], None]] = {}
        self._come: dict[Source, None] = {}
        self._engine.clock.watch(self._on_move)

    def is_watching(self, source: Source) -> bool:
        """Tell whether a group is watched."""
        return source in self._callbacks

    async def watch(self, limit: int, some: Collection[Source] | None = None) -> list[Source]:  # noqa: ARG002 - nothing is taken
        """Watch for all, or `some`, that want it."""
        for source, member in self._listening():
            if source not in self._callbacks and (some is None or source in some):
                self._callbacks[source] = self._noter(source)
                self._engine.subscribe(member.keys, self._callbacks[source], source.claims_at)
        return []

    def woken(self) -> list[Source]:
        """Take what was heard."""
        come, self._come = self._come, {}
        return list(come)

    async def aclose(self) -> list[Source]:
        """Watch nothing more. Nothing was taken."""
        self._engine.clock.unwatch(self._on_move)
        for source, callback in self._callbacks.items():
            self._engine.unsubscribe(source.keys, callback)
        return []

    def _noter(self, source: Source) -> Callable[[], None]:
        return lambda: self._tell(self._note, source)

    def _note(self, source: Source) -> None:
        del self._callbacks[source]
        self._come[source] = None
        self._on_change()

    def _on_move(self) -> None:
        self._tell(self._look_everywhere)

    def _look_everywhere(self) -> None:
        self._come.update(dict.fromkeys(self._sources))  # also those that rest
        self._on_change()

    def _tell(self, function: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function, *args)


AnyListener = ServerListener | MemoryListener


def listener_for(
    link: AsyncLink | AsyncMemoryLink, sources: Sequence[Source], on_change: Callable[[], None]
) -> AnyListener:
    """Make the listener that fits a link."""
    kind: Any = MemoryListener if isinstance(link, AsyncMemoryLink) else ServerListener
    listener: AnyListener = kind(link, sources, on_change)
    return listener
