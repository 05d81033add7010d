"""The observer of an app: begins and ends spans, and carries their context in the headers of messages."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Token
from typing import Any, Final

from opentelemetry import propagate, trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TracerProvider

import duly
from duly._core.observing import NO_HEADERS
from duly._core.schedules import SCHEDULE_HEADER
from duly.errors import CodecError
from duly.options import Send
from duly.otel import conventions
from duly.otel.conventions import Attributes, attributes_of, error_type
from duly.otel.metrics import Instruments

_LOG: Final = logging.getLogger("duly.otel")
_MAX_CARRIED: Final = 8192
"""Bytes of context that a message carries. The limit of W3C for baggage. A larger context is left out."""


@contextmanager
def _only_logged() -> Iterator[None]:
    """Log an error instead of raising it: the message is stored, delivered or handled already."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        _LOG.error("a span could not be recorded: %r", error)


class _Sending:
    """A call that sends: the headers for its messages, and their ids."""

    def __init__(self, span: Span, headers: Sequence[Mapping[str, str]]) -> None:
        self.headers = headers
        self._span = span

    def stored(self, ids: Sequence[str]) -> None:
        if len(ids) == 1:
            self._span.set_attribute(conventions.MESSAGE_ID, str(ids[0]))


class _Processing:
    """The span of a handler. It is the current span until it ends."""

    def __init__(self, span: Span, token: Token[Context], finish: Any) -> None:
        self._span = span
        self._token = token
        self._finish = finish
        self._began = time.monotonic()

    def ended(self, outcomes: Sequence[str], error: BaseException | str | None) -> None:
        with _only_logged():
            if trace.get_current_span() is self._span:  # a handler that took too long is ended from another thread
                detach(self._token)
            different = sorted(set(outcomes))
            self._span.set_attribute(conventions.OUTCOME, different[0] if len(different) == 1 else different)
            if error is None and "lost" in different:
                error = "the lease was lost"
            self._finish(self._span, error, time.monotonic() - self._began)


class Tracing:
    """An observer that records spans and metrics."""

    def __init__(
        self,
        tracer_provider: TracerProvider | None,
        meter_provider: MeterProvider | None,
        *,
        continue_trace: bool,
        create_spans: bool,
    ) -> None:
        version = duly.__version__
        self._tracer = trace.get_tracer("duly", version, tracer_provider, conventions.SCHEMA)
        self._metrics = Instruments(meter_provider, version)
        self._continue_trace = continue_trace
        self._create_spans = create_spans

    # Sending

    @contextmanager
    def sending(self, target: Any, given: Sequence[Any]) -> Iterator[_Sending]:
        """Record a call that sends. Its messages carry its context, or each the context of its creation."""
        attributes = attributes_of(target, "publish" if hasattr(target, "_publisher") else "send")
        own = [_own_context(each) for each in given]
        links = [Link(context) for context in own if context is not None and context.is_valid]
        is_batch = len(given) != 1
        headers: list[Mapping[str, str]] = []
        if is_batch and self._create_spans:
            for body, context in zip(given, own, strict=True):
                added, created = (NO_HEADERS, None) if context is not None else self._created(target, body)
                headers.append(added)
                links += [] if created is None else [Link(created)]
        span = self._tracer.start_span(
            _named(attributes),
            kind=SpanKind.CLIENT if headers else SpanKind.PRODUCER,
            attributes={**attributes, **({conventions.BATCH: len(given)} if is_batch else _of_send(given[0]))},
            links=links,
        )
        if not headers:
            carried = _carried(trace.set_span_in_context(span))
            headers = [carried if context is None else NO_HEADERS for context in own]
        error: BaseException | None = None
        began = time.monotonic()
        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                yield _Sending(span, headers)
        except BaseException as raised:
            error = raised
            raise
        finally:
            with _only_logged():
                _end(span, attributes, error)
                self._metrics.on_send(len(given), time.monotonic() - began, attributes)

    def creating(self, target: Any, given: Any) -> Mapping[str, str]:
        """Record that a message is created which a commit or a schedule sends, and give it the context."""
        self._metrics.on_create(attributes_of(target, "send"))
        if _own_context(given) is not None:
            return NO_HEADERS
        return self._created(target, given)[0]

    def _created(self, target: Any, given: Any) -> tuple[Mapping[str, str], SpanContext]:
        attributes = attributes_of(target, "create")
        with self._tracer.start_as_current_span(
            _named(attributes), kind=SpanKind.PRODUCER, attributes={**attributes, **_of_send(given)}
        ) as span:
            return _carried(trace.set_span_in_context(span)), span.get_span_context()

    # Receiving and handling

    def received(self, inbox: Any, deliveries: Sequence[Any], seconds: float) -> None:
        """Record a receive that returns messages."""
        attributes, now = attributes_of(inbox, "receive"), time.time_ns()
        details = {conventions.BATCH: len(deliveries), conventions.CLIENT_ID: inbox._link.consumer}
        with _only_logged():
            span = self._tracer.start_span(
                _named(attributes),
                kind=SpanKind.CLIENT,
                attributes={**attributes, **details},
                links=_links_to(deliveries),
                start_time=now - int(seconds * 1e9),
            )
            span.end(now)
            self._metrics.on_receive(len(deliveries), seconds, attributes)

    def processing(self, deliveries: Sequence[Any], *, in_worker: bool) -> _Processing:
        """Begin the span of a handler or a block, and make it current."""
        attributes = attributes_of(deliveries[0]._queue, "process")
        is_batch = len(deliveries) > 1
        has_ambient = not in_worker and trace.get_current_span().get_span_context().is_valid
        if has_ambient:
            parent: Context | None = None
        elif self._continue_trace and not is_batch:
            parent = _context_of(deliveries[0])
        else:
            parent = Context()
        span = self._tracer.start_span(
            _named(attributes),
            context=parent,
            kind=SpanKind.CONSUMER,
            attributes={**attributes, **_of_deliveries(deliveries)},
            links=_links_to(deliveries),
        )

        def finish(span: Span, error: BaseException | str | None, seconds: float) -> None:
            _end(span, attributes, error)
            self._metrics.on_process(seconds, attributes, delivered=len(deliveries) if in_worker else 0)

        return _Processing(span, attach(trace.set_span_in_context(span, parent)), finish)

    # The HTTP API

    @contextmanager
    def joining(self, headers: Mapping[str, str]) -> Iterator[None]:
        """Continue the trace of a request, unless an instrumentation of the server does."""
        if trace.get_current_span().get_span_context().is_valid:
            yield
            return
        token = attach(propagate.extract(headers))
        try:
            yield
        finally:
            detach(token)


