"""A dashboard over an app of its own, and somebody who calls it: in this process, without sockets."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

import httpx
import pytest

import duly
from duly.web import Role, create_app
from duly.web.site import PollLimit, Site
from tests.conftest import StartedServer

TOKENS: Final[Mapping[str, Role]] = {
    "a-token-for-viewers": "viewer",
    "a-token-for-operators": "operator",
    "a-token-for-admins": "admin",
}

TokenClient = Callable[[Role], httpx.AsyncClient]
"""Makes somebody who comes with the token of a role."""


def client_of(site: Any, **options: Any) -> httpx.AsyncClient:
    """Call an ASGI app in this process, under a name of this machine."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=site), base_url="http://localhost", **options)


def poll_limit_of(client: httpx.AsyncClient) -> PollLimit:
    """Find who waits at the dashboard that somebody calls in this process."""
    transport: Any = client._transport
    site: Site = transport.app.state.site
    return site.poll_limit


def authorization(role: Role) -> dict[str, str]:
    """Write the header that somebody of a role comes with."""
    token = next(token for token, each in TOKENS.items() if each == role)
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
async def site_app() -> AsyncIterator[duly.AsyncDuly]:
    """Give an app on memory://, with nothing in it."""
    async with duly.AsyncDuly("memory://") as app:
        yield app


@pytest.fixture
async def server_app(server: StartedServer) -> AsyncIterator[duly.AsyncDuly]:
    """Give an app on a real server, in a namespace that no other test uses."""
    async with duly.AsyncDuly(server("valkey").url, namespace=f"web-{uuid.uuid4().hex}") as app:
        yield app


@pytest.fixture
async def client(site_app: duly.AsyncDuly) -> AsyncIterator[httpx.AsyncClient]:
    """Give somebody before the dashboard of `site_app` that asks nobody for a token."""
    async with client_of(create_app(site_app)) as caller:
        yield caller


@pytest.fixture
async def server_client(server_app: duly.AsyncDuly) -> AsyncIterator[httpx.AsyncClient]:
    """Give somebody before the dashboard of `server_app` that asks nobody for a token."""
    async with client_of(create_app(server_app)) as caller:
        yield caller


@pytest.fixture
async def token_client(site_app: duly.AsyncDuly) -> AsyncIterator[TokenClient]:
    """Make callers of each role, before the dashboard of `site_app` with tokens."""
    site = create_app(site_app, tokens=TOKENS)
    async with AsyncExitStack() as stack:
        made: dict[Role, httpx.AsyncClient] = {}

        def caller(role: Role) -> httpx.AsyncClient:
            if role not in made:
                made[role] = client_of(site, headers=authorization(role))
                stack.push_async_callback(made[role].aclose)
            return made[role]

        yield caller
