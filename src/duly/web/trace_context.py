"""Carry the trace context of a request into the messages that it sends, for processes without OpenTelemetry.

No span is recorded: the handling of a message becomes a child of the client's span.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from duly import Send

_FIELDS: Final = ("traceparent", "tracestate", "baggage")
_PARENT: Final = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_MAX_CARRIED: Final = 8192
"""Bytes of context that a message carries, as with `duly.otel`. A larger context is left out."""

_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_carried: Final[ContextVar[Mapping[str, str]]] = ContextVar("carried", default=_NONE)


@dataclass
class _Sending:
    """A call that sends, with the headers to add to each message."""

    headers: Sequence[Mapping[str, str]]

    def stored(self, ids: Sequence[str]) -> None:
        pass


class _Processing:
    """The handling of a delivery. There is nothing to record."""

    def ended(self, outcomes: Sequence[str], error: BaseException | str | None) -> None:
        pass


class TraceContext:
    """An observer that copies the context of the request into the messages of its calls."""

    @contextmanager
    def joining(self, headers: Mapping[str, str]) -> Iterator[None]:
        """Keep the context of a request while it runs."""
        token = _carried.set(_context_of(headers))
        try:
            yield
        finally:
            _carried.reset(token)

    @contextmanager
    def sending(self, target: Any, given: Sequence[Any]) -> Iterator[_Sending]:
        """Add the context to messages without one."""
        yield _Sending([self.creating(target, each) for each in given])

    def creating(self, target: Any, given: Any) -> Mapping[str, str]:  # noqa: ARG002, the port
        """Return the headers to add to a message."""
        own = given.headers if isinstance(given, Send) else None
        is_own = isinstance(own, Mapping) and any(field in own for field in _FIELDS)
        return _NONE if is_own else _carried.get()

    def received(self, inbox: Any, deliveries: Sequence[Any], seconds: float) -> None:
        """Record nothing."""

    def processing(self, deliveries: Sequence[Any], *, in_worker: bool) -> _Processing:  # noqa: ARG002, the port
        """Record nothing."""
        return _Processing()


def _context_of(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return the context in the headers of a request, or none if it is not valid or too large."""
    found = {field: headers[field] for field in _FIELDS if field in headers}
    is_valid = _PARENT.fullmatch(found.get("traceparent", "")) is not None
    return found if is_valid and sum(map(len, found.values())) <= _MAX_CARRIED else _NONE
