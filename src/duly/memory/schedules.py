"""Schedules of a queue, and the registry of their queues. Clients compute the times of runs."""

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from duly._core.codec import FLAG_KEY
from duly.memory import sends
from duly.memory.calls import Kept
from duly.memory.points import note_minute
from duly.memory.state import QueueState

_HEAD: Final = struct.Struct("<dddB")
_NOTED_AT: Final = struct.Struct("<d")


class _Head(NamedTuple):
    """The part of a schedule that scripts write. Times are microseconds."""

    created: float
    after: float
    last: float
    paused: int

    def before(self, plan: bytes) -> bytes:
        """Write a row."""
        return _HEAD.pack(*self) + plan


def _read_head(row: bytes | None) -> _Head | None:
    return None if row is None or len(row) < _HEAD.size else _Head(*_HEAD.unpack_from(row))


def _plan_of(row: bytes) -> bytes:
    return row[_HEAD.size :]


def schedule(queue: QueueState, args: list[bytes]) -> Kept:
    """Store a schedule; an equal one is left as it is."""
    name, plan = args
    row = queue.schedules.get(name)
    head = _read_head(row)
    if row is not None and head is not None and _plan_of(row) == plan:
        return Kept(0)
    now, paused = queue.tick(), head.paused if head else 0
    queue.clock = now
    queue.schedules[name] = _Head(now, now, 0, paused).before(plan)
    if paused:
        queue.next_runs.remove(name)
    else:
        queue.set_next_run(name, now)
    return Kept(1)


def unschedule(queue: QueueState, args: list[bytes]) -> Kept:
    """Remove a schedule."""
    removed = queue.schedules.pop(args[0], None)
    queue.next_runs.remove(args[0])
    return Kept(int(removed is not None))


def pause_schedule(queue: QueueState, args: list[bytes]) -> Kept:
    """Send nothing for runs until resume_schedule."""
    row = queue.schedules.get(args[0])
    head = _read_head(row)
    if row is None or head is None:
        return Kept(0)
    queue.schedules[args[0]] = head._replace(paused=1).before(_plan_of(row))
    queue.next_runs.remove(args[0])
    return Kept(1)


def resume_schedule(queue: QueueState, args: list[bytes]) -> Kept:
    """Continue a paused schedule: its runs count from now."""
    row = queue.schedules.get(args[0])
    head = _read_head(row)
    if row is None or head is None:
        return Kept(0)
    if head.paused:
        queue.clock = now = queue.tick()
        queue.schedules[args[0]] = head._replace(after=now, paused=0).before(_plan_of(row))
        queue.set_next_run(args[0], now)
    return Kept(1)


def schedules(queue: QueueState, args: list[bytes]) -> list[Any]:
    """Show the stored schedules, all at once."""
    wanted = args[1]
    rows = queue.schedules.items()
    found = [(name, row) for name, row in rows if wanted in (b"", name)]
    return [queue.tick(), b"0", *(value for pair in found for value in pair)]


def fire(queue: QueueState, args: list[bytes]) -> Kept:
    """Send the messages of due runs, unless another client has sent them."""
    _, name, seen, after, last, next_at, *messages = args
    row = queue.schedules.get(name)
    head = _read_head(row)
    if row is None or head is None or head.paused or row[: _HEAD.size] != seen:
        return Kept(0)
    if messages:
        note_minute(queue, queue.tick())
        sends.store_unchecked(queue, messages, has_keys=any(part[1] & FLAG_KEY for part in messages[1::3]))
    else:
        queue.clock = queue.tick()
    queue.schedules[name] = _Head(head.created, int(after), int(last), 0).before(_plan_of(row))
    if int(next_at) < 0:
        queue.next_runs.remove(name)
    else:
        queue.set_next_run(name, int(next_at))
    return Kept(1)


def register(registry: QueueState, args: list[bytes]) -> Kept:
    """Store the queue of a schedule, and return the entry that this replaces."""
    name, queue = args
    replaced = registry.schedules.get(name, b"")
    registry.schedules[name] = _NOTED_AT.pack(registry.server_us) + queue
    return Kept(replaced)


def unregister(registry: QueueState, args: list[bytes]) -> Kept:
    """Remove the queue of a schedule, unless it has been registered again."""
    name, seen = args
    is_same = registry.schedules.get(name) == seen
    if is_same:
        del registry.schedules[name]
    return Kept(int(is_same))


TRANSITIONS: Final[dict[str, Callable[[QueueState, list[bytes]], Any]]] = {
    "schedule": schedule,
    "unschedule": unschedule,
    "pause_schedule": pause_schedule,
    "resume_schedule": resume_schedule,
    "schedules": schedules,
    "fire": fire,
    "register": register,
    "unregister": unregister,
}
"""The function of each script, by script name."""
