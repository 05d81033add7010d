"""The user's handlers and tasks: their functions, and how a message is turned into arguments."""

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import Any, Final, NamedTuple

import msgspec

from duly._core import arguments, body_types, codec, signatures
from duly._core.arguments import ArgumentPlan, Misfit
from duly._core.outgoing import checked_new_text
from duly._core.signatures import UNTYPED
from duly.errors import CodecError, UsageError
from duly.options import Batch, Retry, Seconds, checked_count, checked_positive_seconds

Decode = Callable[[int, bytes], Any]
"""Takes the content type and the bytes of a body, and returns the body."""

ASYNC_CONCURRENCY: Final = 100
THREAD_CONCURRENCY: Final = 16
BATCH_CONCURRENCY: Final = 1

_EXPECTED: Final = "a handler takes (body), (body, d), or (d: duly.Delivery)"
_EXPECTED_OF_BATCH: Final = (
    "a batch handler takes (bodies: list[...]), (bodies, deliveries), or (deliveries: list[duly.Delivery])"
)


_EXPECTED_OF_MESSAGE: Final = 'Send {"task": name, "args": [...], "kwargs": {...}}'


class Bound(NamedTuple):
    """A call to make."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    timeout: float | None = None
    """Seconds that a `def` may run in a thread. An `async def` limits its own time."""


_NO_KWARGS: Final[dict[str, Any]] = {}


class Handler:
    """A function that runs for each message of a queue, or for each batch of them."""

    retry: Final[Retry | None] = None
    """Handlers use the queue's policy; tasks may have their own."""

    bind: Callable[[int, bytes, Any], Bound]
    """Makes the call from content type, body and delivery of a message. Raises CodecError. Set by `resolve`."""
    decode_one: Decode
    """Decodes one body of a batch. Set by `resolve`, like `arguments`."""
    arguments: Callable[[Sequence[Any], Sequence[Any]], tuple[Any, ...]]
    """Makes the function's arguments from bodies and deliveries of a batch."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        concurrency: int | None = None,
        batch: Batch | None = None,
        timeout: Seconds | None = None,
    ) -> None:
        self.function: Callable[..., Any] = signatures.checked_function(function, "handler")
        self.name: str = signatures.name_of(function)
        self.is_async: bool = signatures.is_async(function)
        self.batch = batch
        if batch is not None and not isinstance(batch, Batch):
            raise UsageError(f"handler {self.name}: batch must be a duly.Batch, not {batch!r}")
        default = BATCH_CONCURRENCY if batch else ASYNC_CONCURRENCY if self.is_async else THREAD_CONCURRENCY
        self.has_own_concurrency: bool = concurrency is not None
        self.concurrency: int = default if concurrency is None else checked_count(concurrency, "concurrency")
        self.timeout: float | None = checked_timeout(timeout)
        self._expected = _EXPECTED_OF_BATCH if batch else _EXPECTED
        self._parameters = signatures.parameters_of(function, "handler")
        self._queue_title = ""
        self._queue_type: Any = UNTYPED
        self._check_shape()

    def __repr__(self) -> str:
        return f"<handler {self.name}>"

    def serve(self, title: str, queue_type: Any) -> None:
        """Set the queue that it is for. Raises UsageError if the queue's type contradicts the annotation."""
        self._queue_title, self._queue_type = title, queue_type
        try:
            kind, _ = self._roles()
        except UsageError:  # a type may be defined further down; `resolve` reports it if it is not
            return
        self._check_types(kind)

    def resolve(self, queue_decoder: Decode) -> None:
        """Read the annotations. Bodies without an annotated type are decoded by the queue's decoder."""
        kind, order = self._roles()
        self._check_types(kind)
        decode = queue_decoder
        if kind is not UNTYPED:
            try:
                decode = codec.decoder_of(kind)
            except UsageError as error:
                raise UsageError(f"handler {self.name}: {error}") from error.__cause__
        if self.batch is None:
            self.bind = _BINDERS[order](self.function, decode)
        else:
            self.decode_one = _decode_nothing if order == "d" else decode
            self.arguments = _ARRANGED[order]

    def _check_types(self, kind: Any) -> None:
        of_queue = self._queue_type
        if kind is not UNTYPED and of_queue is not UNTYPED and body_types.contradict(kind, of_queue):
            raise UsageError(
                f"handler {self.name} takes {body_types.name_of(kind)}, but {self._queue_title} has "
                f"type={body_types.name_of(of_queue)}: every message would become a dead letter. Use one type in both"
            )
        named = self._body_of_delivery()
        if named is not UNTYPED and (of_queue is UNTYPED or body_types.contradict(named, of_queue)):
            has = "no type=" if of_queue is UNTYPED else f"type={body_types.name_of(of_queue)}"
            name = body_types.name_of(named)
            raise UsageError(
                f"handler {self.name} takes a delivery of {name}, but {self._queue_title} has {has}: d.body would not "
                f"be of type {name}. Define it with type={name}, or annotate the delivery without a type"
            )

    def _body_of_delivery(self) -> Any:
        """Return the type of body in the annotation of the delivery, as in `d: duly.Delivery[Order]`."""
        for parameter in [each for each in self._parameters if signatures.is_positional(each)][:2]:
            kind = self._type_of(parameter)
            if self._is_for_delivery(parameter, kind):
                return signatures.body_of_delivery(kind if self.batch is None else signatures.item_of(kind))
        return UNTYPED

    def _check_shape(self) -> None:
        required = [parameter for parameter in self._parameters if signatures.is_required(parameter)]
        takes_any = [each for each in self._parameters if each.kind is Parameter.VAR_POSITIONAL]
        if not takes_any and not any(map(signatures.is_positional, self._parameters)):
            raise self._misshapen("it takes no arguments")
        if named := [each.name for each in required if not signatures.is_positional(each)]:
            raise self._misshapen(f"it also requires {', '.join(named)} by keyword")
        if len(required) > 2:
            raise self._misshapen(f"it also requires {', '.join(each.name for each in required[2:])}")

    def _misshapen(self, problem: str) -> UsageError:
        return UsageError(f"handler {self.name}: {problem}; {self._expected}")

    def _roles(self) -> tuple[Any, str]:
        """Return the type of the body, and the order of body and delivery among the parameters."""
        positional = [each for each in self._parameters if signatures.is_positional(each)]
        if not positional:
            return UNTYPED, "body"
        first, second = positional[0], positional[1] if len(positional) > 1 else None
        kind = self._type_of(first)
        if self._is_for_delivery(first, kind):
            if second is None or not signatures.is_required(second):
                return UNTYPED, "d"
            kind = self._type_of(second)
            if self._is_for_delivery(second, kind):
                raise self._misshapen(f"both {first.name} and {second.name} are deliveries")
            return self._body_type(second, kind), "d body"
        return self._body_type(first, kind), "body d" if self._is_second_for_delivery(second) else "body"

    def _is_second_for_delivery(self, second: Parameter | None) -> bool:
        if second is None:
            return False
        kind = self._type_of(second)
        if self._is_for_delivery(second, kind):
            return True
        if kind is UNTYPED:
            return signatures.is_required(second) or second.default is None
        if signatures.is_required(second):
            raise self._misshapen(f"{second.name} must be the delivery, but is annotated as {kind!r}")
        return False

    def _type_of(self, parameter: Parameter) -> Any:
        return signatures.type_of(parameter, self.function, "handler")

    def _is_for_delivery(self, parameter: Parameter, kind: Any) -> bool:
        if self.batch is None:
            return signatures.is_delivery(kind)
        if signatures.is_delivery(kind):
            raise self._misshapen(f"{parameter.name} must be annotated as a list of deliveries")
        return signatures.is_list(kind) and signatures.is_delivery(signatures.item_of(kind))

    def _body_type(self, parameter: Parameter, kind: Any) -> Any:
        if self.batch is None or kind is UNTYPED:
            return kind
        if not signatures.is_list(kind):
            raise self._misshapen(f"{parameter.name} is a list, but annotated as {kind!r}")
        return signatures.item_of(kind)


