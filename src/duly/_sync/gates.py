"""Locks for what threads may do one after another: a few for any number of things, found by name."""

import os
import threading
import weakref
from typing import Final

_COUNT: Final = 64


class Gates:
    """One lock for each name. Two names may share one: then the second waits a little for nothing."""

    def __init__(self) -> None:
        self.renew()
        _alive.add(self)

    def of(self, name: str) -> threading.Lock:
        """Find the lock of a name."""
        return self._locks[hash(name) % _COUNT]

    def renew(self) -> None:
        """Begin anew: in a child process nobody is there who would let go of a lock."""
        self._locks = [threading.Lock() for _ in range(_COUNT)]


_alive: Final[weakref.WeakSet[Gates]] = weakref.WeakSet()


def _renew_after_fork() -> None:
    for gates in list(_alive):
        gates.renew()


os.register_at_fork(after_in_child=_renew_after_fork)
