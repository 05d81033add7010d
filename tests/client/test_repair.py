"""Repair: what somebody did to the keys by hand is found, explained and mended, and no message is lost by it.

On real servers only: nobody reaches into memory.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
import redis

from duly import Delivery, Duly, Keep
from duly._sync.inbox import Inbox
from tests.binaries import KINDS
from tests.client._sync.given import SOON, InBackground, take
from tests.client.place import Place, ServerPlace

LATER: Final = 600
"""Seconds that what was retried, or sent with a delay, waits."""
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
    client: "redis.Redis[bytes]"
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
        """Find what stands for a parked message."""
        members: list[bytes] = self.run("ZRANGE", "parked", 0, -1)
        return next(each for each in members if each.endswith(self.id(name).encode()))

    def all_that_is_stored(self) -> dict[str, bytes | None]:
        """Copy all keys but call records, which belong to connections; streams show their times of look-ups."""
        names = sorted(key.decode().removeprefix(self.prefix) for key in self.client.scan_iter(f"{self.prefix}*"))
        return {name: self.client.dump(self.prefix + name) for name in names if not name.startswith("call:")}


@pytest.fixture
def stranger(server: ServerPlace) -> "Iterator[redis.Redis[bytes]]":
    with redis.Redis.from_url(server.url) as client:
        yield client


def given_states(inbox: Inbox, ids: dict[str, str], held: list[Delivery]) -> dict[str, Delivery]:
    """Settle what was handed out, so that something is in every state."""
    out = {ids[delivery.id]: delivery for delivery in held}
    assert sorted(out) == sorted([*UNKEYED, "k1", "n1", "r1"])
    out["failed"].retry(LATER, error="no answer")
    out["r1"].retry(LATER, error="no answer")
    out["dead"].reject("no use")
    out["done"].ack()
    out["n1"].ack()
    return {name: out[name] for name in ("held", "k1")}


@pytest.fixture
def healthy(app: Duly, queue_name: str, stranger: "redis.Redis[bytes]") -> Healthy:
    queue = app.queue(queue_name, done=Keep(count=100), lease=LEASE)
    for key, names in LANES.items():
        for name in names:
            queue.send(name, id=name, key=key)
    for name in UNKEYED:
        queue.send(name, id=name)
    names = {name: name for name in [*(name for lane in LANES.values() for name in lane), *UNKEYED, *PLAIN]}
    held = given_states(queue, names, take(queue))
    queue.send("ready", id="ready")
    queue.send("delayed", id="delayed", delay=LATER)
    queue.send("urgent", id="urgent", priority=5)
    queue.send("mortal", id="mortal", ttl=10 * LATER)
    queue.send("single", id="single", dedup="once", dedup_for=10 * LATER)
    return Healthy(queue, names, stranger, f"duly:{{{queue_name}}}:", held)


@pytest.fixture
def healthy_group(app: Duly, queue_name: str, stranger: "redis.Redis[bytes]") -> Healthy:
    topic = app.topic(queue_name)
    group = topic.group("archive", lease=LEASE)
    group.create()
    names = {}
    for key, lane in LANES.items():
        for name in lane:
            names[topic.publish(name, key=key)] = name
    for name in UNKEYED:
        names[topic.publish(name)] = name
    held = given_states(group, names, take(group))
    return Healthy(group, names, stranger, f"duly:{{@{queue_name}}}:group:archive:", held)


Damage = Callable[[Healthy], Any]


def deleted(key: str) -> Damage:
    return lambda h: h.run("DEL", key)


def overwritten(key: str) -> Damage:
    return lambda h: h.run("SET", key, "something else")


def removed(command: str, key: str, name: str) -> Damage:
    return lambda h: h.run(command, key, h.id(name))


def added(key: str, score: float | str, name: str) -> Damage:
    """Let a message be somewhere, or at another time."""
    return lambda h: h.run("ZADD", key, score, h.id(name))


def written(key: str, name: str, value: bytes | str) -> Damage:
    """Overwrite a row of a message."""
    return lambda h: h.run("HSET", key, h.id(name), value)


def field(name: str, value: str) -> Damage:
    return lambda h: h.run("HSET", "meta", name, value)


def lane(key: str, mark: str, name: str) -> Damage:
    return lambda h: h.run("HSET", "lanes", key, mark + h.id(name))


def _unparked(h: Healthy) -> None:
    h.run("ZREM", "parked", h.member("k2"))


def _parked_twice(h: Healthy) -> None:
    member = h.member("k2")
    h.run("ZADD", "parked", 0, member.replace(b"k\0", b"x\0", 1))


def _parked_and_waiting(h: Healthy) -> None:
    h.run("ZADD", "waiting0", 1, h.id("k2"))


def _out_and_parked(h: Healthy) -> None:
    h.run("ZADD", "leased", 9e15, h.id("k2"))


def _lease_of_another_key(h: Healthy) -> None:
    h.run("HSET", "leases", h.id("k1"), h.run("HGET", "leases", h.id("held")))


GONE: Final = "body without a place"
TWICE: Final = "in two places: "

DAMAGES: Final[dict[str, tuple[Damage, str]]] = {
    # bodies without an index
    "a place is removed": (removed("ZREM", "leased", "held"), GONE),
    "a retry is removed": (removed("ZREM", "waiting0", "failed"), GONE),
    "a parked one is removed": (_unparked, GONE),
    "a dead letter is removed": (removed("ZREM", "dead", "dead"), GONE),
    "all that wait are removed": (deleted("waiting0"), GONE),
    "all that are leased are removed": (deleted("leased"), GONE),
    "all that are parked are removed": (deleted("parked"), GONE),
    "all dead letters are removed": (deleted("dead"), GONE),
    # an id in two places
    "leased and waiting": (added("waiting0", 1, "held"), TWICE + "leased and waiting"),
    "leased and dead": (added("dead", 1, "held"), TWICE + "leased and dead"),
    "leased and done": (added("done", 1, "held"), TWICE + "leased and done"),
    "leased and parked": (_out_and_parked, TWICE + "leased and parked"),
    "waiting and parked": (_parked_and_waiting, TWICE + "waiting and parked"),
    "waiting and dead": (added("dead", 1, "failed"), TWICE + "waiting and dead"),
    "waiting and done": (added("done", 1, "failed"), TWICE + "waiting and done"),
    "under two priorities": (added("waiting7", 1, "failed"), TWICE + "waiting and misplaced"),
    "dead and done": (added("done", 1, "dead"), TWICE + "dead and done"),
    "parked twice": (_parked_twice, "parked where it does not belong"),
    # leases
    "a lease is removed": (removed("HDEL", "leases", "held"), "leased to nobody"),
    "all leases are removed": (deleted("leases"), "leased to nobody"),
    "a lease is cut off": (written("leases", "held", "short"), "a lease that cannot be read"),
    "a lease is one of another key": (_lease_of_another_key, "a lease that cannot be read"),
    "a lease never ends": (added("leased", "+inf", "held"), "a lease without an end"),
    "a lease of one that waits": (written("leases", "failed", "." * 70), "a lease, but not leased"),
    "a lease of one that is dead": (written("leases", "dead", "." * 70), "a lease, but not leased"),
    "a lease of nobody": (lambda h: h.run("HSET", "leases", "ghost", "x"), "row in leases of no message"),
    # lanes
    "a lost head of one that is out": (lambda h: h.run("HDEL", "lanes", "k"), "in work without its lane"),
    "a lost head of one that is retried": (lambda h: h.run("HDEL", "lanes", "r"), "in work without its lane"),
    "a lost head of one that is next": (lambda h: h.run("HDEL", "lanes", "n"), "parked behind nobody"),
    "all lanes are lost": (deleted("lanes"), "parked behind nobody"),
    "a lane of a finished one": (lane("n", "+", "n1"), "the lane n belongs to nobody"),
    "a lane of a parked one": (lane("k", "+", "k2"), "in work without its lane"),
    "a lane of another key": (lane("r", "-", "k1"), "the lane r belongs to nobody"),
    "a lane that knows nobody behind": (lane("k", "-", "k1"), "parked behind one that does not know"),
    "a lane without a mark": (lane("r", "?", "r1"), "the lane r has no mark"),
    "a parked one is nonsense": (lambda h: h.run("ZADD", "parked", 0, "nonsense"), "parked where it does not belong"),
    "lanes without their pillar": (lambda h: h.run("HDEL", "lanes", ""), "without its pillar"),
    "leases without their pillar": (lambda h: h.run("ZREM", "leased", b"\1" * 65), "without its pillar"),
    # times
    "a retry is early": (added("waiting0", 1, "failed"), "waits for a wrong time"),
    "a retry never comes": (added("waiting0", "+inf", "failed"), "waits for a wrong time"),
    "the head of a lane is early": (added("waiting0", 1, "r1"), "waits for a wrong time"),
    "a dead letter of no time": (added("dead", "+inf", "dead"), "over since no time"),
    "one without a ttl expires": (added("expires", 1, "failed"), "in expires, but without a ttl"),
    "one that is out expires": (added("expires", 1, "held"), "in expires, but not waiting"),
    "nothing expires": (lambda h: h.run("ZADD", "expires", 1, "ghost"), "row in expires of no message"),
    # rows
    "counts are removed": (deleted("counts"), "troubled, but not counted"),
    "counts are nonsense": (written("counts", "r1", "\xff"), "counts that cannot be read"),
    "counts of a dead letter": (written("counts", "dead", b"\x97" + b"\0" * 7), "counts of a message that is over"),
    "counts of nobody": (lambda h: h.run("HSET", "counts", "ghost", b"\x97" + b"\0" * 7), "row in counts of no message"),
    "the past is removed": (deleted("why"), "dead without a reason"),
    "a past is nonsense": (written("why", "r1", "\xff"), "a past that cannot be read"),
    "the past of a dead letter is nonsense": (written("why", "dead", b"\xc1"), "a past that cannot be read"),
    "the past of nobody": (lambda h: h.run("HSET", "why", "ghost", "x"), "row in why of no message"),
    # meta
    "meta is removed": (deleted("meta"), "accounts"),
    "bytes are wrong": (field("bytes", "-5"), "counts wrong bytes"),
    "bytes of dead letters are wrong": (field("dead_bytes", "7"), "counts wrong bytes"),
    "a counter is wrong": (field("sent", "1000"), "accounts"),
    "a counter is gone": (lambda h: h.run("HDEL", "meta", "sent"), "accounts"),
    "a counter is below zero": (field("acked", "-3"), "a counter below zero"),
    "a counter is no number": (field("acked", "many"), "a field of meta that cannot be read"),
    "a counter is too large": (field("retried", "9" * 30), "a field of meta that cannot be read"),
    "the clock is no number": (field("clock", "noon"), "a field of meta that cannot be read"),
    "the clock is ahead for ever": (field("clock", "9e18"), "a field of meta that cannot be read"),
    "the rate is no number": (field("tat", "soon"), "a field of meta that cannot be read"),
    "a limit is no number": (field("limited", "x"), "a field of meta that cannot be read"),
    "lateness is no number": (field("lateness", "x"), "a field of meta that cannot be read"),
    "priorities are nonsense": (field("priorities", "x"), "a priority that no claim looks at"),
    # schedules
    "a slot of no schedule": (lambda h: h.run("ZADD", "slots", 1, "ghost"), "a slot of no schedule"),
    "a next slot that is none": (field("slot", "1"), "the next slot is noted wrong"),
    # other types
    **{
        f"{key} is overwritten": (overwritten(key), "a key of another type")
        for key in (
            "waiting0", "waiting9", "leased", "leases", "counts", "why", "expires", "dead", "done", "dedup",
            "dedup_ends", "lanes", "parked", "schedules", "slots", "awaited", "ends", "wake", "meta",
        )
    },
}  # fmt: skip
"""By name: what somebody does, and what an audit says to it. Neither takes a body away."""

OF_QUEUES: Final[dict[str, tuple[Damage, str]]] = {
    "a finished one is removed": (removed("ZREM", "done", "done"), GONE),
    "all finished ones are removed": (deleted("done"), GONE),
    "an urgent one is removed": (removed("ZREM", "waiting5", "urgent"), GONE),
    "all urgent ones are removed": (deleted("waiting5"), GONE),
    "a delayed one is removed": (removed("ZREM", "waiting0", "delayed"), GONE),
    "a delayed one is early": (added("waiting0", 1, "delayed"), "waits for a wrong time"),
    "priorities are removed": (lambda h: h.run("HDEL", "meta", "priorities"), "a priority that no claim looks at"),
    "priorities are in a wrong order": (field("priorities", "05"), "priorities out of order"),
    "a ttl is not watched": (deleted("expires"), "a ttl that nobody watches"),
    "a ttl ends early": (added("expires", 1, "mortal"), "a ttl that is watched at a wrong time"),
    "a dedup value without an end": (deleted("dedup_ends"), "half a dedup window"),
    "an end without a dedup value": (deleted("dedup"), "half a dedup window"),
    "a dedup value of nobody": (lambda h: h.run("HSET", "dedup", "other", "ghost"), "half a dedup window"),
}

everywhere = pytest.mark.parametrize("place", KINDS, indirect=True)
"""Nobody reaches into memory."""
every_damage = pytest.mark.parametrize("name", [*DAMAGES, *OF_QUEUES])
every_damage_of_groups = pytest.mark.parametrize("name", DAMAGES)


def drained(inbox: Inbox) -> list[str]:
    """Finish all that is due, and give the bodies in their order."""
    bodies: list[str] = []
    while deliveries := take(inbox):
        bodies += [delivery.body for delivery in deliveries]
        inbox.ack_many(deliveries)
    return bodies


def check_order(bodies: list[str]) -> None:
    """I7: whatever comes twice, the first time of each is in the order of its key."""
    for names in LANES.values():
        first = list(dict.fromkeys(body for body in bodies if body in names))
        assert first == sorted(first)


def check_repair(h: Healthy, damage: Damage, wanted: str, clock: Place) -> None:
    """Do damage, and see that it is found, explained and mended, and that every message is delivered in its turn."""
    assert (h.inbox.audit()).ok
    damage(h)

    found = h.inbox.audit()
    mended = h.inbox.audit(repair=True)
    again = h.inbox.audit()

    assert (found.ok, mended.ok, again.explanation) == (False, False, ())
    for audit in (found, mended):
        assert any(wanted in line for line in audit.explanation), audit
        assert all(fault.meaning and fault.mend for fault in audit.faults)
    due = drained(h.inbox)
    early = NOT_BEFORE_TIME.intersection(due)
    clock.advance(LATER + 1)
    late = drained(h.inbox)
    assert early == set()
    check_order([*due, *late])
    live = {*h.names.values()} - {"dead", "done", "n1"}
    assert live - {*due, *late} == set()
    assert {*due, *late} == live
    assert [message.body for message in h.inbox.list("dead")] == ["dead"]
    assert (h.inbox.audit()).explanation == ()


@every_damage
@everywhere
def test_a_queue_is_mended_and_loses_no_message(healthy: Healthy, clock: Place, name: str) -> None:
    """I1 I2 I3 I7."""
    damage, wanted = {**DAMAGES, **OF_QUEUES}[name]

    check_repair(healthy, damage, wanted, clock)


@every_damage_of_groups
@everywhere
def test_a_group_is_mended_and_loses_no_message(healthy_group: Healthy, clock: Place, name: str) -> None:
    """I1 I2 I3 I7."""
    damage, wanted = DAMAGES[name]

    check_repair(healthy_group, damage, wanted, clock)
