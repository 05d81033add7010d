"""The source of schedules: one hash on the server. Several schedulers may run, and a slot is sent once."""

import time
from typing import Final

from taskiq import ScheduledTask, ScheduleSource, TaskiqMessage, TaskiqMiddleware

import duly
from duly import _port

SLOT_LABEL: Final = "duly_slot"
"""The label of a task with the schedule and the slot that it is for. The broker sends each slot once."""
_MINUTE: Final = 60


class SlotsSentOnce(TaskiqMiddleware):
    """Removes the slot from a task that runs: its retries and requeues are other messages. The broker adds it."""

    def pre_execute(self, message: TaskiqMessage) -> TaskiqMessage:
        """Remove the label."""
        message.labels.pop(SLOT_LABEL, None)
        return message


class DulyScheduleSource(ScheduleSource):
    """Stores schedules on the server of an app, or of a URL as in `duly.AsyncDuly`.

    With the broker of Duly, a cron slot or a time is sent once, even with several schedulers and after a restart. A
    schedule with an `interval` is sent by each scheduler.
    """

    def __init__(self, server: str | duly.AsyncDuly | None = None, *, prefix: str = "schedules") -> None:
        self._is_own = not isinstance(server, duly.AsyncDuly)
        self._app = server if isinstance(server, duly.AsyncDuly) else duly.AsyncDuly(server)
        self._name = f"taskiq:{prefix}"

    async def shutdown(self) -> None:
        """Close the connections, unless an app was passed."""
        if self._is_own:
            await self._app.aclose()

    async def get_schedules(self) -> list[ScheduledTask]:
        """Return all schedules."""
        stored: list[bytes] = await _port.value_command(self._app, self._name, "HVALS")
        return [ScheduledTask.model_validate_json(each) for each in stored]

    async def add_schedule(self, schedule: ScheduledTask) -> None:
        """Add or replace a schedule. Safe to repeat."""
        await _port.value_command(
            self._app, self._name, "HSET", schedule.schedule_id, schedule.model_dump_json().encode()
        )

    async def delete_schedule(self, schedule_id: str) -> None:
        """Delete a schedule. Safe to repeat."""
        await _port.value_command(self._app, self._name, "HDEL", schedule_id)

    async def pre_send(self, task: ScheduledTask) -> None:
        """Note the slot that a task is sent for."""
        if task.cron is not None:
            task.labels[SLOT_LABEL] = f"{task.schedule_id}@{int(time.time()) // _MINUTE}"
        elif task.time is not None:
            task.labels[SLOT_LABEL] = f"{task.schedule_id}@{task.time.isoformat()}"

    async def post_send(self, task: ScheduledTask) -> None:
        """Delete the schedule of a task with a time, which was sent."""
        task.labels.pop(SLOT_LABEL, None)
        if task.time is not None:
            await self.delete_schedule(task.schedule_id)
