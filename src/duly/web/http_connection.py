"""Limits on idle and stalled connections: how long each may take, and how many there may be. Needs uvicorn."""

from __future__ import annotations

import asyncio
import math
import resource
from collections.abc import Iterable
from operator import itemgetter
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS: Final = 30.0
"""How long the head of a request may take to arrive."""
STALL_SECONDS: Final = 30.0
"""How long a client may read nothing of a response that is ready."""
MAX_CONNECTIONS: Final = 1000


class Connection(H11Protocol):
    """A connection of uvicorn. Only the h11 implementation limits the size of headers."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.head_awaited_since: float | None = None
        """When it began to wait for the head of a request. None: a request is being served."""
        self.is_aborted: bool = False
        self.unread_since: float | None = None
        """When it began to wait for the client to read."""
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    @property
    def idle_since(self) -> float | None:
        """When it began to wait for the client. None: the client waits for the server."""
        return self.head_awaited_since if self.unread_since is None else self.unread_since

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection. Above the limit, the connection that has been idle longest is aborted."""
        super().connection_made(transport)
        # Any unread byte counts, even while closing. Not 0, which would pause TLS with nothing to read.
        transport.set_write_buffer_limits(high=1)
        self._start_head_timer()
        if len(self.connections) > max_connections():
            # A new connection has no priority over connections that are being served.
            _longest_idle(self.connections).abort()

    def abort(self) -> None:
        """Close the connection now and drop unsent data."""
        self.is_aborted = True
        if self.cycle is not None:
            self.cycle.disconnected = (
                True  # otherwise uvicorn logs an error if the call ends before it notices the disconnect
            )
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Process received data, and start or stop the timer for the request head."""
        super().data_received(data)
        is_serving = not getattr(self.cycle, "response_complete", True)  # None before the first request
        if is_serving:
            self._stop_head_timer()
        elif self._head_timer is None:
            self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        self._stop_head_timer()
        self._stop_watching_reader()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start to watch whether the client reads."""
        super().pause_writing()
        self.unread_since = self.loop.time()
        self._watch_reader()

    def resume_writing(self) -> None:
        """Continue: the client has read everything."""
        super().resume_writing()
        self._stop_watching_reader()

    def on_response_complete(self) -> None:
        """Wait for the next request, which may already have arrived."""
        super().on_response_complete()
        if self.cycle.response_complete and self.head_awaited_since is None:
            self.head_awaited_since = self.loop.time()  # uvicorn closes an idle connection soon

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
        if unsent < unsent_before:  # a slow reader is still a reader
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
    """Return the connection limit: at most half of the open files, because the server connections need some."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if files == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, files // 2)
