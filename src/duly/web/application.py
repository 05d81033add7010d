"""Assembles the dashboard as an ASGI app: pages, API, metrics and health check, behind the guards."""

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
    """Create the dashboard of an app as an ASGI app: pages, HTTP API (`api/v1`), `metrics` and `healthz`.

    Serve it, or mount it in another app. `tokens` maps each token to its role, "viewer", "operator" or "admin"; a
    single token is an admin's. Without tokens every client is an admin, and the dashboard answers only to the names
    of the local machine. Set `hosts` to mount it under another name. `read_only` rejects all changes. `open_metrics`
    serves `metrics` without a token. A dashboard runs in one event loop at a time: create one dashboard and one app
    for each thread that has its own loop.
    """
    if not isinstance(app, Duly | AsyncDuly):
        raise UsageError(f"create_app takes a Duly or AsyncDuly, not {app!r}")
    for name, value in (("read_only", read_only), ("open_metrics", open_metrics)):
        if not isinstance(value, bool):  # the text "false" would be truthy
            raise UsageError(f"create_app: {name} must be True or False, not {value!r}")
    checked_hosts(hosts)  # checked now, because the guards are created with the first request
    async_app = app.aio if isinstance(app, Duly) else app
    site = Site(async_app, Access(tokens, read_only=read_only), Names(async_app))
    application = Starlette(
        routes=[*pages.routes(site), api.mount(), metrics.route(site, is_open=open_metrics), health_route()],
        middleware=[Middleware(Guards, site=site, hosts=hosts)],
        exception_handlers=pages.error_handlers(),
    )
    application.state.site = site
    return application


def sign_in_link(application: Starlette, url: str, token: str) -> str:
    """Create a link that signs in one browser, once and soon.

    The code is behind the `#`: browsers send it to no server, and no log or referrer gets it. The script of the login
    page sends it with the form.
    """
    site: Site = application.state.site
    return f"{url.rstrip('/')}/login#{site.access.codes.issue(token)}"


_HEALTH_TIMEOUT: Final = 2.0


def health_route() -> Route:
    """Create the route of the health check. It reveals nothing, so it needs no token."""
    return Route("/healthz", healthz, methods=["GET"], name="healthz")


async def healthz(request: Request) -> Response:
    """Respond with 200 if the server, or a node of the cluster, answers, and with 503 otherwise."""
    try:
        async with asyncio.timeout(_HEALTH_TIMEOUT):
            await (await site_of(request).names.survey()).workers()
    except (DulyError, TimeoutError):
        return JSONResponse({"ok": False}, 503)
    return JSONResponse({"ok": True})
