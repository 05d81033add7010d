"""Spans of sends, and the context that messages carry in their headers."""

from typing import Any

import pytest
from opentelemetry import baggage, context
from opentelemetry.trace import SpanKind, StatusCode

import duly
from duly import Send
from tests.otel.recording import Recorder, attributes_of, is_child, linked

OWN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def parent_in(headers: Any) -> int:
    """Return the span that a message names as its creator."""
    return int(headers["traceparent"].split("-")[2], 16)


def test_a_send_is_a_span_that_the_message_carries(app: duly.Duly, recorder: Recorder) -> None:
    with recorder.tracer.start_as_current_span("request"):
        id_ = app.queue("orders").send({"order": 1}, key="customer-7")
    (message,) = app.queue("orders").list("ready")
    send = recorder.span("send orders")

    assert send.kind is SpanKind.PRODUCER
    assert is_child(send, recorder.span("request"))
    assert parent_in(message.headers) == send.context.span_id
    assert message.body == {"order": 1}
    assert dict(attributes_of(send)) == {
        "messaging.system": "duly",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.message.id": id_,
        "messaging.duly.key": "customer-7",
    }


async def test_the_counterpart_of_an_app_is_instrumented(app: duly.Duly, recorder: Recorder) -> None:
    await app.aio.queue("orders").send(1)

    assert recorder.names() == ["send orders"]
    await app.aio.aclose()


async def test_an_async_app_is_instrumented(async_app: duly.AsyncDuly, recorder: Recorder) -> None:
    await async_app.queue("orders").send_many([1])
    await async_app.topic("events").publish("paid", delay=60)

    assert recorder.names() == ["send orders", "publish events"]


def test_each_message_of_a_batch_has_its_own_span(app: duly.Duly, recorder: Recorder) -> None:
    app.queue("orders").send_many([1, Send(2, headers={"mine": "x"})])
    messages = app.queue("orders").list("ready")
    send, creates = recorder.span("send orders"), recorder.spans("create orders")

    assert send.kind is SpanKind.CLIENT
    assert attributes_of(send)["messaging.batch.message_count"] == 2
    assert [each.kind for each in creates] == [SpanKind.PRODUCER] * 2
    assert linked(send) == [each.context.span_id for each in creates]
    assert [parent_in(each.headers) for each in messages] == [each.context.span_id for each in creates]
    assert messages[1].headers["mine"] == "x"


def test_messages_of_a_batch_may_share_the_span_of_the_call(recorder: Recorder) -> None:
    with duly.Duly("memory://") as app:
        recorder.instrument(app, create_spans=False)
        app.queue("orders").send_many([1, 2])
        found = {parent_in(each.headers) for each in app.queue("orders").list("ready")}

    assert recorder.names() == ["send orders"]
    assert recorder.span("send orders").kind is SpanKind.PRODUCER
    assert found == {recorder.span("send orders").context.span_id}


def test_an_entry_of_a_topic_carries_the_context(app: duly.Duly, recorder: Recorder) -> None:
    events = app.topic("events")
    events.publish("paid")
    events.publish_many(["shipped", Send("late", delay=60)])
    found: list[Any] = [*events.read(), *events.delayed()]
    creators = [parent_in(each.headers) for each in found]
    publish, many = recorder.spans("publish events")

    assert attributes_of(publish)["messaging.operation.type"] == "send"
    assert creators == [publish.context.span_id, *linked(many)]


def test_a_task_carries_the_context(app: duly.Duly, recorder: Recorder) -> None:
    @app.task(queue="mail")
    def welcome(user_id: int) -> None: ...

    welcome.send(42)
    (message,) = app.queue("mail").list("ready")

    assert parent_in(message.headers) == recorder.span("send mail").context.span_id


def test_a_context_of_the_sender_wins(app: duly.Duly, recorder: Recorder) -> None:
    orders = app.queue("orders")
    orders.send(1, headers={"traceparent": OWN})
    orders.send_many([Send(2, headers={"traceparent": OWN, "tracestate": "a=b"}), 3])
    first, second, third = orders.list("ready")
    single, many = recorder.spans("send orders")

    assert first.headers == {"traceparent": OWN}
    assert second.headers == {"traceparent": OWN, "tracestate": "a=b"}
    assert parent_in(third.headers) == recorder.span("create orders").context.span_id
    assert linked(single) == [parent_in(first.headers)]
    assert linked(many) == [parent_in(second.headers), parent_in(third.headers)]


