"""One module a party, named like its package. Its `Adapter` is made in producers and in workers alike."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any


class BaseAdapter:
    """What a contest asks of a queue. Methods that send may be coroutines or not.

    `note` is called by the handler with the text of each message, and nothing else is done there.
    """

    def __init__(self, url: str, note: Callable[[str], None], options: Mapping[str, Any]) -> None:
        self.url = url
        self.note = note
        self.options = options
        self.build()

    def build(self) -> None:
        """Define the handler, and whatever both sides need."""
        raise NotImplementedError

    async def open(self) -> None:
        """Connect the producer."""

    def send(self, text: str) -> Any:
        """Send one message."""
        raise NotImplementedError

    def send_many(self, texts: Sequence[str]) -> Any:
        """Send many, in the way that is fastest."""
        return self._together([self.send(text) for text in texts])

    def send_at(self, text: str, due: float) -> Any:
        """Send one message for a time in seconds since 1970."""
        raise NotImplementedError

    def work(self) -> None:
        """Be a worker, until killed."""
        raise NotImplementedError

    @staticmethod
    async def _together(sends: Sequence[Any]) -> None:
        """Wait for all of them, where they are awaitable."""
        if sends and asyncio.iscoroutine(sends[0]):
            await asyncio.gather(*sends)
