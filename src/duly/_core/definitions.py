"""All that an app defines for its workers. An app and its async twin share one of these."""

from typing import Any, NamedTuple, Protocol

from duly._core.handlers import Handler, TaskDefinition, TaskSet
from duly._core.hooks import Hook, Hooks, checked_hook
from duly.errors import UsageError
from duly.options import QueueOptions


class DefinedQueue(Protocol):
    """A queue of either colour."""

    name: str
    options: QueueOptions


class Registered(NamedTuple):
    """What a worker needs of a queue. The queue is the object that it was defined with: its options count."""

    queue: Any
    handler: Handler | TaskSet


class Definitions:
    """Handlers, tasks and hooks."""

    def __init__(self) -> None:
        self.handlers: dict[str, Registered] = {}
        """By the name of the queue."""
        self.hooks = Hooks()
        self.on_dead: dict[str, list[Hook]] = {}
        """By the name of the queue; those of every queue are in `hooks`."""

    def add_handler(self, queue: DefinedQueue, handler: Handler) -> None:
        """Let a handler run for a queue."""
        other = self.handlers.get(queue.name)
        if other is None:
            self.handlers[queue.name] = Registered(queue, handler)
        elif isinstance(other.handler, Handler):
            raise UsageError(
                f"queue {queue.name!r} has a handler already, {other.handler.name}: give {handler.name} a queue of its "
                "own, or make both tasks (@app.task), which share one"
            )
        else:
            raise _mixed(queue.name, handler, other.handler)

    def add_task(self, queue: DefinedQueue, definition: TaskDefinition) -> None:
        """Let a task run for the messages of a queue that name it."""
        known = self.handlers.get(queue.name)
        if known is not None and isinstance(known.handler, Handler):
            raise _mixed(queue.name, known.handler, definition)
        if queue.options.type is not None:
            raise UsageError(
                f"task {definition.name!r}: queue {queue.name!r} has a type=, but the messages of tasks have a form of "
                "their own. Use another queue"
            )
        if known is None:
            known = self.handlers[queue.name] = Registered(queue, TaskSet())
        elif known.queue.options != queue.options:
            raise UsageError(
                f"task {definition.name!r}: queue {queue.name!r} has tasks already, with other options. Make the queue "
                "once and give it to each task: @app.task(queue=mail)"
            )
        assert isinstance(known.handler, TaskSet)
        known.handler.add(definition)

    def add_on_dead(self, queue: DefinedQueue, function: Any) -> None:
        """Tell a function of each dead message of a queue."""
        self.on_dead.setdefault(queue.name, []).append(checked_hook("on_dead", function))


def _mixed(queue: str, handler: Handler, tasks: TaskSet | TaskDefinition) -> UsageError:
    return UsageError(
        f"queue {queue!r} cannot have both {handler!r} and {tasks!r}: its messages are either bodies for the one or "
        "calls of the others. Use another queue"
    )
