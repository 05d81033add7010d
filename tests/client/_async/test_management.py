"""Management: reschedule, promote, pause, purge, delete, redrive, audit."""

from datetime import UTC, datetime, timedelta

import pytest

from duly import AsyncDuly, AsyncQueue, Keep, Retry, Send, UsageError
from duly._core import ops
from tests.client._async.given import (
    check_accounts,
    counted,
    given_dead,
    given_in,
    given_leased,
    seen,
    take,
    take_bodies,
    take_one,
)
from tests.client.place import Place, ServerPlace

STATES = ["ready", "delayed", "leased", "dead"]


async def test_reschedule_moves_a_message_later(queue: AsyncQueue, clock: Place) -> None:
    id_ = await queue.send("moved", delay=5)
    await queue.send("other", delay=10)

    assert await queue.reschedule(id_, delay=20)

    clock.advance(15)
    assert await take_bodies(queue) == ["other"]
    clock.advance(6)
    assert await take_bodies(queue) == ["moved"]


async def test_reschedule_moves_a_message_earlier(queue: AsyncQueue, clock: Place) -> None:
    id_ = await queue.send("moved", delay=1000)

    assert await queue.reschedule(id_, delay=timedelta(seconds=5))

    clock.advance(6)
    assert await take_bodies(queue) == ["moved"]


async def test_reschedule_takes_a_time(queue: AsyncQueue, clock: Place) -> None:
    id_ = await queue.send("moved")
    when = datetime.fromtimestamp(int(clock.now()) + 50, UTC)

    assert await queue.reschedule(id_, at=when)

    message = await seen(queue, id_)
    assert (message.state, message.due_at) == ("delayed", when)


async def test_reschedule_moves_a_retry_and_keeps_its_counters(queue: AsyncQueue) -> None:
    """I8."""
    delivery = await given_leased(queue)
    await delivery.retry(delay=1000)

    assert await queue.reschedule(delivery.id, delay=0)

    again = await take_one(queue)
    assert (again.failures, again.attempt) == (1, 2)


async def test_a_ttl_counts_from_the_new_due_time(queue: AsyncQueue, clock: Place) -> None:
    id_ = await queue.send("body", ttl=10)
    await queue.reschedule(id_, delay=100)

    clock.advance(105)

    assert await take_bodies(queue) == ["body"]


@pytest.mark.parametrize("state", ["leased", "dead", "done", "unknown"])
async def test_a_message_that_does_not_wait_cannot_be_moved(app: AsyncDuly, queue_name: str, state: str) -> None:
    queue = app.queue(queue_name, done=Keep(count=10))
    id_ = "unknown" if state == "unknown" else await given_in(queue, state)
    before = await counted(queue)

    assert not await queue.reschedule(id_, delay=0)
    assert not await queue.promote(id_)
    assert await counted(queue) == before


async def test_promote_makes_a_message_due_now(queue: AsyncQueue) -> None:
    """I3."""
    id_ = await queue.send("later", delay=1000)

    assert await queue.promote(id_)

    assert await take_bodies(queue) == ["later"]


async def test_promote_of_a_ready_message_leaves_its_place(queue: AsyncQueue) -> None:
    ids = await queue.send_many(["first", "second"])

    assert await queue.promote(ids[0])

    assert await take_bodies(queue) == ["first", "second"]


async def test_pause_stops_deliveries_and_nothing_else(queue: AsyncQueue) -> None:
    held = await given_leased(queue)
    await queue.pause()

    await queue.send("new")
    await held.ack()

    assert await take(queue) == []
    assert await counted(queue) == {
        "sent": 2, "delivered": 1, "acked": 1, "ready": 1, "paused": (await queue.stats()).paused,
    }  # fmt: skip


async def test_a_resumed_queue_delivers_again(queue: AsyncQueue) -> None:
    await queue.send("body")
    await queue.pause()
    assert (await queue.stats()).paused

    await queue.resume()

    assert (await queue.stats()).paused is None
    assert await take_bodies(queue) == ["body"]


async def test_pause_and_resume_may_be_repeated(queue: AsyncQueue) -> None:
    """I6."""
    await queue.resume()
    await queue.pause()
    await queue.pause()
    await queue.send("body")
    await queue.resume()
    await queue.resume()

    assert await take_bodies(queue) == ["body"]


