"""Groups: each has all entries for itself, and hands each to one of its members."""

import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from duly import (
    AsyncDelivery,
    AsyncDuly,
    AsyncGroup,
    AsyncQueue,
    AsyncTopic,
    Defer,
    LeaseLost,
    LockBusy,
    Reject,
    Retry,
    UsageError,
    once,
)
from tests.client._async.given import (
    SETTLES,
    check_accounts,
    counted,
    given_read,
    outlive,
    seen,
    settle,
    take,
    take_bodies,
    take_one,
)
from tests.client.place import Place


def of_other_app(group: AsyncGroup, other_app: AsyncDuly) -> AsyncGroup:
    """Return another member of a group."""
    return other_app.topic(group.topic.name).group(group.name)


# Where a group begins


async def test_a_group_begins_with_all_that_is_kept(events: AsyncTopic) -> None:
    await events.publish_many(["a", "b"])

    assert await take_bodies(events.group("late")) == ["a", "b"]


async def test_a_group_may_begin_with_new_entries(events: AsyncTopic) -> None:
    await events.publish("old")
    group = events.group("g", start="new")

    assert await take(group) == []
    await events.publish("new")

    assert await take_bodies(group) == ["new"]


async def test_a_group_may_begin_behind_an_entry(events: AsyncTopic) -> None:
    ids = await events.publish_many(["a", "b", "c"])

    assert await take_bodies(events.group("g", start=ids[1])) == ["c"]


async def test_a_group_may_begin_at_a_time(events: AsyncTopic, clock: Place) -> None:
    await events.publish("old")
    clock.advance(50)
    await events.publish("young")
    (_, young) = await events.read()

    assert await take_bodies(events.group("g", start=datetime.fromtimestamp(clock.now() - 25, UTC))) == ["young"]
    assert await take_bodies(events.group("exactly", start=young.published_at)) == ["young"]
    assert await take_bodies(events.group("all", start=datetime.fromtimestamp(0, UTC))) == ["old", "young"]


async def test_create_makes_a_group_without_receiving(events: AsyncTopic) -> None:
    await events.publish("old")
    group = events.group("g", start="new")

    assert await group.create() is True
    assert await group.create() is False
    await events.publish("new")

    assert await take_bodies(group) == ["new"]


async def test_the_start_of_a_group_that_exists_changes_nothing(events: AsyncTopic) -> None:
    await events.group("g").create()
    await events.publish("body")

    assert await events.group("g", start="new").create() is False
    assert await take_bodies(events.group("g", start="new")) == ["body"]


async def test_a_group_can_be_made_before_anything_is_published(events: AsyncTopic, archive: AsyncGroup) -> None:
    assert await take(archive) == []

    await events.publish("body")

    assert await take_bodies(archive) == ["body"]


async def test_a_group_has_a_name_a_topic_and_a_label(events: AsyncTopic) -> None:
    group = events.group("archive", start="new", headers={"a": "b"})

    assert (group.name, group.topic, group.label) == ("archive", events, f"{events.name}/archive")
    assert (group.start, group.headers) == ("new", {"a": "b"})
    assert repr(group).startswith(f"<{type(group).__name__} '{events.name}/archive'")


# Distribution


async def test_every_group_gets_every_entry(archive: AsyncGroup, live: AsyncGroup) -> None:
    ids = await archive.topic.publish_many(["a", "b"])

    for group in (archive, live):
        deliveries = await take(group)
        assert [(d.id, d.body, d.queue, d.attempt, d.deliveries) for d in deliveries] == [
            (ids[0], "a", group.label, 1, 1),
            (ids[1], "b", group.label, 1, 1),
        ]


async def test_a_message_that_one_member_holds_is_delivered_to_no_other(
    archive: AsyncGroup, other_app: AsyncDuly
) -> None:
    """I3."""
    other = of_other_app(archive, other_app)
    await archive.topic.publish_many(range(10))

    first, second = await take(archive, limit=6), await take(other)

    assert [d.body for d in (*first, *second)] == list(range(10))
    assert await take(archive) == await take(other) == []


async def test_settling_an_entry_in_one_group_affects_no_other(archive: AsyncGroup, live: AsyncGroup) -> None:
    id_ = await archive.topic.publish("body")
    await (await take_one(archive)).reject("no use")

    held = await take_one(live)

    assert (held.id, held.attempt) == (id_, 1)
    assert await counted(live) == {"sent": 1, "delivered": 1, "leased": 1}
    assert await counted(archive) == {"sent": 1, "delivered": 1, "buried": 1, "dead": 1}


