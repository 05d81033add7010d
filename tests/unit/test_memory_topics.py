"""Topics in the memory engine: behaviour that tests/model cannot compare with a server, and wake-ups."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from duly._core import codec, ops, replies, topic_ops
from duly._core.call import Call
from duly._core.keys import GroupKeys, TopicKeys
from duly._core.outgoing import Encoder
from duly._core.topic_ops import Publication
from duly.memory import link
from duly.memory.clock import Clock
from duly.memory.engine import Engine
from duly.memory.stream import Stream, next_id, read_id, written_id
from duly.options import Keep, QueueOptions, Send

NOW = 1_790_000_000_000_000
NOW_MS = NOW // 1000
SECOND = 1_000_000
FOR_EVER = Keep()


class Topic:
    """A topic on an engine whose clock stands still, and the operations that the tests need."""

    def __init__(self, keep: Keep | None = FOR_EVER) -> None:
        self.clock = Clock()
        self.clock.freeze()
        self.clock.set_us(NOW)
        self.engine = Engine(self.clock)
        self.keys = TopicKeys("duly", "events")
        self.keep = keep
        self.sequence = 0

    def group(self, name: str) -> GroupKeys:
        return GroupKeys(self.keys, name, frees=self.keep is None)

    def run(self, call: Call[Any]) -> Any:
        self.sequence += 1
        return call.decode(self.engine.call(call, b"s", self.sequence))

    def publish(self, *bodies: str, **options: Any) -> list[str]:
        entries = [Publication(("body", body, *options.get("more", ()))) for body in bodies]
        ids: list[str] = self.run(topic_ops.publish(self.keys, entries, self.keep))
        return ids

    def publish_later(self, delay: float, *bodies: str, **options: Any) -> list[str]:
        encoder = Encoder("events", QueueOptions())
        made = [encoder.outgoing(Send(body, delay=delay, **options), f"later-{body}", NOW / SECOND) for body in bodies]
        self.run(ops.send(self.keys, made, QueueOptions(), "all"))
        return [message.id for message in made]

    def claiming(
        self, group: str, limit: int = 10, consumer: str = "ann", feed: Sequence[str] = ("0",)
    ) -> Call[replies.Claimed]:
        keys = self.group(group)
        return ops.claim(keys, QueueOptions(), limit=limit, lease=30, consumer=consumer, then="watch", feed=feed)

    def claim(self, group: str, limit: int = 10, **options: Any) -> replies.Claimed:
        claimed: replies.Claimed = self.run(self.claiming(group, limit, **options))
        return claimed

    def ack(self, group: str, claimed: replies.Claimed) -> None:
        settles = [ops.Settle(id_.decode(), claimed.fence) for id_ in claimed.ids]
        assert self.run(ops.ack(self.group(group), QueueOptions(), settles)) == []

    def read(self, begin: str = "-", limit: int = 100) -> topic_ops.Reading:
        reading: topic_ops.Reading = self.run(topic_ops.read(self.keys, begin, limit))
        return reading

    def bodies(self) -> list[bytes]:
        return [fields[1] for _, fields in self.read().entries]

    def stats(self) -> topic_ops.TopicOverview:
        overview: topic_ops.TopicOverview = self.run(topic_ops.stats(self.keys))
        return overview


@pytest.fixture
def topic() -> Topic:
    return Topic()


@pytest.fixture
def freeing() -> Topic:
    return Topic(keep=None)


def bodies_of(claimed: replies.Claimed) -> list[bytes]:
    return [codec.read_record(record).envelope.body for record in claimed.records]


# --- the stream


def test_ids_grow_even_if_the_clock_stands_or_goes_back() -> None:
    assert next_id((5, 2), 6) == (6, 0)
    assert next_id((5, 2), 5) == (5, 3)
    assert next_id((5, 2), 4) == (5, 3)


def test_an_id_is_read_with_and_without_its_number() -> None:
    assert (read_id(b"12-3"), read_id(b"12")) == ((12, 3), (12, 0))
    assert written_id((12, 3)) == b"12-3"


def test_a_trimmed_entry_is_not_claimed() -> None:
    stream = Stream()
    stream.add_group(b"g", b"0")
    group = stream.groups[b"g"]
    id_ = stream.add([b"a", b"b"], 1)
    stream.read_group(group, b"ann", 10, 1)
    stream.trim_to(0)

    stream.claim(group, b"bob", [id_], 2, forces=True)

    assert (len(group), group.consumers[b"ann"].pending, group.consumers[b"bob"].pending) == (0, 0, 0)


def test_a_claimed_entry_changes_hands_and_is_not_counted_as_delivered_again() -> None:
    stream = Stream()
    stream.add_group(b"g", b"0")
    group = stream.groups[b"g"]
    id_ = stream.add([b"a", b"b"], 1)
    stream.read_group(group, b"ann", 10, 1)

    stream.claim(group, b"bob", [id_], 7)
    group.forget_idle(b"ann")
    group.forget_idle(b"bob")

    [(pending, row)] = group.pending_from((0, 0))
    assert (pending, row.consumer, row.delivered_ms, row.deliveries) == (id_, b"bob", 7, 1)
    assert list(group.consumers) == [b"bob"]


# --- retention by bytes, which no two engines count alike


def test_a_stream_is_kept_within_its_bytes() -> None:
    topic = Topic(keep=Keep(bytes=10_000))
    topic.claim("archive", 1)

    topic.publish(*("x" * 1000 for _ in range(50)))

    overview = topic.stats()
    assert 0 < overview.length < 10
    assert overview.bytes <= 10_000
    assert int(overview.fields["trimmed"]) == overview.groups[0].missed == 50 - overview.length


def test_an_entry_larger_than_the_bound_is_not_kept() -> None:
    topic = Topic(keep=Keep(bytes=500))

    topic.publish("x" * 1000)

    assert topic.stats().length == 0


def test_a_claim_takes_large_entries_few_at_a_time(topic: Topic) -> None:
    topic.publish(*("x" * (1 << 20) for _ in range(6)))

    first = topic.claim("archive")
    second = topic.claim("archive")

    assert (len(first.ids), first.next_in, len(second.ids)) == (4, 0, 2)


def test_a_claim_reads_large_entries_that_its_filter_skips_few_at_a_time(topic: Topic) -> None:
    topic.publish(*("x" * (1 << 20) for _ in range(6)))

    claimed = topic.claim("archive", feed=("0", "region", "eu"))

    assert (claimed.ids, claimed.next_in, topic.stats().groups[0].unread) == ([], 0, 2)


def test_a_claim_takes_large_entries_that_had_waited_few_at_a_time(topic: Topic) -> None:
    for number in range(12):
        topic.publish_later(5, f"{number}" + "x" * 1_000_000)
    topic.clock.set_us(NOW + 6 * SECOND)
    while topic.read("$").next_in == 0:
        pass

    claimed = topic.claim("archive", 100)

    assert (len(claimed.ids), claimed.next_in) == (5, 0)


# --- headers, whose order a server does not keep


def test_headers_of_a_delayed_entry_reach_a_group(topic: Topic) -> None:
    topic.publish_later(5, "a", headers={"region": "eu", "kind": "order"}, key="k")
    assert topic.claim("archive").next_in == pytest.approx(5, abs=0.001)
    topic.clock.set_us(NOW + 6 * SECOND)

    record = codec.read_record(topic.claim("archive").records[0])

    assert record.envelope.headers == {"region": "eu", "kind": "order"}
    assert (record.key, record.sent) == ("k", NOW)


def test_fields_of_another_program_are_the_body(topic: Topic) -> None:
    topic.run(topic_ops.publish(topic.keys, [Publication(("temperature", "21"))], FOR_EVER))

    envelope = codec.read_record(topic.claim("archive").records[0]).envelope

    assert envelope.content == codec.CONTENT_FIELDS
    assert codec.read_fields(envelope.body) == {"temperature": "21"}


def test_headers_of_an_entry_without_a_body_are_headers(topic: Topic) -> None:
    fields = ("temperature", "21", "key", "k", "sent", "5", "header:region", "us", "header:region", "eu")
    topic.run(topic_ops.publish(topic.keys, [Publication(fields)], FOR_EVER))

    record = codec.read_record(topic.claim("archive", feed=("0", "region", "eu")).records[0])

    assert codec.read_fields(record.envelope.body) == {"temperature": "21", "key": "k", "sent": "5"}
    assert (record.envelope.headers, record.key, record.sent) == ({"region": "eu"}, None, NOW)
    assert topic.claim("us", feed=("0", "region", "us")).ids == []  # of a name twice, the last counts


def test_bytes_that_are_not_text_are_escaped(topic: Topic) -> None:
    topic.run(
        topic_ops.publish(topic.keys, [Publication(("body", "1", "header:a", b"\xff", "key", b"\xfe"))], FOR_EVER)
    )

    record = codec.read_record(topic.claim("archive", feed=("0", "a", "\\xff")).records[0])

    assert (record.envelope.headers, record.key) == ({"a": "\\xff"}, "\\xfe")


# --- order, and places


def test_a_due_publish_enters_before_the_next_one(topic: Topic) -> None:
    topic.publish_later(5, "due")
    topic.clock.set_us(NOW + 6 * SECOND)

    topic.publish("later")

    assert topic.bodies() == [b'"due"', b"later"]


def test_a_position_that_is_still_to_come_is_the_end(topic: Topic) -> None:
    topic.publish("1")
    to_come = f"{NOW_MS + 60_000}-0"
    topic.claim("claimed", feed=(to_come,))
    topic.run(topic_ops.seek(topic.group("made"), to_come, makes=True))
    topic.run(topic_ops.seek(topic.group("moved"), "0", makes=True))
    topic.run(topic_ops.seek(topic.group("moved"), to_come, makes=False))

    topic.publish("2")

    assert [bodies_of(topic.claim(name)) for name in ("claimed", "made", "moved")] == [[b"2"]] * 3
    assert topic.read(to_come).entries == []


def test_a_thousand_enter_in_a_call(topic: Topic) -> None:
    topic.publish_later(5, *(f"{number}" for number in range(1500)))
    topic.clock.set_us(NOW + 6 * SECOND)

    assert [len(topic.read(limit=5000).entries) for _ in range(2)] == [1000, 1500]


def test_a_read_is_bounded_in_bytes_even_for_delayed_publishes(topic: Topic) -> None:
    for number in range(8):
        topic.publish_later(5, f"{number}" + "x" * 1_000_000)
    topic.clock.set_us(NOW + 6 * SECOND)
    while topic.read("$").next_in == 0:
        pass

    assert len(topic.read().entries) == 4


# --- freeing


def test_entries_go_when_every_group_has_acked_them(freeing: Topic) -> None:
    freeing.claim("archive"), freeing.claim("billing")
    freeing.publish("1", "2", "3")
    one, two = freeing.claim("archive"), freeing.claim("billing", 2)
    freeing.ack("archive", one)
    assert freeing.bodies() == [b"1", b"2", b"3"]

    freeing.ack("billing", two)

    assert freeing.bodies() == [b"3"]


def test_a_group_that_is_deleted_holds_nothing_back(freeing: Topic) -> None:
    freeing.publish("1")
    freeing.claim("slow", 1)
    freeing.ack("archive", freeing.claim("archive"))
    assert freeing.bodies() == [b"1"]

    assert freeing.run(ops.delete(freeing.group("slow"))) > 0

    assert freeing.bodies() == []


def test_nothing_is_freed_that_a_group_reads_again(freeing: Topic) -> None:
    freeing.claim("slow", 1)
    freeing.publish("1", "2", "3")
    first, _ = freeing.claim("archive", 1), freeing.claim("archive", 2)
    freeing.ack("archive", first)
    freeing.run(topic_ops.seek(freeing.group("archive"), "0", makes=False))

    freeing.ack("slow", freeing.claim("slow"))

    assert freeing.bodies() == [b"1", b"2", b"3"]


def test_a_claim_frees_nothing_that_it_delivers_again(freeing: Topic) -> None:
    freeing.publish("1", "2")
    freeing.claim("archive", 1)
    freeing.clock.set_us(NOW + 60 * SECOND)

    assert bodies_of(freeing.claim("archive")) == [b"1", b"2"]

    assert freeing.bodies() == [b"1", b"2"]
    assert freeing.stats().groups[0].pending == 2


def test_a_claim_frees_unneeded_entries_every_half_lease(freeing: Topic) -> None:
    freeing.publish("1")
    freeing.claim("archive", feed=("$",))
    freeing.claim("archive")
    freeing.clock.set_us(NOW + 14 * SECOND)
    freeing.claim("archive")
    assert freeing.bodies() == [b"1"]
    freeing.clock.set_us(NOW + 16 * SECOND)

    freeing.claim("archive")

    assert freeing.bodies() == []


# --- names


def test_topics_are_not_queues_and_groups_are_neither(topic: Topic) -> None:
    topic.claim("archive")

    assert topic.engine.topics("duly") == ["events"]
    assert topic.engine.queues("duly") == []
    assert topic.engine.topics("other") == []


def test_a_deleted_topic_is_named_no_more(topic: Topic) -> None:
    topic.publish("1")

    assert topic.run(topic_ops.delete(topic.keys)) == 1
    assert topic.engine.topics("duly") == []


# --- waking


class Waiters:
    """Readers that wait behind a position of the topic, and those that were called."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.called: list[str] = []

    def wait(self, name: str, group: str) -> None:
        assert self.topic.claim(group, consumer=name).position is not None
        self.watch(name, group)

    def watch(self, name: str, group: str) -> None:
        self.topic.engine.subscribe(self.topic.group(group), lambda: self.called.append(name))

    def read(self, name: str) -> None:
        position = self.topic.read("$").position
        self.topic.engine.subscribe_behind(self.topic.keys, position[0], lambda: self.called.append(name))


