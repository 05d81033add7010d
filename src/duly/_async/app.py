"""The app: a server, and the queues, topics, schedules and handlers on it."""

import dataclasses
import os
import time
import weakref
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar, TypeVarTuple, Unpack, overload
from zoneinfo import ZoneInfo

from duly._async.late_link import AsyncLateLink, not_connected
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
from duly._core.resp import Credentials
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
# | from duly._async.app import AsyncDuly, counterpart_of, follow
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
    """A client of one server, of the primary that sentinels name, or of a cluster, with its own connections.

    Threads or tasks may share it. It survives a fork.

    `server` is a URL. Without one, it is DULY_URL, else the embedded server in $DULY_HOME or ./.duly. `server` may also
    be a redis-py client, whose address and credentials are used, or another app, whose server is used.

    - `namespace`: The prefix of all keys. Apps with different namespaces do not see each other's queues. A
      namespace in braces, like `{shop}`, keeps all of its keys in one slot of a cluster.
    - `max_message_bytes`: The default for queues and topics: the largest size of an encoded body with its headers.
    - `allow_eviction`: Whether to accept a server that may evict keys. Otherwise the first call raises UnsafeServer.
    - `patience`: Seconds that a call retries while the server does not answer. Then it raises Unavailable.
    - `credentials`: A function that returns user and password, or a password, for each new connection. It is for
      logins by tokens that expire, and replaces those of the URL. It may block, and may run in any thread.
    - `connect`: False makes an app without a server, for factories. Define queues and tasks, then call `connect(url)`.
      Using the app before that raises UsageError.

    Every call may raise Unavailable, or ServerError if the server refuses it. A call that is retried after a lost reply
    is carried out once. Close the app with `aclose`, or use it as a context manager.
    """

    def __init__(
        self,
        server: "Server | None" = None,
        *,
        namespace: str = "duly",
        max_message_bytes: int = 1 << 20,
        allow_eviction: bool = False,
        patience: float = 20.0,
        credentials: Credentials | None = None,
        connect: bool = True,
    ) -> None:
        is_late = not checked_flag(connect, "connect")
        if is_late and (server is not None or credentials is not None):
            raise UsageError("with connect=False, pass the server and its credentials to app.connect()")
        self._server: Address | None = None if is_late else _address(server, credentials)
        self.namespace: str = checked_name(namespace, "namespace")
        self._max_message_bytes = checked_count(max_message_bytes, "max_message_bytes")
        self._allow_eviction = checked_flag(allow_eviction, "allow_eviction")
        self._patience = checked_positive_seconds(patience, "patience")
        """Seconds that a call retries while the server does not answer."""
        self._link: Any = self._make_link()
        self._ids = IdMaker(os.urandom(11))
        self._renewer = Renewer(self._run_for_renewer)
        self._renewer_link: Any = None
        self._is_counterpart = False
        self._definitions = Definitions()
        self.is_closed: bool = False
        # --- sync only
        # | self._aio: AsyncDuly | None = None
        # --- end
        _apps.add(self)

    def __repr__(self) -> str:
        where = "not connected" if self._server is None else f"on {self._server.shown}"
        return f"<{type(self).__name__} {where}>"

    def connect(self, server: "Server | None" = None, *, credentials: Credentials | None = None) -> None:
        """Choose the server of an app that was made with `connect=False`. No call is made.

        The arguments are those of the class. Queues, topics and tasks that were defined before use this server from now
        on. Safe to repeat. Raises UsageError if the app has another server.
        """
        if self._is_counterpart:
            raise UsageError("connect the sync app: its async counterpart follows")
        address = _address(server, credentials)
        if self._server is not None:
            if self._server.reaches_the_same_as(address):
                return
            raise UsageError(f"the app is connected to {self._server.shown}: make another one for {address.shown}")
        self._server, late = address, self._link
        self._link = self._make_link()
        late.bind(self._link)
        # --- sync only
        # | if self._aio is not None:
        # |     follow(self._aio, self)
        # --- end

    @property
    def _address(self) -> Address:
        if self._server is None:
            raise not_connected()
        return self._server

    @overload
    def queue(self, name: str, *, type: type[T], **options: Unpack[QueueKeywords]) -> AsyncQueue[T]: ...

    @overload
    def queue(self, name: str, *, type: Any = None, **options: Unpack[QueueKeywords]) -> AsyncQueue[Any]: ...

    def queue(self, name: str, **options: Any) -> AsyncQueue[Any]:
        """Return a queue with options for this process. No call is made: the first use creates the queue.

        `duly.QueueOptions` documents the options and their defaults. They are not stored. `max_message_bytes` is that
        of the app by default. Raises InvalidName, and UsageError for an invalid option.
        """
        checked_name(name)
        known = refused_options.checked(f"queue {name!r}", QueueOptions, options)
        with about("queue", name):
            return self._queue(name, QueueOptions(**self._with_own_limit(known)))

    def _with_own_limit(self, options: dict[str, Any]) -> dict[str, Any]:
        """Add `max_message_bytes` of this app if the options do not have it."""
        given = options.get("max_message_bytes")
        return {**options, "max_message_bytes": self._max_message_bytes if given is None else given}

    def _queue(self, name: str, options: QueueOptions) -> AsyncQueue[Any]:
        return AsyncQueue(self, name, options)

    async def queues(self) -> list[str]:
        """Return the names of all queues of this namespace that were used and not deleted."""
        found: list[str] = await self._link.queues(self.namespace)
        return found

    @overload
    def topic(self, name: str, *, type: type[T], **options: Unpack[TopicKeywords]) -> AsyncTopic[T]: ...

    @overload
    def topic(self, name: str, *, type: Any = None, **options: Unpack[TopicKeywords]) -> AsyncTopic[Any]: ...

    def topic(self, name: str, **options: Any) -> AsyncTopic[Any]:
        """Return a topic with options for this process. No call is made: the first use creates the topic.

        `duly.TopicOptions` documents the options and their defaults. They are not stored. `max_message_bytes` is that
        of the app by default. Raises InvalidName, and UsageError for an invalid option.
        """
        checked_name(name, "topic")
        known = refused_options.checked(f"topic {name!r}", TopicOptions, options)
        with about("topic", name):
            return self._topic(name, TopicOptions(**self._with_own_limit(known)))

    def _topic(self, name: str, options: TopicOptions) -> AsyncTopic[Any]:
        return AsyncTopic(self, name, options)

    async def topics(self) -> list[str]:
        """Return the names of all topics of this namespace that have entries, delayed publishes or a group."""
        found: list[str] = await self._link.topics(self.namespace)
        return found

    async def workers(self) -> list[WorkerInfo]:
        """Return the workers of this namespace with a recent heartbeat, the latest heartbeat first."""
        found: list[WorkerInfo] = await self._link.run(ops.workers(RegistryKeys(self.namespace)))
        return found

    def lock(self, name: str, ttl: Seconds = 30.0, on_busy: OnBusy = "raise") -> AsyncLock:
        """Return a lock for a block: `async with app.lock("stock:42", ttl=30):`. It expires after `ttl` seconds.

        `on_busy` is the reaction if another holder has the lock. "raise" raises LockBusy. `duly.Wait(5)` waits up to
        5 s, then raises LockBusy. `duly.Defer(2)` defers the message in a handler.
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
        """Send one message to a queue at each time of `cron`, or at multiples of `every` seconds since the epoch.

        The schedule is stored on the server. The consumers of the queue send its messages, so there is no scheduler
        process. Repeating the call changes nothing, so every process may make it at its start. Another definition with
        the same name replaces the schedule.

        Args:
            name: The name of the schedule.
            queue: The queue that gets the messages, or its name.
            body: A body, or a `Send` with key, priority, ttl, headers or retry. For a task, pass `sweep.queue` and
                `sweep.body(7)`.
            cron: A cron expression with five fields, like "0 3 * * *".
            every: Seconds between two messages, instead of `cron`.
            tz: The time zone of `cron`.
            catch_up: The reaction to runs that were missed while no consumer was running. "one" sends one message for
                the last missed run. "skip" does so only if it is at most 60 s ago. "all" sends one for each.

        Example:
            ```python
            await app.schedule("nightly", reports, {"kind": "daily"}, cron="0 3 * * *", tz="Asia/Shanghai")
            ```

        Returns False if the schedule existed, or if another client removed or moved it at the same moment. Raises
        UsageError if the name, plan or body is invalid.
        """
        checked_name(name, "schedule")
        with about("schedule", name):
            _check_schedule(queue, body)
            plan = scheduling.checked_plan(cron, every, tz, catch_up, time.time())
            fed = self._queue_given(queue, "queue", "have the handler of a queue publish, and schedule that queue")
            part = fed._outgoing(scheduling.as_send(body)).part
            envelope = codec.read_envelope(codec.stamped(0, 0, part))
            self._definitions.check_body(fed, envelope.content, envelope.body)
        return await self._schedules().put(name, fed._keys, plan.with_part(part))

    async def schedules(self) -> list[Schedule]:
        """Return the schedules of this namespace, sorted by name."""
        return await self._schedules().all()

    async def unschedule(self, name: str) -> bool:
        """Remove a schedule. Messages that it has sent stay. Safe to repeat.

        Returns False if there is no such schedule.
        """
        return await self._schedules().remove(checked_name(name, "schedule"))

    async def pause_schedule(self, name: str) -> bool:
        """Pause a schedule until `resume_schedule`. The runs in between are never sent. Safe to repeat.

        Returns False if there is no such schedule.
        """
        return await self._schedules().pause(checked_name(name, "schedule"))

    async def resume_schedule(self, name: str) -> bool:
        """Resume a paused schedule with its next run. Safe to repeat. Returns False if there is no such schedule."""
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
        """Make a task of a function: `f.send(...)` sends a message, and a worker calls the function.

        Args:
            function: The function, if the decorator is used without options.
            queue: The name of a queue, or a queue of this app if it needs options. Tasks may share a queue.
            retry: The retry policy of the task. None: that of the queue.
            name: The name in messages. None: the name of the function.
            timeout: Seconds after which the call counts as a failure. An `async def` is cancelled. A `def` keeps its
                thread, and `duly worker --processes` replaces the process.
            concurrency: The number of calls that run at once in a process. It applies to all tasks of the queue
                together, and the largest value is used.

        Example:
            ```python
            @app.task(queue="mail", retry=duly.Retry(attempts=3))
            def welcome(user_id: int, lang: str = "en") -> None: ...

            await welcome.later(60, 42, lang="zh")      # in a minute
            ```

        Raises UsageError if an option or the function is invalid.
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
        """Return a queue of this app by its name or object. `instead` is the advice if a topic was given."""
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
        """Register a function that each worker calls before it fetches messages."""
        self._definitions.hooks.add("on_start", function)
        return function

    def on_stop(self, function: Occasion) -> Occasion:
        """Register a function that each worker calls after its handlers have ended."""
        self._definitions.hooks.add("on_stop", function)
        return function

    def before(self, function: Before) -> Before:
        """Register a plain function that is called with the delivery before each handler, in its thread or task."""
        self._definitions.hooks.add("before", function)
        return function

    def after(self, function: After) -> After:
        """Register a plain function that is called with the delivery and outcome, like "ack", after each handler."""
        self._definitions.hooks.add("after", function)
        return function

    def on_error(self, function: OnError) -> OnError:
        """Register a plain function that is called with the delivery and the exception that a handler raised."""
        self._definitions.hooks.add("on_error", function)
        return function

    def on_dead(self, function: OnDead) -> OnDead:
        """Register a function that a worker calls with each message that it makes dead, in any queue or group."""
        self._definitions.hooks.add("on_dead", function)
        return function

    async def run(
        self,
        queues: Mapping[str, int] | Collection[str] | str | None = None,
        concurrency: int | None = None,
        grace: Seconds = 30.0,
    ) -> None:
        """Run a worker: call the handlers with messages until SIGTERM or SIGINT.

        - `queues`: Names, or weights by name; None: all queues that have handlers.
        - `concurrency`: The largest number of handlers that run at once, over all queues.
        - `grace`: Seconds that running handlers may take to finish after the signal. Raises SystemExit(1) if some were
          cut off; their messages are redelivered.
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
    # |     """The async counterpart of this app: same server, same definitions."""
    # |     if self._aio is None or self._aio.is_closed:
    # |         self._aio = counterpart_of(self)
    # |     return self._aio
    # |
    # --- end
    async def aclose(self) -> None:
        """Close all connections. Data on the server stays. Safe to repeat, and optional at exit."""
        self.is_closed = True
        if not self._is_counterpart:  # the sync app renews the leases of its counterpart
            self._renewer.stop()
        if self._server is None:
            return
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
        if self._server is None:
            return AsyncLateLink()
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

    def _reset_after_fork(self) -> None:
        """Use a new id generator and no renewals, in a child process."""
        self._ids = IdMaker(os.urandom(11))
        self._renewer = Renewer(self._run_for_renewer)
        self._renewer_link = None


# --- async only
def counterpart_of(app: Any) -> AsyncDuly:
    """Return the async counterpart of a sync app: same server, same definitions, leases renewed by the same thread."""
    counterpart = AsyncDuly.__new__(AsyncDuly)
    counterpart._server = app._server
    counterpart.namespace = app.namespace
    counterpart._max_message_bytes = app._max_message_bytes
    counterpart._allow_eviction = app._allow_eviction
    counterpart._patience = app._patience
    counterpart._link = _link_beside(app, counterpart)
    counterpart._ids = IdMaker(os.urandom(11))
    counterpart._renewer = app._renewer
    counterpart._renewer_link = None
    counterpart._is_counterpart = True
    counterpart._definitions = app._definitions
    counterpart.is_closed = False
    _apps.add(counterpart)
    return counterpart


def follow(counterpart: AsyncDuly, app: Any) -> None:
    """Connect the counterpart of a sync app that has a server now."""
    late, counterpart._server = counterpart._link, app._server
    counterpart._link = _link_beside(app, counterpart)
    late.bind(counterpart._link)


def _link_beside(app: Any, counterpart: AsyncDuly) -> Any:
    """Make the link of a counterpart. In memory, both have one store."""
    if app._server is not None and app._server.kind == "memory":
        return app._link.counterpart()
    return counterpart._make_link()


# --- end
def _check_schedule(queue: Any, body: Any) -> None:
    """Raise UsageError with advice if a task was given instead of a queue, or no body."""
    definition = getattr(queue, "_definition", None)
    if isinstance(definition, TaskDefinition):
        raise UsageError(
            f"a schedule sends to a queue, and {queue!r} is a task: give its queue and the body of a call, "
            f"app.schedule(name, {definition.name}.queue, {definition.name}.body(...), cron=...)"
        )
    if body is _NOT_GIVEN:
        raise UsageError("a schedule needs the body of its messages: app.schedule(name, queue, body, cron=...)")


def _address(server: Any, credentials: Credentials | None) -> Address:
    address = _address_of(server)
    return address if credentials is None else addresses.with_credentials(address, credentials)


def _address_of(server: Any) -> Address:
    if isinstance(server, Address):
        return server
    if isinstance(shared := getattr(server, "_address", None), Address):  # another app, sync or async
        if shared.kind == "memory":  # an unnamed store cannot be found by its address
            return dataclasses.replace(shared, options={"engine": server._link.engine})
        return shared
    if server is None or isinstance(server, str):
        return addresses.chosen(server, os.environ)
    return address_of_client(server)


def _forget_after_fork() -> None:
    for app in list(_apps):
        app._reset_after_fork()


os.register_at_fork(after_in_child=_forget_after_fork)
