"""The servers that do not answer this process. All links share the list, so that an outage is logged once."""

from typing import Final

unanswered: Final[dict[str, object]] = {}
"""By address, as people see it: a mark of the link that noted it first. Looked at after each answer, so it is plain."""


def begin(shown: str) -> bool:
    """Note that a server does not answer. True: this is new, so log it."""
    mark = object()
    return unanswered.setdefault(shown, mark) is mark  # one step: of several threads, one notes it first


def end(shown: str) -> bool:
    """Note that a server answers. True: it did not before, so log it."""
    return unanswered.pop(shown, None) is not None