@pytest.fixture
def waiters(topic: Topic) -> Waiters:
    return Waiters(topic)


def test_an_entry_wakes_a_member_of_each_group_and_all_readers(topic: Topic, waiters: Waiters) -> None:
    waiters.wait("ann", "archive")
    waiters.wait("bob", "archive")
    waiters.wait("cy", "billing")
    waiters.read("dee")
    waiters.read("eve")

    topic.publish("1")
    assert sorted(waiters.called) == ["ann", "cy", "dee", "eve"]
    topic.publish("2")

    assert sorted(waiters.called) == ["ann", "bob", "cy", "dee", "eve"]


def test_a_message_that_a_group_gets_back_wakes_its_members_only(topic: Topic, waiters: Waiters) -> None:
    topic.publish("1")
    held = topic.claim("archive")
    waiters.wait("ann", "archive")
    topic.claim("billing")
    waiters.wait("cy", "billing")
    waiters.read("dee")

    topic.run(ops.release(topic.group("archive"), [ops.Settle(held.ids[0].decode(), held.fence)]))

    assert waiters.called == ["ann"]


def test_a_publish_that_is_due_earlier_than_others_wakes_groups_and_readers(topic: Topic, waiters: Waiters) -> None:
    topic.publish_later(60, "late")
    waiters.wait("ann", "archive")
    waiters.read("dee")

    topic.publish_later(90, "later still")
    assert waiters.called == []
    topic.publish_later(5, "soon")

    assert sorted(waiters.called) == ["ann", "dee"]


