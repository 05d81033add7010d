"""Which dead letters are meant: a frozen value, checked when made. Pure: it looks at messages and asks nobody."""

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
    """Which dead letters: those of which all that is given is true. `Where()` means all of them."""

    error: str | None = None
    """A text that is part of the last error that was reported, or, with `*` for anything, all of it: "Timeout*".

    Case-sensitive. A message that was rejected has a reason, and perhaps no error.
    """

    reason: str | None = None
    """The same for the reason of the death, like "poison"."""

    since: datetime | float | None = None
    """Died then or later: an aware datetime, or epoch seconds."""

    until: datetime | float | None = None
    """Died before."""

    headers: Mapping[str, str] | None = None
    """Has these headers, with these values, and perhaps others."""

    key: str | None = None
    """Has this key, or one like it: "customer-*"."""

    ids: Collection[str] | None = None
    """Is one of these."""

    def __post_init__(self) -> None:
        for name in ("error", "reason", "key"):
            _check_text(getattr(self, name), name)
        for name in ("since", "until"):
            if getattr(self, name) is not None:
                checked_epoch(getattr(self, name), f"Where.{name}")
        object.__setattr__(self, "headers", _checked_headers(self.headers))
        object.__setattr__(self, "ids", _checked_ids(self.ids))

    def matches(self, message: Message) -> bool:
        """Tell whether a message is meant."""
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
"""What `redrive`, `purge` and `find_dead` take as `where=`, to choose among dead letters."""


def selection_of(where: object) -> Matches:
    """Make the function that tells which messages are meant: from a `Where`, its fields as a dict, or a callable."""
    if where is None:
        return lambda _: True
    if isinstance(where, Where):
        return where.matches
    if isinstance(where, Mapping):
        return _where_of(where).matches
    return checked_function(where, "where", "a duly.Where, a dict of its fields, or a function of a duly.Message")


def checked_function(given: object, name: str, wanted: str) -> Callable[[Message], Any]:
    """Return a plain function."""
    if not callable(given) or isinstance(given, type):
        raise UsageError(f"{name} must be {wanted}, not {given!r}")
    if inspect.iscoroutinefunction(given):
        raise UsageError(f"{name} must be a plain function, not a coroutine function: it is not awaited")
    return given


def checked_progress(given: Callable[[int], None] | None) -> Callable[[int], None] | None:
    """Return what is told how far long work is, if anything."""
    if given is not None:
        checked_function(given, "on_progress", "a function of a number: how many are done so far")
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
    """Compare with a text in which `*` stands for anything. Nothing else is special: errors are full of brackets."""
    if text is None:
        return False
    first, *others = wanted.split("*")
    if not others:
        return wanted == text
    *between, last = others
    end = len(text) - len(last)
    if not (text.startswith(first) and text.endswith(last)):
        return False
    # Each piece at its earliest place leaves the most room for those behind it: nothing has to be tried again.
    at = len(first)
    for piece in between:
        found = text.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return at <= end
