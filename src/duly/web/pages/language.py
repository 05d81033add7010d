"""The languages of the pages: their catalogs, and the choice of one for a request.

The English texts are the keys. Each other language has a catalog, `languages/CODE.toml`, with four tables: `pages`
for the texts of templates and of this package, `terms` for words like states and counters, `script` for the texts of
the script, and `sentences` for errors and explanations, which are English until they are shown.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup, escape
from starlette.requests import Request

from duly._port import span
from duly.web.pages.text import visible

COOKIE: Final = "duly_language"
_FOLDER: Final = Path(__file__).parents[1] / "languages"
_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")
_UNIT: Final = re.compile(r"(?<=[0-9])(?:ms|s|m|h|d)\b")
_MAX_SENTENCE: Final = 10_000
_NESTED: Final = frozenset({"queue", "hint", "turn", "form", "problem", "end"})
"""Placeholders whose values are sentences of Duly as well."""
_TERMS: Final = frozenset({"state", "kind"})
"""Placeholders whose values are terms. All others are names and texts of users."""


@dataclass(frozen=True)
class Language:
    """A language, and its translations by English text."""

    code: str
    tag: str
    """For the `lang` attribute of pages."""
    name: str
    """Its name in the language itself."""
    pages: Mapping[str, str] = field(default_factory=dict)
    terms: Mapping[str, str] = field(default_factory=dict)
    script: Mapping[str, str] = field(default_factory=dict)
    sentences: Mapping[str, str] = field(default_factory=dict)

    def text(self, english: str, **values: Any) -> Markup:
        """Translate a text of a page, and fill in its values. Everything is escaped but values that are HTML."""
        translated = escape(self.pages.get(english, english))
        return translated.format(**{name: _shown(value) for name, value in values.items()}) if values else translated

    def plural(self, one: str, many: str, count: int, **values: Any) -> Markup:
        """Translate a text with a number, `{count}`. The catalog has the plural only: Chinese nouns have one form."""
        is_english = not self.pages
        return self.text(one if is_english and count == 1 else many, count=f"{count:,}", **values)

    def term(self, word: str) -> str:
        """Translate a word like a state. An unknown word stays in English."""
        return self.terms.get(word, word.replace("_", " "))

    def sentence(self, english: str) -> str:
        """Translate an error or an explanation. An unknown one stays as it is."""
        if len(english) > _MAX_SENTENCE:
            return english
        for pattern, translated in self._patterns:
            found = pattern.fullmatch(english)
            if found is not None:
                # In one pass, because inserted names may contain braces.
                values = {name: self._value(name, value) for name, value in found.groupdict().items()}
                return _PLACEHOLDER.sub(lambda place, values=values: values[place[1]], translated)  # type: ignore[misc]
        return english

    def _value(self, placeholder: str, value: str) -> str:
        if placeholder in _TERMS:
            return self.term(value)
        return self.sentence(value) if placeholder in _NESTED else value

    @cached_property
    def _patterns(self) -> list[tuple[re.Pattern[str], str]]:
        return [(pattern_of(english), translated) for english, translated in self.sentences.items()]

    def span(self, seconds: float | None) -> str:
        """Format a duration: 350ms, 5m 20s."""
        return self.units(span(seconds))

    def units(self, duration: str) -> str:
        """Translate the units of a formatted duration."""
        return _UNIT.sub(lambda unit: self.term(unit[0]), duration)


_PATTERNS: Final = {"turn": "(?:, (?:first in line|behind [0-9]+ others?))?"}
"""Values that directly follow another one, so that the text between cannot separate them."""


def pattern_of(english: str) -> re.Pattern[str]:
    """Return the pattern of the texts that an English sentence with placeholders stands for.

    A value ends where the text after its placeholder first occurs, and the last one with the sentence. The groups are
    atomic, so that a match takes linear time: a text of a user may repeat the texts between placeholders.
    """
    first, *rest = _PLACEHOLDER.split(english)
    found, values = re.escape(first), ""
    for at, (place, after) in enumerate(zip(rest[::2], rest[1::2], strict=True), 1):
        values += f"(?P<{place}>{_PATTERNS.get(place, '.*?')})"
        if 2 * at == len(rest):
            found += values + re.escape(after)
        elif after:
            found, values = f"{found}(?>{values}{re.escape(after)})", ""
    return re.compile(found, re.DOTALL)


def _shown(value: Any) -> Any:
    return value if isinstance(value, Markup) else visible(str(value))


def _with_catalog(code: str, tag: str, name: str) -> Language:
    catalog = tomllib.loads((_FOLDER / f"{code}.toml").read_text("utf-8"))
    return Language(code, tag, name, **catalog)


ENGLISH: Final = Language("en", "en", "English")
LANGUAGES: Final = {each.code: each for each in (ENGLISH, _with_catalog("zh", "zh-CN", "中文"))}


def language_of(request: Request) -> Language:
    """Return the language of a request: that of the switch, else the browser's, else English."""
    chosen = LANGUAGES.get(request.cookies.get(COOKIE, ""))
    return chosen or accepted_language(request.headers.get("accept-language", ""))


def accepted_language(header: str) -> Language:
    """Return the first language of `Accept-Language` that the pages have, by its quality. Regions do not matter."""
    ranked: list[tuple[float, str]] = []
    for each in header.split(",")[:_MAX_ACCEPTED]:
        tag, _, parameters = each.strip().partition(";")
        quality = _QUALITY.fullmatch(parameters.strip())
        ranked.append((float(quality[1]) if quality else float(not parameters), tag.partition("-")[0].lower()))
    ranked.sort(key=lambda each: -each[0])  # stable: the order of the header decides between equals
    return next((LANGUAGES[code] for quality, code in ranked if code in LANGUAGES and quality > 0), ENGLISH)


_MAX_ACCEPTED: Final = 20
_QUALITY: Final = re.compile(r"q\s*=\s*([01](?:\.[0-9]{0,3})?)")
