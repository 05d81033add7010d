"""One module per party, named like its package. Producers and workers both create its `Adapter`."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from benchmarks.peers.recorder import Journal

HANDLING: Final = 0.005
"""Seconds that a handler takes when the option `journal` asks for a record that survives `kill -9`."""


class BaseAdapter:
    """The methods that a contest calls. Methods that send may be coroutines.

    A handler calls `handle` or awaits `handle_async` with the text of each message, and does nothing else.
    """

    def __init__(self, url: str, note: Callable[[str], None], options: Mapping[str, Any]) -> None:
        self.url = url
        self.options = {name: value for name, value in options.items() if name != "journal"}
        self.handle: Callable[[str], None] = note
        if "journal" in options:
            self.journal = Journal(options["journal"])
            self.handle = self._handle_slowly
            self.handle_async = self._handle_slowly_async  # type: ignore[method-assign]
        self.build()

    async def handle_async(self, text: str) -> None:
        """Record that a handler starts."""
        self.handle(text)

    def _handle_slowly(self, text: str) -> None:
        self.journal.note("start", text)
        time.sleep(HANDLING)
        self.journal.note("end", text)

    async def _handle_slowly_async(self, text: str) -> None:
        self.journal.note("start", text)
        await asyncio.sleep(HANDLING)
        self.journal.note("end", text)

    def build(self) -> None:
        """Define the handler, and all that both sides need."""
        raise NotImplementedError

    async def open(self) -> None:
        """Connect the producer."""

    def send(self, text: str) -> Any:
        """Send one message."""
        raise NotImplementedError

    def send_many(self, texts: Sequence[str]) -> Any:
        """Send many messages, in the fastest way."""
        return self._together([self.send(text) for text in texts])

    def send_at(self, text: str, due: float) -> Any:
        """Send one message for a time in seconds since 1970."""
        raise NotImplementedError

    def work(self) -> None:
        """Run a worker, until killed."""
        raise NotImplementedError

    def accompany(self) -> None:
        """Run the extra process that delays need, until killed."""
        raise NotImplementedError

    @staticmethod
    async def _together(sends: Sequence[Any]) -> None:
        """Await all results that are awaitable."""
        if sends and asyncio.iscoroutine(sends[0]):
            await asyncio.gather(*sends)
