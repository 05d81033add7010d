"""Filters for dead letters: frozen values, validated when they are created. This module does no I/O."""

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, TypedDict

from duly.errors import UsageError
from duly.message import Message
from duly.options import checked_epoch

Matches = Callable[[Message], bool]


@dataclass(frozen=True, kw_only=True)
class Where:
    """A filter for dead letters. A dead letter matches if it matches all given fields. `Where()` matches all."""

    error: str | None = None
    """A part of the last reported error. With `*` as a wildcard, it must match the whole error: "Timeout*".

    Case-sensitive. A rejected message has a reason, but may have no error.
    """

    reason: str | None = None
    """A part of the reason why the message is dead, like "poison". Wildcards work as in `error`."""

    since: datetime | float | None = None
    """The message died at this time or later: an aware datetime, or epoch seconds."""

    until: datetime | float | None = None
    """The message died before this time: an aware datetime, or epoch seconds."""

    headers: Mapping[str, str] | None = None
    """The message has these headers with these values. It may have others."""

    key: str | None = None
    """The message has this key, or one that matches a pattern: "customer-*"."""

    ids: Collection[str] | None = None
    """The id of the message is one of these."""

    def __post_init__(self) -> None:
        for name in ("error", "reason", "key"):
            _check_text(getattr(self, name), name)
        for name in ("since", "until"):
            if getattr(self, name) is not None:
                checked_epoch(getattr(self, name), f"Where.{name}")
        object.__setattr__(self, "headers", _checked_headers(self.headers))
        object.__setattr__(self, "ids", _checked_ids(self.ids))

    def matches(self, message: Message) -> bool:
        """Return whether a message matches."""
        last_error = message.errors[-1].error if message.errors else None
        return (
            (self.ids is None or message.id in self.ids)
            and (self.error is None or _is_found(self.error, last_error))
            and (self.reason is None or _is_found(self.reason, message.reason))
            and (self.key is None or _is_like(self.key, message.key))
            and all(message.headers.get(name) == value for name, value in (self.headers or {}).items())
            and self._is_in_time(message.finished_at)
        )

    def _is_in_time(self, died: datetime | None) -> bool:
        if self.since is None and self.until is None:
            return True
        if died is None:
            return False
        at = died.timestamp()
        is_late_enough = self.since is None or at >= checked_epoch(self.since)
        return is_late_enough and (self.until is None or at < checked_epoch(self.until))


class WhereFields(TypedDict, total=False):
    """The fields of `Where` as a dict, for type checkers."""

    error: str | None
    reason: str | None
    since: datetime | float | None
    until: datetime | float | None
    headers: Mapping[str, str] | None
    key: str | None
    ids: Collection[str] | None


Selection = Where | WhereFields | Matches
"""The values that `redrive`, `purge` and `find_dead` accept as `where=`, to filter dead letters."""


def selection_of(where: object) -> Matches:
    """Return a predicate for messages, from a `Where`, its fields as a dict, or a callable."""
    if where is None:
        return lambda _: True
    if isinstance(where, Where):
        return where.matches
    if isinstance(where, Mapping):
        return _where_of(where).matches
    return checked_function(where, "where", "a duly.Where, a dict of its fields, or a function of a duly.Message")


def checked_function(given: object, name: str, wanted: str) -> Callable[[Message], Any]:
    """Return a plain function. Raise UsageError for a class or a coroutine function."""
    if not callable(given) or isinstance(given, type):
        raise UsageError(f"{name} must be {wanted}, not {given!r}")
    if inspect.iscoroutinefunction(given):
        raise UsageError(f"{name} must be a plain function, not a coroutine function: it is not awaited")
    return given


def checked_progress(given: Callable[[int], None] | None) -> Callable[[int], None] | None:
    """Return a progress callback. Raise UsageError if it is not a plain function."""
    if given is not None:
        checked_function(given, "on_progress", "a function that takes the number done so far")
    return given


def _where_of(given: Mapping[Any, Any]) -> Where:
    known = [field.name for field in fields(Where)]
    unknown = [name for name in given if name not in known]
    if unknown:
        raise UsageError(f"where has no field {unknown[0]!r}: use {', '.join(known)}")
    return Where(**given)


def _check_text(given: object, name: str) -> None:
    if given is not None and (not isinstance(given, str) or not given):
        raise UsageError(f"Where.{name} must be a text that is not empty, not {given!r}")


def _checked_headers(given: object) -> dict[str, str] | None:
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise UsageError(f"Where.headers must be a dict of texts, not {given!r}")
    if not all(isinstance(text, str) for pair in given.items() for text in pair):
        raise UsageError(f"Where.headers must be a dict of texts, not {given!r}")
    return dict(given)


def _checked_ids(given: object) -> frozenset[str] | None:
    if given is None:
        return None
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Collection):
        raise UsageError(f"Where.ids must be a list of ids, not {given!r}")
    if not all(isinstance(id_, str) for id_ in given):
        raise UsageError(f"Where.ids must be a list of ids, not {given!r}")
    return frozenset(given)


def _is_found(wanted: str, text: str | None) -> bool:
    return text is not None and (_is_like(wanted, text) if "*" in wanted else wanted in text)


def _is_like(wanted: str, text: str | None) -> bool:
    """Match a text against a pattern in which only `*` is special, since errors often contain brackets."""
    if text is None:
        return False
    first, *others = wanted.split("*")
    if not others:
        return wanted == text
    *between, last = others
    end = len(text) - len(last)
    if not (text.startswith(first) and text.endswith(last)):
        return False
    # The earliest match of each piece leaves the most room for the next ones, so no backtracking is needed.
    at = len(first)
    for piece in between:
        found = text.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return at <= end
