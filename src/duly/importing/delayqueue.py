"""Queues of github.com/hdt3213/delayqueue (Go)."""

from collections.abc import Iterable, Sequence
from typing import Any

import duly
from duly.importing.source import (
    Arrival,
    BodyFormat,
    Command,
    Entry,
    Gone,
    Judged,
    Key,
    Place,
    checked_format,
    command,
    unreadable,
)


class Delayqueue:
    """A queue of delayqueue: sorted sets and lists of ids, with one key per body.

    The keys begin with `dp:NAME`, with `{dp:NAME}` after `UseHashTagKey()`, or with `PREFIX:NAME` after
    `UseCustomPrefix`. With a custom prefix, the bodies still begin with `dp:NAME`. Only with `unfinished` are messages
    moved that consumers have taken and not finished. Stop the consumers first.
    """

    origin = "delayqueue"

    def __init__(
        self,
        app: duly.Duly,
        name: str,
        *,
        body: BodyFormat = "text",
        prefix: str | None = None,
        unfinished: bool = False,
    ) -> None:
        self.app = app
        self._format = checked_format(body)
        self._is_unfinished_moved = unfinished
        self._roots: dict[str, str] = (
            {f"dp:{name}": f"dp:{name}", f"{{dp:{name}}}": f"{{dp:{name}}}"}
            if prefix is None
            else {f"{prefix}:{name}": f"dp:{name}"}
        )
        """Where the keys of the bodies begin, by where the other keys begin."""

    def places(self) -> Iterable[Place]:
        """Return the lists of due messages, then the sorted set of the others."""
        for root in self._roots:
            yield Place(f"{root}:retry", "retry")
            yield Place(f"{root}:ready", "ready")
            if self._is_unfinished_moved:
                yield Place(f"{root}:unack", "unfinished", kind="sorted")
            yield Place(f"{root}:pending", "delayed", kind="sorted")

    def judge(self, place: Place, entries: Sequence[Entry]) -> list[Judged]:
        """Move each message whose body has not expired, with its due time and the retries that it has left."""
        root = place.key.rpartition(":")[0]
        ids = [each.member.decode() for each in entries]
        retries = Key(self.app, f"{root}:retry:cnt").ask("HMGET", *ids)
        return [
            self._judged(place, root, id_, entry.score, left)
            for id_, entry, left in zip(ids, entries, retries, strict=True)
        ]

    def _judged(self, place: Place, root: str, id_: str, score: float, retries: Any) -> Judged:
        body_key = f"{self._roots[root]}:msg:{id_}"
        rest: list[Command] = [command("HDEL", f"{root}:retry:cnt", id_), command("DEL", body_key)]
        payload = Key(self.app, body_key).ask("GET")
        if payload is None:
            return Gone("its body has expired", rest)
        is_unfinished = place.name == "unfinished"
        left = int(retries or 0)
        return unreadable(payload, self._format) or Arrival(
            id_,
            payload,
            self._format,
            at=score if place.kind == "sorted" else None,  # of an unfinished message: when it would be redelivered
            # A message of a consumer has spent its delivery, and the next one costs a retry.
            attempts=max(1, left) if is_unfinished else left + 1,
            then=rest,
        )

    def others(self) -> dict[str, int]:
        """Count the messages that consumers have."""
        if self._is_unfinished_moved:
            return {}
        return {"a consumer has it": sum(int(Key(self.app, f"{root}:unack").ask("ZCARD")) for root in self._roots)}