async def test_an_acked_message_is_not_redelivered(archive: AsyncGroup, clock: Place) -> None:
    """I1."""
    await archive.topic.publish_many(range(3))
    deliveries = await take(archive)

    await deliveries[0].ack()
    assert await archive.ack_many(deliveries) == []

    clock.advance(100)
    assert await take(archive) == []
    assert await counted(archive) == {"sent": 3, "delivered": 3, "acked": 3}
    await check_accounts(archive)


async def test_ack_many_refuses_the_deliveries_of_another_group(archive: AsyncGroup, live: AsyncGroup) -> None:
    held = await given_read(archive)

    with pytest.raises(UsageError, match=f"{archive.label}.*{live.label}"):
        await live.ack_many([held])

    await held.ack()


async def test_a_delivery_has_the_published_values(archive: AsyncGroup, place: Place) -> None:
    d = await given_read(archive, {"n": 1}, key="k", headers={"a": "b", "中": "文"})

    assert (d.body, d.raw, d.key, d.headers, d.priority) == ({"n": 1}, b'{"n":1}', "k", {"a": "b", "中": "文"}, 0)
    assert d.sent_at.timestamp() == pytest.approx(place.now(), abs=5)
    assert (d.failures, d.crashes, d.defers, d.cycles, d.redrives, d.is_settled) == (0, 0, 0, 0, 0, False)


async def test_an_entry_that_was_delayed_was_sent_when_it_was_published(archive: AsyncGroup, clock: Place) -> None:
    await archive.topic.publish("later", delay=100)
    clock.advance(101)

    assert (await take_one(archive)).sent_at.timestamp() == pytest.approx(clock.now() - 101, abs=5)


# How a delivery ends


@pytest.mark.parametrize("verb", SETTLES)
async def test_the_first_settle_counts_and_later_ones_are_refused(archive: AsyncGroup, verb: str) -> None:
    held = await given_read(archive)
    await settle(held, verb)

    await settle(held, verb)  # the same again does no harm

    for other in SETTLES.keys() - {verb}:
        with pytest.raises(LeaseLost, match=held.id):
            await settle(held, other)
    with pytest.raises(LeaseLost, match=held.id):
        await held.extend(60)
    await check_accounts(archive)


@pytest.mark.parametrize("verb", [*SETTLES, "commit", "extend"])
async def test_a_stale_holder_changes_nothing(
    archive: AsyncGroup, other_app: AsyncDuly, clock: Place, verb: str
) -> None:
    """I4 I5."""
    stale = await given_read(archive, lease=10)
    clock.advance(11)
    fresh = await take_one(of_other_app(archive, other_app))
    before = await counted(archive)

    with pytest.raises(LeaseLost, match=stale.id):
        await getattr(stale, verb)(*(SETTLES.get(verb) or ((60,) if verb == "extend" else ())))

    assert stale.lost
    assert fresh.fence > stale.fence
    assert await counted(archive) == before
    await fresh.ack()
    await check_accounts(archive)


async def test_a_stale_ack_many_names_those_that_are_lost(
    archive: AsyncGroup, other_app: AsyncDuly, clock: Place
) -> None:
    """I5."""
    await archive.topic.publish_many(range(3))
    stale = await take(archive, limit=2, lease=10)
    clock.advance(11)
    (lost,) = await take(of_other_app(archive, other_app), limit=1)
    again = await take(archive)

    assert await archive.ack_many([*stale, *again]) == stale

    assert lost.id == stale[0].id
    await lost.ack()
    assert (await archive.stats()).acked == 3


async def test_a_failure_is_retried_by_the_topics_policy_until_it_is_dead(
    app: AsyncDuly, queue_name: str, clock: Place
) -> None:
    group = app.topic(queue_name, retry=Retry(delays=[10, 100])).group("g")
    held = await given_read(group)
    for number, delay in enumerate((10, 100), 1):
        await held.retry(error=ValueError(f"boom {number}"))
        clock.advance(delay - 4)
        assert await take(group) == []
        clock.advance(5)
        held = await take_one(group)
        assert (held.attempt, held.failures) == (number + 1, number)

    await held.retry(error="the last")

    message = await seen(group, held.id)
    assert (message.state, message.reason, message.failures) == ("dead", "failed at attempt 3 of 3", 3)
    assert [failure.error for failure in message.errors] == ["ValueError: boom 1", "ValueError: boom 2", "the last"]
    await check_accounts(group)


