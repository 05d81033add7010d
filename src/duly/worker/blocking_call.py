"""One call that blocks on the server, on its own connection, while the worker does other things.

A callback announces its end. After a failed call there is a pause before the next one. If another node serves the keys
now, the next call may begin there at once.
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
from duly._core.keys import QueueKeys
from duly._core.resp import Arg, ErrorReply, ReplyError
from duly.errors import DulyError
from duly.worker.claim_behind import ClaimBehind
from duly.worker.logs import event

_OVERDUE_AFTER: Final = 5.0
"""Seconds that a reply may be overdue before the connection counts as dead."""
_MOVES_AT_ONCE: Final = 2
"""Consecutive MOVED errors without a pause."""
_LOG: Final = logging.getLogger("duly.worker")
_polling: Final[weakref.WeakSet[AsyncLink]] = weakref.WeakSet()
"""The links whose server was reported to refuse waits."""


class BlockingCall:
    """At most one call at a time. `on_change` is called when it has ended, or when another one may begin."""

    def __init__(self, link: AsyncLink, keys: QueueKeys, on_change: Callable[[], None]) -> None:
        """Take `keys` of the queues that the calls name. On a cluster, all of them are in one slot."""
        self._link = link
        self._keys = keys
        self._on_change = on_change
        self._pool: AsyncPool | None = None
        self._wire: AsyncWire | None = None
        self._reading: asyncio.Future[Any] | None = None
        self._ends_at = 0.0
        self._fails = 0
        self._moves = 0
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
                self._abandon(TimeoutError("the reply to a blocking call is overdue"))
            elif not self._reading.done() and not suffices:
                await self._end()
            return False
        return not self._is_backing_off

    async def begin(self, command: list[Arg], seconds: float) -> None:
        """Send a command that the server answers within `seconds`."""
        try:
            if self._wire is None or not self._wire.is_open:
                self._drop_wire()
                self._pool = await self._link.connections.serving_pool(self._keys)
                self._wire = await self._pool.take_waiting()
            self._ends_at = time.monotonic() + seconds
            self._reading = await self._wire.begin(command)
            self._wire.listener = self._on_change
        except (UNREACHABLE, ReplyError, DulyError) as error:
            self._note_refusal(error)
            self._abandon(error)

    def send_behind(self, claim: ClaimBehind) -> None:
        """Send a claim that the server carries out when the pending call ends."""
        assert self._pool is not None
        assert self._wire is not None
        claim.send(self._pool, self._wire, self._ends_at)

    @property
    def blocked_pool(self) -> AsyncPool | None:
        """The pool of the connection on which a call is pending."""
        is_blocking = self._reading is not None and not self._reading.done()
        return self._pool if is_blocking and self._wire is not None and self._wire.is_open else None

    def reply(self) -> Any:
        """Take the reply. None: the reply is empty, or there is none yet."""
        reading = self._reading
        if reading is None or not reading.done():
            return None
        self._reading = None
        try:
            reply = reading.result()
        except ErrorReply as error:
            self._note_error_reply(error)
            return None
        except (UNREACHABLE, ReplyError, asyncio.CancelledError) as error:
            self._has_failed = True
            self._back_off(error)
            return None
        self._fails = self._moves = 0
        return reply

    def _note_error_reply(self, error: ErrorReply) -> None:
        """Pause, unless the slot has moved: a server that answers MOVED or ASK has not taken a wake token."""
        if error.code == "MOVED" and self._moves < _MOVES_AT_ONCE:
            self._moves += 1
            self._leave_node(error)
            return
        if error.code not in ("MOVED", "ASK", "TRYAGAIN"):
            self._is_refused = self._has_failed = True
            self._note_refusal(error)
        self._back_off(error)

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
        except (UNREACHABLE, ReplyError, DulyError) as error:
            self._abandon(error)

    def _abandon(self, error: Exception) -> None:
        """Stop waiting for the reply."""
        self._has_failed = self._has_failed or self._reading is not None
        self._reading = None
        self._back_off(error)

    def _leave_node(self, error: BaseException) -> None:
        """Drop the connection. The next call asks again which node serves the keys."""
        if self._pool is not None:
            router, known = self._link.connections.router, error if isinstance(error, Exception) else None
            if known is None or router.redirected(self._pool, known) is None:
                router.doubt(self._pool, known)
        self._drop_wire()

    def _back_off(self, error: BaseException) -> None:
        """Pause before the next call. The outage is logged by the link, because claims fail as well."""
        self._leave_node(error)
        pause = patience.backoff(self._fails, random.random)
        self._fails += 1
        self._is_backing_off = True
        asyncio.get_running_loop().call_later(pause, self._end_backoff)

    def _drop_wire(self) -> None:
        if self._pool is not None and self._wire is not None:
            self._wire.listener = None
            self._wire.hang_up()
            self._pool.give_waiting(self._wire)
        self._wire = None

    def _end_backoff(self) -> None:
        self._is_backing_off = False
        self._on_change()