def test_a_group_whose_clock_is_ahead_of_its_topic_waits_for_a_delayed_publish(topic: Topic, waiters: Waiters) -> None:
    topic.publish_later(60, "late")
    topic.publish("1", "2", "3")
    topic.claim("archive")  # each entry has its own tick
    claimed = topic.claim("archive")
    assert claimed.next_in is not None

    claims_at = claimed.now + round(claimed.next_in * SECOND)
    topic.engine.subscribe(topic.group("archive"), lambda: waiters.called.append("ann"), claims_at)

    assert waiters.called == []


def test_a_delayed_publish_that_one_group_lets_in_wakes_the_others(topic: Topic, waiters: Waiters) -> None:
    topic.publish_later(5, "soon")
    waiters.wait("cy", "billing")
    topic.clock.set_us(NOW + 6 * SECOND)

    assert bodies_of(topic.claim("archive")) == [b'"soon"']

    assert waiters.called == ["cy"]


@pytest.mark.parametrize("event", ["publish", "resume", "seek"])
def test_a_change_between_a_claim_and_the_wait_is_not_missed(topic: Topic, waiters: Waiters, event: str) -> None:
    keys = topic.group("archive")
    if event == "resume":
        topic.run(ops.pause(keys, "me"))
    topic.claim("archive")
    happen: dict[str, Callable[[], Any]] = {
        "publish": lambda: topic.publish("1"),
        "resume": lambda: topic.run(ops.resume(keys)),
        "seek": lambda: topic.run(topic_ops.seek(keys, "0", makes=False)),
    }
    if event != "publish":
        topic.publish("0")
    if event == "seek":
        topic.claim("archive")
    happen[event]()

    waiters.watch("ann", "archive")

    assert waiters.called == ["ann"]


