"""Asks a node that takes over a slot, before the slot is its own."""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from duly._async.wire import REPLY_TIMEOUT, AsyncWire
from duly._core.resp import Arg

_ASKING: Final[Sequence[Arg]] = [b"ASKING"]


class AsyncAsker(Protocol):
    """Sends a command and returns its reply."""

    async def ask(self, command: Sequence[Arg], timeout: float = REPLY_TIMEOUT) -> Any:
        """Send a command and return its reply. Raises ErrorReply, MalformedReply or OSError."""


class AsyncAskingWire:
    """A wire to a node that an ASK error has named. ASKING precedes each command, since it counts for one."""

    def __init__(self, wire: AsyncWire) -> None:
        self._wire = wire

    async def ask(self, command: Sequence[Arg], timeout: float = REPLY_TIMEOUT) -> Any:
        """Send a command and return its reply."""
        replies = await self._wire.ask_both(_ASKING, command, timeout)
        return replies[1]
