"""Traces through the HTTP API, and through a FastAPI that OpenTelemetry instruments."""

import httpx
from fastapi import FastAPI
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.trace import SpanKind

import duly
import duly.otel
from duly.web import create_app
from tests.otel.recording import Recorder, is_child
from tests.worker.rig import eventually

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_a_request_of_the_http_api_continues_its_trace(async_app: duly.AsyncDuly, recorder: Recorder) -> None:
    transport = httpx.ASGITransport(create_app(async_app))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        sent = await client.post("/api/v1/queues/orders/messages", json={"body": 1}, headers={"traceparent": TRACE})
        assert sent.status_code == 201, sent.text
        received = await client.post("/api/v1/queues/orders/receive", json={"wait": 0})
    send = recorder.span("send orders")

    assert f"{send.context.trace_id:032x}" == TRACE.split("-")[1]
    assert send.parent is not None
    assert f"{send.parent.span_id:016x}" == TRACE.split("-")[2]
    (message,) = received.json()["messages"]
    assert message["headers"]["traceparent"].split("-")[1:3] == [TRACE.split("-")[1], f"{send.context.span_id:016x}"]


async def test_one_trace_from_a_request_of_fastapi_to_the_handler(
    backend: str, queue_name: str, recorder: Recorder
) -> None:
    app = duly.Duly(backend)
    recorder.instrument(app)
    orders = app.queue(queue_name)

    @orders.handler
    async def on_order(order: int) -> None: ...

    site = FastAPI()

    @site.post("/orders")
    async def buy() -> dict[str, str]:
        return {"id": await orders.aio.send(1)}

    FastAPIInstrumentor.instrument_app(
        site, tracer_provider=recorder.tracer_provider, meter_provider=recorder.meter_provider
    )
    transport = httpx.ASGITransport(site)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.post("/orders", headers={"traceparent": TRACE})
    assert answer.json()["id"]
    async with duly.Worker(app):
        await eventually(lambda: recorder.spans(f"process {queue_name}"))
    FastAPIInstrumentor.uninstrument_app(site)
    await app.aio.aclose()
    app.close()
    (request,) = [span for span in recorder.spans() if span.kind is SpanKind.SERVER]
    send, process = recorder.span(f"send {queue_name}"), recorder.span(f"process {queue_name}")

    assert request.name == "POST /orders"
    assert is_child(send, request)
    assert is_child(process, send)
    assert {f"{span.context.trace_id:032x}" for span in (request, send, process)} == {TRACE.split("-")[1]}
