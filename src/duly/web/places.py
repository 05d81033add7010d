"""How many may wait for messages at the same time: each holds a connection, and a place in the server's memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from duly.errors import DulyError


class NoPlace(DulyError):
    """All places are taken."""

    headers: Final = {"Retry-After": "1"}


class Places:
    """The places of one dashboard."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Take a place for a block."""
        if self.taken >= self.most:
            raise NoPlace(f"{self.most} receives wait here already: try again in a second")
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1
