"""Receives messages for a command that may be stopped at any time. Unsettled messages are released."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Final, Self

import duly
from duly.cli.session import PATIENCE
from duly.cli.stop_signals import StopSignals
from duly.errors import LeaseLost

_CLOSE_TIMEOUT: Final = 4 * PATIENCE
"""Seconds for a pending receive and its release. Both are retried while the server is unreachable."""


class Receiver:
    """Receives from a queue or group, and settles. A stop ends a wait at once, but never interrupts another call.

    It uses the async client: a cancelled receive still reads the reply to a pending claim, and releases its messages.
    An exception inside a sync receive would leave messages leased until their leases end.
    """

    def __init__(self, source: duly.Queue | duly.Group, stops: StopSignals) -> None:
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
        """Wait for background tasks of cancelled receives, which release messages."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=_CLOSE_TIMEOUT)
        await self._source._app.aclose()

    def receive(self, limit: int, wait: float) -> list[duly.AsyncDelivery]:
        """Receive messages, waiting for the first. Returns none after a stop."""
        return self._runner.run(self._receive(limit, wait))

    async def _receive(self, limit: int, wait: float) -> list[duly.AsyncDelivery]:
        loop = asyncio.get_running_loop()
        receiving = asyncio.ensure_future(self._source.receive(limit, wait))
        with self.stops.on_stop(lambda: loop.call_soon_threadsafe(receiving.cancel)):
            await asyncio.wait({receiving})
        return [] if receiving.cancelled() else receiving.result()

    def ack(self, deliveries: Sequence[duly.AsyncDelivery]) -> list[duly.AsyncDelivery]:
        """Ack messages. Returns those whose lease was lost."""
        return self._runner.run(self._source.ack_many(deliveries))

    def release(self, deliveries: Iterable[duly.AsyncDelivery]) -> None:
        """Release messages."""
        self._runner.run(_release(deliveries))


async def _release(deliveries: Iterable[duly.AsyncDelivery]) -> None:
    ended = await asyncio.gather(*(each.release() for each in deliveries), return_exceptions=True)
    for error in ended:
        if isinstance(error, BaseException) and not isinstance(
            error, LeaseLost
        ):  # its message is back in the queue already
            raise error
