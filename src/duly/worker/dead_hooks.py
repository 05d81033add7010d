"""Runs `on_dead` hooks for messages that died here: by their outcome, or as poison that a claim found."""

import asyncio
import contextlib
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final

from duly._core import signatures
from duly._core.definitions import Definitions
from duly._core.topology import Node
from duly.errors import DulyError
from duly.message import Message
from duly.worker.logs import event
from duly.worker.queue_runtime import QueueRuntime

_LOG: Final = logging.getLogger("duly.worker")

_MAX_RUNNING: Final = 4
"""Hooks that run at the same time for each node: a thousand dead letters must not start a thousand threads."""


class DeadHooks:
    """Runs the hooks in the background. If the process ends first, they do not run, and the dead letters remain."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._running: set[asyncio.Task[None]] = set()
        self._gates: defaultdict[Node | None, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(_MAX_RUNNING))
        """For each node: the message is read first, so a node that does not answer delays no hook of another one."""

    def start(self, runtime: QueueRuntime, ids: Sequence[str]) -> None:
        """Run the hooks of a queue or group for these messages."""
        hooks = self._definitions.on_dead_of(runtime.name)
        if hooks:
            task = asyncio.get_running_loop().create_task(self._run_all(runtime, list(ids), hooks))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def finish(self, timeout: float) -> None:
        """Wait until the hooks have run, and cancel them after `timeout` seconds."""
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=timeout)
            for task in late:
                task.cancel()

    async def _run_all(self, runtime: QueueRuntime, ids: Sequence[str], hooks: Sequence[Callable[..., Any]]) -> None:
        for id_ in ids:
            async with self._gates[runtime.source.node]:
                await self._run_for(runtime, id_, hooks)

    async def _run_for(self, runtime: QueueRuntime, id_: str, hooks: Sequence[Callable[..., Any]]) -> None:
        try:
            message = await runtime.queue.get(id_)
        except DulyError as error:
            event(_LOG, logging.ERROR, "on_dead.failed", queue=runtime.name, id=id_, error=str(error))
            return
        if message is None:  # trimmed already: the queue keeps fewer dead letters
            event(_LOG, logging.WARNING, "on_dead.missed", queue=runtime.name, id=id_)
            return
        for hook in hooks:
            await _call(hook, message)


async def _call(hook: Callable[..., Any], message: Message) -> None:
    try:
        if signatures.is_async(hook):
            await hook(message)
        else:
            await _in_thread(hook, message)
    except BaseException as error:  # the other hooks still run
        if _is_cancelled():
            raise
        event(
            _LOG, logging.ERROR, "hook.failed", hook=signatures.name_of(hook), queue=message.queue, id=message.id,
            exc_info=error,
        )  # fmt: skip


async def _in_thread(function: Callable[..., Any], *args: Any) -> None:
    """Call a function in a thread that does not keep the process from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[BaseException | None] = loop.create_future()

    def finish(failure: BaseException | None) -> None:
        if not done.done():
            done.set_result(failure)  # as a value: a future rejects some exceptions

    def call() -> None:
        failure: BaseException | None = None
        try:
            function(*args)
        except BaseException as error:  # noqa: BLE001
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(finish, failure)

    threading.Thread(target=call, name="duly-on-dead", daemon=True).start()
    failure = await done
    if failure is not None:
        raise failure


def _is_cancelled() -> bool:
    """Return whether this task was cancelled, and the hook did not raise CancelledError on its own."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
