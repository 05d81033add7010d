"""Waits for entries of topics and for the bells of groups, for all groups of a worker, on one connection.

Nothing is taken by waiting: all that wait hear it, in every process. The claim decides who gets what.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from duly._async.link import AsyncLink
from duly._core.call import Arg
from duly._core.publishing import parsed_id
from duly.worker.block import Block


class Listening(Protocol):
    """Who wants to hear of something."""

    @property
    def heard(self) -> Mapping[bytes, bytes]:
        """The streams that count, each with the last id that is known. Asked when a reply has come, too."""


L = TypeVar("L", bound=Listening)


class Listener:
    """Watches streams of a server. `on_change` is called when `woken` has something to say."""

    def __init__(self, link: AsyncLink, on_change: Callable[[], None]) -> None:
        self._block = Block(link, on_change)
        self._asked: dict[bytes, tuple[int, int]] = {}
        """What the call that is out names, and behind which ids."""

    async def watch(self, groups: Sequence[Listening], seconds: float) -> None:
        """Watch for these, so long. A call that was begun for others, and would miss something, is begun anew."""
        wanted = _earliest(groups)
        suffices = all(key in self._asked and self._asked[key] <= id_ for key, id_ in wanted.items())
        if await self._block.may_begin(suffices=suffices) and wanted:
            self._asked = wanted
            command: list[Arg] = [b"XREAD", b"COUNT", 1, b"BLOCK", max(round(seconds * 1000), 1), b"STREAMS", *wanted]
            await self._block.begin([*command, *(f"{ms}-{number}" for ms, number in wanted.values())], seconds)

    def woken(self, groups: Sequence[L]) -> list[L]:
        """Take what was heard: those of the groups to which it is new. What they have seen by now is not."""
        reply = self._block.reply()
        if reply is None:
            return []
        news = {key: parsed_id(entries[0][0].decode()) for key, entries in reply}
        return [group for group in groups if _is_new(group, news)]

    async def aclose(self) -> None:
        """Watch nothing more."""
        await self._block.aclose()


def _earliest(groups: Sequence[Listening]) -> dict[bytes, tuple[int, int]]:
    """Name each stream once, behind the earliest id that somebody knows: servers ignore a second mention of it."""
    wanted: dict[bytes, tuple[int, int]] = {}
    for group in groups:
        for key, id_ in group.heard.items():
            parsed = parsed_id(id_.decode())
            wanted[key] = min(wanted.get(key, parsed), parsed)
    return wanted


def _is_new(group: Listening, news: Mapping[bytes, tuple[int, int]]) -> bool:
    return any(key in news and news[key] > parsed_id(id_.decode()) for key, id_ in group.heard.items())
