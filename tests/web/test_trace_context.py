"""The trace context of a request reaches its messages in a process without OpenTelemetry."""

from collections.abc import Mapping

import httpx
import pytest

import duly
from duly._core.observing import attach
from duly.web import create_app
from duly.web.trace_context import TraceContext
from tests.web.conftest import client_of

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
MESSAGES = "/api/v1/queues/orders/messages"


async def _sent(app: duly.AsyncDuly, client: httpx.AsyncClient, content: object) -> list[Mapping[str, str]]:
    """Send with a context, and return the headers of the messages."""
    given = {"traceparent": PARENT, "tracestate": "vendor=1", "accept-language": "en"}
    response = await client.post(MESSAGES, json=content, headers=given)
    assert response.status_code == 201, response.text
    return [each.headers for each in await app.queue("orders").list("ready")]


async def test_messages_carry_the_context_of_their_request(site_app: duly.AsyncDuly) -> None:
    attach(site_app, TraceContext())
    async with client_of(create_app(site_app)) as client:
        found = await _sent(site_app, client, [{"body": 1}, {"body": 2, "headers": {"mine": "x"}}])
        await client.post(MESSAGES, json={"body": 3})
        last = (await site_app.queue("orders").list("ready"))[-1]

    context = {"traceparent": PARENT, "tracestate": "vendor=1"}
    assert found == [context, {**context, "mine": "x"}]
    assert last.headers == {}


async def test_a_message_keeps_its_own_context(site_app: duly.AsyncDuly) -> None:
    attach(site_app, TraceContext())
    async with client_of(create_app(site_app)) as client:
        found = await _sent(site_app, client, {"body": 1, "headers": {"traceparent": OTHER}})

    assert found == [{"traceparent": OTHER}]


@pytest.mark.parametrize("parent", ["", "mine", PARENT + "0", "x" * 8200])
async def test_a_context_that_is_not_valid_is_left_out(site_app: duly.AsyncDuly, parent: str) -> None:
    attach(site_app, TraceContext())
    async with client_of(create_app(site_app)) as client:
        response = await client.post(MESSAGES, json={"body": 1}, headers={"traceparent": parent, "baggage": "a=1"})
        (message,) = await site_app.queue("orders").list("ready")

    assert (response.status_code, message.headers) == (201, {})
