"""The filter of a list of messages, as a URL or form gives it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from duly import Where
from duly.errors import UsageError


@dataclass(frozen=True)
class Filter:
    """The properties that a message must have. An empty text matches anything."""

    error: str = ""
    reason: str = ""
    key: str = ""
    header: str = ""
    """A header with its value: NAME=VALUE."""

    @classmethod
    def of(cls, fields: Mapping[str, str], *, sees_payloads: bool) -> Filter:
        """Read a filter. Clients that do not see payloads can filter by key alone: a match would reveal the rest."""
        names = [each.name for each in dataclasses.fields(cls)] if sees_payloads else ["key"]
        return cls(**{name: fields.get(name, "").strip() for name in names})

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

    def where(self) -> Where:
        """Return the same filter for the library."""
        given: dict[str, str] = self.given
        header = given.pop("header", None)
        return Where(headers=None if header is None else _header(header), **given)  # type: ignore[arg-type]


def _header(text: str) -> dict[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise UsageError(f"{text!r} is not a header: write NAME=VALUE")
    return {name.strip(): value.strip()}
