"""Topics: publishing, reading without a group, and inspection."""

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duly import AsyncDuly, AsyncGroup, AsyncTopic, Entry, Keep, NotDurable, Send, TopicOptions
from tests.client._async.given import (
    SOON,
    InBackground,
    check_accounts,
    given_blocked,
    take,
    take_bodies,
    take_one,
    until,
)
from tests.client.place import Place

ENTRY_ID = re.compile(r"\d{13}-\d+")
ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")


def number_of(id_: str) -> tuple[int, int]:
    milliseconds, _, number = id_.partition("-")
    return int(milliseconds), int(number)


async def read_bodies(events: AsyncTopic, *args: Any, **options: Any) -> list[Any]:
    return [entry.body for entry in await events.read(*args, **options)]


# Publishing


async def test_a_published_entry_is_in_the_stream_under_the_returned_id(events: AsyncTopic, place: Place) -> None:
    id_ = await events.publish({"total": 5}, key="k", headers={"region": "eu", "ü": "中"})

    (entry,) = await events.read()
    assert ENTRY_ID.fullmatch(id_)
    assert (entry.id, entry.topic, entry.body, entry.raw) == (id_, events.name, {"total": 5}, b'{"total":5}')
    assert (entry.key, entry.headers) == ("k", {"region": "eu", "ü": "中"})
    assert entry.published_at.timestamp() == pytest.approx(place.now(), abs=5)


async def test_publish_many_gives_growing_ids_in_the_order_given(events: AsyncTopic) -> None:
    ids = await events.publish_many(range(1500))

    assert len(set(ids)) == 1500
    assert ids == sorted(ids, key=number_of)
    assert [(entry.id, entry.body) for entry in await events.read(limit=1000)] == list(zip(ids, range(1000)))  # noqa: B905
    assert await read_bodies(events, after=ids[999], limit=1000) == list(range(1000, 1500))


async def test_publish_many_takes_sends_and_bodies_and_returns_ids_in_their_order(
    events: AsyncTopic, clock: Place
) -> None:
    ids = await events.publish_many(["a", Send("later", delay=60), Send("b", key="k", headers={"n": "1"}), "c"])

    assert [bool(ENTRY_ID.fullmatch(id_)) for id_ in ids] == [True, False, True, True]
    assert ULID.fullmatch(ids[1])
    assert [(entry.id, entry.key) for entry in await events.read()] == [(ids[0], None), (ids[2], "k"), (ids[3], None)]
    clock.advance(61)
    assert await read_bodies(events) == ["a", "b", "c", "later"]


async def test_publish_many_of_nothing_is_nothing(events: AsyncTopic, app: AsyncDuly) -> None:
    assert await events.publish_many([]) == []

    assert events.name not in await app.topics()


async def test_publish_takes_a_send(events: AsyncTopic) -> None:
    await events.publish(Send("body", key="k"))

    assert [(entry.body, entry.key) for entry in await events.read()] == [("body", "k")]


async def test_publishing_from_two_apps_makes_one_stream(events: AsyncTopic, other_app: AsyncDuly) -> None:
    await events.publish("a")
    await other_app.topic(events.name).publish("b")

    assert await read_bodies(events) == ["a", "b"]


async def test_topics_of_different_names_and_namespaces_know_nothing_of_each_other(
    events: AsyncTopic, app: AsyncDuly, backend: str
) -> None:
    await events.publish("here")
    async with AsyncDuly(backend, namespace="elsewhere") as elsewhere:
        assert await elsewhere.topic(events.name).read() == []
        assert events.name not in await elsewhere.topics()
    assert await app.topic(f"{events.name}-2").read() == []


async def test_a_topic_and_a_queue_may_have_the_same_name(events: AsyncTopic, app: AsyncDuly) -> None:
    queue = app.queue(events.name)
    await queue.send("to the queue")
    await events.publish("to the topic")

    assert await take_bodies(queue) == ["to the queue"]
    assert await take_bodies(events.group("g")) == ["to the topic"]
    assert events.name in await app.topics()
    assert [name for name in await app.queues() if events.name in name] == [events.name]


# Later


