"""Runs the handlers of due messages in a test, and returns their outcomes."""

import asyncio
import functools
import math
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, Self

from duly._async.app import AsyncDuly
from duly._port import memory_engine
from duly._sync.app import Duly
from duly.errors import UsageError
from duly.memory.clock import clock
from duly.options import Seconds, checked_count, checked_seconds
from duly.testing.shift import Handled, Shift
from duly.worker.worker_options import GivenQueues

_MOST: Final = 10_000
"""Messages after which a call gives up, for a handler that requeues its message without a delay."""

Step = Coroutine[Any, Any, Any] | Callable[[], Any]
"""A coroutine for the event loop, or a `def` handler, which must run outside of one."""
Steps = Generator[Step, Any, list[Handled]]


def work_off(
    app: Duly | AsyncDuly, queues: GivenQueues = None, *, advance: Seconds = 0, limit: int | None = None
) -> list[Handled]:
    """Run handlers until no message is due, and return the outcome of each message.

    Messages are handled one at a time, in turn over the queues. `def` handlers run in this thread, `async def` handlers
    in a new event loop. Retries, dead letters and hooks work as in a worker. `queues` are names; None: all queues that
    have handlers. `limit` is the largest number of messages to handle.

    On `memory://`, `advance` moves the virtual clock by this many seconds. It stops at each time at which a message is
    due, so a reminder for every minute is delivered at each minute, not all at the end.

    Raises UsageError in a running event loop (use `awork_off`), for `advance` on a server, and if messages are still
    due after 10,000 messages without a `limit`.
    """
    _refuse_a_running_loop()
    loop = asyncio.new_event_loop()

    def perform(step: Step) -> Any:
        return loop.run_until_complete(step) if asyncio.iscoroutine(step) else step()

    steps = _steps(app, queues, advance, limit)
    try:
        step, failed = next(steps), False
        while True:
            try:
                result, failed = perform(step), False
            except BaseException as error:  # noqa: BLE001 - the steps clean up
                result, failed = error, True
            step = steps.throw(result) if failed else steps.send(result)
    except StopIteration as end:
        handled: list[Handled] = end.value
        return handled
    finally:
        _close(loop)


async def awork_off(
    app: Duly | AsyncDuly, queues: GivenQueues = None, *, advance: Seconds = 0, limit: int | None = None
) -> list[Handled]:
    """Like `work_off`, in the running event loop. `def` handlers run in a thread, as in a worker."""
    steps = _steps(app, queues, advance, limit)
    try:
        step, failed = next(steps), False
        while True:
            try:
                result = await (step if asyncio.iscoroutine(step) else asyncio.to_thread(step))
                failed = False
            except BaseException as error:  # noqa: BLE001 - the steps clean up
                result, failed = error, True
            step = steps.throw(result) if failed else steps.send(result)
    except StopIteration as end:
        handled: list[Handled] = end.value
        return handled


def _steps(app: Duly | AsyncDuly, queues: GivenQueues, advance: Seconds, limit: int | None) -> Steps:
    most = _MOST if limit is None else checked_count(limit, "limit")
    shift = Shift(app, queues=queues)
    handled: list[Handled] = []
    with _ClockAdvance(app, checked_seconds(advance, "advance")) as clock_advance:
        yield shift.__aenter__()
        try:
            while len(handled) < most:
                job = yield shift.claim(most - len(handled))
                if job is None:
                    if not clock_advance.next_step(shift.next_at):
                        return handled
                elif job.is_async:
                    handled += yield shift.run_async(job)
                else:
                    conclusion = yield functools.partial(shift.call, job)
                    handled += yield shift.settle(job, conclusion)
        finally:
            yield shift.__aexit__(None, None, None)
    if limit is None:
        raise UsageError(
            f"work_off has handled {_MOST} messages and more are due: does a handler requeue its message without a "
            "delay? limit= sets the number of messages to handle"
        )
    return handled


class _ClockAdvance:
    """Moves the virtual clock from one due time to the next."""

    def __init__(self, app: Duly | AsyncDuly, seconds: float) -> None:
        if seconds and memory_engine(app) is None:
            raise UsageError(f"advance= is for memory://, not for {app!r}: the clock of a server cannot be moved")
        self._us = math.ceil(seconds * 1_000_000)
        self._end = 0
        self._freezes = False

    def __enter__(self) -> Self:
        if self._us:
            self._freezes = not clock.is_frozen
            clock.freeze()
            self._end = clock.now_us() + self._us
        return self

    def __exit__(self, *_: object) -> None:
        if self._freezes:
            clock.unfreeze()

    def next_step(self, next_at: int | None) -> bool:
        """Move the clock to the next due time, or to the end. False: it is at the end."""
        now = clock.now_us()
        if now >= self._end:
            return False
        clock.set_us(self._end if next_at is None else min(max(next_at, now + 1), self._end))
        return True


def _refuse_a_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError("work_off makes its own event loop, and one is already running here: use `await awork_off(app)`")


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the tasks that handlers left running, and close the event loop."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
