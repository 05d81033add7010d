"""Long calls report their progress: purge, redrive and audit."""

from typing import Any

import pytest

from duly import AsyncDuly, AsyncGroup, AsyncQueue, Keep, Send, UsageError
from duly._async.inbox import AsyncInbox
from tests.client._async.given import check_accounts, take

STEP = 10
MANY = 2 * STEP + 5
STEPS = [STEP, 2 * STEP, MANY]


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have long work go in steps of ten instead of a thousand."""
    monkeypatch.setattr("duly._async.inbox.MAX_BATCH", STEP)
    monkeypatch.setattr("duly._async.redriving.MAX_BATCH", STEP)


class Stopped(Exception):
    """Raised by a callback to stop the call."""


def stop(_: int) -> None:
    raise Stopped


async def given_many_dead(queue: AsyncQueue) -> None:
    await queue.send_many(range(MANY))
    while deliveries := await take(queue, limit=STEP):
        for delivery in deliveries:
            await delivery.reject("no use")


async def begin(inbox: AsyncInbox, verb: str, on_progress: Any) -> Any:
    """Begin long work."""
    return await getattr(inbox, verb)(on_progress=on_progress)


async def test_purge_reports_how_many_ended_so_far(queue: AsyncQueue) -> None:
    await queue.send_many(range(MANY))
    reported: list[int] = []

    assert await queue.purge(on_progress=reported.append) == MANY

    assert reported == STEPS


async def test_purge_counts_on_through_all_states(app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, done=Keep(count=10))
    await queue.send_many(["ready", Send("delayed", delay=60)])
    reported: list[int] = []

    assert await queue.purge(on_progress=reported.append) == 2
    assert reported == [1, 2]


async def test_purge_of_a_group_counts_unread_entries_first(archive: AsyncGroup) -> None:
    await archive.create()
    await archive.topic.publish_many(["a", "b", "c"])
    (held,) = await take(archive, limit=1)
    reported: list[int] = []

    assert await archive.purge(on_progress=reported.append) == 3

    assert reported == [2, 3]
    assert held.body == "a"


@pytest.mark.parametrize(
    "options", [{}, {"where": {"reason": "no use"}}, {"dry_run": True}], ids=["all", "some", "dry"]
)
async def test_redrive_reports_how_many_were_redriven_so_far(queue: AsyncQueue, options: dict[str, Any]) -> None:
    await given_many_dead(queue)
    reported: list[int] = []

    assert await queue.redrive(**options, on_progress=reported.append) == MANY

    assert reported == STEPS


async def test_an_audit_reports_how_many_ids_it_has_checked(queue: AsyncQueue) -> None:
    await queue.send_many(range(300))
    reported: list[int] = []

    audit = await queue.audit(on_progress=reported.append)

    assert reported == sorted(reported)
    assert reported[-1] == audit.checked >= 600


@pytest.mark.parametrize("verb", ["purge", "redrive", "audit"])
async def test_an_error_in_it_stops_the_work_and_nothing_is_lost(queue: AsyncQueue, verb: str) -> None:
    """I1."""
    await given_many_dead(queue)

    with pytest.raises(Stopped):
        await begin(queue, verb, stop)

    stats = await queue.stats()
    assert stats.dead == (MANY if verb == "audit" else MANY - STEP)
    assert stats.dead + stats.ready + stats.purged == MANY
    await check_accounts(queue)


@pytest.mark.parametrize("verb", ["purge", "redrive", "audit"])
@pytest.mark.parametrize("given", [7, "print", int, True], ids=["number", "text", "class", "truth"])
async def test_a_value_that_is_not_a_function_is_refused_before_anything_changes(
    queue: AsyncQueue, verb: str, given: Any
) -> None:
    await queue.send("body")
    (delivery,) = await take(queue, limit=1)
    await delivery.reject("no use")

    with pytest.raises(UsageError, match="on_progress"):
        await begin(queue, verb, given)

    assert (await queue.stats()).dead == 1


async def test_a_coroutine_function_is_refused(queue: AsyncQueue) -> None:
    """It would never be awaited. The same holds for sync code."""
    import asyncio

    with pytest.raises(UsageError, match="plain function"):
        await queue.purge(on_progress=asyncio.sleep)  # type: ignore[arg-type]