def test_baggage_is_carried(app: duly.Duly) -> None:
    token = context.attach(baggage.set_baggage("tenant", "acme"))
    try:
        app.queue("orders").send(1)
    finally:
        context.detach(token)
    (delivery,) = app.queue("orders").receive(wait=0)
    assert delivery.headers["baggage"] == "tenant=acme"
    with delivery:
        assert baggage.get_baggage("tenant") == "acme"
    assert baggage.get_baggage("tenant") is None


def test_a_message_that_is_as_large_as_allowed_is_sent_without_context(app: duly.Duly, recorder: Recorder) -> None:
    orders = app.queue("orders", max_message_bytes=10)
    events = app.topic("events", max_message_bytes=10)
    orders.send("12345678")
    orders.send_many(["12345678", "1"])
    events.publish("12345678")

    found: list[Any] = [*orders.list("ready"), *events.read()]
    assert [each.headers for each in found] == [{}] * 4
    with pytest.raises(duly.TooLarge):
        orders.send("123456789")
    assert recorder.spans("send orders")[-1].status.status_code is StatusCode.ERROR


def test_an_entry_with_as_many_headers_as_allowed_is_published_without_context(app: duly.Duly) -> None:
    headers = {str(number): "" for number in range(1000)}
    app.topic("events").publish(1, headers=headers)

    assert app.topic("events").read()[0].headers == headers


def test_a_send_that_fails_is_an_error(app: duly.Duly, recorder: Recorder) -> None:
    orders = app.queue("orders", max_length=1)
    orders.send(1)
    with pytest.raises(duly.QueueFull):
        orders.send(2)
    span = recorder.spans("send orders")[-1]

    assert span.status.status_code is StatusCode.ERROR
    assert attributes_of(span)["error.type"] == "QueueFull"
    assert [event.name for event in span.events] == ["exception"]
    by_error = {
        point.attributes.get("error.type"): point.value for point in recorder.points("messaging.client.sent.messages")
    }
    assert by_error == {None: 1, "QueueFull": 1}


@pytest.mark.parametrize("headers", [5, {"a": 1}], ids=repr)
def test_invalid_headers_are_refused_as_ever(app: duly.Duly, headers: Any) -> None:
    with pytest.raises(duly.UsageError, match="headers must be"):
        app.queue("orders").send(1, headers=headers)
    with pytest.raises(duly.UsageError, match="a Send has its options in it"):
        app.queue("orders").send(Send(1), delay=5)


def test_messages_of_a_commit_carry_the_context(app: duly.Duly, recorder: Recorder) -> None:
    @app.task(queue="mail")
    def welcome(user_id: int) -> None: ...

    orders, stock, events = app.queue("orders"), app.queue("stock"), app.topic("events")
    orders.send(1)
    (delivery,) = orders.receive(wait=0)
    with delivery as d:
        d.commit(send=[(stock, 1), (welcome, (42,))], publish=[(events, "paid"), (events, Send("late", delay=60))])
    process = recorder.span("process orders")
    creates = [*recorder.spans("create stock"), *recorder.spans("create mail"), *recorder.spans("create events")]
    found: list[Any] = [*stock.list("ready"), *app.queue("mail").list("ready"), *events.read(), *events.delayed()]

    assert [parent_in(each.headers) for each in found] == [each.context.span_id for each in creates]
    assert all(is_child(each, process) for each in creates)
    assert attributes_of(process)["messaging.duly.outcome"] == "commit"


def test_each_message_of_a_schedule_has_its_own_context(recorder: Recorder) -> None:
    with duly.Duly("memory://") as app:
        recorder.instrument(app)
        reports = app.queue("reports")
        with recorder.tracer.start_as_current_span("deployment"):
            assert app.schedule("nightly", reports, "report", every=0.1)
        (first,) = reports.receive(limit=1, wait=10)
        (second,) = reports.receive(limit=1, wait=10)
        assert not app.schedule("nightly", reports, "report", every=0.1)  # it is unchanged
        app.unschedule("nightly")
    spans = recorder.spans("create reports")

    assert [parent_in(each.headers) for each in (first, second)] == [each.context.span_id for each in spans[:2]]
    assert len({each.context.trace_id for each in spans[:2]}) == 2
    assert attributes_of(spans[0])["messaging.duly.schedule"] == "nightly"
