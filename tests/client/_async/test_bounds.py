"""Bounds of a queue: max_length, max_bytes, and what a send does when there is no room."""

from typing import Any

import pytest

from duly import AsyncDuly, AsyncQueue, QueueFull, Send
from duly.options import OnFull
from tests.client._async.given import (
    InBackground,
    check_accounts,
    counted,
    given_leased,
    pause,
    take,
    take_bodies,
    take_one,
)
from tests.client.place import Place

BOUNDS = [{"max_length": 3}, {"max_bytes": 450}]
"""Either has room for three bodies of a hundred bytes."""
BODY = b"x" * 100


@pytest.mark.parametrize("bound", BOUNDS, ids=str)
async def test_a_full_queue_refuses(app: AsyncDuly, queue_name: str, bound: dict[str, Any]) -> None:
    """001-14."""
    queue = app.queue(queue_name, **bound)
    for _ in range(3):
        await queue.send(BODY)

    with pytest.raises(QueueFull, match=queue_name):
        await queue.send(BODY)

    assert (await queue.stats()).ready == 3
    await check_accounts(queue)


@pytest.mark.parametrize("bound", BOUNDS, ids=str)
async def test_all_that_is_live_counts(app: AsyncDuly, queue_name: str, bound: dict[str, Any]) -> None:
    queue = app.queue(queue_name, **bound)
    await given_leased(queue, BODY)
    await queue.send(BODY, delay=60)
    await queue.send(BODY)

    with pytest.raises(QueueFull):
        await queue.send(BODY)


@pytest.mark.parametrize("bound", BOUNDS, ids=str)
async def test_dead_letters_do_not_count(app: AsyncDuly, queue_name: str, bound: dict[str, Any]) -> None:
    queue = app.queue(queue_name, **bound)
    for _ in range(4):
        await (await given_leased(queue, BODY)).reject("no use")

    await queue.send(BODY)

    assert (await queue.stats()).dead == 4


@pytest.mark.parametrize("bound", BOUNDS, ids=str)
async def test_an_ack_makes_room(app: AsyncDuly, queue_name: str, bound: dict[str, Any]) -> None:
    queue = app.queue(queue_name, **bound)
    await queue.send_many([BODY] * 3)
    await take_bodies(queue, limit=1)

    await queue.send(BODY)

    assert (await queue.stats()).live == 3


async def test_messages_past_their_ttl_make_room(app: AsyncDuly, queue_name: str, clock: Place) -> None:
    queue = app.queue(queue_name, max_length=2)
    await queue.send_many([Send("over", ttl=5), Send("over", ttl=5)])
    clock.advance(6)

    await queue.send("new")

    assert await take_bodies(queue) == ["new"]
    assert (await queue.stats()).expired == 2


async def test_many_that_do_not_fit_are_refused_together(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, max_length=3)
    await queue.send("first")

    with pytest.raises(QueueFull) as refused:
        await queue.send_many([1, 2, 3])

    assert refused.value.stored == []
    assert await take_bodies(queue) == ["first"]


async def test_the_error_in_the_second_thousand_names_the_stored_messages(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, max_length=1500)

    with pytest.raises(QueueFull) as refused:
        await queue.send_many(range(2000))

    assert len(refused.value.stored) == (await queue.stats()).ready == 1000


async def test_a_duplicate_needs_no_room(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, max_length=1)
    first = await queue.send("body", dedup="d")

    assert await queue.send("again", dedup="d") == first
    assert await queue.send("newer", dedup="d", replace=True) == first


@pytest.mark.parametrize("bound", BOUNDS, ids=str)
async def test_a_blocked_send_continues_when_there_is_room(
    app: AsyncDuly, queue_name: str, bound: dict[str, Any]
) -> None:
    """001-1."""
    queue = app.queue(queue_name, on_full="block", **bound)
    await queue.send_many([BODY] * 3)
    sending = InBackground(lambda: queue.send(b"y" * 100))
    await pause(0.03)  # time enough for a send that would not block
    assert sending.is_running

    await (await take_one(queue, limit=1)).ack()

    await sending.result()
    assert (await take(queue))[-1].body == b"y" * 100


async def test_a_blocked_send_many_continues_when_there_is_room_for_all(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, on_full="block", max_length=3)
    await queue.send_many([1, 2])
    sending = InBackground(lambda: queue.send_many([3, 4]))
    await pause(0.03)
    assert sending.is_running

    first = await take_bodies(queue, limit=1)

    await sending.result()
    assert first + await take_bodies(queue) == [1, 2, 3, 4]


@pytest.mark.parametrize("on_full", ["block", "drop_oldest", "raise"])
async def test_a_message_that_can_never_fit_is_refused_at_once(
    app: AsyncDuly, queue_name: str, on_full: OnFull
) -> None:
    queue = app.queue(queue_name, max_bytes=100, on_full=on_full)

    sending = InBackground(lambda: queue.send(b"x" * 500))

    with pytest.raises(QueueFull, match=queue_name):
        await sending.result()


async def test_drop_oldest_makes_room_and_counts(app: AsyncDuly, queue_name: str) -> None:
    """I1."""
    queue = app.queue(queue_name, max_length=3, on_full="drop_oldest")

    for number in range(5):
        await queue.send(number)

    assert await take_bodies(queue) == [2, 3, 4]
    assert await counted(queue) == {"sent": 5, "dropped": 2, "delivered": 3, "acked": 3}
    await check_accounts(queue)


async def test_drop_oldest_of_many(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, max_bytes=450, on_full="drop_oldest")
    await queue.send_many([BODY] * 3)

    await queue.send_many([b"y" * 100, b"z" * 100])

    assert await take_bodies(queue) == [BODY, b"y" * 100, b"z" * 100]


async def test_the_oldest_that_is_dropped_is_the_one_that_was_due_first(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, max_length=2, on_full="drop_oldest")
    await queue.send("due tomorrow", delay=86400)
    await queue.send("due now", priority=9)

    await queue.send("new")

    assert [message.body for message in await queue.list("delayed")] == ["due tomorrow"]
    assert await take_bodies(queue) == ["new"]


async def test_drop_oldest_never_drops_a_leased_message(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, max_length=1, on_full="drop_oldest")
    held = await given_leased(queue, "held")

    with pytest.raises(QueueFull):
        await queue.send("new")

    await held.ack()
    await queue.send("new")


async def test_a_bound_is_the_senders_view(app: AsyncDuly, queue_name: str) -> None:
    narrow, wide = app.queue(queue_name, max_length=1), app.queue(queue_name)
    await wide.send_many([1, 2, 3])

    with pytest.raises(QueueFull):
        await narrow.send(4)

    assert await take_bodies(wide) == [1, 2, 3]


async def test_coming_back_needs_no_room(app: AsyncDuly, queue_name: str) -> None:
    queue: AsyncQueue = app.queue(queue_name, max_length=1)
    held = await given_leased(queue)

    await held.retry(delay=0)

    assert (await queue.stats()).ready == 1
