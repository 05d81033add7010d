"""OpenTelemetry for an app: spans and metrics of its messages, and traces that continue in their handlers.

    import duly.otel
    duly.otel.instrument(app)

The extra `otel` installs the API of OpenTelemetry. You choose its SDK and an exporter. Without them, nothing is
recorded.
"""

from typing import Any

try:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider
except ImportError as _error:
    raise ImportError("opentelemetry is missing: duly.otel needs pip install 'duly[otel]'") from _error

from duly._core.observing import attach, attached
from duly.errors import UsageError
from duly.otel.tracing import Tracing

__all__ = ["instrument", "uninstrument"]


def instrument(
    app: Any,
    *,
    continue_trace: bool = True,
    create_spans: bool = True,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> None:
    """Record spans and metrics of an app, of its `aio` counterpart, and of workers that are started later.

    - `continue_trace`: Whether the handling of a message belongs to the trace of its sender. Otherwise each handling
      begins a trace, with a link to the sender's. Batches always do so.
    - `create_spans`: Whether each message of a `send_many` has its own span, which its handling belongs to. Otherwise
      they share the span of the call.
    - `tracer_provider`, `meter_provider`: The providers; None: the global ones.

    Safe to repeat: an app that is instrumented keeps its options. Raises UsageError for anything but an app.
    """
    _check(app)
    if not isinstance(attached(app), Tracing):
        options = {"continue_trace": continue_trace, "create_spans": create_spans}
        attach(app, Tracing(tracer_provider, meter_provider, **options))


def uninstrument(app: Any) -> None:
    """Stop recording. Workers that were started record until they end. Safe to repeat."""
    _check(app)
    if isinstance(attached(app), Tracing):
        attach(app, None)


def _check(app: Any) -> None:
    from duly import AsyncDuly, Duly

    if not isinstance(app, Duly | AsyncDuly):
        raise UsageError(f"OpenTelemetry is for an app, duly.Duly or duly.AsyncDuly, not {app!r}")
