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
READING_SECONDS: Final = 30.0
"""How long a caller may take nothing of an answer that is there for it."""
MOST_CONNECTIONS: Final = 1000


class Connection(H11Protocol):
    """One connection, as uvicorn serves it. By h11 alone: other readers take headers of any size."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.waits_since: float | None = None
        """Since when the head of a request is waited for; None: one is being served."""
        self.is_put_out = False
        self.unread_since: float | None = None
        """Since when there is something that the other side has not taken."""
        self._limit: asyncio.TimerHandle | None = None
        self._reading_limit: asyncio.TimerHandle | None = None

    @property
    def idle_since(self) -> float | None:
        """Since when the other side is waited for; None: it waits for us."""
        return self.waits_since if self.unread_since is None else self.unread_since

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take part, if need be in the place of the one that has been waited for the longest time."""
        super().connection_made(transport)
        # Whatever is left unread counts, also when we close. Not 0: that would pause TLS with nothing to be read.
        transport.set_write_buffer_limits(high=1)
        self._wait()
        if len(self.connections) > most_connections():
            # A newcomer is no better than those that are being served.
            _longest_idle(self.connections).put_out()

    def put_out(self) -> None:
        """End it now, whatever is left to be sent."""
        self.is_put_out = True
        if self.cycle is not None:
            self.cycle.disconnected = True  # or uvicorn complains, if the call ends before it hears of the end
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take what came, and see whether that makes a head."""
        super().data_received(data)
        is_serving = not getattr(self.cycle, "response_complete", True)  # before the first request it is None
        if is_serving:
            self._stop_waiting()
        elif self._limit is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Be gone."""
        self._stop_waiting()
        self._stop_watching()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """See to it that what was written is read."""
        super().pause_writing()
        self.unread_since = self.loop.time()
        self._watch()

    def resume_writing(self) -> None:
        """Go on: all of it was taken."""
        super().resume_writing()
        self._stop_watching()

    def on_response_complete(self) -> None:
        """See to the next request: it may be there already."""
        super().on_response_complete()
        if self.cycle.response_complete and self.waits_since is None:
            self.waits_since = self.loop.time()  # uvicorn itself ends it soon, if nothing more comes

    def _wait(self) -> None:
        self.waits_since = self.loop.time()
        self._limit = self.loop.call_later(HEAD_SECONDS, self.put_out)

    def _stop_waiting(self) -> None:
        self.waits_since = None
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _watch(self, left_before: float = math.inf) -> None:
        left = self.transport.get_write_buffer_size()
        if left < left_before:  # a slow reader is a reader
            self._reading_limit = self.loop.call_later(READING_SECONDS, self._watch, left)
        else:
            self.put_out()

    def _stop_watching(self) -> None:
        self.unread_since = None
        if self._reading_limit is not None:
            self._reading_limit.cancel()
            self._reading_limit = None


def _longest_idle(connections: Iterable[object]) -> Connection:
    mine = (each for each in connections if isinstance(each, Connection) and not each.is_put_out)
    idle = [(each.idle_since, each) for each in mine if each.idle_since is not None]
    return min(idle, key=itemgetter(0))[1]


def most_connections() -> int:
    """Tell how many there may be: half of the files that may be open, for the server of the queue is to be reached."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if files == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, files // 2)
