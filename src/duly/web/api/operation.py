"""Defines operations of the API as values: path, permission, request and response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from starlette.requests import Request

from duly._port import Inbox, before_leaving
from duly.web.access import Role, sees_payloads
from duly.web.problems import Refused
from duly.web.site import Site

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

T = TypeVar("T")

INBOX_PATHS: Final = ("/queues/{queue}", "/topics/{topic}/groups/{group}")
_LOOP_TURNS: Final = 25


@dataclass(frozen=True)
class ApiCall:
    """A permitted call of the API, with its parsed query and body."""

    site: Site
    role: Role
    request: Request
    query: Any
    """An instance of the operation's `query`."""
    body: Any
    """An instance of the operation's `body`."""

    def path_param(self, name: str) -> str:
        """Return a parameter of the path."""
        value: str = self.request.path_params[name]
        return value

    @property
    def sees_payloads(self) -> bool:
        """Whether the client may see bodies, headers, results, errors and reasons."""
        return sees_payloads(self.role)

    async def inbox(self) -> Inbox:
        """Open the existing queue or group that the path names. A call that only reads does not wait for its node."""
        if self.request.method == "GET":
            await self.site.names.check_reached(self.request.path_params)
        return await self.site.names.inbox(self.request.path_params)

    def open_inbox(self, *, typed: bool = False) -> Inbox:
        """Open the queue or group that the path names, existing or not. `typed` validates bodies sent to it."""
        return self.site.names.open_inbox(self.request.path_params, typed=typed)

    async def run_while_connected(
        self, work: Coroutine[Any, Any, T], undo: Callable[[T], Awaitable[object]] | None = None
    ) -> T:
        """Run a long operation until the client disconnects. A result that comes too late is undone."""
        task, disconnected = asyncio.ensure_future(work), asyncio.ensure_future(self._wait_for_disconnect())
        try:
            await asyncio.wait({task, disconnected}, return_when=asyncio.FIRST_COMPLETED)
            await _let_loop_notice(disconnected)  # both may happen at the same moment
            if not disconnected.done():
                return task.result()
        except asyncio.CancelledError:  # the ASGI server stops
            await before_leaving(_abandon(task, undo))
            raise
        finally:
            disconnected.cancel()
        await _abandon(task, undo)
        raise Refused(408, "the client disconnected before the response")

    async def _wait_for_disconnect(self) -> None:
        """Wait until the client has disconnected, or has its response."""
        while (await self.request.receive())["type"] != "http.disconnect":
            pass


async def _let_loop_notice(disconnected: asyncio.Future[None]) -> None:
    """Give the event loop time to notice a disconnect that has already happened.

    This takes some turns: the socket becomes readable, its end is read, the connection is lost, and the ASGI server and
    middleware pass the event on. A client that disconnects later has received its response.
    """
    for _ in range(_LOOP_TURNS):
        if disconnected.done():
            return
        await asyncio.sleep(0)


async def _abandon(task: asyncio.Future[T], undo: Callable[[T], Awaitable[object]] | None) -> None:
    """Cancel work that no client waits for. If it has finished already, undo it."""
    task.cancel()
    await asyncio.wait({task})
    if undo is not None and not task.cancelled() and task.exception() is None:
        await undo(task.result())


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One row of the table of operations."""

    method: Method
    path: str
    """Below /api/v1. `{inbox}` stands for `/queues/{queue}` and `/topics/{topic}/groups/{group}`."""
    name: str
    """The operationId, in snake case."""
    summary: str
    """One sentence."""
    needs: Role
    handle: Callable[[ApiCall], Awaitable[Any]]
    """Runs the operation and returns an `answer`. None: no content (204)."""
    answer: Any
    """The type of the response body. None: no content."""
    may_return_nothing: bool = False
    """Whether there may be no content although `answer` is set."""
    query: Any = None
    """The msgspec.Struct of the query string. None: no parameters."""
    body: Any = None
    """The type of the JSON body of the request. None: no body."""
    is_body_optional: bool = False
    """Whether the body may be missing, which means the same as `{}`."""
    status: int = 200
    media_type: str = "application/json"
    """The type of the response. With another type than JSON, `handle` returns a whole response."""
    is_logged: bool = False
    """Whether the log records it: operations that can explain why a queue has stopped, or is empty."""

    @property
    def changes(self) -> bool:
        """Whether it may change something."""
        return self.method != "GET"
