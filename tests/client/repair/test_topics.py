"""Repair of a topic: damage by hand to delayed publishes is found, explained and repaired.

Every group receives each entry once, and never early. On real servers only: no other program reaches into memory.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
import redis

from duly import Audit, Duly, Group, Send, Topic
from duly._core import codec
from duly.errors import ServerError
from tests.client._sync.given import InBackground, take
from tests.client.place import ServerPlace

LATER: Final = 600
"""Seconds that delayed publishes wait."""
SOON: Final = ["soon", "keyed", "single", "large"]
EVERY: Final = [*SOON, "last"]
GROUPS: Final = ("archive", "bank")
FRAME: Final = b"\x92\x01\xc4\xff."
"""An envelope that announces more than there is."""


@dataclass
class HealthyTopic:
    """A topic with all that it can hold, and a stranger who can reach its keys."""

    topic: Topic
    groups: list[Group]
    client: redis.Redis
    ids: dict[str, str] = field(default_factory=dict)
    """By body, of delayed publishes."""
    entered: bytes = b""
    """The record that one had which has entered the stream."""

    def key(self, name: str) -> str:
        return self.topic.stream.removesuffix("stream") + name

    def run(self, command: str, key: str, *arguments: Any) -> Any:
        """Do something to a key."""
        return self.client.execute_command(  # type: ignore[no-untyped-call]
            command, self.key(key), *arguments
        )

    def record(self, name: str) -> bytes:
        found: bytes = self.run("HGET", "msgs", self.ids[name])
        return found

    def take(self) -> list[list[Any]]:
        """Finish what each group is given now, and give the short bodies."""
        return [[body[:9] for body in _drained(group)] for group in self.groups]

    def all_that_is_stored(self) -> dict[str, Any]:
        """Read all keys but call records, which belong to connections."""
        keys = [key.decode() for key in self.client.scan_iter(f"{self.key('')}*", count=10_000)]
        return {key: self._value(key) for key in sorted(keys) if ":call:" not in key}

    def _value(self, key: str) -> Any:
        looks: dict[bytes | str, Callable[[], Any]] = {
            b"hash": lambda: self.client.hgetall(key),
            b"zset": lambda: self.client.zrange(key, 0, -1, withscores=True),
            b"stream": lambda: self.client.xrange(key),
        }
        return looks[self.client.type(key)]()


def _drained(group: Group) -> list[Any]:
    bodies: list[Any] = []
    while deliveries := take(group):
        bodies += [delivery.body for delivery in deliveries]
        group.ack_many(deliveries)
    return bodies


@pytest.fixture
def healthy(app: Duly, queue_name: str, stranger: redis.Redis, server: ServerPlace) -> HealthyTopic:
    topic = app.topic(queue_name)
    healthy = HealthyTopic(topic, [topic.group(name) for name in GROUPS], stranger)
    for group in healthy.groups:
        group.create()
    topic.publish("at once", dedup="at once", dedup_for=10 * LATER)
    healthy.ids["entered"] = topic.publish("entered", delay=5, headers={"a": "1", "b": "2"}, key="k")
    healthy.entered = healthy.record("entered")
    assert topic.cancel(topic.publish("cancelled", delay=5))
    server.advance(6)
    assert healthy.take() == [["at once", "entered"]] * 2
    healthy.ids["soon"] = topic.publish("soon", delay=LATER)
    healthy.ids["keyed"] = topic.publish("keyed", delay=LATER, key="k", headers={"a": "1"})
    healthy.ids["single"] = topic.publish("single", delay=LATER, dedup="once", dedup_for=10 * LATER)
    healthy.ids["large"] = topic.publish("large" + "." * 5000, delay=LATER)
    healthy.ids["last"] = topic.publish("last", delay=2 * LATER)
    return healthy


Damage = Callable[[HealthyTopic], Any]


def deleted(key: str) -> Damage:
    return lambda h: h.run("DEL", key)


def overwritten(key: str) -> Damage:
    return lambda h: h.run("SET", key, "something else")


def ran(command: str, key: str, *arguments: Any) -> Damage:
    """Run a command of which the arguments may name a publish, as @soon."""

    def damage(h: HealthyTopic) -> None:
        given = [h.ids[each[1:]] if isinstance(each, str) and each.startswith("@") else each for each in arguments]
        h.run(command, key, *given)

    return damage


def all_of(*damages: Damage) -> Damage:
    def damage(h: HealthyTopic) -> None:
        for each in damages:
            each(h)

    return damage


def put_back(h: HealthyTopic) -> None:
    """Write the body of one that has entered again."""
    h.run("HSET", "msgs", h.ids["entered"], h.entered)


def of_priority_5(h: HealthyTopic) -> None:
    """Overwrite the priority in a record: the last byte of its head."""
    record = h.record("soon")
    at = len(codec.stamped(0, 0, b"")) + 2
    h.run("HSET", "msgs", h.ids["soon"], record[:at] + b"\5" + record[at + 1 :])


LEASE: Final = b"\0" * 14 + b"somebody".ljust(65)
COUNTS: Final = b"\x97\0\0\0\1\xcf\0\x20\0\0\0\0\0\0\0\0"
"""One that was released once, and is due in two centuries."""
REASON: Final = b"\x9b\xa6no use\0\0\0\0\x90\0\x90\0\xa0\0"
NO_REASON: Final = b"\x9b\xa0\0\0\0\0\x90\0\x90\0\xa0\0"
ENTERED: Final = "waits, but has entered the stream"
GONE: Final = "body without a place"
FOREIGN: Final = "a key that no topic has"
UNREADABLE: Final = "a field of meta that cannot be read"
IN_TIME: Final = 1e15

DAMAGES: Final[dict[str, tuple[Damage, str]]] = {
    # bodies without an index
    "one place is removed": (ran("ZREM", "waiting0", "@soon"), GONE),
    "all places are removed": (deleted("waiting0"), GONE),
    "one place is removed, and its history shows it as dead": (
        all_of(ran("ZREM", "waiting0", "@soon"), ran("HSET", "why", "@soon", REASON)),
        GONE,
    ),
    # in a wrong place, or in two
    "waiting and dead": (ran("ZADD", "dead", 1, "@soon"), "in two places: waiting and dead"),
    "under two priorities": (ran("ZADD", "waiting7", 1, "@soon"), "in two places: waiting and misplaced"),
    "under another priority": (
        all_of(ran("ZREM", "waiting0", "@soon"), ran("ZADD", "waiting7", IN_TIME, "@soon")),
        "waits under a wrong priority",
    ),
    "of another priority and waiting there": (
        all_of(of_priority_5, ran("ZREM", "waiting0", "@soon"), ran("ZADD", "waiting5", IN_TIME, "@soon")),
        "waits under a wrong priority",
    ),
    "dead, and nothing is wrong with it": (
        all_of(ran("ZREM", "waiting0", "@soon"), ran("ZADD", "dead", 1, "@soon")),
        "dead, though it can enter the stream",
    ),
    "dead with a reason, and nothing is wrong with it": (
        all_of(
            ran("ZREM", "waiting0", "@soon"), ran("ZADD", "dead", 1, "@soon"), ran("HSET", "why", "@soon", REASON)
        ),
        "dead, though it can enter the stream",
    ),
    # times
    "early": (ran("ZADD", "waiting0", 1, "@soon"), "waits for a wrong time"),
    "late": (ran("ZADD", "waiting0", 8e15, "@soon"), "waits for a wrong time"),
    "never": (ran("ZADD", "waiting0", "+inf", "@soon"), "waits for a wrong time"),
    # in the stream, and still here
    "entered, and the body is back": (put_back, ENTERED),
    "entered, and back": (all_of(put_back, ran("ZADD", "waiting0", 1, "@entered")), ENTERED),
    "entered, and back for later": (all_of(put_back, ran("ZADD", "waiting0", 8e15, "@entered")), ENTERED),
    "entered, and back in two places": (
        all_of(put_back, ran("ZADD", "waiting0", 1, "@entered"), ran("ZADD", "waiting3", 1, "@entered")),
        ENTERED,
    ),
    "entered, and dead": (all_of(put_back, ran("ZADD", "dead", 1, "@entered")), ENTERED),
    # what only queues have
    "leased": (
        all_of(
            ran("ZREM", "waiting0", "@soon"),
            ran("ZADD", "leased", 8e15, "@soon", "+inf", b"\1" * 65),
            ran("HSET", "leases", "@soon", LEASE),
        ),
        FOREIGN,
    ),
    "leased and waiting": (ran("ZADD", "leased", 1, "@soon"), FOREIGN),
    "a lease": (ran("HSET", "leases", "@soon", LEASE), FOREIGN),
    "a lease without a message": (ran("HSET", "leases", "ghost", "x"), FOREIGN),
    "counts with another time": (
        all_of(ran("HSET", "counts", "@soon", COUNTS), ran("ZADD", "waiting0", 2**53, "@soon")),
        FOREIGN,
    ),
    "counts that cannot be read": (ran("HSET", "counts", "@soon", "\xff"), FOREIGN),
    "it expires": (ran("ZADD", "expires", 1, "@soon"), FOREIGN),
    "it is done": (all_of(ran("ZREM", "waiting0", "@soon"), ran("ZADD", "done", 1, "@soon")), FOREIGN),
    "a lane": (ran("HSET", "lanes", "k", "+x"), FOREIGN),
    "parked": (ran("ZADD", "parked", 0, "nonsense"), FOREIGN),
    "a schedule": (ran("HSET", "schedules", "nightly", "x"), FOREIGN),
    "a slot": (ran("ZADD", "slots", 1, "nightly"), FOREIGN),
    # the past
    "a reason to be dead": (ran("HSET", "why", "@soon", REASON), "alive, but with a reason to be dead"),
    "a past": (ran("HSET", "why", "@soon", NO_REASON), "alive, but with a reason to be dead"),
    "a past that is nonsense": (ran("HSET", "why", "@soon", "\xff"), "a past that cannot be read"),
    "a history without a message": (ran("HSET", "why", "ghost", REASON), "row in why of no message"),
    # dedup
    "a dedup value without an end": (deleted("dedup_ends"), "half a dedup window"),
    "an end without a dedup value": (deleted("dedup"), "half a dedup window"),
    "a dedup value without a message": (ran("HSET", "dedup", "other", "ghost"), "half a dedup window"),
    "an end without a message": (ran("ZADD", "dedup_ends", IN_TIME, "other"), "half a dedup window"),
    # meta
    "meta is removed": (deleted("meta"), "accounts"),
    "too many were published": (ran("HSET", "meta", "sent", 1000), "accounts"),
    "how many were published is gone": (ran("HDEL", "meta", "sent"), "accounts"),
    "too many have entered": (ran("HSET", "meta", "entered", 7), "entered 7"),
    "how many have entered is gone": (ran("HDEL", "meta", "entered"), "accounts"),
    "less than none has entered": (ran("HSET", "meta", "entered", -1), "a counter below zero"),
    "bytes are wrong": (ran("HSET", "meta", "bytes", -5), "counts wrong bytes"),
    "bytes of dead letters are wrong": (ran("HSET", "meta", "dead_bytes", 5), "counts wrong bytes"),
    "the largest entry is less than nothing": (ran("HSET", "meta", "largest", -5), "a counter below zero"),
    "keys are not known": (ran("HDEL", "meta", "keyed"), "a field of meta that is missing"),
    "large ones are not known": (ran("HDEL", "meta", "large"), "a field of meta that is missing"),
    "priorities are nonsense": (ran("HSET", "meta", "priorities", "x"), "a priority that no claim looks at"),
    "the clock is ahead forever": (ran("HSET", "meta", "clock", "9e18"), UNREADABLE),
    **{
        f"{name} is not a number": (ran("HSET", "meta", name, "many"), UNREADABLE)
        for name in (
            "clock", "sent", "entered", "published", "largest", "bytes", "buried", "trimmed", "trimmed_at",
            "missed:archive",
        )
    },
    # other types
    **{
        f"{key} is overwritten": (overwritten(key), "a key of another type")
        for key in (
            "waiting0", "waiting9", "dead", "why", "dedup", "dedup_ends", "wake", "meta", "stream", "leased", "leases",
            "counts", "expires", "done", "lanes", "parked", "schedules", "slots",
        )
    },
}  # fmt: skip
"""By name: the damage, and the fault that an audit reports. None removes a body."""

SEVERAL: Final = (
    "one place is removed",
    "entered, and back",
    "a lease without a message",
    "a past that is nonsense",
    "a dedup value without a message",
    "bytes are wrong",
)


def check_found(found: Audit, mended: Audit, after: Audit, wanted: str) -> None:
    assert (found.ok, mended.ok, after.explanation) == (False, False, ())
    for audit in (found, mended):
        assert any(wanted in line for line in audit.explanation), audit
        assert all(fault.meaning and fault.fix for fault in audit.faults)


def check_that_every_group_is_given(h: HealthyTopic, server: ServerPlace, but: str = "") -> None:
    """Check that each group receives each entry once, when it is due."""
    now = h.take()
    server.advance(LATER + 1)
    soon = h.take()
    server.advance(LATER)
    late = h.take()
    assert now == [[], []]
    assert [Counter(each) for each in soon] == [Counter(body[:9] for body in _bodies(SOON, but))] * 2
    assert late == [[body[:9] for body in _bodies(["last"], but)]] * 2
    assert h.topic.audit().explanation == ()


def _bodies(names: list[str], but: str) -> list[str]:
    return ["large...." if name == "large" else name for name in names if name != but]


@pytest.mark.parametrize("name", DAMAGES)
def test_a_topic_is_repaired_and_every_group_receives_every_entry_once(
    healthy: HealthyTopic, server: ServerPlace, name: str
) -> None:
    """I1 I2 I3."""
    damage, wanted = DAMAGES[name]
    assert healthy.topic.audit().ok
    damage(healthy)

    found = healthy.topic.audit()
    mended = healthy.topic.audit(repair=True)

    check_found(found, mended, healthy.topic.audit(), wanted)
    check_that_every_group_is_given(healthy, server)
    assert healthy.topic.dead() == []


def test_a_repair_of_a_healthy_topic_changes_nothing(healthy: HealthyTopic) -> None:
    before = healthy.all_that_is_stored()

    audit = healthy.topic.audit(repair=True)

    assert (audit.ok, audit.explanation, healthy.all_that_is_stored()) == (True, (), before)
    assert (audit.queue, audit.stats.sent, audit.entered, audit.stats.cancelled) == (healthy.topic.name, 7, 1, 1)


def test_an_audit_without_repair_changes_nothing(healthy: HealthyTopic) -> None:
    for name in SEVERAL:
        DAMAGES[name][0](healthy)
    before = healthy.all_that_is_stored()

    found = healthy.topic.audit()

    wanted = {DAMAGES[name][1] for name in SEVERAL} - {"counts wrong bytes"}  # only where nothing else is wrong
    assert wanted <= {fault.what for fault in found.faults}
    assert healthy.all_that_is_stored() == before


def test_several_damages_at_once_are_repaired_at_once(healthy: HealthyTopic, server: ServerPlace) -> None:
    """I1 I2 I3."""
    for name in SEVERAL:
        DAMAGES[name][0](healthy)

    found = healthy.topic.audit()
    mended = healthy.topic.audit(repair=True)

    check_found(found, mended, healthy.topic.audit(), GONE)
    check_that_every_group_is_given(healthy, server)
    assert [group.audit().explanation for group in healthy.groups] == [(), ()]


# A body that another program removed is lost, but its id is known, and nothing else is lost.

GARBAGE: Final = {"removed": None, "cut off": b"short", "overwritten": b"." * 40, "of another kind": b"\0" * 19 + FRAME}
every_garbage = pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)


def ruin(h: HealthyTopic, name: str, garbage: bytes | None) -> None:
    if garbage is None:
        h.run("HDEL", "msgs", h.ids[name])
    else:
        h.run("HSET", "msgs", h.ids[name], garbage)


@every_garbage
@pytest.mark.parametrize("name", ["soon", "single", "last"])
def test_a_body_that_is_gone_is_a_dead_letter_and_nothing_else_is_lost(
    healthy: HealthyTopic, server: ServerPlace, name: str, garbage: bytes | None
) -> None:
    """I1 I2."""
    ruin(healthy, name, garbage)

    found = healthy.topic.audit()
    mended = healthy.topic.audit(repair=True)

    check_found(found, mended, healthy.topic.audit(), "damaged" if garbage else "place without a body")
    check_that_every_group_is_given(healthy, server, but=name)
    assert [letter.id for letter in healthy.topic.dead()] == [healthy.ids[name]]


@every_garbage
def test_a_body_without_its_index_becomes_a_dead_letter(
    healthy: HealthyTopic, server: ServerPlace, garbage: bytes | None
) -> None:
    ruin(healthy, "soon", garbage)
    healthy.run("ZREM", "waiting0", healthy.ids["soon"])

    healthy.topic.audit(repair=True)

    assert healthy.topic.audit().explanation == ()
    check_that_every_group_is_given(healthy, server, but="soon")
    assert [letter.id for letter in healthy.topic.dead()] == ([healthy.ids["soon"]] if garbage else [])


@every_garbage
def test_a_delayed_publish_that_cannot_enter_becomes_a_dead_letter_that_can_be_removed(
    healthy: HealthyTopic, server: ServerPlace, garbage: bytes | None
) -> None:
    """I1 I2."""
    id_ = healthy.ids["soon"]
    ruin(healthy, "soon", garbage)

    server.advance(LATER + 1)
    given = healthy.take()

    assert [Counter(each) for each in given] == [Counter(_counted(healthy, but="soon"))] * 2
    (letter,) = healthy.topic.dead()
    assert (letter.id, letter.state, letter.reason) == (id_, "dead", "damaged" if garbage else "body lost")
    assert "never enters the stream" in healthy.topic.explain(id_)
    assert "never enters the stream" in healthy.groups[0].explain(id_)
    audit = healthy.topic.audit()
    assert (audit.difference, audit.stats.dead) == (0, 1)
    assert {fault.what for fault in audit.faults} <= {"counts wrong bytes"}  # its size is unknown
    healthy.topic.audit(repair=True)
    assert healthy.topic.cancel(id_)
    assert (healthy.topic.dead(), healthy.topic.audit().explanation) == ([], ())


def _counted(healthy: HealthyTopic, but: str) -> list[str]:
    return [body[:9] for body in _bodies(SOON, but)]


def test_of_a_topic_without_bodies_every_id_is_a_dead_letter(healthy: HealthyTopic, server: ServerPlace) -> None:
    healthy.run("SET", "msgs", "something else")

    found = healthy.topic.audit()
    healthy.topic.audit(repair=True)

    assert [fault.what for fault in found.faults] == ["a key of another type"]
    assert {letter.id for letter in healthy.topic.dead()} == {healthy.ids[name] for name in EVERY}
    assert healthy.topic.audit().explanation == ()
    server.advance(3 * LATER)
    assert healthy.take() == [[], []]


def test_a_place_without_a_body_becomes_a_dead_letter(healthy: HealthyTopic, server: ServerPlace) -> None:
    healthy.run("ZADD", "waiting0", 1, "ghost")

    healthy.topic.audit(repair=True)

    assert [letter.id for letter in healthy.topic.dead()] == ["ghost"]
    check_that_every_group_is_given(healthy, server)


@pytest.mark.parametrize("key", ["dead", "why"])
def test_keys_of_dead_letters_that_are_overwritten_hold_no_message_up(
    healthy: HealthyTopic, server: ServerPlace, key: str
) -> None:
    """I1."""
    ruin(healthy, "soon", b"short")
    healthy.run("SET", key, "something else")
    server.advance(LATER + 1)

    given = healthy.take()
    healthy.topic.audit(repair=True)

    assert [Counter(each) for each in given] == [Counter(_counted(healthy, but="soon"))] * 2
    assert healthy.topic.audit().explanation == ()
    assert [letter.id for letter in healthy.topic.dead()] == [healthy.ids["soon"]]


def test_a_deleted_topic_leaves_no_dead_letters(healthy: HealthyTopic, server: ServerPlace) -> None:
    """I9."""
    ruin(healthy, "soon", None)
    healthy.topic.audit(repair=True)

    healthy.topic.delete()

    assert [key for key, ttl in server.keys(f"@{healthy.topic.name}").items() if ttl < 0] == []


# More that a repair restores


def test_a_publish_with_an_id_that_is_not_text_comes_in_its_time(healthy: HealthyTopic, server: ServerPlace) -> None:
    foreign, record = b"\xff\xfe", healthy.record("soon")
    healthy.run("HDEL", "msgs", healthy.ids["soon"])
    healthy.run("ZREM", "waiting0", healthy.ids["soon"])
    healthy.run("HSET", "msgs", foreign, record)

    healthy.topic.audit(repair=True)

    assert len(healthy.topic.delayed()) == len(EVERY)
    check_that_every_group_is_given(healthy, server)


@pytest.mark.parametrize("half", ["dedup", "dedup_ends"])
def test_a_dedup_window_that_was_cut_in_half_counts_on(healthy: HealthyTopic, server: ServerPlace, half: str) -> None:
    """The value is known from the one that waits; that of an entry is not, so its window is closed."""
    if half == "dedup":
        healthy.run("HDEL", "dedup", "at once")
    else:
        healthy.run("ZREM", half, "once", "at once")

    healthy.topic.audit(repair=True)

    assert healthy.topic.publish("another", dedup="once", dedup_for=LATER) == healthy.ids["single"]
    assert len(healthy.topic.read()) == 2
    healthy.topic.publish("at once again", dedup="at once", dedup_for=LATER)
    assert [entry.body for entry in healthy.topic.read()] == ["at once", "entered", "at once again"]


def test_a_message_that_waits_again_wakes_the_callers_that_wait_for_it(
    healthy: HealthyTopic, app: Duly, server: ServerPlace, queue_name: str
) -> None:
    id_ = healthy.topic.publish("due", delay=1)
    healthy.run("ZREM", "waiting0", id_)
    server.advance(2)
    with Duly(server.url) as other:
        blocked = InBackground(lambda: other.topic(queue_name).group("archive").receive(1, wait=30))
        while server.blocked() == 0 and blocked.is_running:
            pass

        healthy.topic.audit(repair=True)

        assert [delivery.body for delivery in blocked.result()] == ["due"]


def test_an_entry_behind_many_others_is_found(
    app: Duly, stranger: redis.Redis, server: ServerPlace, queue_name: str
) -> None:
    topic = app.topic(queue_name)
    healthy = HealthyTopic(topic, [topic.group("archive")], stranger)
    topic.publish_many([Send(number, delay=5) for number in range(300)])
    healthy.ids["entered"] = topic.publish("entered", delay=6)
    healthy.entered = healthy.record("entered")
    server.advance(10)
    assert [len(topic.read(limit=1000)), topic.read(limit=1000)[-1].body] == [301, "entered"]
    put_back(healthy)

    assert [(fault.id, fault.what) for fault in topic.audit(repair=True).faults] == [(healthy.ids["entered"], ENTERED)]

    assert topic.audit().ok
    assert topic.stats().length == 301


# In use


def test_a_repair_while_publishers_and_consumers_work_loses_nothing(
    server: ServerPlace, queue_name: str, app: Duly
) -> None:
    """I1 I2."""
    topic = app.topic(queue_name)
    for name in GROUPS:
        topic.group(name).create()
    seen = {name: Counter[int]() for name in GROUPS}
    count = 150

    def publish() -> None:
        with Duly(server.url) as other:
            for number in range(count):
                other.topic(queue_name).publish(number, delay=0.05 if number % 2 else None)

    def consume(name: str) -> None:
        with Duly(server.url) as other:
            group = other.topic(queue_name).group(name)
            while len(seen[name]) < count:
                deliveries = group.receive(20, wait=0.1)
                seen[name].update(delivery.body for delivery in deliveries)
                group.ack_many(deliveries)

    busy = [InBackground(publish), *(InBackground(lambda name=name: consume(name)) for name in GROUPS)]  # type: ignore[misc]
    number = 0
    while any(each.is_running for each in busy):
        if number < 20:
            server.corrupt(f"@{queue_name}", "DEL", ("waiting0", "why", "dead")[number % 3])
        topic.audit(repair=True)
        number += 1
    for each in busy:
        each.result()
    assert seen == {name: Counter(range(count)) for name in GROUPS}
    assert topic.audit().explanation == ()


def test_accounts_that_do_not_add_up_are_explained_with_their_numbers(healthy: HealthyTopic) -> None:
    healthy.run("HINCRBY", "meta", "sent", 3)

    (line,) = healthy.topic.audit().explanation

    assert line.startswith(
        "accounts: 3 more came in than can be accounted for. sent 10 + corrected 0 is 10, but entered 1 + cancelled 1 "
        "+ live 5 is 7."
    )


def test_groups_that_the_stream_has_lost_are_counted_as_they_are_listed(healthy: HealthyTopic) -> None:
    healthy.run("DEL", "stream")

    assert [group.name for group in healthy.topic.groups()] == list(GROUPS)
    assert healthy.topic.stats().groups == len(GROUPS)


@pytest.mark.parametrize("name", ["published", "missed:archive"])
def test_a_counter_of_another_program_is_named(healthy: HealthyTopic, name: str) -> None:
    healthy.run("HSET", "meta", name, "many")

    with pytest.raises(ServerError, match="another program has written 'many' there"):
        healthy.topic.stats() if name == "published" else healthy.groups[0].stats()