async def test_a_retry_may_take_longer_than_the_lease(app: AsyncDuly, queue_name: str, clock: Place) -> None:
    """No member holds a waiting message, so no lease expires."""
    group = app.topic(queue_name, lease=5).group("g")
    held = await given_read(group)

    await held.retry(delay=1000)

    for _ in range(9):
        clock.advance(100)
        assert await take(group) == []
    clock.advance(101)
    again = await take_one(group)
    assert (again.id, again.failures, again.crashes) == (held.id, 1, 0)


async def test_a_deferred_entry_is_redelivered_with_no_attempt_spent(archive: AsyncGroup, clock: Place) -> None:
    held = await given_read(archive)

    await held.defer(100, "too early")

    assert await take(archive) == []
    clock.advance(101)
    again = await take_one(archive)
    assert (again.attempt, again.defers, again.body) == (1, 1, "body")


async def test_a_released_entry_is_there_at_once_and_in_its_place(archive: AsyncGroup) -> None:
    await archive.topic.publish_many(["a", "b", "c"])
    first = (await take(archive, limit=2))[0]

    await first.release()

    assert [d.body for d in await take(archive)] == ["a", "c"]


async def test_a_recycled_entry_is_new_in_its_group_only(archive: AsyncGroup, live: AsyncGroup) -> None:
    held = await given_read(archive, {"step": 1})
    await held.retry(0)
    held = await take_one(archive)

    await held.recycle(body={"step": 2})

    again = await take_one(archive)
    assert (again.id, again.body, again.attempt, again.cycles) == (held.id, {"step": 2}, 1, 1)
    assert (await take_one(live)).body == {"step": 1}
    await again.ack()
    await check_accounts(archive)


async def test_a_recycle_with_a_delay_waits(archive: AsyncGroup, clock: Place) -> None:
    await (await given_read(archive)).recycle(delay=100)

    assert await take(archive) == []
    clock.advance(101)
    assert (await take_one(archive)).cycles == 1


async def test_a_member_that_falls_silent_loses_its_messages_with_one_crash(
    archive: AsyncGroup, other_app: AsyncDuly, clock: Place
) -> None:
    """I8."""
    first = await given_read(archive, lease=10)
    clock.advance(7)
    assert await take(of_other_app(archive, other_app)) == []

    clock.advance(4)
    again = await take_one(of_other_app(archive, other_app))

    assert (again.id, again.crashes, again.attempt) == (first.id, 1, 2)
    assert (await archive.stats()).crashed == 1


async def test_a_member_that_lost_all_that_it_held_is_forgotten(
    archive: AsyncGroup, other_app: AsyncDuly, clock: Place
) -> None:
    await archive.topic.publish_many(range(3))
    await take(of_other_app(archive, other_app), limit=2, lease=10)
    await take(archive)
    assert [info.consumers for info in await archive.topic.groups()] == [2]
    clock.advance(11)

    again = await take(archive)

    assert [d.crashes for d in again] == [1, 1]
    assert [info.consumers for info in await archive.topic.groups()] == [1]
    assert list((await archive.pending()).consumers) == [archive._link.consumer]


async def test_an_entry_with_an_expired_lease_comes_before_later_entries(archive: AsyncGroup, clock: Place) -> None:
    await archive.topic.publish_many(["a", "b"])
    await take(archive, lease=10)
    await archive.topic.publish("c")
    clock.advance(11)

    assert [d.body for d in await take(archive)] == ["a", "b", "c"]


