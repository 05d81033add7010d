"""A recorder of spans and metrics: the SDK of OpenTelemetry with exporters in memory."""

from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import duly.otel


class Recorder:
    """Records what instrumented apps do."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracer_provider = TracerProvider()
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meter_provider = MeterProvider([self._reader])
        self.tracer = self.tracer_provider.get_tracer("test")

    def instrument(self, app: Any, **options: Any) -> None:
        duly.otel.instrument(app, tracer_provider=self.tracer_provider, meter_provider=self.meter_provider, **options)

    def spans(self, name: str = "") -> list[ReadableSpan]:
        """Return the spans that have ended, in that order, or those of one name."""
        return [span for span in self._exporter.get_finished_spans() if name in ("", span.name)]

    def span(self, name: str) -> ReadableSpan:
        """Return the only span of a name."""
        (span,) = self.spans(name)
        return span

    def names(self) -> list[str]:
        return [span.name for span in self.spans()]

    def points(self, metric: str) -> list[Any]:
        """Return the points of a metric."""
        data = self._reader.get_metrics_data()
        if data is None:
            return []
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
        found = [each for scope in scopes for each in scope.metrics if each.name == metric]
        return [point for each in found for point in each.data.data_points]


def attributes_of(span: ReadableSpan) -> Mapping[str, Any]:
    assert span.attributes is not None
    return span.attributes


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    """Whether a span is a child of another, in its trace."""
    return (
        span.parent is not None
        and span.parent.span_id == parent.context.span_id
        and span.context.trace_id == parent.context.trace_id
    )


def linked(span: ReadableSpan) -> list[int]:
    """Return the ids of the spans that a span links to."""
    return [link.context.span_id for link in span.links]
