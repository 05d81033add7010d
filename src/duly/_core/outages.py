"""The servers that do not answer this process. All links share the list, so that an outage is logged once."""

from typing import Final

unanswered: Final[dict[str, object]] = {}
"""By the shown address: a mark of the link that added it first. It is a plain dict, because every reply checks it."""


def begin(shown: str) -> bool:
    """Record that a server does not answer. True: this is new, so log it."""
    mark = object()
    return unanswered.setdefault(shown, mark) is mark  # atomic: of several threads, one is the first


def end(shown: str) -> bool:
    """Record that a server answers. True: it did not before, so log it."""
    return unanswered.pop(shown, None) is not None
