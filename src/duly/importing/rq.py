"""Queues of RQ, as calls of tasks of Duly. Pickled jobs stay where they are: reading a pickle runs it."""

import json
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

import duly
from duly.importing.source import Arrival, Command, Entry, Gone, Judged, Key, Left, Place, command, task_body, task_name

_FIELDS: Final = ("data", "retries_left", "ttl")
_PICKLE: Final = 0x80
"""The first byte of a pickle of protocol 2 or later."""


class RqQueue:
    """A queue of RQ. Only jobs of RQ's JSONSerializer can be moved.

    `tasks` maps functions, like `shop.close`, to names of tasks of Duly; others stay. Without it, all are moved, and
    the task is the part after the last dot. With `unfinished`, jobs are moved that a worker has taken and not started.
    Stop the workers first.
    """

    origin = "rq"

    def __init__(
        self, app: duly.Duly, name: str, *, tasks: dict[str, str] | None = None, unfinished: bool = False
    ) -> None:
        self.app = app
        self._name = name
        self._tasks = tasks or {}
        self._is_unfinished_moved = unfinished

    def places(self) -> Iterable[Place]:
        """Return the lists of waiting jobs, then the scheduled ones."""
        if self._is_unfinished_moved:
            yield Place(f"rq:queue:{self._name}:intermediate", "unfinished", oldest="left")
        yield Place(f"rq:queue:{self._name}", "ready", oldest="left")
        yield Place(f"rq:scheduled:{self._name}", "delayed", kind="sorted")

    def judge(self, place: Place, entries: Sequence[Entry]) -> list[Judged]:
        """Move each job whose function and arguments are JSON, and on which no other job depends."""
        return [self._judged(place, each) for each in entries]

    def _judged(self, place: Place, entry: Entry) -> Judged:
        id_ = entry.member.decode()
        job = f"rq:job:{id_}"
        data, retries, ttl = Key(self.app, job).ask("HMGET", *_FIELDS)
        rest: list[Command] = [command("DEL", job)]
        if data is None:
            return Gone("the job is not there any more", rest)
        if Key(self.app, f"{job}:dependents").ask("EXISTS"):
            return Left("other jobs depend on it")
        called = _called(data)
        if isinstance(called, Left):
            return called
        function, args, kwargs = called
        task = task_name(function, self._tasks)
        if isinstance(task, Left):
            return task
        return Arrival(
            None,  # a program may use an id again, like job_id="report", and that is another job
            task_body(task, args, kwargs),
            "json",
            at=entry.score if place.kind == "sorted" else None,
            attempts=int(retries) + 1 if retries else None,
            ttl=float(ttl) if ttl and float(ttl) > 0 else None,
            headers={"rq-id": id_},
            then=rest,
        )

    def others(self) -> dict[str, int]:
        """Count the jobs that RQ has in its registries."""
        name = self._name
        sizes = {
            "failed in RQ": ("ZCARD", f"rq:failed:{name}"),
            "waits for another job": ("ZCARD", f"rq:deferred:{name}"),
            "a worker has it": ("ZCARD", f"rq:wip:{name}"),
        }
        if not self._is_unfinished_moved:
            sizes["a worker has taken it, and not started it"] = ("LLEN", f"rq:queue:{name}:intermediate")
        return {reason: int(Key(self.app, key).ask(command)) for reason, (command, key) in sizes.items()}


def _called(data: bytes) -> tuple[str, Any, Any] | Left:
    """Read the function and the arguments of a job."""
    try:
        plain = zlib.decompress(data)
    except zlib.error:
        plain = data
    if plain[:1] == bytes([_PICKLE]):
        return Left("pickled: reading a pickle runs it")
    try:
        function, instance, args, kwargs = json.loads(plain)
    except (ValueError, TypeError, RecursionError):
        return Left("not a job of RQ's JSONSerializer")
    if instance is not None or not isinstance(function, str):
        return Left("a method of an object")
    return function, args, kwargs