@pytest.mark.parametrize("how", ["delay", "timedelta", "datetime", "epoch"])
async def test_a_delayed_publish_enters_the_stream_at_its_time_and_not_before(
    events: AsyncTopic, clock: Place, how: str
) -> None:
    at = datetime.now(UTC) + timedelta(seconds=100)
    ways: dict[str, dict[str, Any]] = {
        "delay": {"delay": 100},
        "timedelta": {"delay": timedelta(seconds=100)},
        "datetime": {"at": at},
        "epoch": {"at": at.timestamp()},
    }
    ulid = await events.publish("later", key="k", headers={"a": "b"}, **ways[how])
    assert ULID.fullmatch(ulid)
    assert [(m.id, m.state, m.body, m.key, m.headers) for m in await events.delayed()] == [
        (ulid, "delayed", "later", "k", {"a": "b"})
    ]

    clock.advance(90)
    early = await events.read()
    clock.advance(11)
    (entry,) = await events.read()

    assert early == []
    assert ENTRY_ID.fullmatch(entry.id)
    assert (entry.body, entry.key, entry.headers) == ("later", "k", {"a": "b"})
    assert entry.published_at.timestamp() == pytest.approx(clock.now() - 101, abs=5)
    assert await events.delayed() == []


async def test_delayed_publishes_enter_by_their_time(events: AsyncTopic, clock: Place) -> None:
    for delay in (30, 10, 20):
        await events.publish(delay, delay=delay)
    await events.publish(0)
    clock.advance(31)

    assert await take_bodies(events.group("g")) == [0, 10, 20, 30]


async def test_a_delayed_publish_reaches_every_group_by_a_receive_alone(
    archive: AsyncGroup, live: AsyncGroup, clock: Place
) -> None:
    await archive.create()
    await archive.topic.publish("later", delay=10)
    assert await take(archive) == []
    clock.advance(11)

    assert await take_bodies(archive) == ["later"]
    assert await take_bodies(live) == ["later"]


async def test_more_delayed_publishes_than_enter_in_one_step_all_arrive(archive: AsyncGroup, clock: Place) -> None:
    await archive.topic.publish_many([Send(number, delay=10 + number / 1000) for number in range(350)])
    clock.advance(11)

    found: list[Any] = []
    while bodies := await take_bodies(archive, limit=1000):
        found += bodies

    assert found == list(range(350))


async def test_a_delayed_publish_can_be_cancelled_until_it_enters(events: AsyncTopic, clock: Place) -> None:
    cancelled = await events.publish("cancelled", delay=10)
    entered = await events.publish("entered", delay=10)

    assert await events.cancel(cancelled) is True
    assert await events.cancel(cancelled) is False
    clock.advance(11)
    assert await read_bodies(events) == ["entered"]

    assert await events.cancel(entered) is False
    assert await events.cancel("unknown") is False


async def test_a_delayed_publish_can_be_inspected_until_it_enters(events: AsyncTopic, clock: Place) -> None:
    id_ = await events.publish("later", delay=60, key="k", headers={"h": "1"})

    message = await events.get(id_)

    assert message is not None
    assert [message] == await events.delayed()
    assert (message.id, message.queue, message.state) == (id_, events.name, "delayed")
    assert (message.body, message.key, message.headers) == ("later", "k", {"h": "1"})
    clock.advance(61)
    (entry,) = await events.read()
    assert await events.get(id_) is None
    assert await events.get(entry.id) is None  # that is for read, and for groups


async def test_a_delayed_publish_can_be_rescheduled_and_promoted(events: AsyncTopic, clock: Place) -> None:
    first, second, third = [await events.publish(n, delay=1000, key="k") for n in (1, 2, 3)]

    assert await events.promote(second) is True
    assert await events.reschedule(third, delay=10) is True
    assert await events.reschedule(first, at=clock.now() + 20) is True

    assert [entry.body for entry in await events.read()] == [2]
    clock.advance(12)
    assert [entry.body for entry in await events.read()] == [2, 3]
    clock.advance(12)
    assert [entry.body for entry in await events.read()] == [2, 3, 1]
    for id_ in (first, "unknown", (await events.read())[0].id):
        assert await events.promote(id_) is False
        assert await events.reschedule(id_, delay=5) is False


