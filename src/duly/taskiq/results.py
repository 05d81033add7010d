"""The backend of results: a key for each result, with an expiry time, as JSON."""

from typing import Any, TypeVar

import taskiq.depends.progress_tracker as tracking  # pyright does not know the type of an imported name
from taskiq import AsyncResultBackend, TaskiqResult
from taskiq.exceptions import ResultGetError

import duly
from duly import _port

T = TypeVar("T")


class DulyResultBackend(AsyncResultBackend[T]):
    """Stores results on the server of an app, or of a URL as in `duly.AsyncDuly`, for `keep` seconds.

    Results are JSON, like the arguments of tasks.
    """

    def __init__(self, server: str | duly.AsyncDuly | None = None, *, keep: float = 86400.0) -> None:
        self._is_own = not isinstance(server, duly.AsyncDuly)
        self._app = server if isinstance(server, duly.AsyncDuly) else duly.AsyncDuly(server)
        self._keep_ms = max(int(keep * 1000), 1)

    async def shutdown(self) -> None:
        """Close the connections, unless an app was passed."""
        if self._is_own:
            await self._app.aclose()

    async def set_result(self, task_id: str, result: TaskiqResult[T]) -> None:
        """Store a result. Safe to repeat."""
        await self._store(f"taskiq-result:{task_id}", result.model_dump_json().encode())

    async def is_result_ready(self, task_id: str) -> bool:
        """Return whether there is a result."""
        return bool(await _port.value_command(self._app, f"taskiq-result:{task_id}", "EXISTS"))

    async def get_result(self, task_id: str, with_logs: bool = False) -> TaskiqResult[T]:  # noqa: FBT001, FBT002
        """Return a result, without its log unless `with_logs`. Raises ResultGetError if there is none."""
        stored = await _port.value_command(self._app, f"taskiq-result:{task_id}", "GET")
        if stored is None:
            raise ResultGetError
        result: TaskiqResult[T] = TaskiqResult.model_validate_json(stored)
        if not with_logs:
            result.log = None
        return result

    async def set_progress(self, task_id: str, progress: tracking.TaskProgress[Any]) -> None:
        """Store the progress of a task."""
        await self._store(f"taskiq-progress:{task_id}", progress.model_dump_json().encode())

    async def get_progress(self, task_id: str) -> tracking.TaskProgress[Any] | None:
        """Return the progress of a task, if it has reported some."""
        stored = await _port.value_command(self._app, f"taskiq-progress:{task_id}", "GET")
        return None if stored is None else tracking.TaskProgress.model_validate_json(stored)

    async def _store(self, name: str, value: bytes) -> None:
        await _port.value_command(self._app, name, "SET", value, "PX", self._keep_ms)
