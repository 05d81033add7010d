"""Repair: what somebody did to the keys by hand is found, explained and mended, and no message is lost by it.

On real servers only: nobody reaches into memory.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
import redis

from duly import Delivery, Duly, Keep, Send
from duly._sync.inbox import Inbox
from tests.binaries import KINDS
from tests.client._sync.given import InBackground, take
from tests.client.conftest import OpenPlace
from tests.client.place import ServerPlace
from tests.conftest import need

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
        """Find what stands for a parked message."""
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


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, server_place: OpenPlace) -> Iterator[ServerPlace]:
    """Run the test on each real server."""
    need(request.param)
    found = server_place(request.param)
    if found._clock is None:
        pytest.skip("no gcc for the clock shim: `make servers`")
    yield found
    found.reset()


@pytest.fixture
def app(server: ServerPlace) -> Iterator[Duly]:
    with Duly(server.url) as app:
        yield app


@pytest.fixture
def stranger(server: ServerPlace) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as client:
        yield client


def given_states(ids: dict[str, str], held: list[Delivery]) -> dict[str, Delivery]:
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
def healthy(app: Duly, queue_name: str, stranger: redis.Redis) -> Healthy:
    queue = app.queue(queue_name, done=Keep(count=100), lease=LEASE)
    for key, names in LANES.items():
        for name in names:
            queue.send(name, id=name, key=key)
    for name in UNKEYED:
        queue.send(name, id=name)
    every = {name: name for name in [*(name for lane in LANES.values() for name in lane), *UNKEYED, *PLAIN]}
    held = given_states(every, take(queue))
    queue.send("ready", id="ready")
    queue.send("delayed", id="delayed", delay=LATER)
    queue.send("urgent", id="urgent", priority=5)
    queue.send("mortal", id="mortal", ttl=10 * LATER)
    queue.send("single", id="single", dedup="once", dedup_for=10 * LATER)
    return Healthy(queue, every, stranger, f"duly:{{{queue_name}}}:", held)


@pytest.fixture
def healthy_group(app: Duly, queue_name: str, stranger: redis.Redis) -> Healthy:
    topic = app.topic(queue_name, lease=LEASE)
    group = topic.group("archive")
    group.create()
    names = {}
    for key, lane in LANES.items():
        for name in lane:
            names[topic.publish(name, key=key)] = name
    for name in UNKEYED:
        names[topic.publish(name)] = name
    held = given_states(names, take(group))
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


def _leased_and_uncounted(h: Healthy) -> None:
    h.run("ZADD", "leased", 1, h.id("failed"))
    h.run("HDEL", "counts", h.id("failed"))


def _counts_lost_and_a_fraction(h: Healthy) -> None:
    h.run("DEL", "counts")
    h.run("ZINCRBY", "waiting0", 0.25, h.id("failed"))


def _lease_of_another_key(h: Healthy) -> None:
    h.run("HSET", "leases", h.id("k1"), h.run("HGET", "leases", h.id("held")))


NOT_TEXT: Final = b"\x9b\xa0\0\0\0\0\x90\0\x91\x95\1\xa5retry\xa1\xff\0\xa0\0\xa0\0"
"""A row of `why` whose consumer is no UTF-8."""
NO_COUNTS: Final = b"\x97" + b"\0" * 7
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
    "parked and leased": (_out_and_parked, TWICE + "parked and leased"),
    "waiting and leased": (added("leased", 1, "failed"), TWICE + "waiting and leased"),
    "waiting and leased, and not counted": (_leased_and_uncounted, TWICE + "waiting and leased"),
    "waiting and parked": (_parked_and_waiting, TWICE + "waiting and parked"),
    "waiting and dead": (added("dead", 1, "failed"), TWICE + "waiting and dead"),
    "waiting and done": (added("done", 1, "failed"), TWICE + "waiting and done"),
    "under two priorities": (added("waiting7", 1, "failed"), TWICE + "waiting and misplaced"),
    "dead and done": (added("done", 1, "dead"), TWICE + "dead and done"),
    "dead and waiting": (added("waiting0", 1, "dead"), TWICE + "dead and waiting"),
    "dead and leased": (added("leased", "+inf", "dead"), TWICE + "dead and leased"),
    "parked twice": (_parked_twice, "parked where it does not belong"),
    # leases
    "a lease is removed": (removed("HDEL", "leases", "held"), "leased to nobody"),
    "all leases are removed": (deleted("leases"), "leased to nobody"),
    "a lease is cut off": (written("leases", "held", "short"), "a lease that cannot be read"),
    "a lease is one of another key": (_lease_of_another_key, "a lease that cannot be read"),
    "a lease never ends": (added("leased", "+inf", "held"), "a lease without an end"),
    "a lease ends in two centuries": (added("leased", 9e15, "held"), "a lease without an end"),
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
    "counts are nothing": (written("counts", "failed", NO_COUNTS), "troubled, but not counted"),
    "counts of the head of a lane are nothing": (written("counts", "r1", NO_COUNTS), "troubled, but not counted"),
    "counts are removed and a retry has a fraction": (_counts_lost_and_a_fraction, "troubled, but not counted"),
    "counts of a dead letter": (written("counts", "dead", NO_COUNTS), "counts of a message that is over"),
    "counts of nobody": (lambda h: h.run("HSET", "counts", "ghost", NO_COUNTS), "row in counts of no message"),
    "the past is removed": (deleted("why"), "dead without a reason"),
    "a past is not text": (written("why", "failed", NOT_TEXT), "a past that cannot be read"),
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
    "done and waiting": (added("waiting0", 1, "done"), TWICE + "done and waiting"),
    "done and leased": (added("leased", 1, "done"), TWICE + "done and leased"),
    "done and dead": (added("dead", 1, "done"), TWICE + "done and dead"),
    "keys are not known": (lambda h: h.run("HDEL", "meta", "keyed"), "a field of meta that is missing"),
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

every_damage = pytest.mark.parametrize("name", [*DAMAGES, *OF_QUEUES])
every_damage_of_groups = pytest.mark.parametrize("name", DAMAGES)


SEVERAL: Final = (
    "a parked one is removed",
    "a dead letter is removed",
    "leased and dead",
    "a lease is one of another key",
    "a lane without a mark",
    "a retry is early",
    "one that is out expires",
    "leases without their pillar",
    "priorities are nonsense",
    "a slot of no schedule",
)


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


def check_repair(h: Healthy, damage: Damage, wanted: str, server: ServerPlace) -> None:
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
    server.advance(LATER + 1)
    late = drained(h.inbox)
    assert early == set()
    check_order([*due, *late])
    live = {*h.names.values()} - {"dead", "done", "n1"}
    assert live - {*due, *late} == set()
    assert {*due, *late} == live
    assert [message.body for message in h.inbox.list("dead")] == ["dead"]
    assert (h.inbox.audit()).explanation == ()


@every_damage
def test_a_queue_is_mended_and_loses_no_message(healthy: Healthy, server: ServerPlace, name: str) -> None:
    """I1 I2 I3 I7."""
    damage, wanted = {**DAMAGES, **OF_QUEUES}[name]

    check_repair(healthy, damage, wanted, server)


@every_damage_of_groups
def test_a_group_is_mended_and_loses_no_message(healthy_group: Healthy, server: ServerPlace, name: str) -> None:
    """I1 I2 I3 I7."""
    damage, wanted = DAMAGES[name]

    check_repair(healthy_group, damage, wanted, server)


def test_a_repair_of_a_healthy_queue_changes_nothing(healthy: Healthy) -> None:
    before = healthy.all_that_is_stored()

    audit = healthy.inbox.audit(repair=True)

    assert (audit.ok, audit.explanation, healthy.all_that_is_stored()) == (True, (), before)


def test_a_repair_of_a_healthy_group_changes_nothing(healthy_group: Healthy) -> None:
    before = healthy_group.all_that_is_stored()

    audit = healthy_group.inbox.audit(repair=True)

    assert (audit.ok, audit.explanation, healthy_group.all_that_is_stored()) == (True, (), before)


def test_only_looking_changes_nothing(healthy: Healthy) -> None:
    for name in SEVERAL:
        DAMAGES[name][0](healthy)
    before = healthy.all_that_is_stored()

    found = healthy.inbox.audit()

    assert {DAMAGES[name][1] for name in SEVERAL} <= {fault.what for fault in found.faults}
    assert healthy.all_that_is_stored() == before


def test_several_damages_at_once_are_mended_at_once(healthy: Healthy, server: ServerPlace) -> None:
    """I1 I2 I3 I7."""

    def damage(h: Healthy) -> None:
        for name in SEVERAL:
            DAMAGES[name][0](h)

    check_repair(healthy, damage, GONE, server)


# Bodies that somebody has taken away cannot come back, but their ids are known, and nothing else is lost.


@pytest.mark.parametrize("garbage", [None, b"short", b"." * 40], ids=["removed", "cut off", "overwritten"])
@pytest.mark.parametrize("name", ["ready", "urgent", "failed", "held", "k1", "k2", "r1", "n2", "dead", "single"])
def test_a_body_that_is_gone_is_a_dead_letter_and_nothing_else_is_lost(
    healthy: Healthy, server: ServerPlace, name: str, garbage: bytes | None
) -> None:
    """I1 I2 I7."""
    if garbage is None:
        healthy.run("HDEL", "msgs", name)
    else:
        healthy.run("HSET", "msgs", name, garbage)

    found = healthy.inbox.audit()
    healthy.inbox.audit(repair=True)

    assert not found.ok
    assert healthy.inbox.audit().explanation == ()
    due = drained(healthy.inbox)
    server.advance(LATER + 1)
    late = drained(healthy.inbox)
    check_order([*due, *late])
    assert {*due, *late} == {*healthy.names} - {"dead", "done", "n1", name}
    assert {message.id for message in healthy.inbox.list("dead")} == {"dead", name}
    assert healthy.inbox.audit().explanation == ()


def test_of_a_queue_without_bodies_every_id_is_a_dead_letter(healthy: Healthy) -> None:
    """I2."""
    healthy.run("DEL", "msgs")

    healthy.inbox.audit(repair=True)

    assert healthy.inbox.audit().explanation == ()
    dead = healthy.inbox.list("dead", limit=100)
    assert {message.id for message in dead} == {*healthy.names} - {"done", "n1"}
    assert {message.reason for message in dead} == {"body lost"}


def body_lost(name: str) -> Damage:
    return lambda h: h.run("HDEL", "msgs", h.id(name))


@pytest.mark.parametrize("name", ["held", "failed", "dead", "k1", "k2", "k3", "r1", "r2", "n2", "n3"])
def test_a_body_of_a_group_comes_from_the_stream_again(healthy_group: Healthy, server: ServerPlace, name: str) -> None:
    """I1 I2 I3 I7."""
    check_repair(healthy_group, body_lost(name), "a body that only the stream has", server)


def test_all_bodies_of_a_group_come_from_the_stream_again(healthy_group: Healthy, server: ServerPlace) -> None:
    """I1 I2 I3 I7."""
    check_repair(healthy_group, deleted("msgs"), "a body that only the stream has", server)


def test_a_body_that_the_stream_has_no_more_is_lost(healthy_group: Healthy) -> None:
    topic = healthy_group.prefix.partition("group:")[0]
    body_lost("held")(healthy_group)
    healthy_group.client.xdel(f"{topic}stream", healthy_group.id("held"))

    healthy_group.inbox.audit(repair=True)

    assert healthy_group.inbox.audit().explanation == ()
    assert {letter.reason for letter in healthy_group.inbox.list("dead")} == {"no use", "body lost"}


def test_an_entry_that_the_group_has_finished_does_not_come_again(healthy_group: Healthy) -> None:
    healthy_group.run("ZADD", "waiting0", 1, healthy_group.id("done"))

    healthy_group.inbox.audit(repair=True)

    assert healthy_group.inbox.audit().explanation == ()
    assert "done" not in drained(healthy_group.inbox)


@pytest.mark.parametrize("key", ["waiting0", "waiting5", "leased", "dead", "parked"])
def test_an_entry_that_was_not_read_yet_comes_in_its_turn(app: Duly, healthy_group: Healthy, key: str) -> None:
    """I1 I2."""
    later = app.topic(healthy_group.inbox.label.split("/")[0]).publish("later")
    member = f"k\0{9:065d}{later}" if key == "parked" else later
    healthy_group.run("ZADD", key, 1, member)

    found = healthy_group.inbox.audit()
    healthy_group.inbox.audit(repair=True)

    assert (later, "place of an entry that was not read yet") in [(fault.id, fault.what) for fault in found.faults]
    assert healthy_group.inbox.audit().explanation == ()
    assert drained(healthy_group.inbox).count("later") == 1
    assert [letter.body for letter in healthy_group.inbox.list("dead")] == ["dead"]


# What a repair keeps


def test_attempts_are_counted_again_from_the_timeline(healthy: Healthy, server: ServerPlace) -> None:
    """I8."""
    healthy.run("DEL", "counts")

    healthy.inbox.audit(repair=True)

    server.advance(LATER + 1)
    deliveries = {delivery.id: delivery for delivery in take(healthy.inbox)}
    assert [deliveries[name].attempt for name in ("failed", "r1", "ready")] == [2, 2, 1]


def test_a_dedup_window_that_was_cut_in_half_counts_on(healthy: Healthy, app: Duly, server: ServerPlace) -> None:
    healthy.run("DEL", "dedup_ends")

    healthy.inbox.audit(repair=True)

    queue = app.queue(healthy.inbox.name)
    assert queue.send("again", dedup="once") == "single"
    assert all(0 < server.keys(queue.name)[key] < 11 * LATER * 1000 for key in ("dedup", "dedup_ends"))


def test_a_dead_letter_whose_place_was_lost_is_the_same_dead_letter(healthy: Healthy) -> None:
    healthy.run("DEL", "dead")

    healthy.inbox.audit(repair=True)

    (letter,) = healthy.inbox.list("dead")
    assert (letter.id, letter.reason, letter.body) == ("dead", "no use", "dead")


def test_the_holder_of_a_message_may_finish_it_after_a_repair_of_its_lane(healthy: Healthy) -> None:
    """I7."""
    healthy.run("DEL", "lanes")

    healthy.inbox.audit(repair=True)

    assert {"k2", "k3"}.isdisjoint(drained(healthy.inbox))
    healthy.held["k1"].ack()
    assert drained(healthy.inbox) == ["k2", "k3"]


@pytest.mark.parametrize("damage", [("DEL", "slots"), ("HDEL", "meta", "slot"), ("HSET", "meta", "slot", "9e15")])
def test_a_schedule_that_was_forgotten_fires_again(
    app: Duly, server: ServerPlace, queue_name: str, stranger: redis.Redis, damage: tuple[str, ...]
) -> None:
    queue = app.queue(queue_name)
    app.schedule(queue_name, queue, "report", every=3600)
    assert take(queue) == []
    command, key, *rest = damage
    stranger.execute_command(  # type: ignore[no-untyped-call]
        command, f"duly:{{{queue_name}}}:{key}", *rest
    )

    found = queue.audit()
    queue.audit(repair=True)

    assert (found.ok, queue.audit().explanation) == (False, ())
    server.advance(3601)
    assert [delivery.body for delivery in take(queue)] == ["report"]


def test_a_lane_that_waits_for_a_dead_letter_is_no_fault(app: Duly, queue_name: str) -> None:
    """I7."""
    queue = app.queue(queue_name, on_dead="block")
    queue.send_many([Send(name, key="k") for name in ("a", "b")])
    take(queue)[0].reject("no use")

    assert queue.audit(repair=True).ok
    assert take(queue) == []


# What comes back


def _crash(_: Delivery, server: ServerPlace) -> None:
    server.advance(LEASE + 1)


RETURNS: Final[dict[str, Callable[[Delivery, ServerPlace], Any]]] = {
    "crash": _crash,
    "retry": lambda delivery, _: delivery.retry(0),
    "release": lambda delivery, _: delivery.release(),
    "redrive": lambda delivery, _: delivery.reject("no use"),
}


@pytest.mark.parametrize(
    "damage", [("DEL", "meta"), ("HDEL", "meta", "priorities"), ("HSET", "meta", "priorities", "x")]
)
@pytest.mark.parametrize("priority", [0, 5])
@pytest.mark.parametrize("verb", RETURNS)
def test_what_comes_back_after_a_repair_is_delivered(
    app: Duly,
    server: ServerPlace,
    stranger: redis.Redis,
    queue_name: str,
    verb: str,
    priority: int,
    damage: tuple[str, ...],
) -> None:
    """I2."""
    queue = app.queue(queue_name, lease=LEASE)
    queue.send("body", priority=priority)
    (delivery,) = take(queue)
    if verb == "redrive":
        RETURNS[verb](delivery, server)
    command, key, *rest = damage
    stranger.execute_command(  # type: ignore[no-untyped-call]
        command, f"duly:{{{queue_name}}}:{key}", *rest
    )

    queue.audit(repair=True)

    assert queue.audit().explanation == ()
    if verb == "redrive":
        queue.redrive()
    else:
        RETURNS[verb](delivery, server)
    assert drained(queue) == ["body"]


def test_claims_know_of_large_messages_after_a_repair(app: Duly, stranger: redis.Redis, queue_name: str) -> None:
    queue = app.queue(queue_name)
    queue.send_many(["." * 500_000] * 12)
    stranger.delete(f"duly:{{{queue_name}}}:meta")

    found = queue.audit(repair=True)

    assert any("large: a field of meta that is missing" in line for line in found.explanation)
    assert queue.audit().explanation == ()
    assert 0 < len(take(queue)) < 12


# Ids that nobody can name


@pytest.fixture
def foreign(app: Duly, queue_name: str, stranger: redis.Redis) -> Healthy:
    """Give a queue that somebody has stored a message in, under an id that is no text."""
    queue = app.queue(queue_name)
    queue.send("body", id="ours")
    h = Healthy(queue, {"ours": "body"}, stranger, f"duly:{{{queue_name}}}:", {})
    h.run("HSET", "msgs", b"\xff", h.run("HGET", "msgs", "ours"))
    return h


@pytest.mark.parametrize("where", [None, "waiting0", "leased"])
def test_a_message_with_an_id_that_is_not_text_becomes_a_dead_letter(foreign: Healthy, where: str | None) -> None:
    if where is not None:
        foreign.run("ZADD", where, 1, b"\xff")

    found = foreign.inbox.audit()
    foreign.inbox.audit(repair=True)

    assert ("\\xff", "an id that is not text") in [(fault.id, fault.what) for fault in found.faults]
    assert foreign.inbox.audit().explanation == ()
    assert [message.id for message in foreign.inbox.list("dead")] == ["\\xff"]
    assert drained(foreign.inbox) == ["body"]


def test_an_id_that_is_not_text_takes_no_others_with_it(foreign: Healthy) -> None:
    foreign.run("ZADD", "waiting0", 1, b"\xff")

    deliveries = take(foreign.inbox)

    assert [delivery.id for delivery in deliveries] == ["\\xff", "ours"]
    assert {row.id for row in foreign.inbox.pending().messages} == {"\\xff", "ours"}
    assert {message.id for message in foreign.inbox.list("leased")} == {"\\xff", "ours"}
    assert [delivery.id for delivery in foreign.inbox.ack_many(deliveries)] == ["\\xff"]


def test_a_dead_letter_with_an_id_that_is_not_text_can_be_redriven_and_purged(foreign: Healthy) -> None:
    foreign.inbox.audit(repair=True)

    assert foreign.inbox.redrive() == 1
    foreign.inbox.audit(repair=True)

    assert foreign.inbox.purge("dead") == 1
    assert foreign.inbox.audit().explanation == ()


@pytest.mark.parametrize("lease", [b"\xff" * 70, b"short"], ids=["not text", "cut off"])
def test_a_lease_that_cannot_be_read_can_be_looked_at(healthy: Healthy, lease: bytes) -> None:
    healthy.run("HSET", "leases", "held", lease)

    assert {row.id for row in healthy.inbox.pending().messages} == {"held", "k1"}
    assert {message.id for message in healthy.inbox.list("leased")} == {"held", "k1"}


def test_a_queue_that_was_paused_by_somebody_unreadable_can_be_looked_at(healthy: Healthy) -> None:
    healthy.run("HSET", "meta", "paused", b"\xff")

    assert healthy.inbox.stats().paused == "\\xff"
    assert healthy.inbox.audit().ok


# In words


def test_accounts_that_do_not_add_up_are_explained_with_their_numbers(healthy: Healthy) -> None:
    healthy.run("HINCRBY", "meta", "sent", 1000)

    (line,) = healthy.inbox.audit().explanation

    assert line.startswith("accounts: 1,000 more came in than can be accounted for. sent 1,019 + corrected 0 is 1,019")
    assert "acked 2 + dead 1 + live 16 is 19" in line


def test_a_counter_that_is_wrong_is_named_with_both_values(healthy: Healthy) -> None:
    real = healthy.inbox.stats().dead_bytes
    healthy.run("HSET", "meta", "dead_bytes", 7)

    (fault,) = healthy.inbox.audit().faults

    assert (fault.id, fault.what) == ("dead_bytes", "counts wrong bytes")
    assert fault.detail == f"it says 7, and {real} are stored"


def test_an_audit_is_readable_as_text(healthy: Healthy) -> None:
    right = str(healthy.inbox.audit())
    healthy.run("ZREM", "leased", "held")
    wrong = str(healthy.inbox.audit())

    assert right.startswith(f"{healthy.inbox.label}: the accounts are right, ")
    assert wrong.splitlines()[1] == (
        "held: body without a place. The message is stored, but no consumer would ever find it. "
        "It goes back to where it waits, at its own time; a dead or finished one back to its kind."
    )


# Online


def test_a_repair_while_consumers_work_loses_nothing(server: ServerPlace, queue_name: str, app: Duly) -> None:
    """I1 I2."""
    queue, bodies = app.queue(queue_name), list(range(400))
    queue.send_many([Send(body, key=f"k{body % 7}" if body % 2 else None) for body in bodies])
    seen: set[int] = set()

    def consume() -> None:
        with Duly(server.url) as other:
            mine = other.queue(queue_name)
            while len(seen) < len(bodies):
                deliveries = mine.receive(5, wait=0.1)
                seen.update(delivery.body for delivery in deliveries)
                mine.ack_many(deliveries)

    consumers = [InBackground(consume) for _ in range(3)]
    for number in range(1000):
        if all(not consumer.is_running for consumer in consumers):
            break
        if number < 20:
            server.corrupt(queue_name, "DEL", ("waiting0", "parked", "lanes", "leased", "leases")[number % 5])
        queue.audit(repair=True)
    for consumer in consumers:
        consumer.result()
    drained(queue)
    queue.audit(repair=True)
    assert seen == set(bodies)
    assert queue.audit().explanation == ()
    assert queue.stats().live == 0
