"""The dashboard mounted in another web app: pages, links and API work below its path."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import litestar
import pytest
from django.conf import settings  # type: ignore[import-untyped]
from django.core.asgi import get_asgi_application  # type: ignore[import-untyped]
from django.http import HttpResponse  # type: ignore[import-untyped]
from django.urls import path  # type: ignore[import-untyped]
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

import duly
from duly.web import create_app
from tests.web.conftest import TOKENS, authorization, client_of

LINK = re.compile(r"""(?:href|src|action)=["']?([^"'\s>]+)""")
urlpatterns = [path("", lambda request: HttpResponse("the shop"))]


def in_starlette(dashboard: ASGIApp) -> Any:
    async def shop(request: Any) -> PlainTextResponse:
        return PlainTextResponse("the shop")

    return Starlette(routes=[Route("/", shop), Mount("/ops", dashboard)])


def in_fastapi(dashboard: ASGIApp) -> Any:
    web = FastAPI()
    web.mount("/ops", dashboard)

    @web.get("/", response_class=PlainTextResponse)
    async def shop() -> str:
        return "the shop"

    return web


def in_litestar(dashboard: Any) -> Any:
    @litestar.asgi("/ops", is_mount=True, copy_scope=True)
    async def ops(scope: Any, receive: Any, send: Any) -> None:
        """Restore the path that Litestar stripped, without the slash that it added."""
        within = scope["path"].rstrip("/") or "/"
        await dashboard({**scope, "root_path": "/ops", "path": f"/ops{within}"}, receive, send)

    @litestar.get("/", media_type="text/plain")
    async def shop() -> str:
        return "the shop"

    return litestar.Litestar([ops, shop], openapi_config=None, logging_config=None)


def in_django(dashboard: ASGIApp) -> ASGIApp:
    if not settings.configured:
        settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["localhost"], SECRET_KEY="a-test", LOGGING_CONFIG=None)
    shop = get_asgi_application()

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        """Act as asgi.py of a Django project."""
        if scope["type"] == "http" and scope["path"].startswith("/ops/"):
            await dashboard({**scope, "root_path": "/ops"}, receive, send)
        else:
            await shop(scope, receive, send)

    return application


MOUNTED: dict[str, Callable[[ASGIApp], Any]] = {
    "starlette": in_starlette,
    "fastapi": in_fastapi,
    "litestar": in_litestar,
    "django": in_django,
}


@pytest.fixture(params=MOUNTED)
async def browser(request: pytest.FixtureRequest, site_app: duly.AsyncDuly) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client with the token of an operator, for a shop with a dashboard at /ops."""
    await site_app.queue("orders").send({"order": 17}, id="order-17", delay=1800)
    web = MOUNTED[request.param](create_app(site_app, tokens=TOKENS))
    async with client_of(web, headers=authorization("operator")) as client:
        yield client


async def test_the_outer_app_is_still_served(browser: httpx.AsyncClient) -> None:
    assert (await browser.get("/")).text == "the shop"


@pytest.mark.parametrize("page", ["/", "/queues/orders", "/queues/orders/messages/order-17", "/workers"])
async def test_a_page_is_served_and_all_its_links_stay_below_the_path(browser: httpx.AsyncClient, page: str) -> None:
    response = await browser.get(f"/ops{page}")

    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")
    inner = [link for link in LINK.findall(response.text) if not link.startswith("#")]
    assert inner
    assert [link for link in inner if not response.url.join(link).path.startswith("/ops/")] == []


async def test_files_that_a_page_loads_are_served(browser: httpx.AsyncClient) -> None:
    page = await browser.get("/ops/")
    loaded = [str(page.url.join(link)) for link in LINK.findall(page.text) if "static/" in link]

    assert loaded
    assert {(await browser.get(link)).status_code for link in loaded} == {200}


async def test_the_api_answers(browser: httpx.AsyncClient) -> None:
    sent = await browser.post("/ops/api/v1/queues/orders/messages", json={"body": {"order": 18}})
    assert sent.status_code == 201

    taken = await browser.post("/ops/api/v1/queues/orders/receive", json={"wait": 0})
    assert [message["id"] for message in taken.json()["messages"]] == [sent.json()["id"]]

    receipt = taken.json()["messages"][0]["receipt"]
    acked = await browser.post("/ops/api/v1/queues/orders/ack", json={"receipt": receipt})
    assert acked.json()["settled"] == [sent.json()["id"]]


async def test_a_message_is_changed_by_its_id(browser: httpx.AsyncClient, site_app: duly.AsyncDuly) -> None:
    message = "/ops/api/v1/queues/orders/messages/order-17"

    assert (await browser.patch(message, json={"promote": True})).json()["state"] == "ready"
    assert (await browser.delete(message)).status_code == 204
    assert (await site_app.queue("orders").stats()).live == 0


async def test_the_description_has_the_path_of_the_api(browser: httpx.AsyncClient) -> None:
    described = (await browser.get("/ops/api/v1/openapi.json")).json()

    assert described["servers"] == [{"url": "/ops/api/v1"}]


async def test_a_client_without_a_token_is_redirected_to_the_login_below_the_path(browser: httpx.AsyncClient) -> None:
    del browser.headers["Authorization"]
    response = await browser.get("/ops/queues/orders", headers={"Accept": "text/html"})

    assert response.status_code in (302, 303, 307)
    assert response.url.join(response.headers["location"]).path == "/ops/login"


async def test_the_session_cookie_is_limited_to_the_path(browser: httpx.AsyncClient) -> None:
    token = browser.headers.pop("Authorization").removeprefix("Bearer ")
    response = await browser.post("/ops/login", data={"token": token}, headers={"Origin": "http://localhost"})

    assert response.status_code == 303
    assert "Path=/ops" in response.headers["set-cookie"]
    assert (await browser.get("/ops/queues/orders")).status_code == 200


async def test_health_and_metrics_are_below_the_path(browser: httpx.AsyncClient) -> None:
    assert (await browser.get("/ops/healthz")).json() == {"ok": True}
    assert 'queue="orders"' in (await browser.get("/ops/metrics")).text
