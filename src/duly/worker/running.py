"""Runs a worker in an event loop made for it: uvloop's where it is installed."""

import asyncio
from collections.abc import Callable

from duly._async.app import AsyncDuly
from duly._sync.app import Duly
from duly.worker.options import WorkerOptions
from duly.worker.worker import Worker


def run(app: Duly | AsyncDuly, options: WorkerOptions | None = None, *, is_supervised: bool = False) -> bool:
    """Work until told to stop. True: nothing was cut off."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(arun(app, options, is_supervised=is_supervised))


async def arun(app: Duly | AsyncDuly, options: WorkerOptions | None = None, *, is_supervised: bool = False) -> bool:
    """Work in the running event loop until told to stop. True: nothing was cut off."""
    return await Worker(app, options, is_supervised=is_supervised).run()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