async def test_a_message_is_dead_at_the_crash_limit(
    app: AsyncDuly, queue_name: str, clock: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """I8."""
    group = app.topic(queue_name, crash_limit=2, lease=10).group("g")
    held = await given_read(group)
    for _ in range(2):
        clock.advance(11)
        await take(group)

    message = await seen(group, held.id)
    assert (message.state, message.reason, message.crashes) == ("dead", "poison", 2)
    assert any(held.id in record.message and "dead" in record.message for record in caplog.records)
    await check_accounts(group)


async def test_extend_keeps_an_entry(archive: AsyncGroup, clock: Place) -> None:
    held = await given_read(archive, lease=10)
    clock.advance(8)

    await held.extend(10)

    clock.advance(6)
    assert await take(archive) == []
    await held.ack()


async def test_renewed_leases_outlive_their_length(app: AsyncDuly, queue_name: str, clock: Place) -> None:
    group = app.topic(queue_name, lease=4.5).group("g")
    await group.topic.publish("body")
    (held,) = await group.receive(wait=0, renew=True)

    await outlive(group, held, clock)

    assert await take(group) == []
    await held.ack()
    assert (await group.stats()).crashed == 0


async def test_a_renewal_stops_at_the_longest_runtime(app: AsyncDuly, queue_name: str) -> None:
    group = app.topic(queue_name, lease=0.5, max_runtime=0.6).group("g")
    await group.topic.publish("body")
    (held,) = await group.receive(wait=0, renew=True)

    (again,) = await group.receive(wait=20)

    assert (again.id, again.crashes) == (held.id, 1)


# With


async def test_a_block_that_ends_well_acks(archive: AsyncGroup) -> None:
    async with await given_read(archive) as d:
        assert d.body == "body"

    assert await counted(archive) == {"sent": 1, "delivered": 1, "acked": 1}


@pytest.mark.parametrize(
    ("error", "state"),
    [(ValueError("boom"), "delayed"), (Reject("no use"), "dead"), (Defer(60), "delayed")],
    ids=["error", "reject", "defer"],
)
async def test_a_block_that_raises_settles_by_its_error(archive: AsyncGroup, error: Exception, state: str) -> None:
    held = await given_read(archive)

    async def work() -> None:
        async with held:
            raise error

    if isinstance(error, ValueError):
        with pytest.raises(ValueError, match="boom"):
            await work()
    else:
        await work()

    assert (await seen(archive, held.id)).state == state


# Effects


@pytest.mark.one_slot("commit to another queue")
async def test_a_commit_acks_and_sends_in_one_step(archive: AsyncGroup, queue: AsyncQueue) -> None:
    held = await given_read(archive, {"n": 1})

    (id_,) = (await held.commit(send=[(queue, {"from": held.id})])).sent

    sent = await take_one(queue)
    assert (sent.id, sent.body) == (id_, {"from": held.id})
    assert await counted(archive) == {"sent": 1, "delivered": 1, "acked": 1}
    assert await take(archive) == []
    await check_accounts(archive)


@pytest.mark.one_slot("commit to another queue")
async def test_a_commit_of_a_stale_holder_sends_nothing(
    archive: AsyncGroup, queue: AsyncQueue, other_app: AsyncDuly, clock: Place
) -> None:
    """I5."""
    stale = await given_read(archive, lease=10)
    clock.advance(11)
    await take_one(of_other_app(archive, other_app))

    with pytest.raises(LeaseLost):
        await stale.commit(send=[(queue, "never")])

    assert (await queue.stats()).sent == 0


@pytest.mark.one_slot("commit to another queue")
async def test_commits_of_one_member_each_ack_their_own(archive: AsyncGroup, queue: AsyncQueue) -> None:
    first, second = await given_read(archive, 1), await given_read(archive, 2)
    await first.commit(send=[(queue, "one"), (queue, "two")])

    assert await take_bodies(queue) == ["one", "two"]
    await second.commit()
    assert (await archive.stats()).acked == 2


async def test_a_lock_of_a_delivery_defers_the_second_caller(archive: AsyncGroup, live: AsyncGroup) -> None:
    first, second = await given_read(archive), await take_one(live)
    name = f"{archive.label}:stock"

    async with first.lock(name):
        with pytest.raises(LockBusy):
            async with second.lock(name, on_busy="raise"):
                pass
        async with second, second.lock(name):
            pytest.fail("it was busy")

    assert (await seen(live, second.id)).state == "delayed"
    await first.ack()


async def test_each_group_may_cause_an_effect_once(archive: AsyncGroup, live: AsyncGroup) -> None:
    """An effect is called by its name, so groups that share one share it."""
    one, other = await given_read(archive), await take_one(live)

    assert await once(one, f"{archive.label}:mail", 60) is True
    assert await once(other, f"{archive.label}:mail", 60) is False
    assert await once(other, f"{live.label}:mail", 60) is True


# Many members


async def test_many_members_share_all_entries(archive: AsyncGroup, other_app: AsyncDuly) -> None:
    """I3."""
    other = of_other_app(archive, other_app)
    await archive.topic.publish_many(range(500))
    found: list[Any] = []
    while True:
        some: list[AsyncDelivery] = []
        for member in (archive, other):
            deliveries = await take(member, limit=37)
            assert await member.ack_many(deliveries) == []
            some += deliveries
        if not some:
            break
        found += [d.body for d in some]

    assert sorted(found) == list(range(500))
    await check_accounts(archive)


async def test_a_lost_lease_is_logged(archive: AsyncGroup, clock: Place, caplog: pytest.LogCaptureFixture) -> None:
    held = await given_read(archive, lease=10)
    clock.advance(11)

    with caplog.at_level(logging.WARNING, "duly"):
        await take_one(archive)

    assert any(held.id in record.message and archive.label in record.message for record in caplog.records)
