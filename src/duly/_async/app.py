"""The app: where the server is, and the queues and topics on it."""

import dataclasses
import os
import time
import weakref
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar, TypeVarTuple, Unpack, overload
from zoneinfo import ZoneInfo

from duly._async.link import AsyncLink
from duly._async.lock import AsyncLock
from duly._async.queue import AsyncQueue
from duly._async.schedules import AsyncSchedules
from duly._async.task import AsyncMakesTask, AsyncTask
from duly._async.topic import AsyncTopic
from duly._client_address import address_of_client
from duly._core import address as addresses
from duly._core import codec, ops, refused_options
from duly._core import schedules as scheduling
from duly._core.address import Address
from duly._core.definitions import Definitions
from duly._core.handlers import TaskDefinition
from duly._core.ids import IdMaker
from duly._core.keys import RegistryKeys
from duly._core.naming import about, is_of_topic
from duly._renewal import Renewer
from duly.errors import UsageError
from duly.message import Message, Schedule, WorkerInfo
from duly.options import (
    QueueKeywords,
    QueueOptions,
    Retry,
    Seconds,
    Send,
    TopicKeywords,
    TopicOptions,
    checked_count,
    checked_flag,
    checked_name,
    checked_positive_seconds,
)
from duly.outcomes import OnBusy

if TYPE_CHECKING:
    from duly._typing import EitherDelivery, Server

# --- sync only
# | from duly._async.app import AsyncDuly, twin_of
# |
# --- end
_NOT_GIVEN: Final[Any] = object()

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Occasion = TypeVar("Occasion", bound=Callable[[], Any])
Before = TypeVar("Before", bound="Callable[[EitherDelivery[Any]], Any]")
After = TypeVar("After", bound="Callable[[EitherDelivery[Any], str], Any]")
OnError = TypeVar("OnError", bound="Callable[[EitherDelivery[Any], BaseException], Any]")
OnDead = TypeVar("OnDead", bound=Callable[[Message], Any])

_apps: Final[weakref.WeakSet["AsyncDuly"]] = weakref.WeakSet()


