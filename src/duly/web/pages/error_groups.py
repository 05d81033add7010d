"""Groups of dead letters by their error. Numbers and ids within errors are left out. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import urlencode

from duly.message import Message

_STATUS: Final = re.compile(r"[45]\d\d")
_BEFORE_STATUS: Final = re.compile(
    r"\b(?:https?(?:/[\d.]+)?|smtp|status|code|error|answer(?:ed|s)?|returned|responded|response|with)\W{0,3}$",
    re.IGNORECASE,
)
_AFTER_STATUS: Final = re.compile(r"\s[A-Z][a-z]+")
"""The phrase of a status, as in `404 Not Found`."""
_WORD_WITH_DIGIT: Final = re.compile(r"[\w.:-]*\d[\w.:-]*")
_OUTER_SPACE: Final = re.compile(r"^\s+|\s+$")
_STARS: Final = re.compile(r"\*[* ]*\*")
_MAX_PATTERN: Final = 200


@dataclass
class ErrorGroup:
    """Dead letters with similar errors. Those without an error are grouped by their reason."""

    field: Literal["error", "reason"]
    pattern: str
    """A pattern for `duly.Where`. `*` stands for the parts that differ."""
    newest: Message
    count: int = 0

    @property
    def query(self) -> str:
        """The filter for the letters of this group, as a part of a URL."""
        return urlencode([(self.field, self.pattern)])


def grouped(letters: Iterable[Message]) -> list[ErrorGroup]:
    """Group dead letters, given from the newest. The largest group is first."""
    groups: dict[tuple[str, str], ErrorGroup] = {}
    for each in letters:
        error = each.errors[-1].error if each.errors else ""
        field: Literal["error", "reason"] = "error" if error else "reason"
        pattern = pattern_of(error or each.reason or "")
        groups.setdefault((field, pattern), ErrorGroup(field, pattern, each)).count += 1
    return sorted(groups.values(), key=lambda group: -group.count)


def pattern_of(text: str) -> str:
    """Replace words with digits by `*`, except status codes, since `404` and `503` have different causes."""
    shortened = text[: 2 * _MAX_PATTERN]
    printable = "".join(each if each.isprintable() else "*" for each in shortened)
    pattern = _STARS.sub("*", _OUTER_SPACE.sub("*", _WORD_WITH_DIGIT.sub(_general, printable)))
    is_cut = len(pattern) > _MAX_PATTERN or len(shortened) < len(text)
    return pattern[:_MAX_PATTERN].rstrip("*") + "*" if is_cut else pattern


def _general(word: re.Match[str]) -> str:
    end = word[0][len(word[0].rstrip(".:-")) :]  # punctuation after the word
    return word[0] if _STATUS.fullmatch(word[0].rstrip(".:-")) and _is_status(word) else "*" + end


def _is_status(word: re.Match[str]) -> bool:
    """Whether the words around a number make it a status code. `item 503` is none."""
    before = word.string[max(word.start() - 20, 0) : word.start()]
    return _BEFORE_STATUS.search(before) is not None or _AFTER_STATUS.match(word.string, word.end()) is not None
