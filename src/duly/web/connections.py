"""Connections that bring nothing: how long each is waited for, and how many there may be. Needs uvicorn."""

from __future__ import annotations

import asyncio
import resource
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS: Final = 30.0
"""How long the head of a request may take to arrive, however little of it has."""
MOST_CONNECTIONS: Final = 1000


class Connection(H11Protocol):
    """One connection, as uvicorn serves it. By h11 alone: other readers take headers of any size."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.waits_since: float | None = None
        """Since when the head of a request is waited for; None: one is being served."""
        self._limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take part, if need be in the place of the one that has brought nothing for the longest time."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > most_connections():
            # A newcomer is no better than those that are being served.
            min(filter(_is_waiting, self.connections), key=_since).transport.abort()

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
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """See to the next request: it may be there already."""
        super().on_response_complete()
        if self.cycle.response_complete and self.waits_since is None:
            self.waits_since = self.loop.time()  # uvicorn itself ends it soon, if nothing more comes

    def _wait(self) -> None:
        self.waits_since = self.loop.time()
        self._limit = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        self.waits_since = None
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None


def _is_waiting(connection: Any) -> bool:
    return connection.waits_since is not None and not connection.transport.is_closing()


def _since(connection: Any) -> float:
    since: float = connection.waits_since
    return since


def most_connections() -> int:
    """Tell how many there may be: half of the files that may be open, for the server of the queue is to be reached."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if files == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, files // 2)
