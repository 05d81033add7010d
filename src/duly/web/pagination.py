"""A page of what has names, in the order of these. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Page(Generic[T]):
    """One page."""

    items: Sequence[T]
    next: str | None
    """The name that the next page begins behind; None: this is the last."""
    has_previous: bool
    """Whether this is not the first page."""


def page_of(
    items_by_name: Sequence[T],
    name: Callable[[T], str],
    limit: int,
    after: str | None = None,
    begin: str | None = None,
) -> Page[T]:
    """Take a page behind a name, or one that begins with it. The name need not be there any more."""
    first = 0
    if after is not None:
        first = bisect_right(items_by_name, after, key=name)
    elif begin is not None:
        first = bisect_left(items_by_name, begin, key=name)
    items = items_by_name[first : first + limit]
    has_more = bool(items) and first + limit < len(items_by_name)
    return Page(items, name(items[-1]) if has_more else None, first > 0)
