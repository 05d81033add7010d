"""Runs `def` handlers in threads, so that none blocks the event loop or another handler."""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from queue import Empty, SimpleQueue
from typing import Final, Literal

from duly._core.outcome_rules import Decision, decision_of_error
from duly.worker.invoker import RELEASE, Conclusion, Invoker, Item, overrun_error

_STOP: Final = None


class ThreadRunner:
    """Up to `size` handlers at once. Threads are started when needed, and kept.

    They are daemons: a handler that hangs does not keep the process from ending. Conclusions go back to the event loop
    in batches: it is notified once, and takes all of them.

    A handler that exceeds its timeout has failed, although its thread goes on. Another thread takes its place.
    """

    def __init__(self, invoker: Invoker, size: int, on_overrun: Callable[[Item, float], None] | None = None) -> None:
        """Take `on_overrun`, which is called in the event loop with a handler's item and timeout."""
        self._invoker = invoker
        self._size = size
        self._on_overrun = on_overrun
        self._loop = asyncio.get_running_loop()
        self._inbox: SimpleQueue[Item | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._unfinished: set[Item] = set()
        """Items that were added and have no conclusion. Only the event loop uses it."""
        self._concluded: deque[tuple[Item, Conclusion, float]] = deque()
        self._is_loop_notified = False
        self._timers: dict[Item, asyncio.TimerHandle] = {}
        """The ends of timeouts. Only the event loop uses it."""
        self._overrun: set[Item] = set()
        """Items whose handler has exceeded its timeout, and still runs. Only the event loop changes it."""

    def add(self, items: Iterable[Item]) -> None:
        """Run the handler on these items as soon as threads are free."""
        for item in items:
            self._unfinished.add(item)
            self._inbox.put(item)
        self._start_threads()

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

    def _start_threads(self) -> None:
        for _ in range(min(len(self._unfinished), self._size) + len(self._overrun) - len(self._threads)):
            self._start_thread()

    def _start_thread(self) -> None:
        name = f"duly-{self._invoker.runtime.name}-{len(self._threads) + 1}"
        thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        get, conclude = self._inbox.get, self._concluded.append
        while (item := get()) is not _STOP:
            started = time.monotonic()
            conclusion = self.handle(item, self._limit)
            conclude((item, conclusion, time.monotonic() - started))
            if not self._is_loop_notified:
                self._is_loop_notified = True
                self._notify_loop()

    def _notify_loop(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the lease will expire
            self._loop.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        self._is_loop_notified = False  # before the loop below: a later conclusion notifies again
        concluded, settle, unfinished = self._concluded, self._invoker.settle, self._unfinished
        handling: list[float] = []
        while concluded:
            item, conclusion, seconds = concluded.popleft()
            handling.append(seconds)
            if self._timers and (timer := self._timers.pop(item, None)) is not None:
                timer.cancel()
            if item in unfinished:  # otherwise it was released, or has exceeded its timeout
                unfinished.discard(item)
                settle(item, conclusion)
            elif item in self._overrun:  # its thread was replaced
                self._overrun.discard(item)
                self._threads.pop()
                self._inbox.put(_STOP)
        self._invoker.runtime.times.add_handling(handling)

    def _limit(self, item: Item, seconds: float) -> None:
        """Limit the time of a handler that begins now. Called in its thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._begin_limit, item, seconds, time.monotonic())

    def _begin_limit(self, item: Item, seconds: float, began: float) -> None:
        rest = began + seconds - time.monotonic()
        self._timers[item] = self._loop.call_later(max(rest, 0.0), self._end_limit, item, seconds)

    def _end_limit(self, item: Item, seconds: float) -> None:
        """Settle a handler that has exceeded its timeout as failed, and let another thread take its place."""
        self._collect()
        self._timers.pop(item, None)
        if item not in self._unfinished:
            return
        self._unfinished.discard(item)
        self._overrun.add(item)
        error = overrun_error(seconds)
        conclusion = self._invoker.same_for_all(item, decision_of_error(error))
        if self._invoker.is_observed:
            self._invoker.context.copy().run(self._invoker.on_ended, item, conclusion, error)
        self._invoker.settle(item, conclusion)
        self._start_threads()
        if self._on_overrun is not None:
            self._on_overrun(item, seconds)

    def handle(self, item: Item, limit: Callable[[Item, float], None] | None = None) -> Conclusion:
        """Run one handler. No error of the handler is raised here. `limit` is called if it has a timeout."""
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
                if call.timeout is not None and limit is not None:
                    limit(item, call.timeout)
                conclusion = invoker.conclusion_of(item, context.run(call.function, *call.args, **call.kwargs))
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything
            failure, conclusion = error, invoker.same_for_all(item, decision_of_error(error))
        if invoker.is_observed and item not in self._overrun:
            context.run(invoker.on_ended, item, conclusion, failure)
        return conclusion