class AsyncDuly:
    """A connection to one server. May be shared (by threads or by tasks); survives a fork; close it when done.

    Without an address: DULY_URL, else the embedded server in $DULY_HOME or ./.duly. A redis-py client of
    your own tells the address and credentials; the connections are Duly's. Another app tells its server, and no more.
    """

    def __init__(
        self,
        server: "Server | None" = None,
        *,
        namespace: str = "duly",
        max_message_bytes: int = 1 << 20,
        allow_eviction: bool = False,
        patience: float = 20.0,
    ) -> None:
        self._address = _address(server)
        self.namespace: str = checked_name(namespace, "namespace")
        self._max_message_bytes = checked_count(max_message_bytes, "max_message_bytes")
        self._allow_eviction = checked_flag(allow_eviction, "allow_eviction")
        self._patience = checked_positive_seconds(patience, "patience")
        """Seconds that a call keeps trying while the server is away."""
        self._link: Any = self._make_link()
        self._ids = IdMaker(os.urandom(11))
        self._renewer = Renewer(self._run_for_renewer)
        self._renewer_link: Any = None
        self._is_twin = False
        self._definitions = Definitions()
        self.is_closed: bool = False
        # --- sync only
        # | self._aio: AsyncDuly | None = None
        # --- end
        _apps.add(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self._address.shown}>"

    @overload
    def queue(self, name: str, *, type: type[T], **options: Unpack[QueueKeywords]) -> AsyncQueue[T]: ...

    @overload
    def queue(self, name: str, *, type: Any = None, **options: Unpack[QueueKeywords]) -> AsyncQueue[Any]: ...

    def queue(self, name: str, **options: Any) -> AsyncQueue[Any]:
        """Name a queue and say how this process uses it. It is created by its first use.

        `duly.QueueOptions` says what each option means, and has the defaults. They are this process's view, not
        stored. Unless said otherwise, `max_message_bytes` is that of the app.
        """
        checked_name(name)
        known = refused_options.checked(f"queue {name!r}", QueueOptions, options)
        with about("queue", name):
            return self._queue(name, QueueOptions(**self._with_own_limit(known)))

    def _with_own_limit(self, options: dict[str, Any]) -> dict[str, Any]:
        """Add the largest message of this app, where nothing is said of it."""
        given = options.get("max_message_bytes")
        return {**options, "max_message_bytes": self._max_message_bytes if given is None else given}

    def _queue(self, name: str, options: QueueOptions) -> AsyncQueue[Any]:
        return AsyncQueue(self, name, options)

    async def queues(self) -> list[str]:
        """Name the queues that were ever used and not deleted."""
        found: list[str] = await self._link.queues(self.namespace)
        return found

    @overload
    def topic(self, name: str, *, type: type[T], **options: Unpack[TopicKeywords]) -> AsyncTopic[T]: ...

    @overload
    def topic(self, name: str, *, type: Any = None, **options: Unpack[TopicKeywords]) -> AsyncTopic[Any]: ...

    def topic(self, name: str, **options: Any) -> AsyncTopic[Any]:
        """Name a topic and say how this process uses it and its groups. It is created by its first use.

        `duly.TopicOptions` says what each option means, and has the defaults. They are this process's view, not
        stored. Unless said otherwise, `max_message_bytes` is that of the app.
        """
        checked_name(name, "topic")
        known = refused_options.checked(f"topic {name!r}", TopicOptions, options)
        with about("topic", name):
            return self._topic(name, TopicOptions(**self._with_own_limit(known)))

    def _topic(self, name: str, options: TopicOptions) -> AsyncTopic[Any]:
        return AsyncTopic(self, name, options)

    async def topics(self) -> list[str]:
        """Name the topics that were used: published to, also for later, or with a group."""
        found: list[str] = await self._link.topics(self.namespace)
        return found

    async def workers(self) -> list[WorkerInfo]:
        """Show the workers of this namespace that live, or were silent for a short time; the newest sign first."""
        found: list[WorkerInfo] = await self._link.run(ops.workers(RegistryKeys(self.namespace)))
        return found

    def lock(self, name: str, ttl: Seconds = 30.0, on_busy: OnBusy = "raise") -> AsyncLock:
        """Take a lock for a block: `async with app.lock("stock:42", ttl=30):`. It ends by itself after `ttl` seconds.

        When somebody else has it, LockBusy is raised; or it is waited for (`duly.Wait(5)`); or, in a handler,
        the message is deferred (`duly.Defer(2)`).
        """
        return AsyncLock(self._link, self.namespace, name, ttl=ttl, on_busy=on_busy)

    # Schedules

    async def schedule(
        self,
        name: str,
        queue: str | AsyncQueue[T],
        body: T | Send[T] = _NOT_GIVEN,
        *,
        cron: str | None = None,
        every: Seconds | None = None,
        tz: str | ZoneInfo = "UTC",
        catch_up: scheduling.CatchUp = "one",
    ) -> bool:
        """Have one message sent at each time that `cron` names, or at the multiples of `every` seconds since the epoch.

        It is stored, and fired by whoever consumes the queue. The same again changes nothing (False), so that every
        process may say it when it starts; anything else under the name replaces it. Also False: somebody else removed
        or moved it at the same moment. `body` may be a `Send` with
        key, priority, ttl, headers or retry. A task is scheduled by its queue and the body of a call, `sweep.queue`
        and `sweep.body(7)`. `catch_up` says what becomes of times when nobody was there: "one"
        sends for the last of them, "skip" only if it is at most 60 s ago, "all" for each.
        """
        checked_name(name, "schedule")
        with about("schedule", name):
            _check_fed(queue, body)
            plan = scheduling.checked_plan(cron, every, tz, catch_up, time.time())
            fed = self._queue_given(queue, "queue", "have the handler of a queue publish, and schedule that queue")
            part = fed._outgoing(scheduling.as_send(body)).part
            envelope = codec.read_envelope(codec.stamped(0, 0, part))
            self._definitions.check_body(fed, envelope.content, envelope.body)
        return await self._schedules().put(name, fed._keys, plan.with_part(part))

    async def schedules(self) -> list[Schedule]:
        """Show the schedules of this namespace, by name."""
        return await self._schedules().all()

    async def unschedule(self, name: str) -> bool:
        """Remove a schedule; what it has sent stays. False: there is none of that name."""
        return await self._schedules().remove(checked_name(name, "schedule"))

    async def pause_schedule(self, name: str) -> bool:
        """Send nothing until `resume_schedule`, and never for the slots between. False: there is none of that name."""
        return await self._schedules().pause(checked_name(name, "schedule"))

    async def resume_schedule(self, name: str) -> bool:
        """Send for slots again, from now on. False: there is none of that name."""
        return await self._schedules().resume(checked_name(name, "schedule"))

    def _schedules(self) -> AsyncSchedules:
        return AsyncSchedules(self._link, self.namespace)

    # Handling

    @overload
    def task(self, function: "Callable[Concatenate[EitherDelivery[Any], P], R]", /) -> AsyncTask[..., R]: ...

    @overload
    def task(self, function: "Callable[[Unpack[Ts], EitherDelivery[Any]], R]", /) -> AsyncTask[..., R]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> AsyncTask[P, R]: ...

    @overload
    def task(
        self,
        *,
        queue: str | AsyncQueue[Any] = "default",
        retry: Retry | None = None,
        name: str | None = None,
        timeout: Seconds | None = None,
        concurrency: int | None = None,
    ) -> AsyncMakesTask: ...

    def task(
        self,
        function: Any = None,
        *,
        queue: Any = "default",
        retry: Retry | None = None,
        name: str | None = None,
        timeout: Seconds | None = None,
        concurrency: int | None = None,
    ) -> Any:
        """Decorate a function that workers call by its name, over a queue that tasks may share.

        `queue` is a name, or a queue of this app when it has options of its own. `retry` is None for the
        queue's. `timeout` cancels an `async def` after this many seconds, which counts as a failure.
        `concurrency` is for all tasks of the queue together, in each process: the largest that one says.
        """

        def register(function: Any) -> Any:
            definition = TaskDefinition(function, name=name, retry=retry, timeout=timeout, concurrency=concurrency)
            over = self._queue_given(
                queue, "queue", "a group has one handler, @events.handler(group=...), and no tasks"
            )
            self._definitions.add_task(over, definition)
            return AsyncTask[Any, Any](over, definition, {})

        return register if function is None else register(function)

    def _queue_given(self, given: Any, what: str, instead: str) -> AsyncQueue[Any]:
        """Find a queue of this app that was given by its name, or itself. `instead` is for who gives a topic."""
        if isinstance(given, str):
            known = self._definitions.handlers.get(checked_name(given))
            return self.queue(given) if known is None else self._queue(given, known.queue.options)
        is_ours = getattr(getattr(given, "_app", None), "_definitions", None) is self._definitions
        if is_of_topic(given):
            raise UsageError(f"{what} must be a queue, not {given!r}: {instead}")
        if not is_ours or given._keys.kind != "queue":
            raise UsageError(f"{what} must be the name of a queue, or a queue of this app, not {given!r}")
        return given if isinstance(given, AsyncQueue) else self._queue(given.name, given.options)

    def on_start(self, function: Occasion) -> Occasion:
        """Decorate a function that each worker calls before it fetches messages."""
        self._definitions.hooks.add("on_start", function)
        return function

    def on_stop(self, function: Occasion) -> Occasion:
        """Decorate a function that each worker calls when its handlers have ended."""
        self._definitions.hooks.add("on_stop", function)
        return function

    def before(self, function: Before) -> Before:
        """Decorate a plain function that is called with the delivery before each handler, where that runs."""
        self._definitions.hooks.add("before", function)
        return function

    def after(self, function: After) -> After:
        """Decorate a plain function, called with the delivery and the outcome, like "ack", after each handler."""
        self._definitions.hooks.add("after", function)
        return function

    def on_error(self, function: OnError) -> OnError:
        """Decorate a plain function that is called with the delivery and the error when a handler has raised one."""
        self._definitions.hooks.add("on_error", function)
        return function

    def on_dead(self, function: OnDead) -> OnDead:
        """Decorate a function that a worker tells of each message that it makes dead, in any queue."""
        self._definitions.hooks.add("on_dead", function)
        return function

    async def run(
        self,
        queues: Mapping[str, int] | Collection[str] | str | None = None,
        concurrency: int | None = None,
        grace: Seconds = 30.0,
    ) -> None:
        """Be a worker: run the handlers until this process is told to stop.

        `queues` are names, or weights by name; None: all that have handlers. `concurrency` bounds the
        handlers at once over all queues. `grace` is what running ones have to finish, in seconds; when
        some were cut off, the process ends with status 1.
        """
        # --- async only
        from duly.worker import WorkerOptions, arun

        is_clean = await arun(self, WorkerOptions(queues, concurrency, grace))
        # --- sync only
        # | from duly.worker import WorkerOptions, run
        # |
        # | is_clean = run(self, WorkerOptions(queues, concurrency, grace))
        # --- end
        if not is_clean:
            raise SystemExit(1)

    # --- sync only
    # | @property
    # | def aio(self) -> AsyncDuly:
    # |     """The async twin of this app: same server, same definitions."""
    # |     if self._aio is None or self._aio.is_closed:
    # |         self._aio = twin_of(self)
    # |     return self._aio
    # |
    # --- end
    async def aclose(self) -> None:
        """Close all connections. Queued data stays; forgetting this at exit is harmless."""
        self.is_closed = True
        if not self._is_twin:  # whose leases are renewed by the thread of the app
            self._renewer.stop()
        await self._link.aclose()
        # --- sync only
        # | if self._aio is not None:
        # |     self._aio._link.close_from_outside()
        # --- async only
        if self._renewer_link is not None:
            self._renewer_link.close()
        # --- end

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _make_link(self) -> Any:
        if self._address.kind == "memory":
            from duly._async.memory import AsyncMemoryLink

            engine = self._address.options.get("engine")
            return AsyncMemoryLink.named(self._address.place) if engine is None else AsyncMemoryLink(engine)
        return AsyncLink(self._address, patience=self._patience, allow_eviction=self._allow_eviction)

    def _run_for_renewer(self, call: Any) -> Any:
        # --- async only
        if self._address.kind == "memory":
            return self._link.run_in_thread(call)
        if self._renewer_link is None:
            from duly._sync.link import Link

            self._renewer_link = Link(self._address, patience=self._patience, allow_eviction=self._allow_eviction)
        return self._renewer_link.run(call)
        # --- sync only
        # | return self._link.run(call)
        # --- end

    def _new_id(self) -> str:
        return self._ids.make(time.time_ns() // 1_000_000)

    def _start_anew(self) -> None:
        """Make other ids, and renew nothing, in a child process."""
        self._ids = IdMaker(os.urandom(11))
        self._renewer = Renewer(self._run_for_renewer)
        self._renewer_link = None


# --- async only
def twin_of(app: Any) -> AsyncDuly:
    """Make the async twin of a sync app: same server, same definitions, leases renewed by the same thread."""
    twin = AsyncDuly.__new__(AsyncDuly)
    twin._address = app._address
    twin.namespace = app.namespace
    twin._max_message_bytes = app._max_message_bytes
    twin._allow_eviction = app._allow_eviction
    twin._patience = app._patience
    if twin._address.kind == "memory":
        twin._link = app._link.twin()
    else:
        twin._link = twin._make_link()
    twin._ids = IdMaker(os.urandom(11))
    twin._renewer = app._renewer
    twin._renewer_link = None
    twin._is_twin = True
    twin._definitions = app._definitions
    twin.is_closed = False
    _apps.add(twin)
    return twin


# --- end
def _check_fed(queue: Any, body: Any) -> None:
    """Say how it is done to whoever schedules a task, or says nothing of the message."""
    definition = getattr(queue, "_definition", None)
    if isinstance(definition, TaskDefinition):
        raise UsageError(
            f"a schedule feeds a queue, and {queue!r} is a task: give its queue and the body of a call, "
            f"app.schedule(name, {definition.name}.queue, {definition.name}.body(...), cron=...)"
        )
    if body is _NOT_GIVEN:
        raise UsageError("a schedule needs the body of its messages: app.schedule(name, queue, body, cron=...)")


def _address(server: Any) -> Address:
    if isinstance(server, Address):
        return server
    if isinstance(shared := getattr(server, "_address", None), Address):  # another app, of either colour
        if shared.kind == "memory":  # a store without a name is not found by its address
            return dataclasses.replace(shared, options={"engine": server._link.engine})
        return shared
    if server is None or isinstance(server, str):
        return addresses.chosen(server, os.environ)
    return address_of_client(server)


def _forget_after_fork() -> None:
    for app in list(_apps):
        app._start_anew()


os.register_at_fork(after_in_child=_forget_after_fork)
