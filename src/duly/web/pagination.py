"""Pages of named items, in the order of their names. Pure."""

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
    """The name to pass as `after` for the next page. None: this is the last page."""
    has_previous: bool
    """Whether there is a page before this one."""


def page_of(
    items_by_name: Sequence[T],
    name: Callable[[T], str],
    limit: int,
    after: str | None = None,
    begin: str | None = None,
) -> Page[T]:
    """Return the page after a name, or the page that starts with it. The name need not exist."""
    first = 0
    if after is not None:
        first = bisect_right(items_by_name, after, key=name)
    elif begin is not None:
        first = bisect_left(items_by_name, begin, key=name)
    items = items_by_name[first : first + limit]
    has_more = bool(items) and first + limit < len(items_by_name)
    return Page(items, name(items[-1]) if has_more else None, first > 0)
