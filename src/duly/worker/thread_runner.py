"""Runs `def` handlers: each in a thread, so that none holds up the event loop or another handler."""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Collection, Iterable
from queue import Empty, SimpleQueue
from typing import Final, Literal

from duly._core.outcome_rules import Verdict, verdict_of_error
from duly.worker.invoker import RELEASE, Conclusion, Invoker, Item

_STOP: Final = None


class ThreadRunner:
    """Up to `size` handlers at once. Threads are started when needed, and kept.

    They are daemons: one that hangs does not keep the process from ending. Results go back to the event loop
    in batches: it is told once, and takes all that there is.
    """

    def __init__(self, work: Invoker, size: int) -> None:
        self._work = work
        self._size = size
        self._loop = asyncio.get_running_loop()
        self._inbox: SimpleQueue[Item | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._open: set[Item] = set()
        """Added and not concluded. Only the event loop touches it."""
        self._concluded: deque[tuple[Item, Conclusion]] = deque()
        self._is_loop_told = False

    def add(self, items: Iterable[Item]) -> None:
        """Run these as soon as there are threads."""
        for item in items:
            self._open.add(item)
            self._inbox.put(item)
        for _ in range(min(len(self._open), self._size) - len(self._threads)):
            self._start_thread()

    def take_back(self, beyond: int = 0) -> list[Item]:
        """Give up what was not started, beyond the first so many."""
        items: list[Item] = []
        with contextlib.suppress(Empty):
            while True:
                item = self._inbox.get_nowait()
                if item is not _STOP:
                    items.append(item)
        for item in items[:beyond]:
            self._inbox.put(item)
        self._open.difference_update(items[beyond:])
        return items[beyond:]

    def running(self) -> list[Item]:
        """Tell what is being handled, or about to be."""
        return list(self._open)

    @property
    def has_begun(self) -> bool:
        """Whether any handler runs."""
        return bool(self._open) and self._work.runtime.freshness.is_given()

    @property
    def waiting(self) -> int:
        """How many wait for a thread."""
        return self._inbox.qsize()

    def cancel(self, items: Collection[Item], cause: Literal["lost", "stop"]) -> None:
        """Let go of these: a thread cannot be cancelled. Their deliveries say that they are lost."""
        for item in items:
            if cause == "stop" and item in self._open:
                self._open.discard(item)
                self._work.settle(item, self._work.alike(item, RELEASE))

    def close(self) -> None:
        """Let all threads end that are not busy."""
        for _ in self._threads:
            self._inbox.put(_STOP)

    async def aclose(self) -> None:
        """Let all threads end that are not busy."""
        self.close()

    def _start_thread(self) -> None:
        name = f"duly-{self._work.runtime.name}-{len(self._threads) + 1}"
        thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        get, conclude = self._inbox.get, self._concluded.append
        while (item := get()) is not _STOP:
            conclude((item, self._handle(item)))
            if not self._is_loop_told:
                self._is_loop_told = True
                self._tell_loop()

    def _tell_loop(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell, and the lease runs out
            self._loop.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        self._is_loop_told = False  # before the look: what comes after it tells again
        concluded, settle, opened = self._concluded, self._work.settle, self._open
        while concluded:
            item, conclusion = concluded.popleft()
            if item in opened:  # else it was let go
                opened.discard(item)
                settle(item, conclusion)

    def _handle(self, item: Item) -> Conclusion:
        """Run one handler. Nothing that it raises comes out of here."""
        work = self._work
        context = work.context.copy()
        failure: BaseException | None = None
        try:
            if not work.runtime.freshness.is_given():
                work.runtime.freshness.wait_in_thread()
            call = work.begin(item)
            if isinstance(call, Verdict):
                conclusion = work.alike(item, call)
            else:
                if work.is_observed:
                    context.run(work.started, item)
                conclusion = work.returned(item, context.run(call.function, *call.args, **call.kwargs))
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything
            failure, conclusion = error, work.alike(item, verdict_of_error(error))
        if work.is_observed:
            context.run(work.ended, item, conclusion, failure)
        return conclusion