async def test_a_waiting_member_receives_a_publish_that_is_promoted(events: AsyncTopic, place: Place) -> None:
    id_ = await events.publish("soon", delay=1000)
    (member,) = await given_blocked(place, events.group("g"))

    await events.promote(id_)

    assert [d.body for d in await member.result()] == ["soon"]


async def test_the_states_of_a_topic_are_explained(events: AsyncTopic, clock: Place) -> None:
    cancelled, delayed = [await events.publish("later", delay=60) for _ in range(2)]
    await events.cancel(cancelled)
    entry = await events.publish("now")
    due = (await events.delayed())[0].due_at
    assert due is not None
    moment, head = due.isoformat(timespec="milliseconds"), f"of topic {events.name!r} "
    without_group = await events.explain(entry)
    for name in ("live", "archive"):
        await events.group(name).create()

    said = {
        id_: (await events.explain(id_)).removeprefix(f"message {id_} {head}") for id_ in (cancelled, delayed, entry)
    }

    assert said[delayed] == f"waits in the topic: it enters the stream at {moment}."
    assert said[entry] == "is in the stream: explain(id) of the groups 'archive', 'live' shows what they did with it."
    assert without_group == f"message {entry} {head}is in the stream: there is no group to read it."
    assert said[cancelled].startswith(
        "is unknown: it was never published with a delay, or was cancelled, or has entered"
    )
    assert "unknown: it was never published, or was trimmed, or was freed" in await events.explain("1-1")
    clock.advance(61)
    assert f"{head}was delayed until {moment}: it enters the stream with the next" in await events.explain(delayed)


async def test_an_entry_of_the_stream_is_not_cancelled(events: AsyncTopic) -> None:
    id_ = await events.publish("body")

    assert await events.cancel(id_) is False
    assert await read_bodies(events) == ["body"]


async def test_delayed_publishes_are_listed_in_pages(events: AsyncTopic) -> None:
    ids = [await events.publish(number, delay=60 + number) for number in range(5)]

    first = await events.delayed(limit=3)
    rest = await events.delayed(limit=3, after=first[-1])

    assert [message.id for message in (*first, *rest)] == ids
    assert await events.delayed(after=rest[-1]) == []
    assert [message.id for message in await events.delayed(after=ids[3])] == ids[4:]


async def test_a_time_that_has_passed_is_now(events: AsyncTopic) -> None:
    await events.publish("body", at=datetime.now(UTC) - timedelta(days=1))

    assert await read_bodies(events) == ["body"]


async def test_a_delay_of_nothing_is_now(events: AsyncTopic) -> None:
    assert ENTRY_ID.fullmatch(await events.publish("body", delay=0))


# Once


async def test_a_dedup_value_within_its_window_gives_the_first_id_and_stores_nothing(
    events: AsyncTopic, clock: Place
) -> None:
    first = await events.publish("first", dedup="order-1")
    clock.advance(290)
    second = await events.publish("second", dedup="order-1")
    other = await events.publish("other", dedup="order-2")

    assert second == first
    assert other != first
    assert await read_bodies(events) == ["first", "other"]
    assert (await events.stats()).duplicates == 1


async def test_a_dedup_value_is_free_after_its_window(events: AsyncTopic, clock: Place) -> None:
    first = await events.publish("first", dedup="d", dedup_for=10)
    clock.advance(11)

    assert await events.publish("second", dedup="d") != first

    assert await read_bodies(events) == ["first", "second"]


async def test_a_dedup_value_outlives_the_ack_and_the_entry(app: AsyncDuly, queue_name: str) -> None:
    events = app.topic(queue_name, keep=None)
    group = events.group("g")
    first = await events.publish("first", dedup="d")
    assert await take_bodies(group) == ["first"]

    assert await events.publish("again", dedup="d") == first

    assert await take(group) == []


