"""Delayed queues of Redisson (Java): RDelayedQueue and the queue behind it."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import duly
from duly.importing.source import Arrival, BodyFormat, Entry, Judged, Left, Place, checked_format, command, unreadable

_ID_BYTES: Final = 8


class RedissonQueue:
    """A queue of Redisson with its RDelayedQueue. The codec of Java decides what the bodies are.

    Kryo, the default codec, is readable by Java only: move such bodies as bytes. Stop the Java processes that hold the
    RDelayedQueue first, or let them run: an entry that becomes due during the move is found in the queue.
    """

    origin = "redisson"

    def __init__(self, app: duly.Duly, name: str, *, body: BodyFormat = "bytes") -> None:
        self.app = app
        self._name = name
        self._format = checked_format(body)
        tagged = name if "{" in name else f"{{{name}}}"
        self._timeouts: str = f"redisson_delay_queue_timeout:{tagged}"
        self._entries: str = f"redisson_delay_queue:{tagged}"

    def places(self) -> Iterable[Place]:
        """Return the list of due values, then the sorted set of the others."""
        yield Place(self._name, "ready", oldest="left")
        yield Place(self._timeouts, "delayed", kind="sorted")

    def judge(self, place: Place, entries: Sequence[Entry]) -> list[Judged]:
        """Move each value that can be read, with its due time."""
        return [self._delayed(each) if place.kind == "sorted" else self._due(each) for each in entries]

    def _due(self, entry: Entry) -> Judged:
        return unreadable(entry.member, self._format) or Arrival(None, self._plain(entry.member), self._format)

    def _plain(self, value: bytes) -> bytes:
        """Return a value without the names of classes that Jackson writes into JSON."""
        return json.dumps(without_classes(json.loads(value))).encode() if self._format == "json" else value

    def _delayed(self, entry: Entry) -> Judged:
        parts = unpacked(entry.member)
        if parts is None:
            return Left(f"not an entry of an RDelayedQueue: {entry.member[:40]!r}")
        id_, value = parts
        return unreadable(value, self._format) or Arrival(
            id_.hex(),
            self._plain(value),
            self._format,
            at=entry.score / 1000,
            then=[command("LREM", self._entries, "1", entry.member)],
        )

    def others(self) -> dict[str, int]:
        """Return nothing: Redisson keeps no messages that a consumer has taken."""
        return {}


def unpacked(entry: bytes) -> tuple[bytes, bytes] | None:
    """Split an entry into its random id and its value. None: it is not an entry.

    Lua's struct has packed them: a byte with the length of the id, the id, eight bytes with the length of the value,
    and the value. Old versions began with the id.
    """
    for start in (1, 0):
        id_, size = entry[start : start + _ID_BYTES], entry[start + _ID_BYTES : start + _ID_BYTES + 8]
        value = entry[start + _ID_BYTES + 8 :]
        is_whole = len(size) == 8 and len(value) == int.from_bytes(size, "little")
        if is_whole and (start == 0 or entry[0] == _ID_BYTES):
            return id_, value
    return None


def without_classes(value: Any) -> Any:
    """Remove what Jackson adds to JSON: a field `@class`, and the class as the first of two elements of a list."""
    if isinstance(value, dict):
        return {name: without_classes(each) for name, each in value.items() if name != "@class"}
    if isinstance(value, list):
        if len(value) == 2 and isinstance(value[0], str) and value[0].startswith(("java.", "[L")):
            return without_classes(value[1])
        return [without_classes(each) for each in value]
    return value
