"""Explain and timeline: one true sentence about a message, and what happened to it."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from duly import AsyncDuly, AsyncQueue, Defer, Keep, Retry, Send
from tests.client._async.given import given_leased, seen, take, take_one
from tests.client.place import Place

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00")


async def explanation(queue: AsyncQueue, id: str) -> str:  # noqa: A002
    """Explain a message, and cut off what every sentence begins and ends with."""
    sentence = await queue.explain(id)
    begin = f"message {id} of queue {queue.name!r} "
    assert sentence.startswith(begin)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence.removeprefix(begin).removesuffix(".")


def split(sentence: str) -> tuple[str, list[datetime]]:
    """Take the times out of a sentence."""
    return _TIME.sub("T", sentence), [datetime.fromisoformat(found) for found in _TIME.findall(sentence)]


def is_moment(said: datetime, real: datetime | None) -> bool:
    """Return whether a text shows this time, in milliseconds."""
    assert real is not None
    return said <= real < said + timedelta(milliseconds=1)


async def test_a_delayed_message_is_explained(queue: AsyncQueue) -> None:
    id_ = await queue.send("body", delay=60)

    sentence, (until,) = split(await explanation(queue, id_))

    assert sentence == "is delayed until T"
    assert is_moment(until, (await seen(queue, id_)).due_at)


@pytest.mark.parametrize("error", ["boom", None])
async def test_a_back_off_is_explained(queue: AsyncQueue, error: str | None) -> None:
    delivery = await given_leased(queue)
    await delivery.retry(30, error=error)

    sentence, (until,) = split(await explanation(queue, delivery.id))

    because = "after error 'boom'" if error else "after a failure"
    assert sentence == f"is in backoff {because}: attempt 2 is due at T"
    assert is_moment(until, (await seen(queue, delivery.id)).due_at)


async def test_a_deferred_message_is_explained(queue: AsyncQueue, clock: Place) -> None:
    delivery = await given_leased(queue)
    await delivery.defer(30)
    once, _ = split(await explanation(queue, delivery.id))
    clock.advance(31)
    await (await take_one(queue)).defer(30)

    sentence, (until,) = split(await explanation(queue, delivery.id))

    assert (once, sentence) == ("was deferred once: it is due again at T", "was deferred 2 times: it is due again at T")
    assert is_moment(until, (await seen(queue, delivery.id)).due_at)


async def test_a_message_deferred_for_a_reason_is_explained(queue: AsyncQueue) -> None:
    delivery = await given_leased(queue)
    await delivery.defer(30, reason="the shop is closed")

    sentence, _ = split(await explanation(queue, delivery.id))

    assert sentence == "was deferred once (the shop is closed): it is due again at T"
    assert (await seen(queue, delivery.id)).timeline[-1].detail == "the shop is closed"


async def test_a_message_deferred_by_a_busy_lock_is_explained(app: AsyncDuly, queue: AsyncQueue) -> None:
    delivery, name = await given_leased(queue), f"{queue.name}:stock"
    async with app.lock(name), delivery, delivery.lock(name):
        pass

    sentence, _ = split(await explanation(queue, delivery.id))

    assert sentence == f"was deferred once (lock {name!r} was busy): it is due again at T"


async def test_a_defer_that_is_raised_may_have_a_reason(queue: AsyncQueue) -> None:
    delivery = await given_leased(queue)
    async with delivery:
        raise Defer(30, reason="the shop is closed")

    assert (await seen(queue, delivery.id)).timeline[-1].detail == "the shop is closed"


@pytest.mark.parametrize("is_parked", [False, True])
async def test_a_message_behind_another_of_its_key_is_explained(queue: AsyncQueue, is_parked: bool) -> None:
    first, second = await queue.send_many([Send(n, key="user-42") for n in range(2)])
    (delivery,) = await take(queue, limit=2 if is_parked else 1)
    assert (await seen(queue, second)).state == ("parked" if is_parked else "ready")

    sentence, (until,) = split(await explanation(queue, second))

    assert sentence == (
        f"is behind message {first} of key 'user-42', which is leased until T: it is delivered after that one is "
        "finished or dead"
    )
    assert is_moment(until, (await seen(queue, first)).deadline)
    await delivery.ack()
    assert (await take_one(queue)).id == second


async def test_a_message_behind_one_that_waits_is_explained(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, on_dead="block")
    first, second = await queue.send_many([Send(n, key="k") for n in range(2)])
    (delivery,) = await take(queue)
    await delivery.retry(30, error="boom")

    sentence, (due,) = split(await explanation(queue, second))

    assert sentence == (
        f"is behind message {first} of key 'k', which is due at T: it is delivered after that one is finished or "
        "removed"
    )
    assert is_moment(due, (await seen(queue, first)).due_at)


async def test_a_message_behind_a_dead_one_of_its_key_is_explained(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, on_dead="block")
    first, second = await queue.send_many([Send(n, key="k") for n in range(2)])
    (delivery,) = await take(queue)
    await delivery.reject("no use")

    sentences = {await explanation(each, second) for each in (queue, app.queue(queue_name))}

    assert sentences == {f"is behind message {first} of key 'k', which is dead: redrive(), cancel() or purge it"}
    await queue.cancel(first)
    assert (await take_one(queue)).id == second


async def test_a_leased_message_is_explained(queue: AsyncQueue, other_app: AsyncDuly) -> None:
    id_ = await queue.send("body")
    await take_one(other_app.queue(queue.name), lease=45)

    sentence, (until,) = split(await explanation(queue, id_))

    message = await seen(queue, id_)
    assert sentence == f"is leased by {message.consumer} until T, attempt 1"
    assert is_moment(until, message.deadline)
    assert (await queue.pending()).consumers == {message.consumer: 1}


async def test_a_message_that_waits_for_the_rate_is_explained(app: AsyncDuly, queue_name: str, clock: Place) -> None:
    queue = app.queue(queue_name, rate="1/m", lease=300)
    _, second, third = await queue.send_many(range(3))
    await take_one(queue)

    sentence, (since, until) = split(await explanation(queue, second))
    behind, _ = split(await explanation(queue, third))

    assert sentence == "has been ready since T, but the rate of 1/m is used up until T, first in line"
    assert behind == "has been ready since T, but the rate of 1/m is used up until T, behind 1 other"
    assert is_moment(since, (await seen(queue, second)).due_at)
    clock.advance(until.timestamp() - clock.now() - 5)
    assert await take(queue) == []
    clock.advance(5.1)
    assert (await take_one(queue)).id == second


async def test_a_message_that_waits_for_room_in_flight_is_explained(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, max_in_flight=2)
    ids = await queue.send_many(range(4))
    held = await take(queue)

    sentence, (since,) = split(await explanation(queue, ids[3]))

    assert (await queue.stats()).leased == 2
    assert sentence == (
        "has been ready since T, but 2 messages are in flight and max_in_flight is 2: it is delivered when one of them "
        "is settled, "
        "behind 1 other"
    )
    assert is_moment(since, (await seen(queue, ids[3])).due_at)
    await held[0].ack()
    sentence, _ = split(await explanation(queue, ids[2]))
    assert sentence == "has been ready since T, first in line: it is delivered when a consumer asks for messages"
    assert (await take_one(queue)).id == ids[2]


async def test_a_message_of_a_paused_queue_is_explained(queue: AsyncQueue, other_app: AsyncDuly) -> None:
    id_ = await queue.send("body")
    await other_app.queue(queue.name).pause()

    sentence, (since,) = split(await explanation(queue, id_))

    who = (await queue.stats()).paused
    assert who
    assert sentence == f"has been ready since T, but the queue is paused by {who}: it is delivered after resume()"
    assert is_moment(since, (await seen(queue, id_)).due_at)


async def test_a_suspect_is_explained(app: AsyncDuly, queue_name: str, clock: Place) -> None:
    queue = app.queue(queue_name, crash_limit=2, lease=5)
    delivery = await given_leased(queue)
    clock.advance(6)
    await (await take_one(queue)).release()

    sentence, _ = split(await explanation(queue, delivery.id))

    assert (await seen(queue, delivery.id)).crashes == 1
    assert sentence == (
        "has been ready since T and one more crash makes it dead: it waits for a worker that holds nothing else, "
        "first in line"
    )


@pytest.mark.parametrize("error", ["boom", None])
async def test_a_dead_message_is_explained(app: AsyncDuly, queue_name: str, error: str | None) -> None:
    queue = app.queue(queue_name, retry=Retry(attempts=1))
    delivery = await given_leased(queue)
    await (delivery.retry(error=error) if error else delivery.reject("no such order"))

    sentence, (since,) = split(await explanation(queue, delivery.id))

    message = await seen(queue, delivery.id)
    assert message.reason
    because = f": {message.reason}" + (", last error 'boom'" if error else "")
    assert sentence.startswith(f"has been dead since T{because}")
    assert "redrive()" in sentence
    assert is_moment(since, message.finished_at)


async def test_a_finished_message_is_explained(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, done=Keep(count=10))
    delivery = await given_leased(queue)
    await delivery.ack()

    sentence, (at,) = split(await explanation(queue, delivery.id))

    assert sentence == "was finished at T"
    assert is_moment(at, (await seen(queue, delivery.id)).finished_at)


async def test_an_unknown_message_is_explained(queue: AsyncQueue) -> None:
    finished = await given_leased(queue)
    await finished.ack()

    sentences = {(await explanation(queue, id_)) for id_ in ("nonsense", finished.id)}

    assert sentences == {"is unknown: it was never sent, or is finished, cancelled, expired or trimmed"}


async def test_a_message_that_is_ready_is_explained(queue: AsyncQueue) -> None:
    ids = await queue.send_many([*range(3), Send("urgent", priority=5)])

    found = [split(await explanation(queue, id_))[0] for id_ in ids]

    turns = ("behind 1 other", "behind 2 others", "behind 3 others", "first in line")
    asked = "it is delivered when a consumer asks for messages"
    assert found == [f"has been ready since T, {turn}: {asked}" for turn in turns]
    assert [delivery.id for delivery in await take(queue)] == [ids[3], *ids[:3]]


# --- What happened ---------------------------------------------------------------------------------------------


async def test_a_timeline_lists_the_events_of_a_message(app: AsyncDuly, queue_name: str, clock: Place) -> None:
    queue = app.queue(queue_name, lease=5, crash_limit=9, done=Keep(count=10))
    delivery = await given_leased(queue)
    id_, fences = delivery.id, [delivery.fence]
    clock.advance(2)
    await delivery.retry(0, error="boom")
    for verb in ("defer", "release", "crash", "ack"):
        delivery = await take_one(queue)
        fences.append(delivery.fence)
        if verb == "crash":
            clock.advance(6)
        else:
            await (
                delivery.defer(0) if verb == "defer" else delivery.release() if verb == "release" else delivery.ack()
            )

    timeline = (await seen(queue, id_)).timeline

    ends = ["retry", "defer", "release", "crash", "ack"]
    assert [event.what for event in timeline] == ["sent", *(what for end in ends for what in ("claimed", end))]
    assert [event.at for event in timeline] == sorted(event.at for event in timeline)
    claims = [event for event in timeline if event.what == "claimed"]
    assert [event.at for event in claims] == [_moment(fence) for fence in fences]
    assert {event.consumer for event in timeline[1:]} == {claims[0].consumer}
    retry = timeline[2]
    assert (retry.detail, retry.took is not None and 2 <= retry.took < 60) == ("boom", True)
    assert timeline[8].took is not None
    assert timeline[8].took >= 5


async def test_a_timeline_ends_with_the_holder_of_the_message(queue: AsyncQueue) -> None:
    delivery = await given_leased(queue)

    message = await seen(queue, delivery.id)

    assert [(event.what, event.consumer) for event in message.timeline] == [
        ("sent", None), ("claimed", message.consumer),
    ]  # fmt: skip
    assert message.timeline[0].at == message.sent_at


async def test_a_timeline_continues_after_redrive(queue: AsyncQueue) -> None:
    delivery = await given_leased(queue)
    await delivery.reject("no use")
    await queue.redrive()

    message = await seen(queue, delivery.id)

    assert [(event.what, event.detail) for event in message.timeline] == [
        ("sent", ""), ("claimed", ""), ("reject", "no use"), ("redrive", ""),
    ]  # fmt: skip
    assert (message.errors, message.attempt) == ((), 1)


async def test_a_recycled_message_begins_a_new_timeline(queue: AsyncQueue) -> None:
    delivery = await given_leased(queue)
    await delivery.retry(0, error="boom")
    await (await take_one(queue)).recycle()

    message = await seen(queue, delivery.id)

    assert [event.what for event in message.timeline] == ["sent"]
    assert message.cycles == 1


async def test_a_timeline_is_bounded(queue: AsyncQueue) -> None:
    id_ = await queue.send("body")
    for _ in range(25):
        await (await take_one(queue)).defer(0)

    timeline = (await seen(queue, id_)).timeline

    assert [event.what for event in timeline] == ["sent", *["claimed", "defer"] * 20]


def _moment(us: int) -> datetime:
    return datetime.fromtimestamp(us // 1_000_000, UTC) + timedelta(microseconds=us % 1_000_000)
