"""The filter of a list of messages, as a URL or form gives it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import urlencode

from duly import Where
from duly._port import read_duration
from duly.errors import UsageError

_EPOCH_SECONDS: Final = re.compile(r"[0-9]{9,11}(?:\.[0-9]+)?")
_OPEN_TO_ALL: Final = ("key", "since", "until")
"""Fields that clients may filter by who do not see payloads. A match would reveal the rest."""


@dataclass(frozen=True)
class Filter:
    """The properties that a message must have. An empty text matches anything."""

    error: str = ""
    reason: str = ""
    key: str = ""
    header: str = ""
    """A header with its value: NAME=VALUE."""
    since: str = ""
    """A time in UTC. The message died then or later."""
    until: str = ""
    """A time in UTC. The message died before."""

    @classmethod
    def of(cls, fields: Mapping[str, str], *, sees_payloads: bool) -> Filter:
        """Read a filter. Clients that do not see payloads can filter by some fields only.

        A duration, like `2h`, becomes a time. So all pages of a list and its preview mean the same time.
        """
        names = [each.name for each in dataclasses.fields(cls)] if sees_payloads else _OPEN_TO_ALL
        given = {name: fields.get(name, "").strip() for name in names}
        for name in ("since", "until"):
            given[name] = _time_text(given[name])
        return cls(**given)

    def __bool__(self) -> bool:
        return bool(self.given)

    @property
    def given(self) -> dict[str, str]:
        """The fields that are not empty."""
        return {name: text for name, text in dataclasses.asdict(self).items() if text}

    @property
    def query(self) -> str:
        """The filter as a part of a URL, with a leading & if it is not empty."""
        return "".join(f"&{urlencode({name: text})}" for name, text in self.given.items())

    @property
    def query_of_others(self) -> str:
        """The query without the error and the reason, for links that choose these."""
        return dataclasses.replace(self, error="", reason="").query

    @property
    def query_of_texts(self) -> str:
        """The query without the times, for links that choose these."""
        return dataclasses.replace(self, since="", until="").query

    def where(self) -> Where:
        """Return the same filter for the library."""
        return Where(
            error=self.error or None,
            reason=self.reason or None,
            key=self.key or None,
            headers=_header(self.header) if self.header else None,
            since=_read_time(self.since) if self.since else None,
            until=_read_time(self.until) if self.until else None,
        )


def _time_text(text: str) -> str:
    """Return a time in UTC in the form of the pages. Without a zone, the text is in UTC, as on the pages."""
    return _read_time(text).replace(tzinfo=None).isoformat(" ") if text else ""


def _read_time(text: str) -> datetime:
    try:
        if (ago := read_duration(text)) is not None:
            return datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=ago)
        if _EPOCH_SECONDS.fullmatch(text):
            return datetime.fromtimestamp(float(text), UTC)
        read = datetime.fromisoformat(text)
        return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"{text!r} is not a time: write 2h, or 2026-12-01 09:00 in UTC") from None


def _header(text: str) -> dict[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise UsageError(f"{text!r} is not a header: write NAME=VALUE")
    return {name.strip(): value.strip()}
