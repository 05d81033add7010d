"""Takes messages for a command that may be stopped at any moment: what is not settled by then goes back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Final, Self

import duly
from duly.cli.session import PATIENCE
from duly.cli.stop_signals import Stops
from duly.errors import LeaseLost

_LONGEST_RETURN: Final = 4 * PATIENCE
"""Seconds for a claim that is under way and its release, each of which is tried while the server is away."""


class Taker:
    """Receives from a queue or group, and settles. A stop ends a wait at once, and nothing else half-way.

    It uses the async side of the library. There a receive that is cancelled while its claim is under way still reads
    the reply, and gives back what it says; an exception in the midst of the sync one would leave messages that nobody
    knows to hold.
    """

    def __init__(self, source: duly.Queue | duly.Group, stops: Stops) -> None:
        self._source = source.aio
        self.stops = stops
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._runner:
            self._runner.run(self._close())

    async def _close(self) -> None:
        """Wait for what goes on behind a receive that was cancelled: it gives back."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=_LONGEST_RETURN)
        await self._source._app.aclose()

    def take(self, limit: int, wait: float) -> list[duly.AsyncDelivery]:
        """Take messages, waiting so long for the first; none after a stop."""
        return self._runner.run(self._take(limit, wait))

    async def _take(self, limit: int, wait: float) -> list[duly.AsyncDelivery]:
        loop = asyncio.get_running_loop()
        receiving = asyncio.ensure_future(self._source.receive(limit, wait))
        with self.stops.at_once(lambda: loop.call_soon_threadsafe(receiving.cancel)):
            await asyncio.wait({receiving})
        return [] if receiving.cancelled() else receiving.result()

    def ack(self, deliveries: Sequence[duly.AsyncDelivery]) -> list[duly.AsyncDelivery]:
        """Finish messages; give those whose lease was lost."""
        return self._runner.run(self._source.ack_many(deliveries))

    def release(self, deliveries: Iterable[duly.AsyncDelivery]) -> None:
        """Give messages back, no attempt spent."""
        self._runner.run(_release(deliveries))


async def _release(deliveries: Iterable[duly.AsyncDelivery]) -> None:
    ended = await asyncio.gather(*(each.release() for each in deliveries), return_exceptions=True)
    for error in ended:
        if isinstance(error, BaseException) and not isinstance(error, LeaseLost):  # whose message is back already
            raise error
