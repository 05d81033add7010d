"""Waits for entries of topics and for the bells of groups, for all groups of a worker: on a server, on one connection.

Nothing is taken by waiting: all that wait hear it, in every process. The claim decides who gets what.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from duly._async.link import AsyncLink
from duly._async.memory import AsyncMemoryLink
from duly._core.call import Arg
from duly._core.publishing import parsed_id
from duly.worker.block import Block
from duly.worker.wake_state import EntryId, WakeState, written_id


class ServerListener:
    """Watches streams of a server. `on_change` is called when `woken` has something to say."""

    def __init__(self, link: AsyncLink, on_change: Callable[[], None]) -> None:
        self._block = Block(link, on_change)
        self._asked: dict[bytes, EntryId] = {}
        """What the call that is out names, and behind which ids."""

    async def watch(self, members: Sequence[WakeState], seconds: float) -> None:
        """Watch for these, so long. A call that was begun for others, and would miss something, is begun anew."""
        wanted = _earliest(members)
        suffices = all(key in self._asked and self._asked[key] <= id_ for key, id_ in wanted.items())
        if await self._block.may_begin(suffices=suffices) and wanted:
            self._asked = wanted
            command: list[Arg] = [b"XREAD", b"COUNT", 1, b"BLOCK", max(round(seconds * 1000), 1), b"STREAMS", *wanted]
            await self._block.begin([*command, *map(written_id, wanted.values())], seconds)

    def woken(self, members: Sequence[WakeState]) -> list[WakeState]:
        """Take what was heard, and tell to whom it is new: a claim may have seen it since the call was begun.

        A call is refused as a whole if one of its keys is no stream, say. Then all look, to find out whose it is.
        """
        reply = self._block.reply()
        if reply is None:
            return list(members) if self._block.take_refusal() else []
        news = {key: parsed_id(entries[0][0].decode()) for key, entries in reply}
        return [member for member in members if member.is_new(news)]

    async def aclose(self) -> None:
        """Watch nothing more."""
        await self._block.aclose()


def _earliest(members: Sequence[WakeState]) -> dict[bytes, EntryId]:
    """Name each stream once, behind the earliest id that somebody knows: servers ignore a second mention of it."""
    wanted: dict[bytes, EntryId] = {}
    for member in members:
        for key, id_ in member.known.items():
            wanted[key] = min(wanted.get(key, id_), id_)
    return wanted


class MemoryListener:
    """Watches topics of `memory://`. When its clock is moved, all groups are worth a look."""

    def __init__(self, link: AsyncMemoryLink, on_change: Callable[[], None]) -> None:
        self._engine = link.engine
        self._loop = asyncio.get_running_loop()
        self._on_change = on_change
        self._members: set[WakeState] = set()
        self._callbacks: dict[WakeState, Callable[[], None]] = {}
        self._come: set[WakeState] = set()
        self._engine.clock.watch(self._on_move)

    async def watch(self, members: Sequence[WakeState], seconds: float) -> None:  # noqa: ARG002
        """Watch for these."""
        self._members.update(members)
        for member in members:
            if member not in self._callbacks:
                self._callbacks[member] = self._noter(member)
                self._engine.subscribe_behind(member.keys, member.position, self._callbacks[member])

    def woken(self, members: Sequence[WakeState]) -> list[WakeState]:  # noqa: ARG002
        """Take what was heard."""
        come, self._come = self._come, set()
        return list(come)

    async def aclose(self) -> None:
        """Watch nothing more."""
        self._engine.clock.unwatch(self._on_move)
        for member, callback in self._callbacks.items():
            self._engine.unsubscribe(member.keys, callback)

    def _noter(self, member: WakeState) -> Callable[[], None]:
        return lambda: self._tell(self._note, member)

    def _note(self, member: WakeState) -> None:
        del self._callbacks[member]
        self._come.add(member)
        self._on_change()

    def _on_move(self) -> None:
        self._tell(self._look_everywhere)

    def _look_everywhere(self) -> None:
        self._come |= self._members  # also those that rest
        self._on_change()

    def _tell(self, function: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function, *args)


AnyListener = ServerListener | MemoryListener


def listener_for(link: AsyncLink | AsyncMemoryLink, on_change: Callable[[], None]) -> AnyListener:
    """Make the listener that fits a link."""
    return MemoryListener(link, on_change) if isinstance(link, AsyncMemoryLink) else ServerListener(link, on_change)
