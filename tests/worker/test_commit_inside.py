"""Handlers that commit: sends, changes and the end of the message are one step. The worker does not settle again."""

import asyncio
from typing import Any

import pytest

import duly
from tests.worker.rig import Bench, eventually


def committing(bench: Bench, *, effect: tuple[Any, ...], error: Exception | None = None) -> Any:
    """Make a handler that forwards its body in a commit to the user's queue, and then ends in some way."""
    target = bench.app.queue(f"{bench.queue.name}-next")

    def act(body: Any, d: duly.Delivery) -> None:
        d.commit(send=[(target, body)], redis=[effect])
        if error is not None:
            raise error

    async def act_async(body: Any, d: duly.AsyncDelivery) -> None:
        await d.commit(send=[(target, body)], redis=[effect])
        if error is not None:
            raise error

    return act_async if bench.is_async else act


@pytest.mark.parametrize("error", [None, ValueError("after the commit")], ids=["returns", "raises"])
async def test_a_committed_message_is_finished_regardless_of_later_errors(
    bench: Bench, error: Exception | None
) -> None:
    bench.define(committing(bench, effect=("INCR", f"{bench.queue.name}-n"), error=error))
    await bench.queue.send("one")
    await bench.queue.send("two")

    async with bench.worker() as worker:
        await bench.comes_to(sent=2, delivered=2, acked=2)
        await eventually(lambda: not any(runtime.source.held or runtime.busy for runtime in worker._runtimes))

    stats = await bench.aio.queue(f"{bench.queue.name}-next").stats()
    assert (stats.sent, stats.ready) == (2, 2)


async def test_a_refused_commit_is_a_failure_like_any_other(bench: Bench) -> None:
    bench.define(
        committing(bench, effect=("EXPIRE", f"{bench.queue.name}-n", -1)), retry=duly.Retry(attempts=2, first=60)
    )
    id_ = await bench.queue.send("one")

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=1, retried=1, delayed=1)

    message = await bench.seen(id_)
    assert "UsageError: effect 1, EXPIRE" in message.errors[0].error


# Return values after a commit

KEPT = duly.Keep(count=100)


def _returning_after_commit(bench: Bench, gate: asyncio.Event, value: Any, **options: Any) -> Any:
    """Make a handler that commits, and returns or raises once the gate is open."""
    loop = asyncio.get_running_loop()

    def ended() -> Any:
        if isinstance(value, Exception):
            raise value
        return value

    def act(body: Any, d: duly.Delivery) -> Any:
        d.commit(**options)
        asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(60)
        return ended()

    async def act_async(body: Any, d: duly.AsyncDelivery) -> Any:
        await d.commit(**options)
        await gate.wait()
        return ended()

    return act_async if bench.is_async else act


@pytest.mark.parametrize(
    ("value", "options", "result"),
    [
        ("returned", {}, "returned"),
        ("returned", {"result": "given"}, "given"),
        (None, {}, None),
        (ValueError("after the commit"), {}, None),
    ],
    ids=["returned", "result= wins", "nothing", "raised"],
)
async def test_a_value_that_is_returned_after_a_commit_is_the_result(
    bench: Bench, value: Any, options: dict[str, Any], result: Any
) -> None:
    gate = asyncio.Event()
    bench.define(_returning_after_commit(bench, gate, value, **options), done=KEPT)
    queue = bench.aio.queue(bench.queue.name, done=KEPT)
    id_ = await queue.send("body")

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=1, acked=1, done=1)
        if "result" not in options:
            with pytest.raises(duly.NotFinished):
                await queue.result(id_, wait=0)
        waiting = asyncio.ensure_future(queue.result(id_, wait=60))
        await asyncio.sleep(0)
        gate.set()
        assert await waiting == result

    assert (await bench.seen(id_)).result == result


async def test_a_worker_that_stops_stores_the_last_results(bench: Bench) -> None:
    gate = asyncio.Event()
    bench.define(_returning_after_commit(bench, gate, 7), done=KEPT)
    id_ = await bench.queue.send("body")

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=1, acked=1, done=1)
        gate.set()

    assert (await bench.seen(id_)).result == 7


async def test_a_commit_on_a_queue_that_keeps_nothing_asks_for_no_result(bench: Bench) -> None:
    bench.define(_returning_after_commit(bench, gate := asyncio.Event(), 7))
    gate.set()
    await bench.queue.send("body")

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=1, acked=1)


async def test_a_result_whose_message_is_gone_by_then_is_one_line(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    gate = asyncio.Event()
    bench.define(_returning_after_commit(bench, gate, 7), done=KEPT)
    id_ = await bench.queue.send("body")

    async with bench.worker() as worker:
        await bench.comes_to(sent=1, delivered=1, acked=1, done=1)
        await bench.queue.purge("done")
        gate.set()
        await eventually(lambda: not worker._busy())

    (line,) = [each.getMessage() for each in caplog.records if "result.lost" in each.getMessage()]
    assert id_ in line
