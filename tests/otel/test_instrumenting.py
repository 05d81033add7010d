"""instrument() and uninstrument(), and the names of the conventions."""

from typing import Any

import pytest
from opentelemetry.semconv._incubating.attributes import messaging_attributes, server_attributes
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.semconv.schemas import Schemas

import duly
import duly.otel
from duly import Send
from duly.otel import conventions
from tests.conftest import StartedServer
from tests.otel.recording import Recorder, attributes_of


def test_a_second_instrumentation_changes_nothing(app: duly.Duly, recorder: Recorder) -> None:
    recorder.instrument(app)
    duly.otel.instrument(app, create_spans=False)
    app.queue("orders").send_many([1, 2])

    assert recorder.names() == ["create orders", "create orders", "send orders"]


def test_an_app_can_be_uninstrumented(app: duly.Duly, recorder: Recorder) -> None:
    orders = app.queue("orders")
    orders.send(1)
    (delivery,) = orders.receive(wait=0)
    with delivery:
        duly.otel.uninstrument(app)
        duly.otel.uninstrument(app)
    orders.send(2)

    assert recorder.names() == ["send orders", "receive orders", "process orders"]
    assert orders.list("ready")[0].headers == {}


def test_apps_are_instrumented_one_by_one(app: duly.Duly, recorder: Recorder) -> None:
    with duly.Duly(app) as other:
        other.queue("orders").send(1)

    assert recorder.names() == []


@pytest.mark.parametrize("given", [None, "redis://localhost", duly.Duly], ids=repr)
def test_only_apps_are_instrumented(given: Any) -> None:
    for function in (duly.otel.instrument, duly.otel.uninstrument):
        with pytest.raises(duly.UsageError, match="is for an app"):
            function(given)


def test_without_an_sdk_nothing_is_recorded_and_headers_stay_as_they_are() -> None:
    with duly.Duly("memory://") as app:
        duly.otel.instrument(app)
        app.queue("orders").send_many([1, 2])
        app.queue("orders").send(3)
        for delivery in app.queue("orders").receive(wait=0):
            with delivery:
                assert delivery.headers == {}
        assert app.queue("orders").stats().acked == 3


def test_the_server_and_the_namespace_are_named(server: StartedServer, queue_name: str, recorder: Recorder) -> None:
    with duly.Duly(server("valkey").url, namespace="shop") as app:
        recorder.instrument(app)
        app.queue(queue_name).send(1)
        (delivery,) = app.queue(queue_name).receive(wait=0)
        delivery.ack()
        app.queue(queue_name).delete()
    for span in recorder.spans():
        attributes = attributes_of(span)
        assert attributes["server.address"] in server("valkey").url
        assert str(attributes["server.port"]) in server("valkey").url
        assert attributes["messaging.duly.namespace"] == "shop"


# The conventions, as the package of OpenTelemetry has them.


def known(module: Any) -> set[str]:
    return {value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}


def test_attributes_are_those_of_the_conventions(app: duly.Duly, recorder: Recorder) -> None:
    orders = app.queue("orders", max_length=2)
    orders.send_many([Send(1, key="k"), 2])
    with pytest.raises(duly.QueueFull):
        orders.send(3)
    for delivery in orders.receive(wait=0):
        with delivery:
            pass
    used = {name for span in recorder.spans() for name in attributes_of(span)}
    own = {name for name in used if name.startswith("messaging.duly.")}

    assert used - own - {"error.type"} <= known(messaging_attributes) | known(server_attributes)
    required = {
        "messaging.system",
        "messaging.operation.name",
        "messaging.operation.type",
        "messaging.destination.name",
    }
    assert all(required <= set(attributes_of(span)) for span in recorder.spans())
    types = {value.value for value in messaging_attributes.MessagingOperationTypeValues}
    assert {attributes_of(span)["messaging.operation.type"] for span in recorder.spans()} <= types


def test_metrics_are_those_of_the_conventions(app: duly.Duly, recorder: Recorder) -> None:
    orders = app.queue("orders")
    orders.send(1)
    with orders.receive(wait=0)[0]:
        pass
    names = (
        messaging_metrics.MESSAGING_CLIENT_SENT_MESSAGES,
        messaging_metrics.MESSAGING_CLIENT_CONSUMED_MESSAGES,
        messaging_metrics.MESSAGING_CLIENT_OPERATION_DURATION,
        messaging_metrics.MESSAGING_PROCESS_DURATION,
    )
    sent, consumed, operations, processed = (recorder.points(name) for name in names)

    assert [point.value for point in (*sent, *consumed)] == [1, 1]
    assert {point.attributes["messaging.operation.name"] for point in operations} == {"send", "receive"}
    assert processed[0].count == 1
    assert processed[0].explicit_bounds[:2] == (0.005, 0.01)
    points = [*sent, *consumed, *operations, *processed]
    assert not any("messaging.message.id" in point.attributes for point in points)


def test_the_schema_is_one_that_the_package_knows() -> None:
    assert conventions.SCHEMA in {each.value for each in Schemas}
