"""The metrics of an app, by the semantic conventions for messaging."""

from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.metrics import Counter, Histogram, MeterProvider, get_meter

from duly.otel.conventions import SCHEMA

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""The boundaries of the buckets that the conventions name."""


class Instruments:
    """The instruments of one meter."""

    def __init__(self, provider: MeterProvider | None, version: str) -> None:
        meter = get_meter("duly", version, provider, SCHEMA)

        def seconds(name: str, description: str) -> Histogram:
            return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=_SECONDS)

        self._sent: Counter = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Messages that the app tried to send."
        )
        self._consumed: Counter = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages that were delivered to the app."
        )
        self._operation = seconds("messaging.client.operation.duration", "The duration of a send or receive.")
        self._process = seconds("messaging.process.duration", "The duration of a handler.")

    def on_send(self, messages: int, seconds: float, attributes: Mapping[str, Any]) -> None:
        """Count the messages of a call, and measure it."""
        self._sent.add(messages, attributes)
        self._operation.record(seconds, attributes)

    def on_create(self, attributes: Mapping[str, Any]) -> None:
        """Count a message that another call stores."""
        self._sent.add(1, attributes)

    def on_receive(self, messages: int, seconds: float, attributes: Mapping[str, Any]) -> None:
        """Count the messages that a receive returned, and measure it."""
        self._consumed.add(messages, attributes)
        self._operation.record(seconds, attributes)

    def on_process(self, seconds: float, attributes: Mapping[str, Any], *, delivered: int) -> None:
        """Measure a handler, and count the messages that a worker delivered to it."""
        if delivered:
            self._consumed.add(delivered, attributes)
        self._process.record(seconds, attributes)
