"""Redrive: dead letters chosen, edited, spread over time, moved to another queue."""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import duly
from duly import AsyncDuly, AsyncQueue, Keep, Message, QueueFull, Retry, UsageError, Where
from tests.client._async.given import (
    SOON,
    InBackground,
    check_accounts,
    counted,
    given_blocked,
    given_dead,
    given_leased,
    pause,
    seen,
    take,
    take_bodies,
    take_one,
)
from tests.client.place import Place, ServerPlace


async def given_failed(queue: AsyncQueue, error: str, body: Any = "body", **options: Any) -> str:
    """Let a message die of an error."""
    delivery = await given_leased(queue, body, retry=Retry(attempts=1), **options)
    await delivery.retry(error=error)
    return delivery.id


async def dead_bodies(queue: AsyncQueue) -> list[Any]:
    return [message.body for message in await queue.list("dead")]


@pytest.fixture
def other(app: AsyncDuly, queue_name: str) -> AsyncQueue:
    return app.queue(f"{queue_name}.other")


# Which ones


@pytest.mark.parametrize(
    ("where", "chosen"),
    [
        (Where(error="Timeout"), ["a"]),
        (Where(error="*the bank*"), ["a", "b"]),
        ({"reason": "failed"}, ["a", "b"]),
        ({"reason": "no use"}, ["c"]),
        (Where(headers={"tenant": "acme"}), ["b", "c"]),
        (Where(key="order-*"), ["a", "c"]),
        (Where(key="order-1"), ["a"]),
        (lambda message: message.body in ("a", "c"), ["a", "c"]),
        (Where(error="nothing like this"), []),
        (Where(), ["a", "b", "c"]),
    ],
    ids=["error", "pattern", "reason", "another reason", "header", "keys", "key", "function", "none", "all"],
)
async def test_redrive_takes_the_letters_that_match_and_leaves_the_others(
    queue: AsyncQueue, where: Any, chosen: list[str]
) -> None:
    """I1."""
    await given_failed(queue, "TimeoutError: the bank", "a", key="order-1")
    await given_failed(queue, "KeyError: the bank", "b", headers={"tenant": "acme", "x": "y"})
    await given_dead(queue, "c", headers={"tenant": "acme"}, key="order-2")

    assert [message.body for message in await queue.find_dead(where)] == chosen
    assert await queue.redrive(where=where, dry_run=True) == len(chosen)
    assert await queue.redrive(where=where) == len(chosen)

    assert await dead_bodies(queue) == [body for body in "abc" if body not in chosen]
    assert await take_bodies(queue) == chosen
    await check_accounts(queue)


async def test_redrive_by_the_time_of_death(queue: AsyncQueue, clock: Place) -> None:
    for body in "abc":
        await given_dead(queue, body)
        clock.advance(100)
    died = [message.finished_at for message in await queue.list("dead")]
    second = died[1]
    assert second is not None

    assert [m.body for m in await queue.find_dead(Where(since=second))] == ["b", "c"]
    assert [m.body for m in await queue.find_dead(Where(until=second.timestamp()))] == ["a"]
    assert await queue.redrive(where=Where(since=second, until=datetime.fromtimestamp(clock.now() - 150, UTC))) == 1

    assert await dead_bodies(queue) == ["a", "c"]


async def test_redrive_by_ids_is_for_the_very_letters(queue: AsyncQueue) -> None:
    ids = [await given_dead(queue, body) for body in "abc"]

    assert await queue.redrive(where={"ids": [ids[2], ids[0], "unknown"]}) == 2

    assert await dead_bodies(queue) == ["b"]


async def test_a_limit_counts_those_that_a_filter_means(queue: AsyncQueue) -> None:
    for number in range(6):
        await given_dead(queue, number)

    assert await queue.redrive(limit=2, where=lambda message: message.body % 2 == 1) == 2

    assert await dead_bodies(queue) == [0, 2, 4, 5]
    assert await take_bodies(queue) == [1, 3]


