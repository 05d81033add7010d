"""Server-sent events: the statistics of queues, again and again, on one connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import msgspec
from starlette.responses import Response, StreamingResponse

from duly.errors import DulyError
from duly.web.api import requests, responses
from duly.web.api.operation import ApiCall, Operation
from duly.web.api.queues import read_queues
from duly.web.problems import Problem, problem_of

MEDIA_TYPE: Final = "text/event-stream"
_LONGEST: Final = 600.0
"""Seconds after which a stream ends. A client of server-sent events connects again."""
_MOST_QUEUES: Final = 100
"""Queues in an event of `/events`."""


async def _of_all(call: ApiCall) -> Response:
    async def read() -> responses.QueuesShown:
        return await read_queues(call, _MOST_QUEUES, None)

    return _stream(call, read)


async def _of_one(call: ApiCall) -> Response:
    inbox = await call.inbox()

    async def read() -> responses.QueueShown:
        return responses.QueueShown(inbox.label, await inbox.stats())

    return _stream(call, read)


def _stream(call: ApiCall, read: Callable[[], Awaitable[Any]]) -> Response:
    if call.request.method == "HEAD":
        return Response(media_type=MEDIA_TYPE)
    call.site.poll_limit.check()
    headers = {"Cache-Control": "no-store"}
    return StreamingResponse(_events(call, read), media_type=MEDIA_TYPE, headers=headers)


async def _events(call: ApiCall, read: Callable[[], Awaitable[Any]]) -> AsyncIterator[bytes]:
    """Yield events until the client disconnects. An error is an event as well: the server may come back."""
    ends_at = time.monotonic() + _LONGEST
    with call.site.poll_limit.hold():
        yield f"retry: {call.query.interval * 1000:.0f}\n\n".encode()
        while time.monotonic() < ends_at:
            try:
                yield _event("stats", await read())
            except DulyError as error:
                yield _event("problem", problem_of(error))
            await asyncio.sleep(call.query.interval)


def _event(name: str, content: responses.QueuesShown | responses.QueueShown | Problem) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(content))


def _operation(path: str, name: str, summary: str, handle: Callable[[ApiCall], Awaitable[Response]]) -> Operation:
    return Operation(
        method="GET",
        path=path,
        name=name,
        summary=summary,
        needs="viewer",
        handle=handle,
        query=requests.Stream,
        answer=str,
        media_type=MEDIA_TYPE,
    )


OPERATIONS: Final[tuple[Operation, ...]] = (
    _operation("{inbox}/events", "stream", "Stream the statistics of a queue or group as server-sent events.", _of_one),
    _operation(
        "/events", "stream_all", "Stream the statistics of the first 100 queues as server-sent events.", _of_all
    ),
)
