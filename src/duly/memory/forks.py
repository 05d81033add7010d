"""What a child process must make anew after a fork: locks whose holders it does not have."""

import os
from typing import Final, Protocol
from weakref import WeakSet


class Renewable(Protocol):
    """Has locks, and perhaps knows of threads."""

    def renew_after_fork(self) -> None:
        """Forget the threads of the parent."""


_alive: Final[WeakSet[Renewable]] = WeakSet()


def renew(thing: Renewable) -> None:
    """Have a thing renewed in every child process, for as long as it lives."""
    _alive.add(thing)


def _renew_all() -> None:
    for thing in list(_alive):
        thing.renew_after_fork()


os.register_at_fork(after_in_child=_renew_all)
