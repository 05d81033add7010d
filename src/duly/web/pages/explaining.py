"""The sentence that explains a message, as its page says it. Pure."""

from __future__ import annotations

import re
from typing import Final

_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)\.\d{3}\+00:00")
_FOR_PROGRAMS: Final = "; redrive() puts it back to work."
_HEAD: Final = 280
_END: Final = 120


def for_people(sentence: str) -> str:
    """Write times as the rest of the page does, leave out what only a program can do, and cut a very long error.

    The beginning says what is the matter, the end how it goes on: what is left out is between them.
    """
    if sentence.endswith(_FOR_PROGRAMS):
        sentence = sentence.removesuffix(_FOR_PROGRAMS) + "."
    text = _TIME.sub(r"\1 \2 UTC", sentence)
    return text if len(text) <= _HEAD + _END else f"{text[:_HEAD]} ... {text[-_END:]}"
