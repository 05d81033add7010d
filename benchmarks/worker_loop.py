"""A worker whose server is in the same process, to count its instructions. It has no question.

`python -m benchmarks.worker_loop MESSAGES`: a line of input fills a queue, the next one lets a worker drain it. No
socket and no other process decide how many messages share a call, so counts can be compared.
"""

import asyncio
import gc
import sys
from contextlib import suppress

import duly
from duly.worker import Worker, WorkerOptions


def main(messages: int) -> None:
    """Fill and drain in turn, as long as there is input."""
    with suppress(ImportError):
        import uvloop

        uvloop.install()
    gc.disable()  # its runs fall on one count or on another
    asyncio.run(_serve(messages))


async def _serve(messages: int) -> None:
    app = duly.Duly("memory://")
    queue = app.queue("loop", lease=3600)
    done, handled = asyncio.Event(), 0

    @queue.handler
    async def handle(_body: str) -> None:
        nonlocal handled
        handled += 1
        if handled == messages:
            done.set()

    while sys.stdin.readline():
        queue.send_many(["x" * 100] * messages)
        print("filled", flush=True)
        sys.stdin.readline()
        handled = 0
        done.clear()
        async with Worker(app, WorkerOptions()):
            await done.wait()
        print("drained", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
