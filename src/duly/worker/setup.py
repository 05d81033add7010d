"""Everything that a worker needs before it runs handlers: connections, a runtime for each queue, and hooks."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from duly._async.app import AsyncDuly
from duly._async.group import AsyncGroup
from duly._core import signatures
from duly._core.call import Call
from duly._core.definitions import Definitions, Registered
from duly._sync import blocked_loop
from duly._sync.app import Duly
from duly._sync.group import Group
from duly.errors import UsageError
from duly.worker.logs import event
from duly.worker.queue_runtime import QueueRuntime
from duly.worker.worker_apps import open_apps
from duly.worker.worker_options import WorkerOptions

_LOG: Final = logging.getLogger("duly.worker")


class Setup:
    """The queues that a worker serves. `Worker` and the worker of `duly.testing` are built on it.

    `open` sets `async_app`, `sync_app` and `runtimes`. `close` ends the connections.
    """

    async_app: AsyncDuly
    """The worker's own connections, for its event loop."""
    sync_app: Duly
    """Connections for threads: those of `def` handlers, and of the renewer."""
    runtimes: list[QueueRuntime]

    def __init__(self, app: Duly | AsyncDuly, options: WorkerOptions) -> None:
        if not isinstance(app, Duly | AsyncDuly):
            raise UsageError(f"a worker takes an app, duly.Duly or duly.AsyncDuly, not {app!r}")
        self.app = app
        self.options = options
        self.definitions: Definitions = app._definitions
        self.chosen: list[tuple[Registered, int]] = _chosen(self.definitions, options)
        self._stop_hooks: list[Callable[..., Any]] = []

    def open(self) -> None:
        """Create the connections and runtimes, in the running event loop. Nothing is sent yet."""
        self.async_app, self.sync_app = open_apps(self.app)
        self.runtimes = [self._runtime(each, weight) for each, weight in self.chosen]
        self._stop_hooks = list(self.definitions.hooks.on_stop)

    async def close(self) -> None:
        """Close the connections."""
        await self.async_app.aclose()
        self.sync_app.close()

    def _runtime(self, registered: Registered, weight: int) -> QueueRuntime:
        defined, handler = registered
        queue = defined._counterpart(self.async_app)
        handler.resolve(queue._decode_body)
        return QueueRuntime(queue, defined._counterpart(self.sync_app), handler, weight, self.options.concurrency)

    # Properties

    @property
    def groups(self) -> list[AsyncGroup]:
        """All groups that the app has handlers for, even those that this worker does not serve."""
        defined = [registered.queue for registered in self.definitions.handlers.values()]
        return [each._counterpart(self.async_app) for each in defined if isinstance(each, AsyncGroup | Group)]

    @property
    def pool(self) -> int | None:
        """The number of handlers that all queues share: the given one, or with weights, the largest of a queue."""
        if self.options.concurrency is not None:
            return self.options.concurrency
        has_weights = len({runtime.weight for runtime in self.runtimes}) > 1
        return max(runtime.slots for runtime in self.runtimes) if has_weights else None

    @property
    def concurrency(self) -> int:
        """The number of handlers that may run at the same time."""
        return self.pool or sum(runtime.slots for runtime in self.runtimes)

    def run_in_thread(self, call: Call[Any], patience: float) -> Any:
        """Run a call from a thread, and retry it for up to `patience` seconds."""
        return self.sync_app._link.run(call, patience)

    # Start and end

    async def start_embedded(self) -> None:
        """Start the embedded server. Raise an error if it cannot be started. An unavailable one is retried."""
        address = self.app._address
        if address.kind == "embedded":
            with contextlib.suppress(ConnectionError):  # stopped by force: it is unavailable until it is started
                await self.async_app._link.connections.ensure_server()
            if self.async_app._link.connections.has_new_server:
                note = "empty and new; senders in other directories use their own servers, unless DULY_URL names one"
                event(_LOG, logging.WARNING, "worker.new_server", directory=address.place, note=note)

    async def run_start_hooks(self) -> None:
        """Run the `on_start` hooks."""
        await _run_hooks(self.definitions.hooks.on_start)

    async def run_stop_hooks(self, end: float) -> None:
        """Run the `on_stop` hooks, until a time of the event loop. Errors are logged."""
        while self._stop_hooks:
            hook = self._stop_hooks.pop(0)
            try:
                async with asyncio.timeout_at(end):
                    await _run_hooks([hook])
            except Exception as error:  # noqa: BLE001
                event(_LOG, logging.ERROR, "hook.failed", hook=signatures.name_of(hook), exc_info=error)


def _chosen(definitions: Definitions, options: WorkerOptions) -> list[tuple[Registered, int]]:
    """Return the handlers that the worker runs, with the weights of their queues."""
    known = definitions.handlers
    if not known:
        raise UsageError(
            "the app has no handlers: define a handler (@queue.handler, or @topic.handler(group=...)) or a task "
            "(@app.task) first"
        )
    if options.queues is None:
        return [(registered, 1) for registered in known.values()]
    weights: dict[str, int] = {}
    unknown = []
    for name, weight in options.queues.items():
        labels = _labels_of(name, known)
        # The weight of a group that is named itself overrides the weight of its topic.
        weights.update((label, weight) for label in labels if label == name or label not in options.queues)
        unknown += [] if labels else [name]
    if unknown:
        what = "" if any("/" in name for name in unknown) else "queue "
        raise UsageError(f"no handler for {what}{', '.join(unknown)}: there are handlers for {', '.join(known)}")
    return [(known[label], weight) for label, weight in weights.items()]


def _labels_of(name: str, known: Collection[str]) -> list[str]:
    """Return the queue or group with this name, or else all groups of the topic with this name."""
    return [name] if name in known else [label for label in known if label.startswith(f"{name}/")]


async def _run_hooks(hooks: Sequence[Callable[..., Any]]) -> None:
    """Run `def` hooks in the event loop, whose context variables they may set for the handlers. No handler runs yet."""
    for hook in hooks:
        with blocked_loop.on_purpose():
            result = hook()
        if signatures.is_async(hook):
            await result