async def test_find_dead_checks_the_oldest_up_to_its_limit(queue: AsyncQueue) -> None:
    for number in range(4):
        await given_dead(queue, number)

    first = await queue.find_dead(limit=2)
    assert [message.body for message in first] == [0, 1]
    assert [message.body for message in await queue.find_dead(limit=1, after=first[-1])] == [2]
    assert [message.body for message in await queue.find_dead(lambda message: message.body > 2, after=first[0])] == [3]
    with pytest.raises(UsageError, match="after"):
        await queue.find_dead(after="")
    assert [message.body for message in await queue.find_dead(lambda message: message.body > 1, limit=1)] == [2]
    assert (await queue.stats()).dead == 4


async def test_filters_skip_more_than_a_page(app: AsyncDuly, queue_name: str, clock: Place) -> None:
    """I11."""
    queue = app.queue(queue_name, crash_limit=1, lease=5)
    await queue.send_many(range(1200))
    for limit in (1000, 200):
        await take(queue, limit=limit)
    clock.advance(6)
    for _ in range(12):
        await take(queue, limit=1)

    assert await queue.redrive(where=lambda message: message.body >= 1100, dry_run=True) == 100
    assert await queue.redrive(where=lambda message: message.body < 1100) == 1100

    assert (await queue.stats()).dead == 100
    await check_accounts(queue)


async def test_a_dry_run_changes_nothing(queue: AsyncQueue) -> None:
    for number in range(3):
        await given_dead(queue, number)
    before = await counted(queue)

    assert await queue.redrive(dry_run=True) == 3
    assert await queue.redrive(limit=2, dry_run=True, edit=lambda _: "new") == 2

    assert await counted(queue) == before
    assert await dead_bodies(queue) == [0, 1, 2]


async def test_a_letter_that_dies_during_a_redrive_is_not_redriven_again(
    queue: AsyncQueue, other_app: AsyncDuly, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly._async.redriving.MAX_BATCH", 1)  # letters per page: one page for each
    for number in range(3):
        await given_dead(queue, number)
    again, give_up_at = other_app.queue(queue.name), time.monotonic() + SOON
    walk = InBackground(lambda: queue.redrive(where=Where(), rate="50/s"))

    while walk.is_running and time.monotonic() < give_up_at:
        for delivery in await take(again):
            await delivery.reject("again")
        await pause(0.002)

    assert await walk.result() == 3
    assert (await queue.stats()).redriven == 3


async def test_a_letter_without_a_body_is_not_redriven_by_a_filter(
    app: AsyncDuly, queue_name: str, server: ServerPlace
) -> None:
    """On servers, where another program may write."""
    queue = app.queue(queue_name)
    lost = await given_dead(queue, "lost")
    await given_dead(queue, "kept")
    server.corrupt(queue_name, "HDEL", "msgs", lost)

    assert await queue.redrive(where=Where(reason="no use"), dry_run=True) == 1
    assert await queue.redrive(where=Where(reason="no use")) == 1

    assert [message.id for message in await queue.find_dead()] == [lost]


# How


async def test_at_end_is_behind_due_messages(queue: AsyncQueue) -> None:
    for body in "ab":
        await given_dead(queue, body)
    await queue.send_many(["c", "d"])

    await queue.redrive(at_end=True)

    assert await take_bodies(queue) == ["c", "d", "a", "b"]


async def test_chosen_letters_return_to_their_own_place_or_to_the_end(queue: AsyncQueue) -> None:
    for body in "ab":
        await given_dead(queue, body)
    await queue.send("c")

    await queue.redrive(where=lambda message: message.body == "a", at_end=True)
    await queue.redrive(where=lambda message: message.body == "b")

    assert await take_bodies(queue) == ["b", "c", "a"]


async def test_an_edited_letter_has_the_new_body_and_keeps_its_options(queue: AsyncQueue) -> None:
    options: dict[str, Any] = {"headers": {"x": "y"}, "key": "k", "priority": 4, "ttl": 60}
    id_ = await given_dead(queue, {"amount": "5"}, **options)
    await given_dead(queue, {"amount": 6}, key="other")

    def mend(message: Message) -> Any:
        if isinstance(message.body["amount"], int):
            return duly.UNCHANGED
        return {"amount": int(message.body["amount"])}

    assert await queue.redrive(edit=mend) == 2

    message = await seen(queue, id_)
    assert (message.body, message.headers, message.key, message.priority) == ({"amount": 5}, {"x": "y"}, "k", 4)
    assert [delivery.body for delivery in await take(queue)] == [{"amount": 5}, {"amount": 6}]
    await check_accounts(queue)


def _raises(_: Message) -> Any:
    raise LookupError("no such thing")


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (_raises, "LookupError: no such thing"),
        (lambda _: object(), "cannot be sent"),
        (lambda _: "x" * 200, "max_message_bytes"),
        (lambda _: "no number", "int"),
        (lambda _: None, "edit returned None for message .*return the body, or duly.UNCHANGED"),
    ],
    ids=["raises", "does not encode", "too large", "wrong type", "nothing"],
)
async def test_a_letter_whose_edit_fails_stays_dead_and_those_before_it_are_redriven(
    app: AsyncDuly, queue_name: str, edit: Callable[[Message], Any], why: str
) -> None:
    queue = app.queue(queue_name, type=int, max_message_bytes=100)
    ids = [await given_dead(queue, number) for number in range(4)]

    with pytest.raises(UsageError, match=f"(?s){ids[2]}.*{why}.*2 were redriven before it"):
        await queue.redrive(edit=lambda message: edit(message) if message.body == 2 else message.body + 10)

    assert await dead_bodies(queue) == [2, 3]
    assert await take_bodies(queue) == [10, 11]
    await check_accounts(queue)


