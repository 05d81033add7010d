"""Spans of receives and handlers: whose trace they belong to, and how they end. In workers, and in `with d:`."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

import duly
from duly import Batch, Defer, Keep, Reject, Retry, RetryIn
from tests.conftest import StartedServer
from tests.otel.recording import Recorder, attributes_of, is_child, linked
from tests.waiting import wait_until
from tests.worker.rig import FLAVOURS, Bench, WorkerProcess, eventually, given_bench


@pytest.fixture(params=FLAVOURS)
async def bench(
    request: pytest.FixtureRequest, backend: str, queue_name: str, recorder: Recorder
) -> AsyncIterator[Bench]:
    async with given_bench(backend, queue_name, request.param) as bench:
        recorder.instrument(bench.app)
        yield bench


@pytest.fixture
async def memory_bench(queue_name: str, recorder: Recorder) -> AsyncIterator[Bench]:
    async with given_bench("memory://", queue_name, "AsyncDuly, async def") as bench:
        recorder.instrument(bench.app)
        yield bench


# In a worker


async def test_a_handler_belongs_to_the_trace_of_the_sender(bench: Bench, recorder: Recorder) -> None:
    inside: list[int] = []
    bench.define(lambda body, d: inside.append(trace.get_current_span().get_span_context().span_id))
    with recorder.tracer.start_as_current_span("request"):
        id_ = await bench.queue.send({"order": 1})

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=1, acked=1)
    name = bench.queue_name
    send, process = recorder.span(f"send {name}"), recorder.span(f"process {name}")

    assert process.kind is SpanKind.CONSUMER
    assert is_child(send, recorder.span("request"))
    assert is_child(process, send)
    assert linked(process) == [send.context.span_id]
    assert inside == [process.context.span_id]
    expected = {"messaging.message.id": id_, "messaging.duly.attempt": 1, "messaging.duly.outcome": "ack"}
    assert expected.items() <= dict(attributes_of(process)).items()
    assert process.status.status_code is StatusCode.UNSET
    assert recorder.names().count(f"receive {name}") == 0


async def test_a_handler_may_begin_a_trace_that_links_to_the_sender(memory_bench: Bench, recorder: Recorder) -> None:
    duly.otel.uninstrument(memory_bench.app)
    recorder.instrument(memory_bench.app, continue_trace=False)
    memory_bench.define(lambda body, d: None)
    await memory_bench.queue.send(1)
    with recorder.tracer.start_as_current_span("the program of the worker"):
        async with memory_bench.worker():
            await memory_bench.comes_to(sent=1, delivered=1, acked=1)
    process = recorder.span(f"process {memory_bench.queue_name}")

    assert process.parent is None
    assert linked(process) == [recorder.span(f"send {memory_bench.queue_name}").context.span_id]


async def test_a_failed_handler_is_an_error_and_each_attempt_is_a_span(bench: Bench, recorder: Recorder) -> None:
    def fail_once(body: Any, d: Any) -> None:
        if d.attempt == 1:
            raise ValueError("no stock")

    bench.define(fail_once, retry=Retry(attempts=2, first=0.01))
    await bench.queue.send(1)
    async with bench.worker():
        await bench.comes_to(sent=1, delivered=2, acked=1, retried=1)
    first, second = recorder.spans(f"process {bench.queue_name}")

    assert first.status.status_code is StatusCode.ERROR
    assert first.status.description == "no stock"
    assert [(event.name, event.attributes and event.attributes["exception.type"]) for event in first.events] == [
        ("exception", "ValueError")
    ]
    failed = {"error.type": "ValueError", "messaging.duly.outcome": "retry", "messaging.duly.attempt": 1}
    assert failed.items() <= dict(attributes_of(first)).items()
    assert attributes_of(second)["messaging.duly.attempt"] == 2
    assert second.status.status_code is StatusCode.UNSET
    assert first.context.trace_id == second.context.trace_id
    durations = {
        point.attributes.get("error.type"): point.count for point in recorder.points("messaging.process.duration")
    }
    assert durations == {"ValueError": 1, None: 1}


OUTCOMES: dict[str, Any] = {"defer": Defer(0.01), "retry": RetryIn(0.01), "reject": Reject("no such customer")}


@pytest.mark.parametrize("outcome", OUTCOMES)
async def test_an_outcome_is_an_attribute_and_no_error(memory_bench: Bench, recorder: Recorder, outcome: str) -> None:
    def act(body: Any, d: Any) -> None:
        if not d.defers and d.attempt == 1:
            raise OUTCOMES[outcome]

    memory_bench.define(act)
    await memory_bench.queue.send(1)
    process = f"process {memory_bench.queue_name}"
    async with memory_bench.worker():
        await eventually(lambda: len(recorder.spans(process)) == (1 if outcome == "reject" else 2))
    span = recorder.spans(process)[0]

    assert attributes_of(span)["messaging.duly.outcome"] == outcome
    assert span.status.status_code is StatusCode.UNSET
    assert "error.type" not in attributes_of(span)


async def test_a_handler_that_takes_too_long_is_an_error(
    bench: Bench, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    """A thread cannot be stopped, so the end of a `def` is reported by the event loop."""
    released = threading.Event()

    async def hang() -> None:
        await asyncio.sleep(60)

    bench.define(lambda body, d: hang() if bench.is_async else released.wait(60), timeout=0.1, retry=Retry(attempts=1))
    await bench.queue.send(1)
    process = f"process {bench.queue_name}"
    try:
        async with bench.worker():
            await eventually(lambda: recorder.spans(process))
            released.set()
    finally:
        released.set()
    span = recorder.span(process)

    assert span.status.status_code is StatusCode.ERROR
    assert attributes_of(span)["error.type"] == "TimeoutError"
    assert attributes_of(span)["messaging.duly.outcome"] == "retry"
    assert "Failed to detach context" not in caplog.text


async def test_a_message_that_does_not_decode_is_an_error(memory_bench: Bench, recorder: Recorder) -> None:
    memory_bench.define(lambda body, d: None, body=int)
    await memory_bench.queue.send("text")
    async with memory_bench.worker():
        await eventually(lambda: recorder.spans(f"process {memory_bench.queue_name}"))
    span = recorder.span(f"process {memory_bench.queue_name}")

    assert span.status.status_code is StatusCode.ERROR
    assert attributes_of(span)["messaging.duly.outcome"] == "reject"


async def test_a_batch_is_one_span_with_a_link_to_each_sender(bench: Bench, recorder: Recorder) -> None:
    bench.define(lambda bodies, ds: None, batch=Batch(max=3, wait=5))
    for number in range(3):
        await bench.queue.send(number)
    async with bench.worker():
        await bench.comes_to(sent=3, delivered=3, acked=3)
    sends, process = recorder.spans(f"send {bench.queue_name}"), recorder.span(f"process {bench.queue_name}")

    assert process.parent is None
    assert sorted(linked(process)) == sorted(each.context.span_id for each in sends)
    assert {link.attributes and link.attributes["messaging.message.id"] for link in process.links} == {
        attributes_of(each)["messaging.message.id"] for each in sends
    }
    assert attributes_of(process)["messaging.batch.message_count"] == 3
    (consumed,) = recorder.points("messaging.client.consumed.messages")
    assert consumed.value == 3


async def test_sends_of_a_handler_continue_the_trace(bench: Bench, recorder: Recorder) -> None:
    other = bench.aio.queue(f"{bench.queue_name}-next")
    sync_app = bench.app

    def pass_on(body: Any, d: Any) -> Any:
        if isinstance(sync_app, duly.AsyncDuly):
            return other.send(body)
        sync_app.queue(other.name).send(body)
        return None

    bench.define(pass_on)
    await bench.queue.send(1)
    async with bench.worker():
        await bench.comes_to(sent=1, delivered=1, acked=1)

    assert is_child(recorder.span(f"send {other.name}"), recorder.span(f"process {bench.queue_name}"))


async def test_a_redriven_message_keeps_its_context(memory_bench: Bench, recorder: Recorder) -> None:
    def fail_once(body: Any, d: Any) -> None:
        if not d.redrives:
            raise ValueError

    memory_bench.define(fail_once, retry=Retry(attempts=1))
    await memory_bench.queue.send("wrong")
    async with memory_bench.worker():
        await eventually(lambda: recorder.spans(f"process {memory_bench.queue_name}"))
        await eventually(lambda: memory_bench.queue.redrive(edit=lambda message: "right"))
        await eventually(lambda: len(recorder.spans(f"process {memory_bench.queue_name}")) == 2)

    assert len({span.context.trace_id for span in recorder.spans()}) == 1


async def test_each_group_of_a_topic_handles_an_entry_in_the_trace(memory_bench: Bench, recorder: Recorder) -> None:
    events = memory_bench.aio.topic("events")
    for group in ("archive", "mail"):
        events.handler(group=group)(memory_bench.coloured(lambda body, d: None))
    await events.publish("paid")
    async with memory_bench.worker():
        await eventually(lambda: len(recorder.spans("process events")) == 2)
    publish, handled = recorder.span("publish events"), recorder.spans("process events")

    assert all(is_child(each, publish) for each in handled)
    assert {attributes_of(each)["messaging.consumer.group.name"] for each in handled} == {"archive", "mail"}


async def test_a_message_without_context_begins_a_trace(memory_bench: Bench, recorder: Recorder) -> None:
    memory_bench.define(lambda body, d: None)
    async with duly.AsyncDuly(memory_bench.app) as other:  # another app, which is not instrumented
        await other.queue(memory_bench.queue_name).send(1, headers={"traceparent": "nonsense"})
    async with memory_bench.worker():
        await eventually(lambda: recorder.spans(f"process {memory_bench.queue_name}"))
    (span,) = recorder.spans()

    assert (span.parent, span.links) == (None, ())


async def test_a_block_in_a_handler_adds_no_span(memory_bench: Bench, recorder: Recorder) -> None:
    async def settle(body: Any, d: Any) -> None:
        async with d:
            pass

    memory_bench.define(settle)
    await memory_bench.queue.send(1)
    async with memory_bench.worker():
        await memory_bench.comes_to(sent=1, delivered=1, acked=1)

    assert recorder.names() == [f"send {memory_bench.queue_name}", f"process {memory_bench.queue_name}"]


def test_a_trace_goes_through_a_worker_process(
    server: StartedServer, tmp_path: Path, queue_name: str, recorder: Recorder
) -> None:
    source = f"""
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        import duly.otel

        spans, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(spans))
        duly.otel.instrument(app, tracer_provider=provider)
        second = app.queue({f"{queue_name}-second"!r})

        @app.queue({queue_name!r}).handler
        def on_first(body, d):
            second.send(body)

        @second.handler
        async def on_second(body, d):
            note("handled")

        @app.on_stop
        def stop():
            note("spans", spans=[
                [span.name, span.context.trace_id, span.context.span_id, span.parent and span.parent.span_id]
                for span in spans.get_finished_spans()
            ])
    """
    with duly.Duly(server("valkey").url) as app, WorkerProcess(server("valkey").url, tmp_path, source) as worker:
        recorder.instrument(app)
        app.queue(queue_name).send(1)
        wait_until(lambda: app.queue(f"{queue_name}-second").stats().acked)
        worker.stop()
        (noted,) = [note for note in worker.notes() if note["what"] == "spans"]
    sent = recorder.span(f"send {queue_name}").context
    spans = {span[0]: span for span in noted["spans"]}
    first, again, second = (
        spans[f"{what} {queue_name}{which}"]
        for what, which in (("process", ""), ("send", "-second"), ("process", "-second"))
    )

    assert first == [f"process {queue_name}", sent.trace_id, first[2], sent.span_id]
    assert again == [f"send {queue_name}-second", sent.trace_id, again[2], first[2]]
    assert second == [f"process {queue_name}-second", sent.trace_id, second[2], again[2]]


# With receive


def test_a_receive_links_to_the_senders_and_blocks_belong_to_their_traces(app: duly.Duly, recorder: Recorder) -> None:
    orders = app.queue("orders")
    for number in range(2):
        orders.send(number)
    assert orders.receive(wait=0, limit=2)[0].body == 0
    receive, sends = recorder.span("receive orders"), recorder.spans("send orders")

    assert receive.kind is SpanKind.CLIENT
    assert receive.parent is None
    assert linked(receive) == [each.context.span_id for each in sends]
    assert attributes_of(receive)["messaging.batch.message_count"] == 2
    assert receive.end_time is not None
    assert receive.start_time is not None
    assert receive.start_time <= receive.end_time
    assert recorder.names().count("process orders") == 0


def test_an_empty_receive_adds_no_span(app: duly.Duly, recorder: Recorder) -> None:
    assert app.queue("orders").receive(wait=0) == []
    assert recorder.names() == []


def test_a_block_is_the_span_of_its_message(app: duly.Duly, recorder: Recorder) -> None:
    orders = app.queue("orders", retry=Retry(attempts=2, first=0))
    orders.send(1)
    with pytest.raises(ValueError, match="no stock"), orders.receive(wait=5)[0]:
        raise ValueError("no stock")
    with orders.receive(wait=5)[0]:
        raise Reject("never")
    send, (failed, rejected) = recorder.span("send orders"), recorder.spans("process orders")

    assert is_child(failed, send)
    assert is_child(rejected, send)
    assert failed.status.status_code is StatusCode.ERROR
    assert [attributes_of(each)["messaging.duly.outcome"] for each in (failed, rejected)] == ["retry", "reject"]
    assert rejected.status.status_code is StatusCode.UNSET
    (consumed,) = recorder.points("messaging.client.consumed.messages")
    assert consumed.value == 2  # once for each receive, and not again for its block


async def test_a_block_in_a_span_is_its_child(async_app: duly.AsyncDuly, recorder: Recorder) -> None:
    orders = async_app.queue("orders")
    await orders.send(1)
    with recorder.tracer.start_as_current_span("poll"):
        async with (await orders.receive(wait=0))[0]:
            await asyncio.sleep(0)
    process = recorder.span("process orders")

    assert is_child(process, recorder.span("poll"))
    assert is_child(recorder.span("receive orders"), recorder.span("poll"))
    assert linked(process) == [recorder.span("send orders").context.span_id]


def test_a_lost_lease_is_an_error(app: duly.Duly, recorder: Recorder) -> None:
    orders = app.queue("orders")
    id_ = orders.send(1)
    (delivery,) = orders.receive(wait=0)
    with pytest.raises(duly.LeaseLost), delivery:
        assert orders.cancel(id_, running=True)
    span = recorder.span("process orders")

    assert attributes_of(span)["messaging.duly.outcome"] == "lost"
    assert attributes_of(span)["error.type"] == "LeaseLost"


def test_results_are_kept_as_ever(app: duly.Duly, recorder: Recorder) -> None:
    orders = app.queue("orders", done=Keep(count=5))
    id_ = orders.send(1)
    with orders.receive(wait=0)[0] as delivery:
        delivery.ack(result={"id": id_})

    assert json.dumps(orders.result(id_, wait=0)) == json.dumps({"id": id_})
    assert attributes_of(recorder.span("process orders"))["messaging.duly.outcome"] == "ack"
