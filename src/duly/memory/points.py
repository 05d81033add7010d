"""The history of a queue: points of its counters, one per minute, in rings of a fixed size; and sums of times."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

from duly._core.history import COUNTED, MINUTE_US, RINGS
from duly.memory.calls import Kept
from duly.memory.state import QueueState

_SUMS: Final = (b"lateness", b"handling")
_UNKNOWN: Final = -1, -1
"""Depth and age of a backlog that the script `send` does not see."""


def note_minute(queue: QueueState, now: int) -> None:
    """Take a point, if it is the first call of a minute."""
    if _is_due(queue, now):
        take_point(queue, now, queue.backlog(now))


def note_minute_of_send(queue: QueueState, now: int, priority: int) -> None:
    """Do the same for the script `send`. It sees one priority only."""
    if _is_due(queue, now):
        take_point(queue, now, queue.backlog(now) if queue.priorities == {priority} else _UNKNOWN)


def _is_due(queue: QueueState, now: int) -> bool:
    left = (queue.point_ends or 0) - now
    return queue.has_history and (left <= 0 or left > MINUTE_US)


def take_point(queue: QueueState, now: int, backlog: tuple[int, int]) -> None:
    """Store a point in each ring whose interval is new."""
    minute = now // MINUTE_US
    last = -1 if queue.point_ends is None else queue.point_ends // MINUTE_US - 1
    if queue.point_ends is None:
        queue.history.clear()
    queue.point_ends = (minute + 1) * MINUTE_US
    counted = [queue.stats.get(name, 0) for name in COUNTED]
    sums = [queue.history.get(name, b"0").decode() for name in _SUMS]
    point = " ".join(map(str, [now, *counted, *backlog, *sums])).encode()
    for ring in RINGS:
        if minute // ring.minutes != last // ring.minutes:
            queue.history[f"{ring.name}{minute // ring.minutes % ring.size}".encode()] = point


def measure(queue: QueueState, args: list[bytes]) -> Kept:
    """Add times that a worker has collected."""
    if queue.point_ends is None:
        return Kept(0)
    note_minute(queue, queue.tick())
    for name, more in zip(_SUMS, args[1:], strict=True):
        queue.history[name] = _added(queue.history.get(name, b""), more)
    return Kept(1)


def _added(stored: bytes, more: bytes) -> bytes:
    pairs = zip_longest(_numbers(stored), _numbers(more), fillvalue=0)
    return b",".join(b"%d" % (first + second) for first, second in pairs)


def _numbers(text: bytes) -> Sequence[int]:
    return [int(number) for number in text.split(b",") if number]


def shown(queue: QueueState, ring: bytes) -> list[bytes]:
    """Return the sums and the points of a ring as `stats` shows them: names and values in turn."""
    if queue.point_ends is None:
        return []
    places = [name for name in queue.history if name in _SUMS or (ring and name[:1] == ring)]
    return [text for name in places for text in (b"history:" + name, queue.history[name])]
