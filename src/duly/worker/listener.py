"""Waits for entries of topics and for the bells of groups, for all groups of a worker, on one connection.

Nothing is taken by waiting: all that wait hear it, in every process. The claim decides who gets what.
"""

from collections.abc import Callable, Sequence

from duly._async.link import AsyncLink
from duly._core.call import Arg
from duly._core.publishing import parsed_id
from duly.worker.block import Block
from duly.worker.hearing import EntryId, Hearing


class Listener:
    """Watches streams of a server. `on_change` is called when `woken` has something to say."""

    def __init__(self, link: AsyncLink, on_change: Callable[[], None]) -> None:
        self._block = Block(link, on_change)
        self._asked: dict[bytes, EntryId] = {}
        """What the call that is out names, and behind which ids."""

    async def watch(self, members: Sequence[Hearing], seconds: float) -> None:
        """Watch for these, so long. A call that was begun for others, and would miss something, is begun anew."""
        wanted = _earliest(members)
        suffices = all(key in self._asked and self._asked[key] <= id_ for key, id_ in wanted.items())
        if await self._block.may_begin(suffices=suffices) and wanted:
            self._asked = wanted
            command: list[Arg] = [b"XREAD", b"COUNT", 1, b"BLOCK", max(round(seconds * 1000), 1), b"STREAMS", *wanted]
            await self._block.begin([*command, *(f"{ms}-{number}" for ms, number in wanted.values())], seconds)

    def woken(self, members: Sequence[Hearing]) -> list[Hearing]:
        """Take what was heard, and tell to whom it is new: a claim may have seen it since the call was begun."""
        reply = self._block.reply()
        if reply is None:
            return []
        news = {key: parsed_id(entries[0][0].decode()) for key, entries in reply}
        return [member for member in members if member.is_new(news)]

    async def aclose(self) -> None:
        """Watch nothing more."""
        await self._block.aclose()


def _earliest(members: Sequence[Hearing]) -> dict[bytes, EntryId]:
    """Name each stream once, behind the earliest id that somebody knows: servers ignore a second mention of it."""
    wanted: dict[bytes, EntryId] = {}
    for member in members:
        for key, id_ in member.known.items():
            wanted[key] = min(wanted.get(key, id_), id_)
    return wanted
