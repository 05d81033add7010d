"""Queues of github.com/adjust/rmq (Go)."""

from collections.abc import Iterable, Sequence

import duly
from duly.importing.source import Arrival, BodyFormat, Entry, Judged, Key, Place, checked_format, unreadable


class RmqQueue:
    """A queue of rmq: lists of payloads, without ids.

    Messages that a connection has taken are moved if its heartbeat has expired, as the cleaner of rmq returns them.
    Rejected messages are moved only with `rejected`.
    """

    origin = "rmq"

    def __init__(self, app: duly.Duly, name: str, *, body: BodyFormat = "text", rejected: bool = False) -> None:
        self.app = app
        self._name = name
        self._format = checked_format(body)
        self._is_rejected_moved = rejected

    def places(self) -> Iterable[Place]:
        """Return the lists of lost connections, then the waiting messages, then the rejected ones."""
        for name in self._tagged():
            for connection in self._connections(is_lost=True):
                yield Place(f"rmq::connection::{connection}::queue::{name}::unacked", "unfinished")
            yield Place(f"rmq::queue::{name}::ready", "ready")
            if self._is_rejected_moved:
                yield Place(f"rmq::queue::{name}::rejected", "rejected")

    def judge(self, place: Place, entries: Sequence[Entry]) -> list[Judged]:  # noqa: ARG002
        """Move each payload that can be read."""
        return [unreadable(each.member, self._format) or Arrival(None, each.member, self._format) for each in entries]

    def others(self) -> dict[str, int]:
        """Count the messages that live connections have, and the rejected ones."""
        live = [
            f"rmq::connection::{connection}::queue::{name}::unacked"
            for name in self._tagged()
            for connection in self._connections(is_lost=False)
        ]
        rejected = [f"rmq::queue::{name}::rejected" for name in self._tagged()]
        return {
            "a consumer has it": self._length(live),
            "rejected": 0 if self._is_rejected_moved else self._length(rejected),
        }

    def _length(self, keys: Iterable[str]) -> int:
        return sum(int(Key(self.app, each).ask("LLEN")) for each in keys)

    def _tagged(self) -> tuple[str, str]:
        """Return the name as it is in keys, without and with hash tags."""
        return f"[{self._name}]", f"{{{self._name}}}"

    def _connections(self, *, is_lost: bool) -> list[str]:
        """Return the connections without, or with, a heartbeat."""
        names = sorted(each.decode() for each in Key(self.app, "rmq::connections").ask("SMEMBERS"))
        return [
            each
            for each in names
            if bool(Key(self.app, f"rmq::connection::{each}::heartbeat").ask("EXISTS")) != is_lost
        ]
