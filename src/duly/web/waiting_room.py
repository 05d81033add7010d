"""How many may wait for messages at the same time: each holds a connection, and some of the server's memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from duly.errors import DulyError


class WaitingRoomFull(DulyError):
    """All seats are taken."""

    headers: Final = {"Retry-After": "1"}


class WaitingRoom:
    """The seats of one dashboard."""

    def __init__(self, seats: int) -> None:
        self.seats = seats
        self.taken = 0

    @contextmanager
    def seat(self) -> Iterator[None]:
        """Take a seat for a block."""
        if self.taken >= self.seats:
            raise WaitingRoomFull(f"{self.seats} receives wait here already: try again in a second")
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1