def checked_timeout(timeout: Seconds | None) -> float | None:
    """Return a timeout in seconds."""
    return None if timeout is None else checked_positive_seconds(timeout, "timeout")


# One small function for each order of parameters: this runs for every message.
Binder = Callable[[Callable[..., Any], Decode], Callable[[int, bytes, Any], Bound]]


def _bind_body(function: Callable[..., Any], decode: Decode) -> Callable[[int, bytes, Any], Bound]:
    return lambda content, body, _: Bound(function, (decode(content, body),), _NO_KWARGS)


def _bind_body_delivery(function: Callable[..., Any], decode: Decode) -> Callable[[int, bytes, Any], Bound]:
    return lambda content, body, delivery: Bound(function, (decode(content, body), delivery), _NO_KWARGS)


def _bind_delivery_body(function: Callable[..., Any], decode: Decode) -> Callable[[int, bytes, Any], Bound]:
    return lambda content, body, delivery: Bound(function, (delivery, decode(content, body)), _NO_KWARGS)


def _bind_delivery(function: Callable[..., Any], _: Decode) -> Callable[[int, bytes, Any], Bound]:
    return lambda _content, _body, delivery: Bound(function, (delivery,), _NO_KWARGS)


_BINDERS: Final[dict[str, Binder]] = {
    "body": _bind_body,
    "body d": _bind_body_delivery,
    "d body": _bind_delivery_body,
    "d": _bind_delivery,
}
_ARRANGED: Final[dict[str, Callable[[Sequence[Any], Sequence[Any]], tuple[Any, ...]]]] = {
    "body": lambda bodies, _: (bodies,),
    "body d": lambda bodies, deliveries: (bodies, deliveries),
    "d body": lambda bodies, deliveries: (deliveries, bodies),
    "d": lambda _, deliveries: (deliveries,),
}


def _decode_nothing(_content: int, _body: bytes) -> None:
    """Decode nothing, for a handler that takes only the deliveries."""


class UnknownTask(CodecError):
    """A message names a task that this process does not have."""


