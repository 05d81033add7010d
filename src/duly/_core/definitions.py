"""The handlers, tasks and hooks of an app. An app and its async counterpart share them."""

from typing import Any, NamedTuple, Protocol

from duly._core.handlers import Handler, TaskDefinition, TaskSet
from duly._core.hooks import Hook, Hooks, checked_hook
from duly._core.naming import kind_of
from duly._core.observing import Observer
from duly.errors import CodecError, UsageError
from duly.options import QueueOptions


class DefinedQueue(Protocol):
    """A queue or a group of a topic, sync or async."""

    options: QueueOptions

    @property
    def label(self) -> str:
        """Its name for workers."""

    @property
    def title(self) -> str:
        """Its name in errors."""


class Registered(NamedTuple):
    """A queue or group with its handler. The options of this queue object apply."""

    queue: Any
    handler: Handler | TaskSet


class Definitions:
    """Handlers, tasks and hooks."""

    def __init__(self) -> None:
        self.handlers: dict[str, Registered] = {}
        """By the label of the queue or group."""
        self.hooks: Hooks = Hooks()
        self.observer: Observer | None = None
        self.on_dead: dict[str, list[Hook]] = {}
        """By the label of the queue or group; `events/` is for all groups of a topic. Global ones are in `hooks`."""

    def add_handler(self, queue: DefinedQueue, handler: Handler) -> None:
        """Register the handler of a queue."""
        other = self.handlers.get(queue.label)
        if other is None:
            handler.serve(queue.title, queue.options.type)
            self.handlers[queue.label] = Registered(queue, handler)
        elif isinstance(other.handler, Handler):
            raise UsageError(
                f"{queue.title} already has a handler, {other.handler.name}: give {handler.name} a "
                f"{_other_place(queue.label)}"
            )
        else:
            raise _mixed(queue.title, handler, other.handler)

    def add_task(self, queue: DefinedQueue, definition: TaskDefinition) -> None:
        """Register a task for the messages of a queue that name it."""
        known = self.handlers.get(queue.label)
        if known is not None and isinstance(known.handler, Handler):
            raise _mixed(queue.title, known.handler, definition)
        if queue.options.type is not None:
            raise UsageError(
                f"task {definition.name!r}: {queue.title} has a type=, but messages of tasks have a fixed "
                "form. Use another queue"
            )
        if known is None:
            known = self.handlers[queue.label] = Registered(queue, TaskSet())
        elif known.queue.options != queue.options:
            raise UsageError(
                f"task {definition.name!r}: {queue.title} already has tasks with other options. Create the queue "
                "once and pass it to each task: @app.task(queue=mail)"
            )
        assert isinstance(known.handler, TaskSet)
        known.handler.add(definition)

    def check_body(self, queue: DefinedQueue, content: int, body: bytes) -> None:
        """Raise if a queue is for tasks and the body calls none of them."""
        known = self.handlers.get(queue.label)
        if known is None or not isinstance(known.handler, TaskSet):
            return
        try:
            known.handler.check(content, body)
        except CodecError as error:
            raise UsageError(
                f"{queue.title} is for tasks, and this message would become a dead letter: {error}. "
                "task.body(...) returns the body of a call, for the arguments of the task"
            ) from error.__cause__

    def add_on_dead(self, label: str, function: Any) -> None:
        """Add a hook for dead messages of a queue or group; the label `events/` is for all groups of a topic."""
        self.on_dead.setdefault(label, []).append(checked_hook("on_dead", function))

    def on_dead_of(self, label: str) -> list[Hook]:
        """Return the hooks for dead messages of a queue or group: its own hooks, then the global ones."""
        topic, slash, _ = label.rpartition("/")
        of_topic = self.on_dead.get(topic + slash, ()) if slash else ()
        return [*self.on_dead.get(label, ()), *of_topic, *self.hooks.on_dead]


def _other_place(label: str) -> str:
    if kind_of(label) == "group":
        return "separate group"
    return "separate queue, or make both tasks (@app.task), which can share one"


def _mixed(title: str, handler: Handler, tasks: TaskSet | TaskDefinition) -> UsageError:
    return UsageError(
        f"{title} cannot have both {handler!r} and {tasks!r}: its messages are either bodies for the handler "
        "or calls of the tasks. Use another queue"
    )