@pytest.mark.parametrize("state", [*STATES, "done"])
async def test_purge_ends_the_messages_of_a_state_and_leaves_the_rest(
    app: AsyncDuly, queue_name: str, state: str
) -> None:
    """I1."""
    queue = app.queue(queue_name, done=Keep(count=10))
    ids = {each: await given_in(queue, each) for each in ("leased", "dead", "done", "delayed", "ready")}

    assert await queue.purge(state) == 1  # type: ignore[arg-type]

    left = {each for each, id_ in ids.items() if await queue.get(id_) is not None}
    assert left == set(ids) - {state}
    await check_accounts(queue)


async def test_purge_ends_everything(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, done=Keep(count=10))
    for state in ("leased", "dead", "done", "delayed", "ready"):
        await given_in(queue, state)

    assert await queue.purge() == 5

    stats = await queue.stats()
    assert (stats.live, stats.dead, stats.done, stats.bytes, stats.dead_bytes, stats.done_bytes) == (0, 0, 0, 0, 0, 0)
    await check_accounts(queue)


async def test_purge_of_nothing_is_zero(queue: AsyncQueue) -> None:
    assert await queue.purge() == 0
    assert await queue.purge("dead") == 0
    assert await queue.purge("parked") == 0


async def test_purge_takes_more_than_a_thousand_of_every_priority(queue: AsyncQueue) -> None:
    """I11."""
    await queue.send_many([Send(n, priority=n % 10) for n in range(2500)])

    assert await queue.purge() == 2500
    await check_accounts(queue)


async def test_delete_leaves_no_keys(app: AsyncDuly, queue_name: str, place: Place) -> None:
    """I9, 004-12."""
    queue = app.queue(queue_name, done=Keep(count=10))
    for state in ("leased", "dead", "done", "delayed", "ready"):
        await given_in(queue, state, priority=3, dedup=state, ttl=60)

    await queue.delete()

    assert [key for key, ttl in place.keys(queue_name).items() if not (key.startswith("call:") and ttl > 0)] == []
    assert queue_name not in await app.queues()
    assert await counted(queue) == {}


async def test_a_deleted_queue_may_be_used_again(queue: AsyncQueue) -> None:
    await queue.send("old", dedup="d")
    await queue.delete()
    await queue.delete()

    await queue.send("new", dedup="d")

    assert await take_bodies(queue) == ["new"]
    assert await counted(queue) == {"sent": 1, "delivered": 1, "acked": 1}


async def test_redrive_puts_dead_letters_back_to_their_own_place_with_all_attempts(
    app: AsyncDuly, queue_name: str
) -> None:
    """I1."""
    queue = app.queue(queue_name, retry=Retry(attempts=1))
    await queue.send_many(["first", "second", "third"])
    first, second = await take(queue, limit=2)
    await second.retry(error="trouble")
    await first.reject("no use")

    assert await queue.redrive() == 2

    deliveries = await take(queue)
    assert [delivery.body for delivery in deliveries] == ["first", "second", "third"]
    assert {delivery.attempt for delivery in deliveries} == {1}
    assert (await seen(queue, second.id)).errors == ()
    assert (await queue.stats()).redriven == 2
    await check_accounts(queue)


async def test_redrive_takes_the_oldest_up_to_a_limit(queue: AsyncQueue) -> None:
    ids = [await given_dead(queue, number) for number in range(3)]

    assert await queue.redrive(limit=2) == 2

    assert [message.id for message in await queue.list("dead")] == ids[2:]
    assert await take_bodies(queue) == [0, 1]


async def test_redrive_of_nothing_is_zero(queue: AsyncQueue) -> None:
    assert await queue.redrive() == 0


async def test_the_ttl_of_a_redriven_message_starts_over(queue: AsyncQueue, clock: Place) -> None:
    await given_dead(queue, ttl=10)
    clock.advance(1000)

    await queue.redrive()

    assert await take_bodies(queue) == ["body"]


async def test_redrive_takes_more_than_a_thousand(app: AsyncDuly, queue_name: str, clock: Place) -> None:
    """I11."""
    queue = app.queue(queue_name, crash_limit=1, lease=5)
    await queue.send_many(range(1200))
    for limit in (1000, 200):
        await take(queue, limit=limit)
    clock.advance(6)
    for _ in range(12):
        await take(queue, limit=1)

    assert await queue.redrive() == 1200
    await check_accounts(queue)


