"""Error responses of the HTTP API: `application/problem+json` of RFC 9457."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly.errors import (
    CodecError,
    DulyError,
    HandlerFailed,
    LeaseLost,
    NotDurable,
    QueueFull,
    ResultGone,
    ServerError,
    TooLarge,
    Unavailable,
    UsageError,
)
from duly.web.names import NotFound
from duly.web.site import PollLimitReached

_LOG: Final = logging.getLogger("duly")

TITLES: Final = {
    400: "The request is malformed",
    401: "A token is required",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "The request took too long",
    409: "Not possible in the current state",
    413: "Too large",
    414: "The address is too long",
    415: "Not JSON",
    421: "Wrong host",
    422: "Refused",
    429: "Too many",
    431: "The headers are too large",
    500: "Internal error of the dashboard",
    502: "The server rejected the command",
    503: "The server is unavailable",
    507: "No room",
}

BEARER_CHALLENGE: Final = {"WWW-Authenticate": "Bearer"}
"""The header of responses with status 401."""

_STATUS_BY_ERROR: Final[tuple[tuple[type[DulyError], int], ...]] = (
    (NotFound, 404),
    (ResultGone, 404),
    (HandlerFailed, 409),
    (PollLimitReached, 429),
    (TooLarge, 413),
    (UsageError, 422),
    (QueueFull, 507),
    (LeaseLost, 409),
    (NotDurable, 409),
    (CodecError, 409),
    (Unavailable, 503),
    (ServerError, 502),
)
"""The first matching class decides."""


class Problem(msgspec.Struct, omit_defaults=True):
    """The body of an error response."""

    title: str
    status: int
    detail: str
    """The problem, its queue and message, and the way to fix it."""
    ids: list[str] = []
    """Messages that were stored nevertheless."""


class Refused(DulyError):
    """A request that is rejected with this status."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.headers = headers


def status_of(error: DulyError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, Refused):
        return error.status
    return next((status for kind, status in _STATUS_BY_ERROR if isinstance(error, kind)), 500)


def problem_response(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """Create an error response."""
    return _response(Problem(TITLES.get(status, "Refused"), status, detail), headers)


def error_response(error: DulyError) -> Response:
    """Create the response for an error that Duly raised."""
    return _response(problem_of(error), getattr(error, "headers", None))


def problem_of(error: DulyError) -> Problem:
    """Describe an error that Duly raised."""
    ids = getattr(error, "stored", None) or getattr(error, "ids", None) or []
    status = status_of(error)
    return Problem(TITLES.get(status, "Refused"), status, str(error), list(map(str, ids)))


def _response(problem: Problem, headers: Mapping[str, str] | None) -> Response:
    return Response(msgspec.json.encode(problem), problem.status, headers, media_type="application/problem+json")


async def fault_response(request: Request, error: Exception) -> Response:
    """Create the response for an unexpected error. Only the log has its details."""
    _LOG.error("%s %r failed", request.method, request.url.path, exc_info=error)
    return problem_response(500, "internal error of the dashboard: see its log")
