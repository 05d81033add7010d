"""Tasks of Celery that wait on the server, or are dead."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import duly
from duly import _port
from duly.kombu.transport import Transport


@dataclass(frozen=True)
class TaskMessage:
    """A task that waits on the server, or is dead."""

    id: str
    """The id of the task."""
    name: str
    args: str
    """The arguments, as Celery shows them."""
    kwargs: str
    queue: str
    due_at: datetime | None
    reason: str | None
    """Why it is dead."""
    message: duly.Message
    """The message of Duly."""


class Tasks:
    """The tasks of a Celery app on the server of its broker."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def cancel(self, task_id: str, queue: str | None = None) -> bool:
        """Cancel a task that waits, in one queue or in all queues. Its result is REVOKED.

        True: this call ended the task, and no worker gets it. False: it is unknown, has ended, or a worker has it. For
        the last, use `app.control.revoke(task_id)`. It searches all waiting messages of the queues. Safe to repeat.
        """
        with self._queues(queue) as queues:
            found = [
                source.cancel(message.id)
                for source in queues.values()
                for state in ("delayed", "ready", "parked")
                for message in _port.all_listed(source, state)
                if message.headers.get("task_id") == task_id
            ]
        if any(found):
            self._app.backend.mark_as_revoked(task_id, "cancelled")
        return any(found)

    def scheduled(self, queue: str | None = None, limit: int = 50) -> list[TaskMessage]:
        """Return the first tasks of each queue whose countdown or ETA has not come yet."""
        return self._listed("delayed", queue, limit)

    def dead(self, queue: str | None = None, limit: int = 50) -> list[TaskMessage]:
        """Return the oldest dead tasks of each queue: rejected, requeued too often, or lost with too many workers.

        Failed tasks are among them if `setup` has `keep_failed=True`. Otherwise Celery acks them.
        """
        return self._listed("dead", queue, limit)

    def redrive(
        self, queue: str | None = None, *, name: str | None = None, task_id: str | None = None, limit: int | None = None
    ) -> int:
        """Run dead tasks again, all or those with a name or an id, and return their number.

        `limit` is the largest number per queue. Safe to repeat: no task is redriven twice.
        """
        headers = {key: value for key, value in (("task", name), ("task_id", task_id)) if value is not None}
        where = duly.Where(headers=headers) if headers else None
        with self._queues(queue) as queues:
            return sum(source.redrive(limit, where) for source in queues.values())

    def _listed(self, state: duly.State, queue: str | None, limit: int) -> list[TaskMessage]:
        with self._queues(queue) as queues:
            return [_task_of(name, message) for name, source in queues.items() for message in source.list(state, limit)]

    @contextmanager
    def _queues(self, only: str | None) -> Iterator[dict[str, duly.Queue[Any]]]:
        """Connect, and return the queues of Duly by the names of the queues of Celery."""
        with self._app.connection_for_write() as connection:
            connection.ensure_connection(max_retries=3)
            transport = connection.transport
            if not isinstance(transport, Transport):
                raise duly.UsageError(
                    f"the broker of Celery app {self._app.main!r} is not Duly: use broker_url='duly+redis://...'"
                )
            names = transport.declarations.queues() | set(self._app.amqp.queues) if only is None else {only}
            yield {name: transport.queue(name) for name in sorted(names)}


def _task_of(queue: str, message: duly.Message) -> TaskMessage:
    """Describe a message. One of another program has no name and no id. One that is damaged has no arguments."""
    call = _port.task_call(message.raw, message.headers)
    name, id_ = (message.headers.get(header, "") for header in ("task", "task_id"))
    args, kwargs = ("", "") if call is None else (call.args, call.kwargs)
    return TaskMessage(id_, name, args, kwargs, queue, message.due_at, message.reason, message)
