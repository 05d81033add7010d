"""`/healthz`: whether the server behind the dashboard answers. It names nothing, so nobody is asked for a token."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from duly.errors import DulyError
from duly.web.site import site_of

_PATIENCE: Final = 2.0


def route() -> Route:
    """Make the route."""
    return Route("/healthz", healthz, methods=["GET"], name="healthz")


async def healthz(request: Request) -> Response:
    """Answer 200 when the server answers, 503 when not."""
    try:
        async with asyncio.timeout(_PATIENCE):
            await site_of(request).app.workers()
    except (DulyError, TimeoutError):
        return JSONResponse({"ok": False}, 503)
    return JSONResponse({"ok": True})