async def test_an_audit_of_a_queue_in_use_is_right(app: AsyncDuly, queue_name: str, clock: Place) -> None:
    """I1 I2."""
    queue = app.queue(queue_name, done=Keep(count=2), dead=Keep(count=1), max_length=50, on_full="drop_oldest")
    await queue.send_many(
        [Send(n, priority=n % 3, ttl=5 if n % 7 == 0 else None, dedup=str(n % 40)) for n in range(70)]
    )
    verbs = ["ack", "retry", "defer", "recycle", "reject", "release"]
    for number, delivery in enumerate(await take(queue, limit=30, lease=5)):
        verb = verbs[number % 7] if number % 7 < 6 else None
        if verb is not None:
            await getattr(delivery, verb)(*{"defer": (3,), "reject": ("no use",)}.get(verb, ()))
    clock.advance(6)
    await take(queue, limit=5)
    await queue.redrive()

    audit = await queue.audit()

    assert audit.ok
    assert audit
    assert (audit.faults, audit.difference, audit.repaired) == ((), 0, False)
    assert audit.checked > 0


async def test_an_audit_finds_a_message_whose_body_was_lost(
    app: AsyncDuly, queue_name: str, server: ServerPlace
) -> None:
    """003-22: on servers, where another program may write."""
    queue = app.queue(queue_name)
    id_ = await queue.send("body")
    server.corrupt(queue_name, "HDEL", "msgs", id_)

    found = await queue.audit()
    await queue.audit(repair=True)
    await queue.audit(repair=True)  # bytes can be counted only when everything is in its place

    assert not found.ok
    assert id_ in {fault.id for fault in found.faults}
    await check_accounts(queue)


async def test_an_audit_finds_wrong_counts_and_repairs_them(
    app: AsyncDuly, queue_name: str, server: ServerPlace
) -> None:
    """I1, 003-22: on servers, where another program may write."""
    queue = app.queue(queue_name)
    await queue.send_many([1, 2])
    server.corrupt(queue_name, "HINCRBY", "meta", "sent", "5")

    found = await queue.audit()
    await queue.audit(repair=True)

    assert (found.ok, found.difference) == (False, 5)
    await check_accounts(queue)


async def test_dead_letters_are_listed_newest_first_page_by_page(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name)
    ids = await queue.send_many(range(5))
    for delivery in await queue.receive(5, wait=0):
        await delivery.reject("no use")

    first = await queue.list("dead", limit=2, newest=True)
    second = await queue.list("dead", limit=2, after=first[-1], newest=True)
    await queue.cancel(second[-1].id)
    third = await queue.list("dead", limit=2, after=second[-1], newest=True)
    by_id = await queue.list("dead", limit=9, after=ids[3], newest=True)

    assert [each.id for page in (first, second, third) for each in page] == ids[::-1]
    assert [each.id for each in by_id] == [ids[2], ids[0]]
    assert await queue.list("dead", after=ids[0], newest=True) == []
    assert [each.id for each in await queue.find_dead(limit=2, newest=True)] == [ids[4], ids[3]]
    assert [each.id for each in await queue.find_dead(limit=9, newest=True, after=ids[3])] == [ids[2], ids[0]]
    assert [each.id for each in await queue.find_dead(limit=1, newest=True, after=first[-1])] == [ids[2]]
    with pytest.raises(UsageError, match="newest=True is for dead and done messages, not for ready ones"):
        await queue.list("ready", newest=True)


async def test_purge_ends_the_dead_letters_that_are_chosen(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name)
    for reason in ("broken", "lost", "broken"):
        await queue.send(reason, key="k")
        (delivery,) = await queue.receive(1, wait=0)
        await delivery.reject(reason)

    assert await queue.purge("dead", where={"reason": "broken"}, dry_run=True) == 2
    assert (await queue.stats()).dead == 3
    assert await queue.purge("dead", where={"reason": "broken"}) == 2

    (left,) = await queue.list("dead")
    assert left.reason == "lost"
    assert (await queue.stats()).purged == 2
    assert (await queue.audit()).ok
    with pytest.raises(UsageError, match="choose among dead letters"):
        await queue.purge("ready", where={"reason": "broken"})


async def test_purge_leaves_a_letter_that_died_again_since_it_was_listed(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name)
    id_ = await queue.send("x")
    (delivery,) = await queue.receive(1, wait=0)
    await delivery.reject("no use")
    (letter,) = await queue.list("dead")
    await queue.redrive()
    (delivery,) = await queue.receive(1, wait=0)
    await delivery.reject("no use")

    purged, left = await queue._link.run(ops.purge_letters(queue._keys, [(id_, letter.cursor[0]), (id_, 1)]))

    assert (purged, left) == (0, 1)