def _named(attributes: Attributes) -> str:
    return f"{attributes[conventions.OPERATION]} {attributes[conventions.DESTINATION]}"


def _of_send(given: Any) -> Attributes:
    """Return the attributes of one message that is sent."""
    if not isinstance(given, Send):
        return {}
    schedule = given.headers.get(SCHEDULE_HEADER) if isinstance(given.headers, Mapping) else None
    found = {conventions.MESSAGE_ID: given.id, conventions.KEY: given.key, conventions.SCHEDULE: schedule}
    return {name: str(value) for name, value in found.items() if value is not None}


def _of_deliveries(deliveries: Sequence[Any]) -> Attributes:
    if len(deliveries) > 1:
        return {conventions.BATCH: len(deliveries)}
    (delivery,) = deliveries
    found = {conventions.MESSAGE_ID: delivery.id, conventions.ATTEMPT: delivery.attempt}
    return found if delivery.key is None else {**found, conventions.KEY: delivery.key}


def _end(span: Span, attributes: Attributes, error: BaseException | str | None) -> None:
    """End a span. An error is added to the attributes, for the metrics."""
    if error is not None:
        attributes[conventions.ERROR] = error_type(error)
        span.set_attribute(conventions.ERROR, attributes[conventions.ERROR])
        if isinstance(error, BaseException):
            span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, str(error)))
    span.end()


# Context in headers


def _carried(context: Context) -> Mapping[str, str]:
    """Return the headers that carry a context. They are left out if they are too large."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context)
    return carrier if sum(len(name) + len(value) for name, value in carrier.items()) <= _MAX_CARRIED else NO_HEADERS


def _own_context(given: Any) -> SpanContext | None:
    """Return the context that the sender has put into the headers of a message itself; None: there is none."""
    headers = given.headers if isinstance(given, Send) else None
    if not isinstance(headers, Mapping) or not propagate.get_global_textmap().fields & headers.keys():
        return None
    return trace.get_current_span(propagate.extract(headers, Context())).get_span_context()


def _context_of(delivery: Any) -> Context:
    """Return the context that a message carries."""
    try:
        return propagate.extract(delivery.headers, Context())
    except CodecError:  # a damaged message
        return Context()


def _links_to(deliveries: Sequence[Any]) -> list[Link]:
    """Return links to the contexts in which messages were sent."""
    found = [(each.id, trace.get_current_span(_context_of(each)).get_span_context()) for each in deliveries]
    return [Link(context, {conventions.MESSAGE_ID: id_}) for id_, context in found if context.is_valid]
