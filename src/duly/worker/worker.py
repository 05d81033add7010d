"""The worker: puts its parts together, starts them, and stops them in order."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Final, Self

from duly._async.app import AsyncDuly
from duly._sync.app import Duly
from duly.errors import DulyError, UsageError
from duly.options import Seconds
from duly.worker import collector, signals
from duly.worker.claimer import Refused
from duly.worker.dead_hooks import DeadHooks
from duly.worker.dispatcher import Dispatcher
from duly.worker.fetcher import Fetcher
from duly.worker.janitor import Janitor
from duly.worker.logs import event
from duly.worker.queue_runtime import QueueRuntime
from duly.worker.renewer import Renewer
from duly.worker.settler import Settler
from duly.worker.setup import Setup
from duly.worker.source import AnyDelivery
from duly.worker.vitals import LoopProbe, QueueVitals, Vitals
from duly.worker.worker_options import DEFAULT_GRACE, GivenQueues, WorkerOptions

_LOG: Final = logging.getLogger("duly.worker")

_REPEAT_DELAY: Final = 0.1
"""Seconds after a signal until a child decides whether its parent sent it: the parent also writes to the pipe."""

_CANCEL_TIMEOUT: Final = 1.0
"""Seconds that cancelled handlers have to end."""
_SETTLE_TIMEOUT: Final = 5.0
"""Seconds to wait for the server's answers when no handler runs."""
_FLUSH_TIMEOUT: Final = 2.0
"""Seconds to settle messages when the time is up."""
_STOP_HOOKS_TIMEOUT: Final = 4.0
"""Seconds that `on_stop` hooks have, in addition to the rest of the grace."""
_BLOCKED_AFTER: Final = 10.0
"""Seconds after which an event loop that does not run makes the process unhealthy."""