async def test_a_delayed_and_an_immediate_publish_share_dedup_values(events: AsyncTopic, clock: Place) -> None:
    later = await events.publish("later", delay=60, dedup="a")
    now = await events.publish("now", dedup="b")

    assert await events.publish("again", dedup="a") == later
    assert await events.publish("again", dedup="a", delay=5) == later
    assert await events.publish("again", dedup="b", delay=5) == now

    clock.advance(61)
    assert await read_bodies(events) == ["now", "later"]


async def test_dedup_holds_within_one_publish_many(events: AsyncTopic) -> None:
    ids = await events.publish_many([Send("a", dedup="d"), Send("b", dedup="d"), Send("c")])

    assert ids[0] == ids[1] != ids[2]
    assert await read_bodies(events) == ["a", "c"]


@pytest.mark.parametrize("delay", [None, 60])
async def test_a_publish_that_is_not_durable_enough_raises_and_is_stored(
    events: AsyncTopic, delay: float | None
) -> None:
    """Neither memory nor the servers here sync each write; one that does is in the fault tests."""
    with pytest.raises(NotDurable, match=r"1 message.*stored.*not confirmed") as told:
        await events.publish("body", delay=delay, durable="fsync")

    found = [entry.id for entry in await events.read()] + [message.id for message in await events.delayed()]
    assert told.value.ids == found


# Reading


async def test_reading_changes_nothing_and_may_be_repeated(events: AsyncTopic) -> None:
    await events.publish_many(["a", "b"])

    assert await events.read() == await events.read()
    assert await take_bodies(events.group("g")) == ["a", "b"]


async def test_read_continues_behind_an_id(events: AsyncTopic) -> None:
    ids = await events.publish_many(["a", "b", "c", "d"])

    assert await read_bodies(events, after=ids[1]) == ["c", "d"]
    assert await read_bodies(events, after=ids[0], limit=2) == ["b", "c"]
    assert await read_bodies(events, after=ids[3]) == []
    assert await read_bodies(events, after="beginning", limit=1) == ["a"]
    assert await read_bodies(events, after="0") == list("abcd")


async def test_read_begins_at_a_time(events: AsyncTopic, clock: Place) -> None:
    await events.publish("old")
    clock.advance(100)
    await events.publish("young")

    assert await read_bodies(events, after=datetime.fromtimestamp(clock.now() - 50, UTC)) == ["young"]
    assert await read_bodies(events, after=datetime.fromtimestamp(clock.now() - 150, UTC)) == ["old", "young"]
    assert await read_bodies(events, after=datetime.fromtimestamp(clock.now() + 50, UTC)) == []


async def test_read_from_the_time_of_an_entry_has_that_entry(events: AsyncTopic) -> None:
    await events.publish("body")
    (entry,) = await events.read()

    assert await read_bodies(events, after=entry.published_at) == ["body"]


async def test_read_without_a_wait_returns_at_once(events: AsyncTopic) -> None:
    began = time.monotonic()

    assert await events.read() == []
    assert await events.read(after="new") == []

    assert time.monotonic() - began < SOON


async def test_read_waits_as_long_as_asked(events: AsyncTopic) -> None:
    began = time.monotonic()

    assert await events.read(wait=0.3) == []

    assert 0.3 <= time.monotonic() - began < SOON


@pytest.mark.parametrize("after", [None, "new"])
async def test_a_read_that_waits_is_woken_by_a_publish(events: AsyncTopic, place: Place, after: str | None) -> None:
    reader = InBackground(lambda: events.read(after=after, wait=20))
    await until(lambda: place.blocked() == 1)

    await events.publish("body")

    assert [entry.body for entry in await reader.result()] == ["body"]


async def test_new_means_entries_after_the_call(events: AsyncTopic, place: Place) -> None:
    await events.publish("old")
    reader = InBackground(lambda: events.read(after="new", wait=20))
    await until(lambda: place.blocked() == 1)

    await events.publish("new")

    assert [entry.body for entry in await reader.result()] == ["new"]


async def test_a_read_that_waits_is_woken_by_a_delayed_publish(events: AsyncTopic, place: Place) -> None:
    reader = InBackground(lambda: events.read(wait=20))
    await until(lambda: place.blocked() == 1)

    await events.publish("soon", delay=0.2)

    assert [entry.body for entry in await reader.result()] == ["soon"]


