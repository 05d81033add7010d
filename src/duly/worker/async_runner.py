"""Runs `async def` handlers in slots: tasks that each handle one message after another."""

import asyncio
import time
from collections import deque
from collections.abc import Collection, Iterable
from typing import Final, Literal

from duly._core.outcome_rules import Decision, decision_of_error
from duly.outcomes import Outcome
from duly.worker.coroutine_driver import run_in_context
from duly.worker.invoker import LOST, RELEASE, Conclusion, Invoker, Item

Cause = Literal["lost", "stop"]

_SLICE: Final = 0.0005
"""Seconds after which a slot yields to the event loop if its handlers never pause, for example to settle messages."""

_WOKEN_AT_ONCE: Final = 2
"""A handler that pauses wakes two slots, and each of them two more: a hundred slots run after seven rounds."""


class Slot:
    """A task that runs one handler at a time."""

    __slots__ = ("awaits_renewal", "cause", "item", "task")

    def __init__(self) -> None:
        self.item: Item | None = None
        self.awaits_renewal: bool = False
        """Whether it waits for a renewal, which shows whether its message is still leased."""
        self.cause: Cause | None = None
        """Why the worker cancels it. None: it does not."""
        self.task: asyncio.Task[None]


class AsyncRunner:
    """Up to `size` handlers at once. Slots are opened when needed, and kept.

    One slot runs handlers that never pause one after another. As soon as a handler pauses, other slots take the
    messages that wait.
    """

    def __init__(self, invoker: Invoker, size: int) -> None:
        self._invoker = invoker
        self._size = size
        self._waiting: deque[Item] = deque()
        self._slots: list[Slot] = []
        self._idle: list[asyncio.Future[None]] = []
        self._seconds: list[float] = []
        """Seconds that handlers took, in all slots. They are counted before the event loop goes on."""
        self._is_closed = False

    def add(self, items: Iterable[Item]) -> None:
        """Run the handler on these items as soon as slots are free."""
        self._waiting.extend(items)
        self._wake(1)

    def take_back(self, beyond: int = 0) -> list[Item]:
        """Remove and return items that were not started, except for the first `beyond`."""
        return [self._waiting.pop() for _ in range(len(self._waiting) - beyond)]

    def running(self) -> list[Item]:
        """Return the items that are in slots, even if their handler has not started."""
        return [slot.item for slot in self._slots if slot.item is not None]

    @property
    def has_begun(self) -> bool:
        """Whether any handler is running."""
        return any(slot.item is not None and not slot.awaits_renewal for slot in self._slots)

    @property
    def waiting(self) -> int:
        """The number of items that wait for a slot."""
        return len(self._waiting)

    def cancel(self, items: Collection[Item], cause: Cause) -> None:
        """Cancel the handlers of these items, if they run."""
        wanted = set(items)
        for slot in self._slots:
            if slot.item in wanted and slot.cause is None:
                slot.cause = cause
                slot.task.cancel()

    def close(self) -> None:
        """Cancel all slots, idle or not."""
        self._is_closed = True
        for slot in self._slots:
            slot.task.cancel()

    async def aclose(self) -> None:
        """Cancel all slots, idle or not, and wait briefly for their end."""
        self.close()
        if self._slots:
            await asyncio.wait([slot.task for slot in self._slots], timeout=0.1)

    def _wake(self, most: int = _WOKEN_AT_ONCE) -> None:
        for _ in range(min(most, len(self._waiting))):
            while self._idle and self._idle[-1].done():  # its slot was cancelled, and continues without this
                self._idle.pop()
            if self._idle:
                self._idle.pop().set_result(None)
            elif len(self._slots) < self._size:
                self._open_slot()

    def _note_pause(self) -> None:
        """Let other slots run while a handler waits."""
        self._wake()
        if self._seconds:
            self._add_times()

    def _add_times(self) -> None:
        self._invoker.runtime.times.add_handling(self._seconds)
        self._seconds.clear()

    def _open_slot(self) -> None:
        slot = Slot()
        slot.task = asyncio.get_running_loop().create_task(self._serve(slot), context=self._invoker.context.copy())
        self._slots.append(slot)

    async def _serve(self, slot: Slot) -> None:
        runtime = self._invoker.runtime
        waiting, lease_validity, seconds = self._waiting, runtime.lease_validity, self._seconds
        while True:
            now = time.monotonic()
            slice_ends = now + _SLICE
            while waiting:
                slot.item, started = waiting.popleft(), now
                await self._handle(slot, slot.item, is_valid=now < lease_validity.until)
                now = time.monotonic()
                seconds.append(now - started)
                if now > slice_ends:
                    self._add_times()
                    await self._pause()
                    now = time.monotonic()
                    slice_ends = now + _SLICE
            self._add_times()
            await self._rest(slot)

    async def _rest(self, slot: Slot) -> None:
        """Wait for a message."""
        idle = asyncio.get_running_loop().create_future()
        self._idle.append(idle)
        try:
            await idle
        except asyncio.CancelledError:  # by a handler that has ended: it left a timer behind, for example
            if self._is_closed:
                raise
            if idle in self._idle:
                self._idle.remove(idle)
            await self._clear_cancellation(slot)

    async def _clear_cancellation(self, slot: Slot) -> None:
        """Make a slot usable again after it was cancelled, by the worker or by a handler."""
        slot.cause = None
        while slot.task.uncancel():
            pass
        await self._pause()  # before Python 3.13 a pending cancellation is raised at the next pause

    async def _pause(self) -> None:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if self._is_closed:
                raise

    async def _handle(self, slot: Slot, item: Item, *, is_valid: bool) -> None:
        """Run one handler, and settle its message. No error of the handler is raised here."""
        invoker = self._invoker
        slot.cause = None
        context = invoker.context.copy()
        failure: BaseException | None = None
        try:
            if not is_valid:
                slot.awaits_renewal = True
                await invoker.runtime.lease_validity.wait()
                slot.awaits_renewal = False
            call = invoker.prepare(item)
            if isinstance(call, Decision):
                conclusion = invoker.same_for_all(item, call)
            else:
                if invoker.is_observed:
                    context.run(invoker.on_started, item)
                coroutine = call.function(*call.args, **call.kwargs)
                conclusion = invoker.conclusion_of(item, await run_in_context(coroutine, context, self._note_pause))
        except BaseException as error:  # a handler may raise anything
            slot.awaits_renewal = False
            if self._is_closed:
                raise
            failure, conclusion = error, self._decided(slot, item, error)
        if invoker.is_observed:
            context.run(invoker.on_ended, item, conclusion, failure)
        slot.item = None
        if slot.task.cancelling():
            await self._clear_cancellation(slot)
        invoker.settle(item, conclusion)

    def _decided(self, slot: Slot, item: Item, error: BaseException) -> Conclusion:
        """Return the conclusion for an error: the handler's own, or one that the worker's cancellation caused."""
        if slot.cause is None or isinstance(error, Outcome):
            return self._invoker.same_for_all(item, decision_of_error(error))
        return self._invoker.same_for_all(item, LOST if slot.cause == "lost" else RELEASE)