async def test_an_edit_that_returns_nothing_is_refused_when_tried_out(queue: AsyncQueue) -> None:
    id_ = await given_dead(queue, {"amount": 5})

    for dry_run in (True, False):
        with pytest.raises(UsageError, match=f"edit returned None for message {id_}"):
            await queue.redrive(edit=lambda message: message.body.update(amount=6), dry_run=dry_run)

    assert await dead_bodies(queue) == [{"amount": 5}]


async def test_a_body_of_none_may_be_edited_to_none(queue: AsyncQueue) -> None:
    await given_dead(queue, None)

    assert await queue.redrive(edit=lambda message: message.body) == 1
    assert await take_bodies(queue) == [None]


async def test_the_error_of_a_filter_names_the_letter(queue: AsyncQueue) -> None:
    id_ = await given_dead(queue)

    with pytest.raises(UsageError, match=f"{id_}.*LookupError"):
        await queue.redrive(where=_raises)

    assert await dead_bodies(queue) == ["body"]


async def test_a_rate_spreads_letters_over_time_in_their_order(queue: AsyncQueue) -> None:
    for number in range(15):
        await given_dead(queue, number)
    began = time.monotonic()

    assert await queue.redrive(rate="50/s") == 15

    assert time.monotonic() - began > 0.19  # five at once, then as many every tenth of a second
    assert await take_bodies(queue) == list(range(15))


