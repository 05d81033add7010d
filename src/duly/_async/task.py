"""Tasks: functions that workers call by name, with messages of a queue."""

import functools
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    TypeVarTuple,
    Unpack,
    cast,
    overload,
)

from duly._core.handlers import TaskDefinition
from duly._core.refused_options import INSTEAD_OF_USING, refuse
from duly.errors import UsageError
from duly.message import MessageId
from duly.options import Seconds, Send, SendOptions

if TYPE_CHECKING:
    from duly._async.queue import AsyncQueue
    from duly._typing import EitherDelivery

# --- sync only
# | from duly._async.task import AsyncTask
# |
# --- end
if TYPE_CHECKING:  # only type checkers read `default`: Python supports it from 3.13
    import typing_extensions

    P = typing_extensions.ParamSpec("P", default=...)
    R = typing_extensions.TypeVar("R", default=Any)
else:
    P = ParamSpec("P")
    R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class AsyncMakesTask(Protocol):
    """Makes a task of a function.

    Senders omit a delivery parameter, so type checkers cannot check the arguments of a function that has one.
    """

    @overload
    def __call__(self, function: "Callable[Concatenate[EitherDelivery[Any], P], R]", /) -> "AsyncTask[..., R]": ...
    @overload
    def __call__(self, function: "Callable[[Unpack[Ts], EitherDelivery[Any]], R]", /) -> "AsyncTask[..., R]": ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> "AsyncTask[P, R]": ...


class AsyncTask(Generic[P, R]):
    """A function with a queue, made by `@app.task`. `f(...)` calls the function, and `f.send(...)` sends a message.

    Arguments are checked before a message is sent: a wrong argument raises UsageError. Senders omit a parameter that is
    annotated as a delivery, since the worker passes it.
    """

    __name__: str

    def __init__(self, queue: "AsyncQueue[Any]", definition: TaskDefinition, options: SendOptions) -> None:
        functools.update_wrapper(self, definition.function)
        self.name: str = definition.name
        """The name of the task in messages."""
        self.queue: AsyncQueue[Any] = queue
        self._definition = definition
        self._options = options

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of queue {self.queue.name!r}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function directly, without a message."""
        returned: R = self._definition.function(*args, **kwargs)
        return returned

    async def send(self, *args: P.args, **kwargs: P.kwargs) -> MessageId:
        """Send a message so that a worker calls the function, and return its id.

        Args:
            *args: The arguments of the function, without a delivery parameter.
            **kwargs: Its keyword arguments.

        Example:
            ```python
            id = await welcome.send(42, lang="zh")
            ```

        The arguments are checked first: UsageError if they do not fit. Raises the same as `queue.send`.
        """
        return await self._send(args, kwargs, self._options)

    async def later(self, delay: Seconds, /, *args: P.args, **kwargs: P.kwargs) -> MessageId:
        """Send a message that is due later, and return its id.

        Args:
            delay: Seconds until the message is due, or a timedelta.
            *args: The arguments of the function, as in `send`.
            **kwargs: Its keyword arguments.

        Example:
            ```python
            id = await welcome.later(3600, 42, lang="zh")
            ```

        Raises the same as `send`.
        """
        return await self._send(args, kwargs, {**self._options, "delay": delay, "at": None})

    async def at(self, when: datetime | float, /, *args: P.args, **kwargs: P.kwargs) -> MessageId:
        """Send a message that is due at a time, an aware datetime or epoch seconds, and return its id.

        Raises the same as `queue.send`.
        """
        return await self._send(args, kwargs, {**self._options, "delay": None, "at": when})

    async def result(self, id: str, wait: Seconds = 10.0) -> Any:  # noqa: A002
        """Return the value that the function returned in a worker, as `queue.result` does."""
        return await self.queue.result(id, wait)

    def body(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        """Check the arguments and return the body of the message that `send` would send.

        For `send_many`, `commit` and `app.schedule("nightly", sweep.queue, sweep.body(7), cron="0 3 * * *")`.
        Raises UsageError if the arguments are wrong, or after `using`.
        """
        if self._options:
            raise UsageError(
                f"task {self.name!r}: a body has no options, so those of using() would be lost. Give them with it: "
                "duly.Send(task.body(...), key=...)"
            )
        return self._definition.body(args, kwargs)

    def using(self, **options: Unpack[SendOptions]) -> "AsyncTask[P, R]":
        """Return the task with options for its sends.

        Args:
            **options: Options of `queue.send`: `delay`, `at`, `key`, `priority`, `dedup`, `dedup_for`, `replace`,
                `ttl`, `headers`, `retry`, `id`, `repeat`, `spread`, `durable`.

        Example:
            ```python
            id = await welcome.using(key="user-42", priority=5).send(42)
            ```

        The task that you call it on does not change.
        """
        known = list(SendOptions.__annotations__)
        unknown = [name for name in options if name not in known]
        refuse(f"task {self.name!r}", "a send", unknown, known, INSTEAD_OF_USING)
        return AsyncTask(self.queue, self._definition, cast("SendOptions", {**self._options, **options}))

    # --- sync only
    # | @property
    # | def aio(self) -> AsyncTask[P, R]:
    # |     """The async counterpart of this task, to send it from `async def`."""
    # |     return AsyncTask(self.queue.aio, self._definition, self._options)
    # |
    # --- end
    def _as_send(self, arguments: Any) -> Send[Any]:
        """Return the message for the arguments in a commit, as `send` would send it."""
        if isinstance(arguments, tuple):
            encoded = self._definition.encoded(arguments, {})
        elif isinstance(arguments, Mapping):
            encoded = self._definition.encoded((), arguments)
        else:
            raise UsageError(
                f"task {self.name!r}: a commit takes its arguments as a tuple, like (42,), or as a dict, like "
                f"{{'user_id': 42}}, not {arguments!r}"
            )
        options = dict(self._options)
        if options.pop("durable", None) is not None:
            raise UsageError(f"task {self.name!r}: durable= is not for a commit. Leave it out of using()")
        return Send(encoded, **cast("Any", options))

    async def _send(self, args: Sequence[Any], kwargs: Mapping[str, Any], options: SendOptions) -> MessageId:
        return await self.queue.send(self._definition.encoded(args, kwargs), **options)
