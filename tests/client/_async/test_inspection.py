"""Inspection: stats, get, list, pending. It changes nothing."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from duly import AsyncDuly, AsyncQueue, Keep, Message, MessageId, Send, UsageError
from tests.client._async.given import counted, given_dead, given_in, given_leased, seen, take, take_one
from tests.client.place import Place

STATES = ["ready", "delayed", "leased", "dead", "done"]


async def test_stats_of_a_queue_that_was_never_used_are_zero(queue: AsyncQueue, app: AsyncDuly) -> None:
    stats = await queue.stats()

    assert await counted(queue) == {}
    assert (stats.live, stats.oldest_age, stats.lateness, stats.next_due_in, stats.paused) == (0, 0, 0, None, None)
    assert queue.name not in await app.queues()


async def test_stats_count_messages_by_state(app: AsyncDuly, queue_name: str) -> None:
    """003-9 004-3."""
    queue = app.queue(queue_name, done=Keep(count=10))
    for state in ("leased", "dead", "done", "delayed", "ready"):
        await given_in(queue, state)

    stats = await queue.stats()

    assert (stats.ready, stats.delayed, stats.leased, stats.parked, stats.dead, stats.done) == (1, 1, 1, 0, 1, 1)
    assert (stats.live, stats.sent, stats.delivered, stats.acked, stats.buried) == (3, 5, 3, 1, 1)


async def test_stats_show_the_age_of_the_oldest_and_the_time_to_the_next(queue: AsyncQueue, clock: Place) -> None:
    """001-14."""
    await queue.send("old")
    await queue.send("later", delay=100)

    clock.advance(40)

    stats = await queue.stats()
    assert stats.oldest_age == pytest.approx(40, abs=5)
    assert stats.next_due_in == pytest.approx(60, abs=5)


async def test_stats_show_how_late_the_last_claim_was(queue: AsyncQueue, clock: Place) -> None:
    await queue.send("body", delay=10)
    clock.advance(25)

    await take_one(queue)

    assert (await queue.stats()).lateness == pytest.approx(15, abs=5)


async def test_a_retry_that_is_delivered_in_time_is_not_late(queue: AsyncQueue, clock: Place) -> None:
    await (await given_leased(queue)).retry(delay=1000)
    clock.advance(1000.1)

    await take_one(queue)

    assert (await queue.stats()).lateness < 100


async def test_a_message_becomes_ready_as_time_passes(queue: AsyncQueue, clock: Place) -> None:
    id_ = await queue.send("body", delay=10)
    before = (await seen(queue, id_)).state

    clock.advance(11)

    assert (before, (await seen(queue, id_)).state) == ("delayed", "ready")
    assert await counted(queue) == {"sent": 1, "ready": 1}


async def test_stats_count_the_bytes_of_live_and_dead_messages(app: AsyncDuly, queue_name: str) -> None:
    """001-14."""
    queue = app.queue(queue_name, done=Keep(count=10))
    for state, size in (("dead", 2000), ("done", 3000), ("ready", 1000)):
        await queue.send(b"x" * size)
        if state != "ready":
            delivery = await take_one(queue)
            await (delivery.ack() if state == "done" else delivery.reject("no use"))

    stats = await queue.stats()

    assert [size // 1000 for size in (stats.bytes, stats.dead_bytes, stats.done_bytes)] == [1, 2, 3]


async def test_an_unknown_message_is_none(queue: AsyncQueue) -> None:
    assert await queue.get("unknown") is None


@pytest.mark.parametrize("state", STATES)
async def test_get_shows_a_message_in_every_state(app: AsyncDuly, queue_name: str, state: str) -> None:
    queue = app.queue(queue_name, done=Keep(count=10))

    id_ = await given_in(queue, state, headers={"a": "b"}, key="k", priority=3)

    message = await seen(queue, id_)
    assert (message.id, message.queue, message.state, message.body, message.raw) == (
        id_, queue.name, state, "body", b'"body"',
    )  # fmt: skip
    assert (message.headers, message.key, message.priority) == ({"a": "b"}, "k", 3)
    assert message.sent_at is not None
    assert message.due_at is not None
    assert (message.consumer is not None) == (message.deadline is not None) == (state == "leased")
    assert (message.finished_at is not None) == (state in ("dead", "done"))
    assert message.reason == ("no use" if state == "dead" else None)


async def test_get_shows_the_lease(queue: AsyncQueue, clock: Place) -> None:
    """000-11."""
    delivery = await given_leased(queue, lease=20)

    message = await seen(queue, delivery.id)

    assert (message.fence, message.attempt, message.deliveries) == (delivery.fence, 1, 1)
    assert message.deadline is not None
    assert message.deadline.timestamp() == pytest.approx(clock.now() + 20, abs=5)


async def test_get_shows_the_counters_of_a_message_that_waits(queue: AsyncQueue) -> None:
    await (await given_leased(queue)).retry(delay=0)
    await (await take_one(queue)).defer(0)
    last = await take_one(queue)
    await last.release()

    message = await seen(queue, last.id)

    assert (message.failures, message.defers, message.releases, message.crashes) == (1, 1, 1, 0)
    assert (message.attempt, message.deliveries) == (2, 3)


async def test_get_shows_how_often_a_dead_message_was_delivered(queue: AsyncQueue) -> None:
    id_ = await given_dead(queue)

    assert (await seen(queue, id_)).deliveries == 1


async def all_pages(queue: AsyncQueue, state: str, limit: int, *, by_id: bool = False) -> list[str]:
    """Page through a state, with messages or with ids."""
    found: list[str] = []
    after: Message | str | None = None
    while page := await queue.list(state, limit=limit, after=after):  # type: ignore[arg-type]
        assert len(page) <= limit
        found += [message.id for message in page]
        after = page[-1].id if by_id else page[-1]
    return found


async def given_seven_in(queue: AsyncQueue, state: str, clock: Place) -> list[MessageId]:
    """Put seven messages into a state, all of the same score where the state has one."""
    at = clock.now() + 1000
    ids = await queue.send_many([Send(n, at=at if state == "delayed" else None) for n in range(7)])
    if state == "leased":
        await take(queue)
    elif state == "done":
        await queue.ack_many(await take(queue))
    elif state == "dead":
        await take(queue, lease=1)
        clock.advance(2)
        await take(queue)
    return ids


@pytest.mark.parametrize("by_id", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 7, 50])
@pytest.mark.parametrize("state", STATES)
async def test_list_pages_show_each_message_once(
    app: AsyncDuly, queue_name: str, clock: Place, state: str, limit: int, by_id: bool
) -> None:
    queue = app.queue(queue_name, done=Keep(count=10), crash_limit=1)
    ids = await given_seven_in(queue, state, clock)

    assert await all_pages(queue, state, limit, by_id=by_id) == ids


@pytest.mark.parametrize("state", ["ready", "delayed"])
async def test_list_pages_go_by_priority_and_then_by_due_time(queue: AsyncQueue, state: str) -> None:
    delays = (0, 0, 0, 0) if state == "ready" else (40, 30, 20, 10)
    a, b, c, d = [await queue.send(n, delay=delay, priority=n % 2 * 5) for n, delay in enumerate(delays)]

    found = await all_pages(queue, state, 1)

    assert found == ([b, d, a, c] if state == "ready" else [d, b, c, a])


@pytest.mark.parametrize("state", STATES)
async def test_list_continues_behind_a_message_that_is_gone(
    app: AsyncDuly, queue_name: str, clock: Place, state: str
) -> None:
    queue = app.queue(queue_name, done=Keep(count=10), crash_limit=1)
    ids = await given_seven_in(queue, state, clock)
    page = await queue.list(state, limit=3)  # type: ignore[arg-type]
    if state == "done":
        await queue.send("again", id=ids[2])  # which takes the finished one away
    else:
        await queue.cancel(ids[2])

    rest = await queue.list(state, after=page[-1])  # type: ignore[arg-type]

    assert [message.id for message in rest] == ids[3:]


async def test_list_behind_an_id_that_has_gone_is_refused(queue: AsyncQueue) -> None:
    with pytest.raises(UsageError, match="ready"):
        await queue.list("ready", after="gone")


@pytest.mark.parametrize("state", [*STATES, "parked"])
async def test_list_of_an_empty_state_is_empty(queue: AsyncQueue, state: str) -> None:
    assert await queue.list(state) == []  # type: ignore[arg-type]


async def test_list_shows_the_same_as_get(queue: AsyncQueue) -> None:
    await given_dead(queue, headers={"a": "b"})

    (listed,) = await queue.list("dead")

    assert listed == await queue.get(listed.id)


async def test_pending_of_nothing(queue: AsyncQueue) -> None:
    pending = await queue.pending()

    assert (pending.total, pending.min_id, pending.max_id, pending.consumers, pending.messages) == (
        0,
        None,
        None,
        {},
        (),
    )


async def test_pending_sums_up_by_consumer(queue: AsyncQueue, other_app: AsyncDuly) -> None:
    """001-11."""
    ids = await queue.send_many(range(5))
    mine, theirs = await take(queue, limit=2), await take(other_app.queue(queue.name))

    pending = await queue.pending()

    assert (pending.total, pending.min_id, pending.max_id) == (5, ids[0], ids[4])
    me, them = [(await seen(queue, some[0].id)).consumer for some in (mine, theirs)]
    assert pending.consumers == {me: 2, them: 3}


async def test_pending_shows_each_lease_by_deadline(queue: AsyncQueue, clock: Place) -> None:
    """001-11."""
    await (await given_leased(queue, "retried")).retry(delay=0)
    slow = await take_one(queue, lease=50)
    fast = await given_leased(queue, "fast", lease=10)
    clock.advance(12)

    first, second = (await queue.pending()).messages

    assert [(row.id, row.fence, row.attempt, row.deliveries) for row in (first, second)] == [
        (fast.id, fast.fence, 1, 1),
        (slow.id, slow.fence, 2, 2),
    ]
    assert first.deadline_in < 0 < second.deadline_in
    assert second.deadline - first.deadline > timedelta(seconds=30)


async def test_pending_of_one_consumer_and_of_a_few(queue: AsyncQueue, other_app: AsyncDuly) -> None:
    await queue.send_many(range(4))
    mine = await take(queue, limit=3)
    await take(other_app.queue(queue.name))
    consumer = (await seen(queue, mine[0].id)).consumer

    pending = await queue.pending(consumer=consumer, limit=2)

    assert (pending.total, len(pending.messages)) == (3, 2)


async def inspect_everything(queue: AsyncQueue, ids: Sequence[str]) -> None:
    await queue.stats()
    await queue.pending()
    await queue.audit()
    for state in STATES:
        await queue.list(state)  # type: ignore[arg-type]
    for id_ in ids:
        await queue.get(id_)


async def test_inspection_changes_nothing(app: AsyncDuly, queue_name: str, place: Place) -> None:
    queue = app.queue(queue_name, done=Keep(count=10))
    ids = [await given_in(queue, state) for state in ("leased", "dead", "done", "delayed", "ready")]
    before = (await counted(queue), [await queue.get(id_) for id_ in ids], set(place.keys(queue.name)))

    await inspect_everything(queue, ids)

    assert (await counted(queue), [await queue.get(id_) for id_ in ids], set(place.keys(queue.name))) == before


async def test_times_are_aware_and_in_utc(queue: AsyncQueue) -> None:
    delivery = await given_leased(queue)
    message = await seen(queue, delivery.id)

    for moment in (delivery.sent_at, delivery.due_at, message.sent_at, message.due_at, message.deadline):
        assert isinstance(moment, datetime)
        assert moment.tzinfo is UTC
