"""Runs a worker in its own event loop, that of uvloop if it is installed."""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from duly._async.app import AsyncDuly
from duly._sync.app import Duly
from duly.errors import UsageError
from duly.worker.logs import event
from duly.worker.vitals import Vitals
from duly.worker.worker import Worker
from duly.worker.worker_options import WorkerOptions

_LOG: Final = logging.getLogger("duly.worker")

_TASK_TIMEOUT: Final = 2.0
"""Seconds that tasks of handlers have to end after the worker."""

_EXIT_TIMEOUT: Final = 5.0
"""Seconds that the interpreter has to end, including the user's exit functions."""


Orders = Callable[[], int]
"""Returns how often a parent has asked this process to stop."""


ShowVitals = Callable[[Callable[[], Vitals]], AbstractContextManager[object]]
"""Shows the state of the worker, which the given function returns, to other processes."""


def run(
    app: Duly | AsyncDuly,
    options: WorkerOptions | None = None,
    *,
    orders: Orders | None = None,
    show_vitals: ShowVitals | None = None,
) -> bool:
    """Work until stopped. Return whether no handler was cut off."""
    _check_no_running_loop()
    loop = _new_loop()
    asyncio.set_event_loop(loop)
    try:
        return _finish(loop, loop.create_task(_run_shown(Worker(app, options, orders=orders), show_vitals)))
    finally:
        _close(loop)


async def arun(app: Duly | AsyncDuly, options: WorkerOptions | None = None, *, orders: Orders | None = None) -> bool:
    """Work in the running event loop until stopped. Return whether no handler was cut off."""
    return await Worker(app, options, orders=orders).run()


async def _run_shown(worker: Worker, show_vitals: ShowVitals | None) -> bool:
    with nullcontext() if show_vitals is None else show_vitals(worker.vitals):
        return await worker.run()


def _check_no_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        "run() starts its own event loop, but one is already running here: use `async with duly.Worker(app):`, or "
        "`await app.run()` of a duly.AsyncDuly"
    )


def leave(status: int) -> None:
    """End this process soon with a status, even if threads of handlers are still running."""

    def end() -> None:
        time.sleep(_EXIT_TIMEOUT)
        os._exit(status)

    threading.Thread(target=end, name="duly-exit", daemon=True).start()


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Close an event loop. The wait for its tasks is bounded, and threads are not waited for."""
    if loop.is_running():  # a signal ended uvloop during its start: nothing has run in it, and it cannot run again
        return
    if left := asyncio.all_tasks(loop):
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.wait(left, timeout=_TASK_TIMEOUT))
    loop.run_until_complete(loop.shutdown_asyncgens())
    asyncio.set_event_loop(None)
    loop.close()


def _finish(loop: asyncio.AbstractEventLoop, work: asyncio.Task[bool]) -> bool:
    """Run the loop until the work is done, regardless of errors in tasks that handlers have started."""
    while True:
        try:
            return loop.run_until_complete(work)
        except (SystemExit, KeyboardInterrupt) as error:  # asyncio leaves the loop, and the task keeps the error
            if work.done():
                raise
            event(_LOG, logging.ERROR, "task.exit", error=repr(error), exc_info=error)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
