"""Handlers that commit: the message is finished together with what they send and change, and the worker leaves it."""

from typing import Any

import pytest

import duly
from tests.worker.rig import Bench, eventually


def committing(bench: Bench, *, effect: tuple[Any, ...], error: Exception | None = None) -> Any:
    """Make a handler that sends its body on, by the queue that the program knows, and then ends in some way."""
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
async def test_what_a_handler_has_committed_is_done_whatever_it_does_next(
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