async def test_all_readers_get_all_entries(events: AsyncTopic, other_app: AsyncDuly, place: Place) -> None:
    other = other_app.topic(events.name)
    readers = [InBackground(lambda: events.read(wait=20)), InBackground(lambda: other.read(wait=20))]
    await until(lambda: place.blocked() == 2)

    await events.publish("body")

    assert [[entry.body for entry in await reader.result()] for reader in readers] == [["body"], ["body"]]


async def test_an_entry_that_does_not_decode_is_shown_raw(app: AsyncDuly, events: AsyncTopic) -> None:
    await events.publish("text")

    (entry,) = await app.topic(events.name, type=int).read()

    assert (entry.body, entry.raw) == (b'"text"', b'"text"')


# Inspection


async def test_a_topic_that_was_never_used_is_empty(events: AsyncTopic, app: AsyncDuly) -> None:
    stats = await events.stats()

    assert (stats.length, stats.bytes, stats.delayed, stats.published, stats.groups) == (0, 0, 0, 0, 0)
    assert (stats.first_id, stats.last_id, stats.duplicates, stats.trimmed) == (None, None, 0, 0)
    assert await events.groups() == []
    assert await events.delayed() == []
    assert events.name not in await app.topics()


async def test_stats_of_a_topic_count_entries_by_state(events: AsyncTopic, clock: Place) -> None:
    ids = await events.publish_many(["a" * 5000, "b", Send("c", delay=10), Send("d", delay=100)])
    await events.group("one").create()
    await events.group("two").create()
    clock.advance(11)
    await events.read()

    stats = await events.stats()

    assert (stats.length, stats.delayed, stats.published, stats.groups) == (3, 1, 3, 2)
    assert stats.first_id == ids[0]
    assert stats.last_id == (await events.read())[-1].id
    assert stats.bytes > 5000


async def test_an_app_names_its_topics(app: AsyncDuly, queue_name: str) -> None:
    published, created = app.topic(f"{queue_name}-p"), app.topic(f"{queue_name}-c")
    await published.publish("body")
    await created.group("g").create()

    found = [name for name in await app.topics() if name.startswith(queue_name)]

    assert sorted(found) == [created.name, published.name]


async def test_a_topic_has_a_name_options_and_a_stream(app: AsyncDuly, queue_name: str) -> None:
    events = app.topic(queue_name, lease=5, keep=Keep(count=3))

    assert (events.name, events.stream) == (queue_name, f"duly:{{@{queue_name}}}:stream")
    assert events.options == TopicOptions(lease=5, keep=Keep(count=3))
    assert repr(events).startswith(f"<{type(events).__name__} {queue_name!r}")
    assert app.topic(queue_name).options.keep == Keep(age=7 * 86400)


async def test_a_deleted_topic_leaves_nothing(events: AsyncTopic, app: AsyncDuly, place: Place) -> None:
    one, two = events.group("one"), events.group("two")
    await events.publish_many(["a", "b", Send("later", delay=60), Send("d", dedup="d")])
    held = await take(one)
    await held[1].retry(delay=60)
    await (await take(two))[0].reject("no use")

    await events.delete()

    assert [key for key, ttl in place.keys(f"@{events.name}").items() if ttl < 0] == []
    assert events.name not in await app.topics()
    assert (await events.groups(), await events.read(), await events.delayed()) == ([], [], [])
    assert await take(one) == []
    for group in (one, two):
        assert (await group.stats()).sent == 0
        await check_accounts(group)


async def test_a_deleted_topic_can_be_used_again(events: AsyncTopic) -> None:
    group = events.group("g")
    await events.publish("old", dedup="d")
    held = await take_one(group)
    await events.delete()

    await events.publish("new", dedup="d")

    assert await take_bodies(group) == ["new"]
    assert held.body == "old"


async def test_an_entry_is_a_plain_value(events: AsyncTopic) -> None:
    await events.publish("body")
    (entry,) = await events.read()

    assert entry == Entry(entry.id, events.name, "body", b'"body"', {}, None, entry.published_at)