def test_no_waiter_is_woken_by_an_entry_that_it_knows(topic: Topic, waiters: Waiters) -> None:
    topic.publish("1")
    topic.claim("archive")

    waiters.wait("ann", "archive")
    waiters.read("dee")

    assert waiters.called == []


def test_a_waiter_that_was_removed_is_not_called(topic: Topic) -> None:
    topic.claim("archive")
    called: list[int] = []
    callback = lambda: called.append(1)  # noqa: E731
    topic.engine.subscribe(topic.group("archive"), callback)

    assert topic.engine.unsubscribe(topic.group("archive"), callback)
    topic.publish("1")

    assert called == []


def test_a_thread_waits_for_an_entry(topic: Topic) -> None:
    carrier = link.MemoryLink(topic.engine)
    position = carrier.run(topic.claiming("archive")).position
    assert position is not None
    woken: list[bool] = []
    thread = threading.Thread(
        target=lambda: woken.append(carrier.wait_for_entry(topic.group("archive"), position, 30)), daemon=True
    )
    thread.start()

    topic.publish("1")
    thread.join(10)

    assert woken == [True]


async def test_a_waiting_task_is_woken_for_an_entry_that_is_there(topic: Topic) -> None:
    carrier = link.MemoryLink(topic.engine)
    reading = carrier.run(topic_ops.read(topic.keys, "$", 1))
    topic.publish("1")

    assert await carrier.await_for_entry(topic.keys, reading.position, 30)
    assert not await carrier.await_for_entry(topic.keys, topic.read("$").position, 0)


def test_a_repeated_publish_adds_nothing_and_wakes_no_reader(topic: Topic, waiters: Waiters) -> None:
    call = topic_ops.publish(topic.keys, [Publication(("body", "1"))], FOR_EVER)
    ids = topic.engine.call(call, b"other", 1)
    topic.claim("archive")
    waiters.wait("ann", "archive")

    assert topic.engine.call(call, b"other", 1) == ids

    assert (topic.bodies(), waiters.called) == ([b"1"], [])
