"""One call that blocks on the server, on its own connection, while the worker does other things.

A callback announces its end. After a failed call there is a pause before the next one.
"""

import asyncio
import logging
import random
import time
import weakref
from collections.abc import Callable
from typing import Any, Final

from duly._async.link import AsyncLink
from duly._async.pool import AsyncPool
from duly._async.wire import UNREACHABLE, AsyncWire
from duly._core import patience
from duly._core.resp import Arg, ErrorReply, ReplyError
from duly.errors import DulyError
from duly.worker.logs import event

_OVERDUE_AFTER: Final = 5.0
"""Seconds that a reply may be overdue before the connection counts as dead."""
_LOG: Final = logging.getLogger("duly.worker")
_polling: Final[weakref.WeakSet[AsyncLink]] = weakref.WeakSet()
"""The links whose server was reported to refuse waits."""


class BlockingCall:
    """At most one call at a time. `on_change` is called when it has ended, or when another one may begin."""

    def __init__(self, link: AsyncLink, on_change: Callable[[], None]) -> None:
        self._link = link
        self._on_change = on_change
        self._pool: AsyncPool | None = None
        self._wire: AsyncWire | None = None
        self._reading: asyncio.Future[Any] | None = None
        self._ends_at = 0.0
        self._fails = 0
        self._is_backing_off = False
        self._is_refused = False
        self._has_failed = False

    @property
    def is_pending(self) -> bool:
        """Whether a call was begun and its reply has not been taken yet."""
        return self._reading is not None

    async def may_begin(self, *, suffices: bool) -> bool:
        """Return whether a call may begin now.

        A pending call that does not suffice is ended. The callback announces its end.
        """
        if self._reading is not None:
            if time.monotonic() > self._ends_at + _OVERDUE_AFTER:
                await self._abandon()
            elif not self._reading.done() and not suffices:
                await self._end()
            return False
        return not self._is_backing_off

    async def begin(self, command: list[Arg], seconds: float) -> None:
        """Send a command that the server answers within `seconds`."""
        try:
            if self._wire is None or not self._wire.is_open:
                self._drop_wire()
                self._pool = await self._link.connections.serving_pool()
                self._wire = await self._pool.take_waiting()
            self._ends_at = time.monotonic() + seconds
            self._reading = await self._wire.begin(command)
            self._reading.add_done_callback(lambda _: self._on_change())
        except (UNREACHABLE, ReplyError, DulyError) as error:
            self._note_refusal(error)
            await self._abandon()

    def reply(self) -> Any:
        """Take the reply. None: the reply is empty, or there is none yet."""
        reading = self._reading
        if reading is None or not reading.done():
            return None
        self._reading = None
        try:
            reply = reading.result()
        except (UNREACHABLE, ReplyError, asyncio.CancelledError) as error:
            self._is_refused = isinstance(error, ErrorReply)
            self._note_refusal(error)
            self._has_failed = True
            self._back_off()
            return None
        self._fails = 0
        return reply

    def take_refusal(self) -> bool:
        """Return, once per failure, whether the server refused a call."""
        is_refused, self._is_refused = self._is_refused, False
        return is_refused

    def take_failure(self) -> bool:
        """Return, once per failure, whether a call ended without a reply: the server may have executed it."""
        has_failed, self._has_failed = self._has_failed, False
        return has_failed

    async def cut(self) -> None:
        """Close the connection on the server's side. The server could otherwise send a wake token to it."""
        if self._pool is not None and self._wire is not None:
            await self._pool.cut(self._wire)

    async def aclose(self) -> None:
        """Close the connection. No call may begin after that."""
        self._reading = None
        self._drop_wire()

    def _note_refusal(self, error: BaseException) -> None:
        """Log, once per app, that the worker polls, since the server denies or lacks a command that a wait needs."""
        if isinstance(error, ErrorReply) and error.leaves_command_out and self._link not in _polling:
            _polling.add(self._link)
            event(_LOG, logging.WARNING, "watch.refused", error=str(error), effect="idle queues are polled")

    async def _end(self) -> None:
        """Make the server end the call. The callback announces this end like any other, with or without a reply."""
        assert self._pool is not None
        assert self._wire is not None
        try:
            await self._pool.unblock(self._wire)
        except (UNREACHABLE, ReplyError, DulyError):
            await self._abandon()

    async def _abandon(self) -> None:
        """Stop waiting for the reply."""
        self._has_failed = self._has_failed or self._reading is not None
        self._reading = None
        self._back_off()

    def _back_off(self) -> None:
        """Pause before the next call. The outage is logged by the link, because claims fail as well."""
        if self._pool is not None:
            self._link.connections.doubt(self._pool)
        self._drop_wire()
        pause = patience.backoff(self._fails, random.random)
        self._fails += 1
        self._is_backing_off = True
        asyncio.get_running_loop().call_later(pause, self._end_backoff)

    def _drop_wire(self) -> None:
        if self._pool is not None and self._wire is not None:
            self._wire.hang_up()
            self._pool.give_waiting(self._wire)
        self._wire = None

    def _end_backoff(self) -> None:
        self._is_backing_off = False
        self._on_change()
