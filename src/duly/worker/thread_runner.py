"""Runs `def` handlers in threads, so that none blocks the event loop or another handler."""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Collection, Iterable
from queue import Empty, SimpleQueue
from typing import Final, Literal

from duly._core.outcome_rules import Decision, decision_of_error
from duly.worker.invoker import RELEASE, Conclusion, Invoker, Item

_STOP: Final = None


class ThreadRunner:
    """Up to `size` handlers at once. Threads are started when needed, and kept.

    They are daemons: a handler that hangs does not keep the process from ending. Conclusions go back to the event loop
    in batches: it is notified once, and takes all of them.
    """

    def __init__(self, invoker: Invoker, size: int) -> None:
        self._invoker = invoker
        self._size = size
        self._loop = asyncio.get_running_loop()
        self._inbox: SimpleQueue[Item | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._unfinished: set[Item] = set()
        """Items that were added and have no conclusion. Only the event loop uses it."""
        self._concluded: deque[tuple[Item, Conclusion]] = deque()
        self._is_loop_notified = False

    def add(self, items: Iterable[Item]) -> None:
        """Run the handler on these items as soon as threads are free."""
        for item in items:
            self._unfinished.add(item)
            self._inbox.put(item)
        for _ in range(min(len(self._unfinished), self._size) - len(self._threads)):
            self._start_thread()

    def take_back(self, beyond: int = 0) -> list[Item]:
        """Remove and return items that were not started, except for the first `beyond`."""
        items: list[Item] = []
        with contextlib.suppress(Empty):
            while True:
                item = self._inbox.get_nowait()
                if item is not _STOP:
                    items.append(item)
        for item in items[:beyond]:
            self._inbox.put(item)
        self._unfinished.difference_update(items[beyond:])
        return items[beyond:]

    def running(self) -> list[Item]:
        """Return the items that are in threads, or wait for one."""
        return list(self._unfinished)

    @property
    def has_begun(self) -> bool:
        """Whether any handler is running."""
        return bool(self._unfinished) and self._invoker.runtime.lease_validity.is_valid()

    @property
    def waiting(self) -> int:
        """The number of items that wait for a thread."""
        return self._inbox.qsize()

    def cancel(self, items: Collection[Item], cause: Literal["lost", "stop"]) -> None:
        """Stop waiting for these items: a thread cannot be cancelled. Their deliveries are marked as lost."""
        for item in items:
            if cause == "stop" and item in self._unfinished:
                self._unfinished.discard(item)
                self._invoker.settle(item, self._invoker.same_for_all(item, RELEASE))

    def close(self) -> None:
        """End all threads that are not busy."""
        for _ in self._threads:
            self._inbox.put(_STOP)

    async def aclose(self) -> None:
        """End all threads that are not busy."""
        self.close()

    def _start_thread(self) -> None:
        name = f"duly-{self._invoker.runtime.name}-{len(self._threads) + 1}"
        thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        get, conclude = self._inbox.get, self._concluded.append
        while (item := get()) is not _STOP:
            conclude((item, self.handle(item)))
            if not self._is_loop_notified:
                self._is_loop_notified = True
                self._notify_loop()

    def _notify_loop(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the lease will expire
            self._loop.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        self._is_loop_notified = False  # before the loop below: a later conclusion notifies again
        concluded, settle, unfinished = self._concluded, self._invoker.settle, self._unfinished
        while concluded:
            item, conclusion = concluded.popleft()
            if item in unfinished:  # otherwise it was released
                unfinished.discard(item)
                settle(item, conclusion)

    def handle(self, item: Item) -> Conclusion:
        """Run one handler. No error of the handler is raised here."""
        invoker = self._invoker
        context = invoker.context.copy()
        failure: BaseException | None = None
        try:
            if not invoker.runtime.lease_validity.is_valid():
                invoker.runtime.lease_validity.wait_in_thread()
            call = invoker.prepare(item)
            if isinstance(call, Decision):
                conclusion = invoker.same_for_all(item, call)
            else:
                if invoker.is_observed:
                    context.run(invoker.on_started, item)
                conclusion = invoker.conclusion_of(item, context.run(call.function, *call.args, **call.kwargs))
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything
            failure, conclusion = error, invoker.same_for_all(item, decision_of_error(error))
        if invoker.is_observed:
            context.run(invoker.on_ended, item, conclusion, failure)
        return conclusion
