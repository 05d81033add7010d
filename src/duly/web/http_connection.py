"""Connections that bring or take nothing: how long each is waited for, how many there may be. Needs uvicorn."""

from __future__ import annotations

import asyncio
import math
import resource
from collections.abc import Iterable
from operator import itemgetter
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS: Final = 30.0
"""How long the head of a request may take to arrive, however little of it has."""
STALL_SECONDS: Final = 30.0
"""How long a caller may take nothing of an answer that is there for it."""
MAX_CONNECTIONS: Final = 1000


class Connection(H11Protocol):
    """One connection, as uvicorn serves it. By h11 alone: other readers take headers of any size."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.head_awaited_since: float | None = None
        """Since when the head of a request is waited for; None: one is being served."""
        self.is_aborted = False
        self.unread_since: float | None = None
        """Since when there is something that the other side has not taken."""
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    @property
    def idle_since(self) -> float | None:
        """Since when the other side is waited for; None: it waits for us."""
        return self.head_awaited_since if self.unread_since is None else self.unread_since

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take part, if need be in the place of the one that has been waited for the longest time."""
        super().connection_made(transport)
        # Whatever is left unread counts, also when we close. Not 0: that would pause TLS with nothing to be read.
        transport.set_write_buffer_limits(high=1)
        self._start_head_timer()
        if len(self.connections) > max_connections():
            # A newcomer is no better than those that are being served.
            _longest_idle(self.connections).abort()

    def abort(self) -> None:
        """End it now, whatever is left to be sent."""
        self.is_aborted = True
        if self.cycle is not None:
            self.cycle.disconnected = True  # or uvicorn complains, if the call ends before it hears of the end
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take what came, and see whether that makes a head."""
        super().data_received(data)
        is_serving = not getattr(self.cycle, "response_complete", True)  # before the first request it is None
        if is_serving:
            self._stop_head_timer()
        elif self._head_timer is None:
            self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Be gone."""
        self._stop_head_timer()
        self._stop_watching_reader()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """See to it that what was written is read."""
        super().pause_writing()
        self.unread_since = self.loop.time()
        self._watch_reader()

    def resume_writing(self) -> None:
        """Go on: all of it was taken."""
        super().resume_writing()
        self._stop_watching_reader()

    def on_response_complete(self) -> None:
        """See to the next request: it may be there already."""
        super().on_response_complete()
        if self.cycle.response_complete and self.head_awaited_since is None:
            self.head_awaited_since = self.loop.time()  # uvicorn itself ends it soon, if nothing more comes

    def _start_head_timer(self) -> None:
        self.head_awaited_since = self.loop.time()
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.abort)

    def _stop_head_timer(self) -> None:
        self.head_awaited_since = None
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _watch_reader(self, unsent_before: float = math.inf) -> None:
        unsent = self.transport.get_write_buffer_size()
        if unsent < unsent_before:  # a slow reader is a reader
            self._stall_timer = self.loop.call_later(STALL_SECONDS, self._watch_reader, unsent)
        else:
            self.abort()

    def _stop_watching_reader(self) -> None:
        self.unread_since = None
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None


def _longest_idle(connections: Iterable[object]) -> Connection:
    candidates = (each for each in connections if isinstance(each, Connection) and not each.is_aborted)
    idle = [(each.idle_since, each) for each in candidates if each.idle_since is not None]
    return min(idle, key=itemgetter(0))[1]


def max_connections() -> int:
    """Tell how many there may be: half of the files that may be open, for the server of the queue is to be reached."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if files == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, files // 2)
