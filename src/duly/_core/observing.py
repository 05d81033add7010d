"""The port for extras that observe an app: its sends, receives and handlers. `duly.otel` is such an observer.

`attach(app, observer)` adds an observer, which the app shares with its counterpart and its workers. Without one, a call
only looks up that there is none, and a worker that was started does not even do that: no message costs more.

An observer does not raise, and its calls are short: they run between the steps of the client, in the thread or task of
the caller. Its context managers are entered and left in that thread or task, so they may set context variables.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

from duly.errors import UsageError
from duly.options import Send

T = TypeVar("T")

NO_HEADERS: Final[Mapping[str, str]] = {}


class Sending(Protocol):
    """A call that sends messages."""

    @property
    def headers(self) -> Sequence[Mapping[str, str]]:
        """For each message, the headers to add to its own."""

    def stored(self, ids: Sequence[str]) -> None:
        """Note that the messages are stored."""


class Processing(Protocol):
    """The handling of a delivery, or of a batch of deliveries."""

    def ended(self, outcomes: Sequence[str], error: BaseException | str | None) -> None:
        """Note the end: the outcome of each delivery, like "ack", and the error if the handler has failed."""


class Observer(Protocol):
    """The interface of an observer. A `target` is a queue or topic, sync or async. `given` are bodies or `Send`s."""

    def sending(self, target: Any, given: Sequence[Any]) -> AbstractContextManager[Sending]:
        """Return a context manager for a call that sends. It begins before the bodies are encoded."""

    def creating(self, target: Any, given: Any) -> Mapping[str, str]:
        """Return the headers to add to a message of a commit, or of a schedule, which is stored by another call."""

    def received(self, inbox: Any, deliveries: Sequence[Any], seconds: float) -> None:
        """Note that `receive` returns deliveries. `seconds` is the duration of the call."""

    def processing(self, deliveries: Sequence[Any], *, in_worker: bool) -> Processing:
        """Note that the handling of deliveries begins, in a worker or in `with d:`."""

    def joining(self, headers: Mapping[str, str]) -> AbstractContextManager[None]:
        """Return a context manager for a request of the HTTP API with these headers."""


def attach(app: Any, observer: Observer | None) -> None:
    """Make an observer the only one of an app. None: the app has none."""
    app._definitions.observer = observer


def attached(app: Any) -> Observer | None:
    """Return the observer of an app."""
    found: Observer | None = app._definitions.observer
    return found


def encoded(encode: Callable[[Any], T], given: Any, added: Mapping[str, str]) -> T:
    """Encode a message with added headers, or without them if it would be refused with them, as too large."""
    with contextlib.suppress(UsageError):
        return encode(_with_headers(given, added))
    return encode(given)


def _with_headers(given: Any, added: Mapping[str, str]) -> Send[Any]:
    send = given if isinstance(given, Send) else Send(given)
    own: Any = {} if send.headers is None else send.headers  # not a mapping: it is refused with the other arguments
    return replace(send, headers={**added, **own}) if isinstance(own, Mapping) else send
