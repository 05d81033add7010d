"""The names of queues, groups and other things in errors and logs."""

import difflib
import heapq
import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from duly.errors import UsageError

_MOST_COMPARED: Final = 20
_MOST_CONSIDERED: Final = 5_000
"""The most names to search for one that is similar to an unknown name."""


def kind_of(label: str) -> str:
    """Return the kind of a label: only that of a group, like events/archive, has a slash."""
    return "group" if "/" in label else "queue"


def title_of(label: str) -> str:
    """Name a queue or a group in a sentence."""
    return f"{kind_of(label)} {label!r}"


def is_of_topic(given: object) -> bool:
    """Whether an argument is a topic or a group of one, sync or async."""
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
    """Ask whether a similar name was meant, if there is one."""
    near = difflib.get_close_matches(name, _likely(name, known), 3, 0.6)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def _likely(name: str, known: Iterable[str]) -> list[str]:
    """Choose candidates by letters and length: comparing some thousands of long names would take seconds."""
    letters, length = frozenset(name), len(name)

    def distance(other: str) -> int:
        return len(letters.symmetric_difference(other)) + abs(length - len(other))

    return heapq.nsmallest(_MOST_COMPARED, itertools.islice(known, _MOST_CONSIDERED), distance)
