"""Dashboards with their own apps, and clients that call them in this process, without sockets."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any, Final

import httpx
import pytest

import duly
from duly._core import ops
from duly._core.keys import RegistryKeys
from duly._core.registry import Info, written_info
from duly.web import Role, create_app
from duly.web.site import PollLimit, Site
from tests.conftest import StartedServer

TOKENS: Final[Mapping[str, Role]] = {
    "a-token-for-viewers": "viewer",
    "a-token-for-operators": "operator",
    "a-token-for-admins": "admin",
}

TokenClient = Callable[[Role], httpx.AsyncClient]
"""Creates a client with the token of a role."""


def client_of(site: Any, **options: Any) -> httpx.AsyncClient:
    """Create a client that calls an ASGI app in this process, under a local host name."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=site), base_url="http://localhost", **options)


def poll_limit_of(client: httpx.AsyncClient) -> PollLimit:
    """Return the poll limit of the dashboard that a client calls."""
    transport: Any = client._transport
    site: Site = transport.app.state.site
    return site.poll_limit


def authorization(role: Role) -> dict[str, str]:
    """Return the authorization header of a role."""
    token = next(token for token, each in TOKENS.items() if each == role)
    return {"Authorization": f"Bearer {token}"}


def beat(app: duly.AsyncDuly | duly.Duly, name: str, *queues: str) -> Any:
    """Send the heartbeat of a worker that has three messages of its queues."""
    info = Info(
        host="h",
        pid=7,
        queues=queues,
        concurrency=16,
        in_flight=3,
        handled=99,
        started_at=datetime.now(UTC),
        last_poll=0.5,
        version="1",
    )
    return app._link.run(ops.beat(RegistryKeys(app.namespace), name, written_info(info), 60.0))


@pytest.fixture
async def site_app() -> AsyncIterator[duly.AsyncDuly]:
    """Yield an empty app on memory://."""
    async with duly.AsyncDuly("memory://") as app:
        yield app


@pytest.fixture
async def server_app(server: StartedServer) -> AsyncIterator[duly.AsyncDuly]:
    """Yield an app on a real server, in its own namespace."""
    async with duly.AsyncDuly(server("valkey").url, namespace=f"web-{uuid.uuid4().hex}") as app:
        yield app


@pytest.fixture
async def client(site_app: duly.AsyncDuly) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of the dashboard of `site_app`, which requires no token."""
    async with client_of(create_app(site_app)) as caller:
        yield caller


@pytest.fixture
async def server_client(server_app: duly.AsyncDuly) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of the dashboard of `server_app`, which requires no token."""
    async with client_of(create_app(server_app)) as caller:
        yield caller


@pytest.fixture
async def token_client(site_app: duly.AsyncDuly) -> AsyncIterator[TokenClient]:
    """Yield a function that creates clients of each role, for the dashboard of `site_app` with tokens."""
    site = create_app(site_app, tokens=TOKENS)
    async with AsyncExitStack() as stack:
        made: dict[Role, httpx.AsyncClient] = {}

        def caller(role: Role) -> httpx.AsyncClient:
            if role not in made:
                made[role] = client_of(site, headers=authorization(role))
                stack.push_async_callback(made[role].aclose)
            return made[role]

        yield caller
