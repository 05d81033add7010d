"""Inspecting and managing groups: pending, stats, seek, pause, purge, audit, delete."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duly import AsyncDuly, AsyncGroup, AsyncTopic, GroupInfo, Keep, LeaseLost, Message, Send, UsageError
from tests.client._async.given import (
    check_accounts,
    counted,
    given_read,
    seen,
    take,
    take_bodies,
    take_one,
)
from tests.client.place import Place, ServerPlace


def of_other_app(group: AsyncGroup, other_app: AsyncDuly) -> AsyncGroup:
    """Return another member of a group."""
    return other_app.topic(group.topic.name).group(group.name)


# Holders


async def test_pending_of_a_group_that_does_not_exist_is_nothing(archive: AsyncGroup) -> None:
    found = await archive.pending()

    assert (found.total, found.min_id, found.max_id, found.consumers, found.messages) == (0, None, None, {}, ())


async def test_pending_lists_the_holder_of_each_message(
    archive: AsyncGroup, other_app: AsyncDuly, clock: Place
) -> None:
    ids = await archive.topic.publish_many(range(5))
    other = of_other_app(archive, other_app)
    mine = await take(archive, limit=2, lease=60)
    clock.advance(10)
    theirs = await take(other, limit=2, lease=30)

    found = await archive.pending()

    me, them = archive._link.consumer, other._link.consumer
    assert (found.total, found.min_id, found.max_id) == (4, ids[0], ids[3])
    assert found.consumers == {me: 2, them: 2}
    assert [(row.id, row.consumer, row.attempt, row.deliveries) for row in found.messages] == [
        (ids[0], me, 1, 1), (ids[1], me, 1, 1), (ids[2], them, 1, 1), (ids[3], them, 1, 1),
    ]  # fmt: skip
    assert [row.idle for row in found.messages] == pytest.approx([10, 10, 0, 0], abs=3)
    assert [row.deadline_in for row in found.messages] == pytest.approx([50, 50, 30, 30], abs=3)
    assert {row.fence for row in found.messages} == {mine[0].fence, theirs[0].fence}


async def test_a_member_has_one_name_from_its_first_receive_on(archive: AsyncGroup, other_app: AsyncDuly) -> None:
    await archive.topic.publish_many(range(2))
    member = of_other_app(archive, other_app)
    for _ in range(2):
        await take(member, limit=1)

    assert list((await archive.pending()).consumers.values()) == [2]
    assert [info.consumers for info in await archive.topic.groups()] == [1]


async def test_pending_by_consumer_range_idle_time_and_limit(
    archive: AsyncGroup, other_app: AsyncDuly, clock: Place
) -> None:
    ids: Sequence[str] = await archive.topic.publish_many(range(6))
    other = of_other_app(archive, other_app)
    await take(archive, limit=3)
    clock.advance(10)
    await take(other)
    me, them = archive._link.consumer, other._link.consumer

    async def rows(*args: Any, **options: Any) -> list[int]:
        return [ids.index(row.id) for row in (await archive.pending(*args, **options)).messages]

    assert await rows(them) == [3, 4, 5]
    assert await rows(consumer="nobody") == []
    assert await rows(start=ids[2], end=ids[4]) == [2, 3, 4]
    assert await rows(start=ids[4]) == [4, 5]
    assert await rows(end=ids[0]) == [0]
    assert await rows(me, end=ids[1]) == [0, 1]
    assert await rows(min_idle=5) == [0, 1, 2]
    assert await rows(min_idle=timedelta(seconds=60)) == []
    assert await rows(limit=2) == [0, 1]
    assert (await archive.pending(limit=0)).total == 6


@pytest.mark.parametrize("verb", ["ack", "release", "retry", "defer", "reject", "recycle"])
async def test_a_settled_message_is_not_pending(archive: AsyncGroup, verb: str) -> None:
    held = await given_read(archive)

    await getattr(held, verb)(*{"defer": (60,), "reject": ("no use",)}.get(verb, ()))

    assert (await archive.pending()).total == 0
    (info,) = await archive.topic.groups()
    assert info.pending == 0


async def test_an_extended_lease_has_another_deadline(archive: AsyncGroup, clock: Place) -> None:
    held = await given_read(archive, lease=30)
    clock.advance(20)

    await held.extend(60)

    (row,) = (await archive.pending()).messages
    assert row.deadline_in == pytest.approx(60, abs=3)


async def test_a_delivery_after_a_crash_is_counted_in_pending(archive: AsyncGroup, clock: Place) -> None:
    await given_read(archive, lease=10)
    clock.advance(11)
    await take_one(archive)

    (row,) = (await archive.pending()).messages

    assert (row.attempt, row.deliveries) == (2, 2)


# Counts


async def test_stats_of_a_group_that_does_not_exist_are_zero(archive: AsyncGroup) -> None:
    await archive.topic.publish("body")

    assert await counted(archive) == {}
    assert await archive.topic.groups() == []


async def test_unread_entries_are_ready_and_not_yet_sent_to_the_group(archive: AsyncGroup) -> None:
    await archive.create()
    await archive.topic.publish_many(range(5))
    before = await archive.stats()

    await take(archive, limit=2)

    after = await archive.stats()
    assert (before.ready, before.unread, before.sent, before.leased) == (5, 5, 0, 0)
    assert (after.ready, after.unread, after.sent, after.leased) == (3, 3, 2, 2)
    await check_accounts(archive)


async def test_stats_of_a_group_count_messages_by_state(archive: AsyncGroup) -> None:
    dead, delayed, ready, acked = [await given_read(archive, body) for body in ("dead", "delayed", "ready", "acked")]
    await dead.reject("no use")
    await delayed.defer(60)
    await ready.release()
    await acked.ack()
    await archive.topic.publish_many([Send("a1", key="a"), Send("a2", key="a"), "unread"])
    held = await take(archive, limit=3)

    stats = await archive.stats()

    assert [d.body for d in held] == ["ready", "a1", "unread"]
    assert (stats.ready, stats.delayed, stats.leased, stats.parked, stats.dead) == (0, 1, 3, 1, 1)
    assert (stats.sent, stats.delivered, stats.acked, stats.released, stats.deferred) == (7, 7, 1, 1, 1)
    await check_accounts(archive)


async def test_stats_of_a_group_show_the_age_of_the_oldest_and_the_time_to_the_next(
    archive: AsyncGroup, clock: Place
) -> None:
    await archive.create()
    await archive.topic.publish("unread")
    clock.advance(40)
    of_unread = await archive.stats()
    held = await take_one(archive)
    lateness = (await archive.stats()).lateness
    await held.defer(100)
    clock.advance(30)

    of_delayed = await archive.stats()

    assert of_unread.oldest_age == pytest.approx(40, abs=5)
    assert lateness == pytest.approx(40, abs=5)
    assert of_delayed.next_due_in == pytest.approx(70, abs=5)
    assert of_delayed.oldest_age == 0


async def test_stats_of_a_group_count_the_bytes_of_live_and_dead_messages(archive: AsyncGroup) -> None:
    live, dead = await given_read(archive, b"x" * 1000), await given_read(archive, b"x" * 2000)
    await dead.reject("no use")

    stats = await archive.stats()
    await live.ack()

    assert [size // 1000 for size in (stats.bytes, stats.dead_bytes)] == [1, 2]
    assert (await archive.stats()).bytes == 0


async def test_messages_of_a_group_are_listed_in_pages(archive: AsyncGroup) -> None:
    await archive.topic.publish_many(range(5))
    for d in await take(archive):
        await d.release()

    first = await archive.list("ready", limit=3)
    rest = await archive.list("ready", limit=3, after=first[-1])

    assert [m.body for m in (*first, *rest)] == [0, 1, 2, 3, 4]
    assert await archive.list("ready", after=rest[-1]) == []


async def test_groups_lists_each_group_by_name(events: AsyncTopic, other_app: AsyncDuly) -> None:
    ids = await events.publish_many(range(4))
    await events.group("zero").create()
    held = await take(events.group("some"), limit=3)
    await held[0].reject("no use")
    await held[1].retry(60)
    await take(other_app.topic(events.name).group("some"), limit=1)

    some, zero = await events.groups()

    assert some == GroupInfo(
        name="some", unread=0, pending=2, consumers=2, last_id=ids[3], missed=0, ready=0, delayed=1, parked=0, dead=1
    )
    assert zero == GroupInfo(
        name="zero", unread=4, pending=0, consumers=0, last_id="0-0", missed=0, ready=4, delayed=0, parked=0, dead=0
    )


async def test_unread_is_right_after_a_seek_and_after_a_trim(app: AsyncDuly, queue_name: str) -> None:
    events = app.topic(queue_name, keep=Keep(count=4))
    group = events.group("g")
    ids = await events.publish_many(range(4))
    await take(group, limit=2)

    await events.publish(4)
    after_trim = (await group.stats()).unread
    await group.seek(ids[3])
    after_seek = (await group.stats()).unread
    await group.seek("beginning")

    assert (after_trim, after_seek, (await group.stats()).unread) == (3, 1, 4)


async def test_messages_of_a_group_are_listed_and_found(archive: AsyncGroup) -> None:
    first, second = await given_read(archive, 1), await given_read(archive, 2)
    await first.defer(60)

    assert [m.id for m in await archive.list("leased")] == [second.id]
    assert [m.id for m in await archive.list("delayed")] == [first.id]
    message = await seen(archive, second.id)
    assert isinstance(message, Message)
    assert (message.state, message.queue, message.body) == ("leased", archive.label, 2)
    assert message.consumer == archive._link.consumer
    assert await archive.get("1-1") is None


async def test_an_unread_entry_is_a_ready_message_of_the_group(archive: AsyncGroup, live: AsyncGroup) -> None:
    await archive.create()
    id_ = await archive.topic.publish({"n": 1}, key="k", headers={"trace": "t"})

    message = await seen(archive, id_)

    assert (message.id, message.queue, message.state) == (id_, archive.label, "ready")
    assert (message.body, message.raw, message.key) == ({"n": 1}, b'{"n":1}', "k")
    assert (message.headers, message.deliveries, message.attempt) == ({"trace": "t"}, 0, 1)
    assert message.sent_at == (await archive.topic.read())[0].published_at
    assert [event.what for event in message.timeline] == ["sent"]
    assert await archive.list("ready") == [message]
    assert await live.get(id_) is None  # that one does not exist
    assert await live.list("ready") == []


async def test_an_unread_entry_can_be_neither_cancelled_nor_rescheduled(archive: AsyncGroup) -> None:
    await archive.create()
    id_ = await archive.topic.publish("body")

    assert await archive.cancel(id_) is False
    assert await archive.reschedule(id_, delay=60) is False
    assert await archive.promote(id_) is False

    assert await take_bodies(archive) == ["body"]


@pytest.mark.parametrize("by", [lambda message: message, lambda message: message.id], ids=["message", "id"])
async def test_pages_of_ready_messages_continue_with_unread_entries(archive: AsyncGroup, by: Any) -> None:
    await archive.topic.publish_many(range(9))
    for held in await take(archive, limit=4):
        await (held.ack() if held.body == 0 else held.release())

    found: list[Any] = []
    page = await archive.list("ready", limit=2)
    while page:
        found += [message.body for message in page]
        page = await archive.list("ready", limit=2, after=by(page[-1]))

    assert found == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [message.body for message in await archive.list("ready", limit=100)] == found
    assert (await archive.stats()).ready == len(found)


async def test_a_page_continues_behind_an_unread_entry_that_was_read_in_the_meantime(archive: AsyncGroup) -> None:
    await archive.create()
    await archive.topic.publish_many(range(6))
    first = await archive.list("ready", limit=2)
    await take(archive, limit=4)

    rest = await archive.list("ready", limit=10, after=first[-1])

    assert [message.body for message in (*first, *rest)] == [0, 1, 4, 5]
    with pytest.raises(UsageError, match=f"no longer ready in group '{archive.label}'"):
        await archive.list("ready", after=first[-1].id)


async def test_a_message_of_a_group_is_not_listed_twice_after_a_seek(archive: AsyncGroup) -> None:
    await archive.topic.publish_many(["leased", "waiting", "dead", "released", "acked"])
    leased, waiting, dead, released, acked = await take(archive)
    await waiting.defer(60)
    await dead.reject("no use")
    await released.release()
    await acked.ack()
    await archive.topic.publish("unread")

    await archive.seek("beginning")

    assert [message.body for message in await archive.list("ready")] == ["released", "acked", "unread"]
    states = [(await seen(archive, d.id)).state for d in (leased, waiting, dead, released, acked)]
    assert states == ["leased", "delayed", "dead", "ready", "ready"]


async def test_unread_entries_that_will_be_passed_over_are_not_ready(events: AsyncTopic) -> None:
    group = events.group("eu", headers={"region": ["eu", "uk"], "kind": "order"})
    await group.create()
    regions = [("eu", "order"), ("us", "order"), ("uk", "order"), ("uk", "offer")]
    ids = await events.publish_many(
        [Send(n, headers={"region": region, "kind": kind}) for n, (region, kind) in enumerate(regions)]
    )
    await events.publish("none")

    assert [message.id for message in await group.list("ready")] == [ids[0], ids[2]]
    assert [await group.get(id_) is None for id_ in ids] == [False, True, False, True]
    assert [message.id for message in await group.list("ready", limit=1)] == [ids[0]]
    (only,) = await group.list("ready", limit=1, after=ids[0])
    assert only.id == ids[2]
    assert await group.list("ready", after=only) == []


# Seek


async def test_seek_to_the_beginning_delivers_all_that_is_kept_again(archive: AsyncGroup) -> None:
    ids = await archive.topic.publish_many(range(3))
    assert await take_bodies(archive) == [0, 1, 2]

    await archive.seek("beginning")

    again = await take(archive)
    assert [(d.id, d.body, d.attempt) for d in again] == [(ids[0], 0, 1), (ids[1], 1, 1), (ids[2], 2, 1)]
    await archive.ack_many(again)
    await check_accounts(archive)


@pytest.mark.parametrize("to", ["end", "new"])
async def test_seek_to_the_end_skips_unread_entries(archive: AsyncGroup, to: str) -> None:
    await archive.create()
    await archive.topic.publish_many(range(3))

    await archive.seek(to)

    assert await take(archive) == []
    await archive.topic.publish("new")
    assert await take_bodies(archive) == ["new"]


async def test_seek_goes_behind_an_entry_forwards_and_backwards(archive: AsyncGroup) -> None:
    ids = await archive.topic.publish_many(range(5))

    await archive.seek(ids[2])
    assert await take_bodies(archive) == [3, 4]
    await archive.seek(ids[0])
    assert await take_bodies(archive) == [1, 2, 3, 4]


async def test_seek_to_a_time(archive: AsyncGroup, clock: Place) -> None:
    await archive.topic.publish("old")
    clock.advance(100)
    await archive.topic.publish("young")
    assert await take_bodies(archive) == ["old", "young"]

    await archive.seek(datetime.fromtimestamp(clock.now() - 50, UTC))

    assert await take_bodies(archive) == ["young"]


async def test_seek_makes_a_group_that_does_not_exist(events: AsyncTopic) -> None:
    ids = await events.publish_many(range(3))
    group = events.group("g", start="new")

    await group.seek(ids[0])

    assert await take_bodies(group) == [1, 2]


async def test_a_message_of_the_group_is_not_delivered_twice_at_a_time_after_a_seek(archive: AsyncGroup) -> None:
    """I3: leased, waiting and parked ones are where they are."""
    await archive.topic.publish_many([Send("leased", key="k"), Send("parked", key="k"), "waiting", "acked"])
    held, waiting, acked = await take(archive)
    await waiting.defer(60)
    await acked.ack()

    await archive.seek("beginning")

    assert await take_bodies(archive) == ["acked"]
    assert await take(archive) == []
    await held.ack()
    assert await take_bodies(archive) == ["parked"]
    assert (await seen(archive, waiting.id)).state == "delayed"
    await check_accounts(archive)


async def test_a_dead_letter_starts_over_after_a_seek(archive: AsyncGroup) -> None:
    held = await given_read(archive)
    await held.retry(0, error="boom")
    await (await take_one(archive)).reject("no use")

    await archive.seek("beginning")

    again = await take_one(archive)
    assert (again.id, again.attempt, again.body) == (held.id, 1, "body")
    assert (await archive.stats()).dead == 0
    await again.ack()
    await check_accounts(archive)


async def test_a_holder_may_settle_after_a_seek(archive: AsyncGroup, clock: Place) -> None:
    held = await given_read(archive, lease=30)
    await archive.seek("beginning")
    assert await take(archive) == []

    await held.ack()

    clock.advance(60)
    assert await take(archive) == []
    await check_accounts(archive)


async def test_seek_in_one_group_moves_no_other(archive: AsyncGroup, live: AsyncGroup) -> None:
    await archive.topic.publish_many(range(2))
    for group in (archive, live):
        assert await take_bodies(group) == [0, 1]

    await archive.seek("beginning")

    assert await take(live) == []
    assert await take_bodies(archive) == [0, 1]


# Steering


async def test_a_paused_group_delivers_nothing_and_others_continue(archive: AsyncGroup, live: AsyncGroup) -> None:
    held = await given_read(archive)
    await archive.pause()
    await archive.topic.publish("more")

    assert await take(archive) == []
    assert await take_bodies(live) == ["body", "more"]
    assert (await archive.stats()).paused == archive._link.consumer
    await held.ack()
    await archive.resume()

    assert await take_bodies(archive) == ["more"]
    assert (await archive.stats()).paused is None


async def test_a_group_that_was_paused_before_its_first_use_is_paused(archive: AsyncGroup) -> None:
    await archive.topic.publish("body")
    await archive.pause()

    assert await take(archive) == []
    await archive.resume()

    assert await take_bodies(archive) == ["body"]


async def test_pause_creates_a_group_so_that_nothing_is_freed_in_the_meantime(app: AsyncDuly, queue_name: str) -> None:
    events = app.topic(queue_name, keep=None)
    slow, quick = events.group("slow"), events.group("quick")

    await slow.pause()

    await events.publish("body")
    assert await take_bodies(quick) == ["body"]
    await slow.resume()
    assert await take_bodies(slow) == ["body"]


async def test_a_group_that_was_only_paused_goes_with_its_topic(archive: AsyncGroup, place: Place) -> None:
    await archive.pause()

    await archive.topic.delete()

    assert [key for key, ttl in place.keys(f"@{archive.topic.name}").items() if ttl < 0] == []
    assert (await archive.stats()).paused is None


async def test_an_entry_of_a_group_can_be_cancelled(archive: AsyncGroup, live: AsyncGroup) -> None:
    held = await given_read(archive)

    assert await archive.cancel(held.id) is False
    assert (await archive.pending()).total == 1
    assert await archive.cancel(held.id, running=True) is True
    assert await archive.cancel(held.id) is False

    with pytest.raises(LeaseLost):
        await held.ack()
    assert (await archive.pending()).total == 0
    assert await take_bodies(live) == ["body"]
    await check_accounts(archive)


async def test_a_waiting_entry_of_a_group_can_be_rescheduled_and_promoted(archive: AsyncGroup, clock: Place) -> None:
    first, second = await given_read(archive, 1), await given_read(archive, 2)
    await first.defer(1000)
    await second.defer(1000)

    assert await archive.reschedule(first.id, delay=10) is True
    assert await archive.promote(second.id) is True
    assert await take_bodies(archive) == [2]
    clock.advance(11)

    assert await take_bodies(archive) == [1]
    assert await archive.promote(first.id) is False


async def test_purge_ends_all_and_skips_unread_entries(archive: AsyncGroup, live: AsyncGroup) -> None:
    held, delayed, dead = [await given_read(archive, body) for body in "abc"]
    await delayed.defer(60)
    await dead.reject("no use")
    await archive.topic.publish_many(["unread 1", "unread 2"])

    assert await archive.purge() == 5

    assert await take(archive) == []
    with pytest.raises(LeaseLost):
        await held.ack()
    stats = await archive.stats()
    assert (stats.live, stats.dead, stats.unread) == (0, 0, 0)
    assert (await archive.pending()).total == 0
    assert len(await take_bodies(live)) == 5
    await archive.topic.publish("new")
    assert await take_bodies(archive) == ["new"]
    await check_accounts(archive)


@pytest.mark.parametrize(
    ("state", "count", "left"),
    [
        ("ready", 2, {"delayed": 1, "leased": 1, "dead": 1}),
        ("delayed", 1, {"ready": 2, "unread": 1, "leased": 1, "dead": 1}),
        ("leased", 1, {"ready": 2, "unread": 1, "delayed": 1, "dead": 1}),
        ("dead", 1, {"ready": 2, "unread": 1, "delayed": 1, "leased": 1}),
    ],
)
async def test_purge_of_one_state_leaves_the_others(
    archive: AsyncGroup, state: Any, count: int, left: dict[str, int]
) -> None:
    released, delayed, dead, _leased = [await given_read(archive, body) for body in "abcd"]
    await delayed.defer(60)
    await dead.reject("no use")
    await released.release()
    await archive.topic.publish("unread")

    assert await archive.purge(state) == count

    found = await counted(archive)
    assert {name: found[name] for name in ("ready", "unread", "delayed", "leased", "dead") if name in found} == left
    await check_accounts(archive)


async def test_an_audit_proves_the_accounts_of_a_group(archive: AsyncGroup, clock: Place) -> None:
    """I2."""
    await archive.topic.publish_many([Send(number, key=f"k{number % 7}") for number in range(60)])
    for number, verb in enumerate(("ack", "retry", "defer", "release", "recycle", "reject") * 5):
        deliveries = await take(archive, limit=2, lease=5 if number % 4 == 0 else 50)
        for d in deliveries[:1]:
            await getattr(d, verb)(*{"defer": (10,), "reject": ("no use",)}.get(verb, ()))
        clock.advance(2)

    audit = await archive.audit()

    assert audit.ok, audit
    assert audit.queue == archive.label
    assert audit.stats.crashed > 0


async def test_an_audit_finds_and_repairs_broken_keys(archive: AsyncGroup, server: ServerPlace) -> None:
    """Real servers only: no other program can reach into memory."""
    held = await given_read(archive)
    server.corrupt(f"@{archive.topic.name}", "DEL", f"group:{archive.name}:leased")

    broken = await archive.audit()
    await archive.audit(repair=True)

    assert not broken.ok
    assert (await archive.audit()).ok
    assert (await take_one(archive)).id == held.id


async def test_a_deleted_group_is_gone_and_may_begin_again(archive: AsyncGroup, live: AsyncGroup) -> None:
    held = await given_read(archive, "body")
    assert await take_bodies(live) == ["body"]

    await archive.delete()

    assert [info.name for info in await archive.topic.groups()] == ["live"]
    assert await counted(archive) == {}
    with pytest.raises(LeaseLost):
        await held.ack()
    assert await take_bodies(archive) == ["body"]
    assert await take(live) == []
    assert (await archive.topic.stats()).length == 1


async def test_a_deleted_group_leaves_no_key(archive: AsyncGroup, place: Place) -> None:
    held = await given_read(archive, "a", key="k")
    await archive.topic.publish("b", key="k")
    await take(archive)
    await held.retry(60)
    await (await given_read(archive, "c")).reject("no use")

    await archive.delete()

    left = [key for key, ttl in place.keys(f"@{archive.topic.name}").items() if ttl < 0]
    assert sorted(left) == ["meta", "stream"]


async def test_a_deleted_group_no_longer_keeps_entries(app: AsyncDuly, queue_name: str) -> None:
    events = app.topic(queue_name, keep=None)
    slow, quick = events.group("slow"), events.group("quick")
    await slow.create()
    await events.publish_many(range(3))
    assert await take_bodies(quick) == [0, 1, 2]
    assert (await events.stats()).length == 3

    await slow.delete()
    await events.publish("one more")
    assert await take_bodies(quick) == ["one more"]

    assert (await events.stats()).length == 0
