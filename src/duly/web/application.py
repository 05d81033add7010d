"""The dashboard as an ASGI app, put together: pages, API, metrics and health, behind the guards."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from duly import AsyncDuly, Duly
from duly.errors import DulyError, UsageError
from duly.web import api, metrics, pages
from duly.web.access import Access, Role
from duly.web.guards import Guards
from duly.web.hosts import checked_hosts
from duly.web.names import Names
from duly.web.site import Site, site_of


def create_app(
    app: Duly | AsyncDuly,
    *,
    tokens: str | Mapping[str, Role] | None = None,
    read_only: bool = False,
    hosts: Collection[str] | None = None,
    open_metrics: bool = False,
) -> Starlette:
    """Make the dashboard of an app: page, HTTP API (`api/v1`), `metrics` and `healthz`. Serve it, or mount it.

    `tokens` are texts with their roles, "viewer", "operator" or "admin"; one alone is an admin's. Without any,
    whoever reaches it is an admin: it then answers under the names of this machine itself alone, and whoever mounts
    it elsewhere says under which `hosts`. `read_only` refuses everything that changes something. `open_metrics`
    shows `metrics` without a token. One dashboard is served by one event loop at a time: threads that have a loop
    each need a dashboard each, of an app of its own.
    """
    if not isinstance(app, Duly | AsyncDuly):
        raise UsageError(f"create_app takes a Duly or AsyncDuly, not {app!r}")
    for name, value in (("read_only", read_only), ("open_metrics", open_metrics)):
        if not isinstance(value, bool):  # "false" would be true
            raise UsageError(f"create_app: {name} must be True or False, not {value!r}")
    checked_hosts(hosts)  # the guards are made when the first request comes, which is late to hear of it
    async_app = app.aio if isinstance(app, Duly) else app
    site = Site(async_app, Access(tokens, read_only=read_only), Names(async_app))
    application = Starlette(
        routes=[*pages.routes(site), api.mount(), metrics.route(site, is_open=open_metrics), health_route()],
        middleware=[Middleware(Guards, site=site, hosts=hosts)],
        exception_handlers=pages.error_handlers(),
    )
    application.state.site = site
    return application


_HEALTH_TIMEOUT: Final = 2.0


def health_route() -> Route:
    """Make the health_route."""
    return Route("/healthz", healthz, methods=["GET"], name="healthz")


async def healthz(request: Request) -> Response:
    """Answer 200 when the server answers, 503 when not."""
    try:
        async with asyncio.timeout(_HEALTH_TIMEOUT):
            await site_of(request).app.workers()
    except (DulyError, TimeoutError):
        return JSONResponse({"ok": False}, 503)
    return JSONResponse({"ok": True})
