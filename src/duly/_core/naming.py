"""What errors and logs are about, in words: what is checked without a name gets it here."""

import difflib
import heapq
import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from duly.errors import UsageError

_MOST_COMPARED: Final = 20
_MOST_CONSIDERED: Final = 5_000
"""Names that are looked at when somebody asks for one that there is not."""


def kind_of(label: str) -> str:
    """Tell what has a label: only that of a group, events/archive, has a slash."""
    return "group" if "/" in label else "queue"


def title_of(label: str) -> str:
    """Name a queue or a group in a sentence, by its label."""
    return f"{kind_of(label)} {label!r}"


def is_of_topic(given: object) -> bool:
    """Tell whether somebody gave a topic, or a group of one, of either colour."""
    return getattr(getattr(given, "_keys", None), "kind", "queue") != "queue"


@contextmanager
def about(what: str, name: str) -> Iterator[None]:
    """Begin the text of a UsageError with a queue, schedule or lock, unless it names that already."""
    subject = f"{what} {name!r}"
    try:
        yield
    except UsageError as error:
        if subject in str(error):
            raise
        raise type(error)(f"{subject}: {error}") from error.__cause__


def nearest(name: str, known: Iterable[str]) -> str:
    """Ask for what was probably meant, if anything is near."""
    near = difflib.get_close_matches(name, _likely(name, known), 3, 0.6)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def _likely(name: str, known: Iterable[str]) -> list[str]:
    """Choose by letters and length what is worth comparing: of long names, some thousands would take seconds."""
    letters, length = frozenset(name), len(name)

    def strangeness(other: str) -> int:
        return len(letters.symmetric_difference(other)) + abs(length - len(other))

    return heapq.nsmallest(_MOST_COMPARED, itertools.islice(known, _MOST_CONSIDERED), strangeness)