class TaskCall(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of a task's message. Arguments stay JSON until their parameters are known."""

    task: str
    args: list[msgspec.Raw] = []
    kwargs: dict[str, msgspec.Raw] = {}


_encode_call = msgspec.json.Encoder().encode
_decode_call = msgspec.json.Decoder(TaskCall).decode


class TaskDefinition:
    """A function that messages call by name."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        retry: Retry | None = None,
        timeout: Seconds | None = None,
        concurrency: int | None = None,
    ) -> None:
        self.function: Callable[..., Any] = signatures.checked_function(function, "task")
        self.name: str = _task_name(function) if name is None else _checked_task_name(name)
        self.is_async: bool = signatures.is_async(function)
        if retry is not None and not isinstance(retry, Retry):
            raise UsageError(f"task {self.name!r}: retry must be a duly.Retry, not {retry!r}")
        self.retry = retry
        """None: the queue's."""
        self.timeout: float | None = checked_timeout(timeout)
        self.concurrency: int | None = None if concurrency is None else checked_count(concurrency, "concurrency")
        self._parameters = signatures.parameters_of(function, "task")
        self._plan: ArgumentPlan | None = None

    def __repr__(self) -> str:
        return f"<task {self.name}>"

    def resolve(self) -> ArgumentPlan:
        """Read the annotations, once."""
        if self._plan is None:
            kinds = [signatures.type_of(each, self.function, "task") for each in self._parameters]
            try:
                self._plan = ArgumentPlan(self._parameters, kinds)
            except UsageError as error:
                raise UsageError(f"task {self.name!r}: {error}") from error.__cause__
        return self._plan

    def encoded(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> msgspec.Raw:
        """Check arguments, and encode the body of a message with them."""
        plan = self.resolve()
        try:
            positional, named = plan.fit(args, kwargs, arguments.written)
            return msgspec.Raw(_encode_call(TaskCall(self.name, positional, named)))
        except (Misfit, UsageError, UnicodeError) as error:
            raise UsageError(f"task {self.name!r}: {error}") from error.__cause__

    def body(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Check arguments, and return the body of a message with them, as plain JSON values."""
        body: dict[str, Any] = msgspec.json.decode(self.encoded(args, kwargs))
        return body

    def bind(self, call: TaskCall, delivery: Any) -> Bound:
        """Make the call that a message asks for. Raises CodecError if its arguments do not fit."""
        plan = self.resolve()
        try:
            positional, named = plan.fit(call.args, call.kwargs, arguments.read)
        except Misfit as error:
            raise CodecError(f"task {self.name!r}: {error}") from error
        plan.inject(delivery, positional, named)
        return Bound(self.function, tuple(positional), named)


def _task_name(function: Any) -> str:
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise UsageError(f"task {signatures.name_of(function)} has no name that a message can use: give it a name=")
    return name


def _checked_task_name(name: object) -> str:
    checked_new_text(name, "name")
    return str(name)


class TaskSet:
    """The tasks of a queue. Each message names the task that runs."""

    batch: Final[Batch | None] = None

    def __init__(self) -> None:
        self.tasks: dict[str, TaskDefinition] = {}

    def __repr__(self) -> str:
        return f"<tasks {', '.join(self.tasks)}>"

    @property
    def has_own_concurrency(self) -> bool:
        """Whether any of the tasks sets its concurrency."""
        return any(task.concurrency is not None for task in self.tasks.values())

    @property
    def concurrency(self) -> int:
        """The concurrency of all tasks together: the largest that any of them sets."""
        given = [task.concurrency for task in self.tasks.values() if task.concurrency is not None]
        is_any_async = any(task.is_async for task in self.tasks.values())
        return max(given, default=ASYNC_CONCURRENCY if is_any_async else THREAD_CONCURRENCY)

    def add(self, definition: TaskDefinition) -> None:
        """Add a task."""
        if definition.name in self.tasks:
            raise UsageError(
                f"there is already a task {definition.name!r} on this queue: give one of them another name="
            )
        self.tasks[definition.name] = definition

    def resolve(self, _queue_decoder: Decode | None = None) -> None:
        """Read the annotations of all tasks."""
        for task in self.tasks.values():
            task.resolve()

    def find(self, content: int, body: bytes) -> tuple[TaskDefinition, TaskCall]:
        """Find the task that a message names. Raises UnknownTask, or CodecError if it names none."""
        if content != codec.CONTENT_JSON:
            raise CodecError(f"the body does not name a task: it is raw bytes. {_EXPECTED_OF_MESSAGE}")
        try:
            call = _decode_call(body)
        except (ValueError, msgspec.DecodeError, RecursionError) as error:
            raise CodecError(f"the body does not name a task: {error}. {_EXPECTED_OF_MESSAGE}") from error
        task = self.tasks.get(call.task)
        if task is None:
            raise UnknownTask(f"there is no task {call.task!r} here, only {', '.join(map(repr, self.tasks))}")
        return task, call

    def check(self, content: int, body: bytes) -> None:
        """Raise CodecError if a message would be dead at once. A task that is unknown here may exist elsewhere."""
        try:
            task, call = self.find(content, body)
        except UnknownTask:
            return
        task.bind(call, None)