async def test_a_slow_redrive_shows_its_progress(
    queue: AsyncQueue, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly._async.redriving._LOGGED_EVERY", 0.0)
    for number in range(3):
        await given_dead(queue, number)

    with caplog.at_level(logging.INFO, "duly"):
        await queue.redrive(rate="10/s", limit=2)

    lines = [record.getMessage() for record in caplog.records if record.name == "duly" and "redrive" in record.msg]
    assert lines == [f"redrive of queue {queue.name!r}: {count} were redriven so far" for count in (1, 2)]


# --- async only
async def test_a_redrive_that_was_interrupted_is_simply_called_again(queue: AsyncQueue) -> None:
    for number in range(4):
        await given_dead(queue, number)
    walk = InBackground(lambda: queue.redrive(rate="1/m"))
    while (await queue.stats()).redriven < 1:
        await pause(0.005)
    walk.cancel()
    with pytest.raises(asyncio.CancelledError):
        await walk.result()

    assert await queue.redrive() == 3

    assert await take_bodies(queue) == [0, 1, 2, 3]
    assert (await queue.stats()).redriven == 4
    await check_accounts(queue)


# --- end
async def test_the_timeline_shows_a_redrive(queue: AsyncQueue) -> None:
    id_ = await given_failed(queue, "boom")

    await queue.redrive(where=Where(error="boom"))

    assert [event.what for event in (await seen(queue, id_)).timeline] == ["sent", "claimed", "fail", "redrive"]


# Keys


async def given_blocking(app: AsyncDuly, queue_name: str) -> AsyncQueue:
    """Let the first of a lane die, and the others wait for it."""
    queue = app.queue(queue_name, on_dead="block")
    for body in "abc":
        await queue.send(body, key="k")
    delivery = await take_one(queue)
    await delivery.reject("no use")
    assert await take(queue) == []
    return queue


async def finished_in_order(queue: AsyncQueue) -> list[Any]:
    bodies = []
    while batch := await take_bodies(queue):
        bodies += batch
    return bodies


@pytest.mark.parametrize(("at_end", "order"), [(False, ["a", "b", "c"]), (True, ["b", "c", "a"])])
@pytest.mark.parametrize("where", [None, Where(key="k")], ids=["oldest", "chosen"])
async def test_a_blocking_letter_returns_to_its_place_or_to_the_end(
    app: AsyncDuly, queue_name: str, where: Where | None, at_end: bool, order: list[str]
) -> None:
    """I7."""
    queue = await given_blocking(app, queue_name)

    assert await queue.redrive(where=where, at_end=at_end) == 1

    assert await finished_in_order(queue) == order
    await check_accounts(queue)


@pytest.mark.one_slot("redrive(to=) another queue")
async def test_a_lane_continues_when_its_dead_letter_is_moved(
    app: AsyncDuly, queue_name: str, other: AsyncQueue
) -> None:
    """I7."""
    queue = await given_blocking(app, queue_name)

    assert await queue.redrive(to=other) == 1

    assert await finished_in_order(queue) == ["b", "c"]
    assert await take_bodies(other) == ["a"]
    await check_accounts(queue)
    await check_accounts(other)


# To another queue


@pytest.mark.one_slot("redrive(to=) another queue")
async def test_moved_letters_are_new_messages_in_the_other_queue(queue: AsyncQueue, other: AsyncQueue) -> None:
    """I1."""
    options: dict[str, Any] = {"headers": {"x": "y"}, "key": "k", "priority": 4}
    ids = [await given_failed(queue, "boom", body, **options) for body in "ab"]

    assert await queue.redrive(to=other) == 2

    assert await counted(queue) == {"sent": 2, "delivered": 2, "buried": 2, "moved": 2}
    assert await counted(other) == {"sent": 2, "ready": 2}
    message = await seen(other, ids[0])
    assert (message.body, message.headers, message.key, message.priority) == ("a", {"x": "y"}, "k", 4)
    assert (message.state, message.attempt, message.errors) == ("ready", 1, ())
    assert message.timeline[-1].what == "redrive"
    assert message.timeline[-1].detail == f"from {queue.name}"
    assert await queue.get(ids[0]) is None
    assert await finished_in_order(other) == ["a", "b"]
    await check_accounts(queue)
    await check_accounts(other)


@pytest.mark.one_slot("redrive(to=) another queue")
async def test_a_moved_letter_keeps_its_retry_policy_and_its_ttl_starts_over(
    queue: AsyncQueue, other: AsyncQueue, clock: Place
) -> None:
    await given_failed(queue, "boom", "once")
    await given_dead(queue, "short", ttl=10)
    clock.advance(1000)

    await queue.redrive(to=other.name)
    first, second = await take(other)
    await first.retry(error="again")
    await second.ack()

    assert (first.body, second.body) == ("once", "short")
    assert (await seen(other, first.id)).state == "dead"


@pytest.mark.one_slot("redrive(to=) another queue")
async def test_chosen_letters_are_moved_with_a_new_body_at_a_rate(queue: AsyncQueue, other: AsyncQueue) -> None:
    for number in range(4):
        await given_dead(queue, number)

    moved = await queue.redrive(
        where=lambda message: message.body > 0, to=other, edit=lambda message: message.body * 10, rate="100/s", limit=2
    )

    assert moved == 2
    assert await take_bodies(other) == [10, 20]
    assert await dead_bodies(queue) == [0, 3]


@pytest.mark.one_slot("redrive(to=) another queue")
async def test_a_letter_whose_id_is_in_use_in_the_other_queue_stays(
    queue: AsyncQueue, other: AsyncQueue, caplog: pytest.LogCaptureFixture
) -> None:
    await given_dead(queue, "a", id="twice")
    await given_dead(queue, "b")
    await other.send("theirs", id="twice")

    assert await queue.redrive(to=other) == 1

    assert await dead_bodies(queue) == ["a"]
    assert await take_bodies(other) == ["theirs", "b"]
    assert "twice" in caplog.text
    await check_accounts(queue)
    await check_accounts(other)


@pytest.mark.parametrize("bound", [{"max_length": 2}, {"max_length": 2, "on_full": "drop_oldest"}, {"max_bytes": 150}])
@pytest.mark.one_slot("redrive(to=) another queue")
async def test_a_full_queue_takes_the_letters_that_fit_and_the_error_counts_them(
    app: AsyncDuly, queue: AsyncQueue, other: AsyncQueue, bound: dict[str, Any]
) -> None:
    for number in range(4):
        await given_dead(queue, str(number) * 40)

    with pytest.raises(QueueFull, match=f"{other.name}.*2 dead letters"):
        await queue.redrive(to=app.queue(other.name, **bound))

    assert (await queue.stats()).dead == 2
    assert [body[0] for body in await take_bodies(other)] == ["0", "1"]
    await check_accounts(queue)
    await check_accounts(other)


@pytest.mark.one_slot("redrive(to=) another queue")
async def test_an_edit_on_the_way_to_another_queue_is_checked_as_a_send_there(
    app: AsyncDuly, queue: AsyncQueue, other: AsyncQueue
) -> None:
    await given_dead(queue, "5")
    typed = app.queue(other.name, type=int)

    with pytest.raises(UsageError, match="stays dead"):
        await queue.redrive(to=typed, edit=lambda message: message.body)
    assert await queue.redrive(to=typed, edit=lambda message: int(message.body)) == 1

    assert await take_bodies(typed) == [5]


@pytest.mark.one_slot("redrive(to=) another queue")
async def test_a_moved_letter_wakes_a_consumer_of_the_other_queue(
    app: AsyncDuly, other_app: AsyncDuly, queue: AsyncQueue, other: AsyncQueue, place: Place
) -> None:
    await given_dead(queue, "wanted")
    (consumer,) = await given_blocked(place, other_app.queue(other.name))

    await queue.redrive(to=other)

    assert [delivery.body for delivery in await consumer.result()] == ["wanted"]


@pytest.mark.one_slot("redrive(to=) another queue")
async def test_a_finished_message_makes_room_for_a_moved_letter_of_its_id(
    app: AsyncDuly, queue: AsyncQueue, other: AsyncQueue
) -> None:
    keeping = app.queue(other.name, done=Keep(count=10))
    finished = await given_leased(keeping, "old", id="same")
    await finished.ack()
    await given_dead(queue, "new", id="same")

    assert await queue.redrive(to=keeping) == 1

    assert await take_bodies(keeping) == ["new"]
    await check_accounts(keeping)


# Bad input


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"limit": 0}, "limit"),
        ({"where": "error"}, "where"),
        ({"where": {"colour": "red"}}, "colour"),
        ({"where": {"since": "today"}}, "since"),
        ({"rate": 50}, "rate"),
        ({"rate": "fast"}, "rate"),
        ({"edit": "body"}, "edit"),
        ({"to": 5}, "to must be"),
        ({"to": "not a name"}, "not a queue name"),
    ],
    ids=str,
)
async def test_a_redrive_that_makes_no_sense_is_refused(queue: AsyncQueue, options: dict[str, Any], why: str) -> None:
    await given_dead(queue)

    with pytest.raises(UsageError, match=why):
        await queue.redrive(**options)

    assert (await queue.stats()).dead == 1


async def test_a_letter_cannot_move_to_its_own_queue_or_to_another_app(
    queue: AsyncQueue, other_app: AsyncDuly, queue_name: str
) -> None:
    for to in (queue, queue_name, other_app.queue("elsewhere")):
        with pytest.raises(UsageError):
            await queue.redrive(to=to)
