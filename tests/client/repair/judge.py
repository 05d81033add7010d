"""A queue or group with something in every state, and the checks of a repair, for any damage."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import redis

from duly import Delivery
from duly._sync.inbox import Inbox
from tests.client._sync.given import take
from tests.client.place import ServerPlace

LATER: Final = 600
"""Seconds that a retried or delayed message waits."""
LEASE: Final = 300.0

LANES: Final = {"k": ["k1", "k2", "k3"], "r": ["r1", "r2", "r3"], "n": ["n1", "n2", "n3", "n4"]}
"""Of k the first is out, of r it waits for its next attempt, of n it is done and the second is next."""
UNKEYED: Final = ["held", "failed", "dead", "done"]
PLAIN: Final = ["ready", "delayed", "urgent", "mortal", "single"]
"""Only queues have these: sent with a delay, a priority, a ttl, a dedup value."""
NOT_BEFORE_TIME: Final = {"failed", "delayed", "r1", "r2", "r3"}


@dataclass
class Healthy:
    """A queue or group with something in every state, and a stranger who can reach its keys."""

    inbox: Inbox
    names: dict[str, str]
    """By id."""
    client: redis.Redis
    prefix: str
    held: dict[str, Delivery]

    def id(self, name: str) -> str:
        return next(id_ for id_, each in self.names.items() if each == name)

    def run(self, command: str, key: str, *arguments: Any) -> Any:
        """Do something to a key."""
        return self.client.execute_command(  # type: ignore[no-untyped-call]
            command, self.prefix + key, *arguments
        )

    def member(self, name: str) -> bytes:
        """Find the row of a parked message."""
        members: list[bytes] = self.run("ZRANGE", "parked", 0, -1)
        return next(each for each in members if each.endswith(self.id(name).encode()))

    def all_that_is_stored(self) -> dict[str, Any]:
        """Read all keys but call records, which belong to connections."""
        keys = [key.decode() for key in self.client.scan_iter(f"{self.prefix}*")]
        return {key: self._value(key) for key in sorted(keys) if ":call:" not in key}

    def _value(self, key: str) -> Any:
        looks: dict[bytes | str, Callable[[], Any]] = {
            b"hash": lambda: self.client.hgetall(key),
            b"zset": lambda: self.client.zrange(key, 0, -1, withscores=True),
            b"list": lambda: self.client.lrange(key, 0, -1),
            b"stream": lambda: self.client.xrange(key),
            b"string": lambda: self.client.get(key),
        }
        return looks[self.client.type(key)]()


Damage = Callable[[Healthy], Any]


def drained(inbox: Inbox) -> list[str]:
    """Finish all that is due, and give the bodies in their order."""
    bodies: list[str] = []
    while deliveries := take(inbox):
        bodies += [delivery.body for delivery in deliveries]
        inbox.ack_many(deliveries)
    return bodies


def check_order(bodies: list[str]) -> None:
    """I7: a message may come twice, but first deliveries are in the order of the key."""
    for names in LANES.values():
        first = list(dict.fromkeys(body for body in bodies if body in names))
        assert first == sorted(first)


def check_repair(h: Healthy, damage: Damage, wanted: str, server: ServerPlace) -> None:
    """Do damage, and check that it is found, explained and repaired, and that every message is delivered in order."""
    damage(h)

    found = h.inbox.audit()
    mended = h.inbox.audit(repair=True)
    again = h.inbox.audit()

    assert (found.ok, mended.ok, again.explanation) == (False, False, ())
    for audit in (found, mended):
        assert any(wanted in line for line in audit.explanation), audit
        assert all(fault.meaning and fault.fix for fault in audit.faults)
    due = drained(h.inbox)
    early = NOT_BEFORE_TIME.intersection(due)
    server.advance(LATER + 1)
    late = drained(h.inbox)
    assert early == set()
    check_order([*due, *late])
    live = {*h.names.values()} - {"dead", "done", "n1"}
    assert live - {*due, *late} == set()
    assert {*due, *late} == live
    assert [message.body for message in h.inbox.list("dead")] == ["dead"]
    assert (h.inbox.audit()).explanation == ()
