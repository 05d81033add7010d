"""A holder reports its progress, and every caller of get() sees it until the delivery ends."""

import math
from typing import Any

import pytest

from duly import AsyncDuly, AsyncGroup, AsyncQueue, LeaseLost, UsageError
from duly.message import Progress
from tests.client._async.given import SETTLES, check_accounts, given_leased, settle, take, take_one
from tests.client.place import Place


async def shown(queue: AsyncQueue | AsyncGroup, id_: str) -> Progress | None:
    message = await queue.get(id_)
    assert message is not None
    return message.progress


async def test_progress_is_shown_while_the_message_is_leased(queue: AsyncQueue) -> None:
    delivery = await given_leased(queue)
    assert await shown(queue, delivery.id) is None

    await delivery.progress(0.4, "loading")

    message = await queue.get(delivery.id)
    assert message is not None
    assert message.progress is not None
    assert (message.progress.fraction, message.progress.text) == (0.4, "loading")
    assert message.state == "leased"
    assert message.progress.at is not None
    assert message.timeline[-1].at == message.progress.at
    assert [each.what for each in message.timeline] == ["sent", "claimed", "progress"]
    assert (message.timeline[-1].detail, message.timeline[-1].consumer) == ("40%: loading", message.consumer)
    (listed,) = await queue.list("leased")
    assert listed == message


async def test_the_last_report_is_the_one_that_is_shown(queue: AsyncQueue) -> None:
    delivery = await given_leased(queue, key="k", priority=3)

    for fraction in (0, 0.5, 1):
        await delivery.progress(fraction)

    progress = await shown(queue, delivery.id)
    assert progress is not None
    assert (progress.fraction, progress.text, str(progress)) == (1.0, "", "100%")


@pytest.mark.parametrize("verb", SETTLES)
async def test_no_settle_leaves_progress_behind(queue: AsyncQueue, verb: str) -> None:
    delivery = await given_leased(queue)
    await delivery.progress(0.4, "loading")

    await settle(delivery, verb)

    message = await queue.get(delivery.id)
    assert message is None or (message.progress, "progress" in [each.what for each in message.timeline]) == (
        None,
        False,
    )
    await check_accounts(queue)


async def test_cancel_purge_and_delete_leave_nothing_behind(queue: AsyncQueue) -> None:
    first, second, third = [await given_leased(queue, n) for n in range(3)]
    for delivery in (first, second, third):
        await delivery.progress(0.4)

    assert await queue.cancel(first.id, running=True)
    assert await queue.purge("leased") == 2
    await check_accounts(queue)
    await queue.delete()

    assert [await queue.get(each.id) for each in (first, second, third)] == [None, None, None]


async def test_a_crash_leaves_nothing_behind(queue: AsyncQueue, clock: Place) -> None:
    first = await given_leased(queue, lease=10)
    await first.progress(0.9, "nearly done")
    clock.advance(11)

    second = await take_one(queue)

    assert second.id == first.id
    assert await shown(queue, first.id) is None
    with pytest.raises(LeaseLost, match="progress"):
        await first.progress(1)
    assert first.lost
    assert await shown(queue, first.id) is None
    await second.progress(0.1)
    progress = await shown(queue, first.id)
    assert progress is not None
    assert progress.fraction == 0.1
    await check_accounts(queue)


async def test_a_settled_delivery_reports_no_progress(queue: AsyncQueue) -> None:
    delivery = await given_leased(queue)
    await delivery.release()
    (again,) = await take(queue)

    with pytest.raises(LeaseLost):
        await delivery.progress(0.5)

    assert await shown(queue, again.id) is None


async def test_a_report_does_not_extend_the_lease(queue: AsyncQueue) -> None:
    delivery = await given_leased(queue)
    before = await queue.get(delivery.id)

    await delivery.progress(0.5)

    after = await queue.get(delivery.id)
    assert before is not None
    assert after is not None
    assert after.deadline == before.deadline


@pytest.mark.parametrize("fraction", [-0.1, 1.1, math.nan, math.inf, True, "0.5", None], ids=repr)
async def test_a_value_that_is_not_a_fraction_is_refused_and_nothing_is_written(
    queue: AsyncQueue, fraction: Any
) -> None:
    delivery = await given_leased(queue)

    with pytest.raises(UsageError, match="fraction must be a number, from 0 to 1"):
        await delivery.progress(fraction, "loading")

    assert await shown(queue, delivery.id) is None
    await delivery.ack()


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("x" * 201, "x" * 200),
        ("ü" * 300, "ü" * 200),
        ("two words\nand a line", "two words\nand a line"),
        ("a\0b", "a\0b"),
        (" spaces ", " spaces "),
        ("\ud800", "\\ud800"),
        (7, "7"),
    ],
    ids=lambda text: repr(text)[:12],
)
async def test_the_text_is_kept_within_its_bounds(queue: AsyncQueue, given: Any, kept: str) -> None:
    delivery = await given_leased(queue)

    await delivery.progress(0.25, given)

    progress = await shown(queue, delivery.id)
    assert progress is not None
    assert progress.text == kept
    await check_accounts(queue)


async def test_progress_keeps_earlier_errors(queue: AsyncQueue) -> None:
    first = await given_leased(queue)
    await first.retry(0, error="boom")
    second = await take_one(queue)

    await second.progress(0.5)

    message = await queue.get(second.id)
    assert message is not None
    assert (message.failures, message.errors[0].error, message.attempt) == (1, "boom", 2)
    await second.ack()
    await check_accounts(queue)


async def test_a_member_of_a_group_reports_progress(app: AsyncDuly, queue_name: str) -> None:
    events = app.topic(queue_name)
    group = events.group("archive")
    await events.publish("entry")
    delivery = await take_one(group)

    await delivery.progress(0.5, "half")

    progress = await shown(group, delivery.id)
    assert progress is not None
    assert progress.text == "half"
    await delivery.ack()
    assert (await group.audit()).ok
