"""The servers that do not answer this process. All links share the list, so that an outage is logged once."""

import threading
from typing import Final

unanswered: Final[set[str]] = set()
"""Addresses, as people see them. Looked at after each answer, so it is a plain set."""

_lock: Final = threading.Lock()


def begin(shown: str) -> bool:
    """Note that a server does not answer. True: this is new, so log it."""
    with _lock:
        is_new = shown not in unanswered
        unanswered.add(shown)
        return is_new


def end(shown: str) -> bool:
    """Note that a server answers. True: it did not before, so log it."""
    with _lock:
        was_away = shown in unanswered
        unanswered.discard(shown)
        return was_away