class Worker:
    """Runs the handlers of an app until it is stopped.

    Use `await worker.run()` in a program that does nothing else, and `async with Worker(app):` alongside a web server.
    """

    def __init__(
        self,
        app: Duly | AsyncDuly,
        options: WorkerOptions | None = None,
        *,
        queues: GivenQueues = None,
        concurrency: int | None = None,
        grace: Seconds = DEFAULT_GRACE,
        orders: Callable[[], int] | None = None,
    ) -> None:
        """Take options as `app.run` does, or as WorkerOptions. `orders` counts the stop requests of a parent."""
        if options is not None and (queues, concurrency, grace) != (None, None, DEFAULT_GRACE):
            raise UsageError("a worker takes its options either as WorkerOptions or by name, not both")
        self._orders = orders
        self._options = WorkerOptions(queues, concurrency, grace) if options is None else options
        self._setup = Setup(app, self._options)
        self._is_stopping = asyncio.Event()
        self._is_hurried = False
        self._signals = 0
        self._progress = asyncio.Event()
        self._parts: list[asyncio.Task[None]] = []
        """Empty: it has not started."""
        self._loop_probe = LoopProbe()
        self._starting: asyncio.Task[Any] | None = None
        """The task that runs the `on_start` hooks."""
        self.refusal: DulyError | None = None
        """Why it stopped without a request: the server has refused its user since it started."""
        self.was_cut_off: bool = False
        """Whether handlers were cut off, or messages could not be released."""

    async def run(self) -> bool:
        """Work until a signal or `stop` ends it. Return whether no handler was cut off.

        Raises ServerError when the server refuses the user from the start. Later refusals are retried.
        """
        with signals.handled(self._on_signal):
            async with self:
                with collector.sparing_old_objects():
                    await self._is_stopping.wait()
        if self.refusal is not None:
            raise self.refusal
        return not self.was_cut_off

    def stop(self) -> None:
        """Stop in order: claim no more, and release messages whose handler has not started.

        `run` then returns. With `async with`, leave the block to wait for running handlers. A second call stops now.
        """
        self._is_hurried = self._is_stopping.is_set()
        self._is_stopping.set()
        self._progress.set()
        if self._starting is not None:
            self._starting.cancel()
        elif self._parts:
            self._stop_fetching()

    def vitals(self) -> Vitals:
        """Return the state of this worker, for probes. Any thread may call this."""
        if not self._parts:
            return Vitals(os.getpid(), "the worker is starting")
        now = time.monotonic()
        queues = tuple(
            QueueVitals(each.name, each.busy, each.handled, round(now - each.source.polled_at, 3))
            for each in self._runtimes
        )
        rolled_back = self._async_app._link.rolled_back
        return Vitals(os.getpid(), self._trouble(), self._setup.concurrency, rolled_back, queues)

    def _trouble(self) -> str | None:
        if self._is_stopping.is_set():
            return "the worker is stopping"
        if (blocked := self._loop_probe.blocked_for(self._loop)) > _BLOCKED_AFTER:
            return f"the event loop has not run for {blocked:.0f} s: a handler blocks it"
        if all(runtime.source.is_down for runtime in self._runtimes):
            return f"{self._setup.app._address.shown} does not answer"
        return None

    def _stop_fetching(self) -> None:
        self._fetcher.stop()
        for dispatcher in self._dispatchers.values():
            dispatcher.release_waiting()

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._end()
        except asyncio.CancelledError:  # the caller no longer waits: stop at once, but in order
            self.stop()
            await self._end()
            raise

    # Starting

    async def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        with collector.paused():
            self._setup.open()
        self._async_app, self._runtimes = self._setup.async_app, self._setup.runtimes
        try:
            await self._setup.start_embedded()
            await self._run_start_hooks()
        except BaseException:
            await self._setup.close()
            raise
        if not self._is_stopping.is_set():
            with collector.paused():
                self._start_parts()

    async def _run_start_hooks(self) -> None:
        """Run the `on_start` hooks. A signal during that time ends them."""
        here = asyncio.current_task()
        self._starting = here
        try:
            await self._setup.run_start_hooks()
        except asyncio.CancelledError:
            if here is None or not self._is_stopping.is_set():
                raise
            here.uncancel()
        finally:
            self._starting = None

    def _start_parts(self) -> None:
        """Start to work. Handlers see the context variables that the hooks have set."""
        definitions = self._setup.definitions
        self._dead_hooks = DeadHooks(definitions)
        self._is_spread = bool(self._async_app._link.is_spread)
        self._settler = Settler(
            on_progress=self._on_progress, on_dead=self._dead_hooks.start, is_spread=self._is_spread
        )
        self._dispatchers = {
            runtime: Dispatcher(runtime, definitions.hooks, self._settler, self._on_overrun)
            for runtime in self._runtimes
        }
        self._janitor = Janitor(self._runtimes, self._setup.groups, self._async_app.namespace, self._setup.concurrency)
        prepare = self._janitor.create_groups_beside if self._is_spread else None
        self._fetcher = Fetcher(self._dispatchers, self._setup.pool, self._dead_hooks.start, prepare)
        self._renewer = Renewer(
            self._runtimes, self._setup.run_in_thread, self._on_lost_in_thread, self._settler.settling
        )
        if self._setup.app._address.kind != "memory":
            self._async_app._link.connections.rollbacks.on_rolled_back = self._renewer.renew_now
        self._renewer.start()
        self._begin(self._settler.run())
        self._begin(self._janitor.run())
        self._fetching = self._begin(self._fetch())
        queues = ",".join(runtime.name for runtime in self._runtimes)
        event(_LOG, logging.INFO, "worker.started", queues=queues, id=self._async_app._link.consumer, pid=os.getpid())

    async def _fetch(self) -> None:
        if not self._is_spread:  # on a cluster, only the claims of a topic wait for its groups
            await self._janitor.create_groups()
        try:
            await self._fetcher.run()
        except Refused as refused:
            self.refusal = refused.error
            self.stop()

    def _begin(self, part: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(part)
        task.add_done_callback(self._on_part_ended)
        self._parts.append(task)
        return task

    # While it runs

    def _on_progress(self, runtime: QueueRuntime) -> None:
        self._fetcher.note_progress(runtime)
        self._progress.set()

    def _on_signal(self, name: str) -> None:
        self._signals += 1
        if self._orders is not None and self._is_stopping.is_set():
            self._loop.call_later(_REPEAT_DELAY, self._stop_on_repeated_signal, name, self._orders)
        else:
            self._stop_on_signal(name)

    def _stop_on_signal(self, name: str) -> None:
        event(_LOG, logging.INFO, "worker.signal", signal=name, at_once=self._is_stopping.is_set())
        self.stop()

    def _stop_on_repeated_signal(self, name: str, orders: Callable[[], int]) -> None:
        """Stop at once if one sender has asked twice: a service manager signals both parent and children."""
        ordered = orders()
        if max(ordered, self._signals - ordered) > 1:
            self._stop_on_signal(name)

    def _on_lost_in_thread(self, runtime: QueueRuntime, lost: Sequence[AnyDelivery]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._on_lost, runtime, lost)

    def _on_lost(self, runtime: QueueRuntime, lost: Sequence[AnyDelivery]) -> None:
        runtime.source.held.difference_update(lost)
        self._dispatchers[runtime].note_lost(lost)
        self._fetcher.notify_change()  # a lost suspect no longer blocks claims

    def _on_overrun(self, delivery: AnyDelivery, seconds: float) -> None:
        """Let the parent replace this process. Without a parent, the thread goes on until its handler returns."""
        is_replaced = self._orders is not None
        effect = "this process is replaced" if is_replaced else "its thread runs until the handler returns"
        event(
            _LOG, logging.ERROR, "handler.timed_out", queue=delivery.queue, id=delivery.id, timeout=seconds,
            effect=effect,
        )  # fmt: skip
        if is_replaced and not self._is_stopping.is_set():
            self.stop()

    def _on_part_ended(self, part: asyncio.Task[None]) -> None:
        if part.cancelled():  # by the worker, or by the program that ends
            for dispatcher in self._dispatchers.values():
                dispatcher.close()
        elif (error := part.exception()) is not None:
            event(_LOG, logging.CRITICAL, "worker.broken", error=str(error), exc_info=error)
            self.was_cut_off = True
            self.stop()
            self._is_hurried = True  # messages of this part would never be settled

    # Ending

    async def _end(self) -> None:
        """Release messages that were not started, wait for running handlers, then end.

        This takes little more than `grace` seconds.
        """
        self._is_stopping.set()
        grace = 0.0 if self._is_hurried else self._options.grace
        grace_ends = self._loop.time() + grace
        if self._parts:
            await self._end_parts(grace)
        await self._setup.run_stop_hooks(max(grace_ends, self._loop.time()) + _STOP_HOOKS_TIMEOUT)
        await self._setup.close()
        event(_LOG, logging.INFO, "worker.stopped", cut_off=self.was_cut_off)

    async def _end_parts(self, grace: float) -> None:
        event(_LOG, logging.INFO, "worker.stopping", running=self._busy(), grace=grace)
        self._stop_fetching()
        if not await self._until_done(grace):
            if self._busy():
                await self._cut_off()
            elif self._has_connected():  # a claim is in progress: its messages are unknown
                self.was_cut_off = True
        await self._shut_down()

    def _has_connected(self) -> bool:
        return self._setup.app._address.kind == "memory" or bool(self._async_app._link.connections.is_connected)

    def _busy(self) -> int:
        return sum(runtime.busy for runtime in self._runtimes)

    async def _until_done(self, seconds: float, settling: float = _SETTLE_TIMEOUT) -> bool:
        """Wait until no message is in flight and no claim is in progress. False: time is up, or a second signal came.

        Handlers have `seconds`. The server has only `settling` seconds, because it may be unavailable.
        """
        now = self._loop.time()
        if any(runtime.source.is_down for runtime in self._runtimes):
            settling = min(settling, _FLUSH_TIMEOUT)
        handlers_end, server_ends = now + seconds, now + settling
        self._fetching.add_done_callback(lambda _: self._progress.set())
        while self._busy() or not self._fetching.done():
            if any(dispatcher.has_begun for dispatcher in self._dispatchers.values()):
                until = now if self._is_hurried else handlers_end
                server_ends = self._loop.time() + settling
            else:
                until = server_ends
            if self._loop.time() >= until:
                return False
            await self._wait_for_progress(until)
        return True

    async def _wait_for_progress(self, end: float) -> None:
        self._progress.clear()
        try:
            async with asyncio.timeout_at(end):
                await self._progress.wait()
        except TimeoutError:
            pass

    async def _cut_off(self) -> None:
        """Release the messages of running handlers, even of handlers that ignore their cancellation."""
        running = sum(dispatcher.cut_off() for dispatcher in self._dispatchers.values())
        self._is_hurried = False
        self.was_cut_off = True
        event(_LOG, logging.WARNING, "worker.cut_off", running=running)
        if await self._until_done(_CANCEL_TIMEOUT, _CANCEL_TIMEOUT):
            return
        for runtime, dispatcher in self._dispatchers.items():
            dispatcher.release(runtime.source.held - self._settler.awaiting_settle(runtime))

    async def _shut_down(self) -> None:
        self._renewer.stop()
        try:
            async with asyncio.timeout(_FLUSH_TIMEOUT):
                await self._leave()
        except (TimeoutError, DulyError) as error:
            self.was_cut_off = self.was_cut_off or any(runtime.source.held for runtime in self._runtimes)
            event(_LOG, logging.WARNING, "worker.shutdown_incomplete", error=str(error) or "the server does not answer")
        for part in self._parts:
            part.cancel()
        self._settler.close()
        self._fetcher.cut_off()
        for dispatcher in self._dispatchers.values():
            await dispatcher.aclose()
        await self._dead_hooks.finish(_FLUSH_TIMEOUT)

    async def _leave(self) -> None:
        """Wait until everything is settled, pass wake tokens on, and leave the registry."""
        if self._is_spread:
            await self._leave_cluster()
            return
        await self._settler.flush()
        if self.refusal is None:
            await self._fetcher.aclose()
            await self._janitor.depart()

    async def _leave_cluster(self) -> None:
        """Leave each node as far as it answers: one that does not must not use up the time of the others."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_TIMEOUT / 2):
                await self._settler.flush()
        if self.refusal is None:
            ends = await asyncio.gather(self._fetcher.aclose(), self._janitor.depart(), return_exceptions=True)
            for error in ends:
                if error is not None:
                    raise error
        await self._settler.flush()
