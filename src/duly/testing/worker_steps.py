"""Works off what is due: a test sends, lets time pass, has the handlers run, and looks at what became of it."""

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
"""Messages after which a call gives up: a handler that brings its own message back at once would go on for ever."""

Step = Coroutine[Any, Any, Any] | Callable[[], Any]
"""Something for the event loop, or a `def` handler, which must not find one running."""
Steps = Generator[Step, Any, list[Handled]]


def work_off(
    app: Duly | AsyncDuly, queues: GivenQueues = None, *, advance: Seconds = 0, limit: int | None = None
) -> list[Handled]:
    """Run the handlers of all that is due, here, until nothing is; say what became of each message.

    One message after the other, in turn over the queues: `def` handlers in this thread, `async def` ones in an event
    loop made for them. What follows from an outcome is what a worker would make of it. `queues` are names; None: all
    that have handlers. `limit` is how many messages to handle at the most.

    On `memory://`, `advance` lets so much time pass on the virtual clock, and stops it at every moment at which
    something falls due: reminders of an hour come at their minutes, not all at its end.
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
            except BaseException as error:  # noqa: BLE001 - the steps know how to end in order
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
    """Do as `work_off`, in the running event loop; `def` handlers run in a thread, as they do in a worker."""
    steps = _steps(app, queues, advance, limit)
    try:
        step, failed = next(steps), False
        while True:
            try:
                result = await (step if asyncio.iscoroutine(step) else asyncio.to_thread(step))
                failed = False
            except BaseException as error:  # noqa: BLE001 - the steps know how to end in order
                result, failed = error, True
            step = steps.throw(result) if failed else steps.send(result)
    except StopIteration as end:
        handled: list[Handled] = end.value
        return handled


def _steps(app: Duly | AsyncDuly, queues: GivenQueues, advance: Seconds, limit: int | None) -> Steps:
    most = _MOST if limit is None else checked_count(limit, "limit")
    shift = Shift(app, queues=queues)
    handled: list[Handled] = []
    with _Passage(app, checked_seconds(advance, "advance")) as passage:
        yield shift.__aenter__()
        try:
            while len(handled) < most:
                job = yield shift.claim(most - len(handled))
                if job is None:
                    if not passage.goes_on(shift.next_at):
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
            f"work_off has handled {_MOST} messages and more are due: does a handler bring its message back without a "
            "delay? limit= says how many to handle"
        )
    return handled


class _Passage:
    """Lets time pass on the virtual clock, from one moment at which something falls due to the next."""

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

    def goes_on(self, next_at: int | None) -> bool:
        """Move the clock to the next moment, or to the end. False: it is there."""
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
    raise UsageError(
        "work_off makes an event loop of its own, and there is one running here: use `await awork_off(app)`"
    )


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Close an event loop, with the tasks that handlers left behind."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
