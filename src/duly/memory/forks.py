"""Objects that a child process must renew after a fork: their locks may be held by threads of the parent."""

import os
from typing import Final, Protocol
from weakref import WeakSet


class Renewable(Protocol):
    """An object with locks. It may refer to threads."""

    def renew_after_fork(self) -> None:
        """Forget the threads of the parent."""


_alive: Final[WeakSet[Renewable]] = WeakSet()


def renew(thing: Renewable) -> None:
    """Renew an object in every child process, for as long as it lives."""
    _alive.add(thing)


def _renew_all() -> None:
    for thing in list(_alive):
        thing.renew_after_fork()


os.register_at_fork(after_in_child=_renew_all)
