"""All that an app defines for its workers. An app and its async twin share one of these."""

from typing import Any, NamedTuple, Protocol

from duly._core.handlers import Handler, TaskDefinition, TaskSet
from duly._core.hooks import Hook, Hooks, checked_hook
from duly._core.naming import kind_of
from duly.errors import CodecError, UsageError
from duly.options import QueueOptions


class DefinedQueue(Protocol):
    """A queue, or a group of a topic, of either colour."""

    options: QueueOptions

    @property
    def label(self) -> str:
        """What workers call it."""

    @property
    def title(self) -> str:
        """What errors call it."""


class Registered(NamedTuple):
    """What a worker needs of a queue or group: the object that it was defined with, whose options count."""

    queue: Any
    handler: Handler | TaskSet


class Definitions:
    """Handlers, tasks and hooks."""

    def __init__(self) -> None:
        self.handlers: dict[str, Registered] = {}
        """By the label of the queue or group."""
        self.hooks: Hooks = Hooks()
        self.on_dead: dict[str, list[Hook]] = {}
        """By the label of the queue or group, `events/` for all of a topic; those of everything are in `hooks`."""

    def add_handler(self, queue: DefinedQueue, handler: Handler) -> None:
        """Let a handler run for a queue."""
        other = self.handlers.get(queue.label)
        if other is None:
            handler.serve(queue.title, queue.options.type)
            self.handlers[queue.label] = Registered(queue, handler)
        elif isinstance(other.handler, Handler):
            raise UsageError(
                f"{queue.title} has a handler already, {other.handler.name}: give {handler.name} a "
                f"{_other_place(queue.label)}"
            )
        else:
            raise _mixed(queue.title, handler, other.handler)

    def add_task(self, queue: DefinedQueue, definition: TaskDefinition) -> None:
        """Let a task run for the messages of a queue that name it."""
        known = self.handlers.get(queue.label)
        if known is not None and isinstance(known.handler, Handler):
            raise _mixed(queue.title, known.handler, definition)
        if queue.options.type is not None:
            raise UsageError(
                f"task {definition.name!r}: {queue.title} has a type=, but the messages of tasks have a form of "
                "their own. Use another queue"
            )
        if known is None:
            known = self.handlers[queue.label] = Registered(queue, TaskSet())
        elif known.queue.options != queue.options:
            raise UsageError(
                f"task {definition.name!r}: {queue.title} has tasks already, with other options. Make the queue "
                "once and give it to each task: @app.task(queue=mail)"
            )
        assert isinstance(known.handler, TaskSet)
        known.handler.add(definition)

    def check_body(self, queue: DefinedQueue, content: int, body: bytes) -> None:
        """Refuse a body for a queue of tasks that calls none of them."""
        known = self.handlers.get(queue.label)
        if known is None or not isinstance(known.handler, TaskSet):
            return
        try:
            known.handler.check(content, body)
        except CodecError as error:
            raise UsageError(
                f"{queue.title} is for tasks, and its messages would be dead letters: {error}. The body of a call is "
                "given by task.body(...), with the arguments of the task"
            ) from error.__cause__

    def add_on_dead(self, label: str, function: Any) -> None:
        """Tell a function of each dead message of a queue or group; of all groups of a topic, as `events/`."""
        self.on_dead.setdefault(label, []).append(checked_hook("on_dead", function))

    def on_dead_of(self, label: str) -> list[Hook]:
        """Give what is to be told of the dead messages of a queue or group: its own hooks, then the general ones."""
        topic, slash, _ = label.rpartition("/")
        of_topic = self.on_dead.get(topic + slash, ()) if slash else ()
        return [*self.on_dead.get(label, ()), *of_topic, *self.hooks.on_dead]


def _other_place(label: str) -> str:
    if kind_of(label) == "group":
        return "group of its own"
    return "queue of its own, or make both tasks (@app.task), which share one"


def _mixed(title: str, handler: Handler, tasks: TaskSet | TaskDefinition) -> UsageError:
    return UsageError(
        f"{title} cannot have both {handler!r} and {tasks!r}: its messages are either bodies for the one or "
        "calls of the others. Use another queue"
    )
