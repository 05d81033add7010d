"""What one call of the API is: a value that says how it is asked, who may, what it takes and what it gives."""

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

Method = Literal["GET", "POST", "PATCH", "DELETE"]

T = TypeVar("T")

INBOX_PATHS: Final = ("/queues/{queue}", "/topics/{topic}/groups/{group}")
_LOOP_TURNS: Final = 25


@dataclass(frozen=True)
class ApiCall:
    """A call of the API whose caller is known and may make it, taken apart."""

    site: Site
    role: Role
    request: Request
    query: Any
    """As the operation's `query` says."""
    body: Any
    """As the operation's `body` says."""

    def path_param(self, name: str) -> str:
        """Give a part of the path."""
        value: str = self.request.path_params[name]
        return value

    @property
    def sees_payloads(self) -> bool:
        """Whether who asks is shown bodies, headers, results, errors and reasons."""
        return sees_payloads(self.role)

    async def inbox(self) -> Inbox:
        """Open the queue, or the group of a topic, that the path names and that exists."""
        return await self.site.names.inbox(self.request.path_params)

    def open_inbox(self, *, typed: bool = False) -> Inbox:
        """Open the same, whether it exists or not; `typed`: bodies that come into it are checked."""
        return self.site.names.open_inbox(self.request.path_params, typed=typed)

    async def run_while_connected(
        self, work: Coroutine[Any, Any, T], undo: Callable[[T], Awaitable[object]] | None = None
    ) -> T:
        """Do something that takes long, until the client goes away. What it then has done already is undone."""
        task, disconnected = asyncio.ensure_future(work), asyncio.ensure_future(self._wait_for_disconnect())
        try:
            await asyncio.wait({task, disconnected}, return_when=asyncio.FIRST_COMPLETED)
            await _let_loop_notice(disconnected)  # both may have happened at the same moment
            if not disconnected.done():
                return task.result()
        except asyncio.CancelledError:  # whoever serves us stops
            await before_leaving(_abandon(task, undo))
            raise
        finally:
            disconnected.cancel()
        await _abandon(task, undo)
        raise Refused(408, "the client went away before there was an answer")

    async def _wait_for_disconnect(self) -> None:
        """Wait until the client has gone, or has its answer."""
        while (await self.request.receive())["type"] != "http.disconnect":
            pass


async def _let_loop_notice(disconnected: asyncio.Future[None]) -> None:
    """Let the event loop hear of what has happened by now.

    From a connection that was closed to us it takes some turns: it is found readable, it is at its end, it is lost,
    whoever serves us says so, and perhaps others in between pass it on. What is closed later than that had its answer.
    """
    for _ in range(_LOOP_TURNS):
        if disconnected.done():
            return
        await asyncio.sleep(0)


async def _abandon(task: asyncio.Future[T], undo: Callable[[T], Awaitable[object]] | None) -> None:
    """End work that nobody waits for any more; undo it if it is too late for that."""
    task.cancel()
    await asyncio.wait({task})
    if undo is not None and not task.cancelled() and task.exception() is None:
        await undo(task.result())


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One row of the table."""

    method: Method
    path: str
    """Below /api/v1. `{inbox}` stands for `/queues/{queue}`, and for `/topics/{topic}/groups/{group}`."""
    name: str
    """One word or two, in snake case: the operationId."""
    summary: str
    """A sentence."""
    needs: Role
    handle: Callable[[ApiCall], Awaitable[Any]]
    """Does it, and gives an `answer`; None: there is nothing to say (204)."""
    answer: Any
    """The type of what it gives; None: nothing."""
    may_return_nothing: bool = False
    """Whether there may be nothing to say all the same."""
    query: Any = None
    """The msgspec.Struct that the query string is read as; None: it has none."""
    body: Any = None
    """The type that the JSON of the request is read as; None: it has none."""
    is_body_optional: bool = False
    """Whether the request may have no content at all, which means the same as `{}`."""
    status: int = 200
    is_logged: bool = False
    """Whether the log is to tell that it was done: somebody will ask why the queue stood still, or is empty."""

    @property
    def changes(self) -> bool:
        """Whether something may be other afterwards."""
        return self.method != "GET"
