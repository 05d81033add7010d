"""Error pages, with the same texts as the API."""

from __future__ import annotations

import logging
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from duly.errors import DulyError, Unavailable
from duly.web.names import NodeAway
from duly.web.pages.renderer import render
from duly.web.problems import TITLES, status_of

_LOG: Final = logging.getLogger("duly")
_UNAVAILABLE: Final = 503
_NO_ANSWER: Final = "the server does not answer: nothing can be shown until it does"
"""For pages. The error itself adds that the call may have been run, which does not matter for reading."""


def error_handlers() -> dict[Any, Any]:
    """Return the error handlers of everything outside the API."""
    return {HTTPException: http_error_page, DulyError: error_page, Exception: fault_page}


async def http_error_page(request: Request, error: HTTPException) -> Response:
    """Show an unknown path or a wrong method."""
    problems = {
        404: f"there is no page at {request.url.path}",
        405: f"{request.url.path} does not support {request.method}",
    }
    return _page(request, error.status_code, problems.get(error.status_code, error.detail), error.headers)


async def error_page(request: Request, error: DulyError) -> Response:
    """Show an error that Duly raised."""
    is_whole = isinstance(error, Unavailable) and not isinstance(error, NodeAway)
    detail = _NO_ANSWER if is_whole else str(error)
    return _page(request, status_of(error), detail, getattr(error, "headers", None))


async def fault_page(request: Request, error: Exception) -> Response:
    """Show an unexpected error. Only the log has its details."""
    _LOG.error("%s %r failed", request.method, request.url.path, exc_info=error)
    return _page(request, 500, "internal error of the dashboard: see its log", None)


def _page(request: Request, status: int, detail: str, headers: Any) -> Response:
    again = f"?{request.url.query}"
    title, is_unavailable = TITLES.get(status, "Refused"), status == _UNAVAILABLE
    page = render(request, "error.html", status, title=title, detail=detail, is_unavailable=is_unavailable, again=again)
    page.headers.update(headers or {})
    return page
