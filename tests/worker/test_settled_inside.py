"""Handlers that settle their message themselves: the settle stands, regardless of how the handler ends."""

import asyncio
import inspect
from typing import Any

import pytest

import duly
from duly import Defer, Recycle, Reject, Retry
from tests.worker.rig import Act, Bench, delay_of, eventually

SETTLES: dict[str, tuple[tuple[Any, ...], dict[str, int]]] = {
    "ack": ((), {"acked": 1}),
    "retry": ((60,), {"retried": 1, "delayed": 1}),
    "defer": ((60,), {"deferred": 1, "delayed": 1}),
    "recycle": ((60,), {"recycled": 1, "delayed": 1}),
    "reject": (("no use",), {"buried": 1, "dead": 1}),
}
ENDS: dict[str, Any] = {
    "None": None,
    "False": False,
    "Recycle": Recycle(5),
    "error": ValueError("broken"),
    "Reject": Reject("other"),
    "Defer": Defer(5),
}


def ended(how: str) -> Any:
    end = ENDS[how]
    if isinstance(end, Exception):
        raise end
    return end


def settling(bench: Bench, verb: str, args: tuple[Any, ...], how: str = "None", **options: Any) -> Act:
    """Make a handler that settles, and then ends in some way."""

    def act(body: Any, d: duly.Delivery) -> Any:
        getattr(d, verb)(*args, **options)
        return ended(how)

    async def act_async(body: Any, d: duly.AsyncDelivery) -> Any:
        await getattr(d, verb)(*args, **options)
        return ended(how)

    return act_async if bench.is_async else act


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("verb", SETTLES)
async def test_a_settle_by_the_handler_stands_regardless_of_later_errors(
    memory_bench: Bench, verb: str, how: str
) -> None:
    await _check_settled_inside(memory_bench, verb, how)


@pytest.mark.parametrize("verb", SETTLES)
async def test_a_handler_may_settle_its_message(bench: Bench, verb: str) -> None:
    await _check_settled_inside(bench, verb, "error")


async def _check_settled_inside(bench: Bench, verb: str, how: str) -> None:
    args, counts = SETTLES[verb]
    bench.define(settling(bench, verb, args, how))
    await bench.queue.send("body")
    await bench.queue.send("another")

    async with bench.worker() as worker:
        await bench.comes_to(sent=2, delivered=2, **{name: 2 * count for name, count in counts.items()})
        await eventually(lambda: not any(runtime.source.held or runtime.busy for runtime in worker._runtimes))

    assert not worker.was_cut_off


async def test_retry_in_the_handler_follows_the_policy_and_stores_the_error(bench: Bench) -> None:
    bench.define(settling(bench, "retry", (), error="the shop is closed"), retry=Retry(attempts=2, first=60, jitter=0))
    id_ = await bench.queue.send("body")

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=1, retried=1, delayed=1)
        message = await bench.seen(id_)
        assert (delay_of(message), message.errors[0].error) == (60, "the shop is closed")
        await bench.queue.promote(id_)
        await bench.comes_to(sent=1, delivered=2, retried=1, buried=1, dead=1)

    assert (await bench.seen(id_)).reason == "failed at attempt 2 of 2"


async def test_release_in_the_handler_gives_the_message_back_at_once(bench: Bench) -> None:
    seen: list[tuple[int, int]] = []

    def act(body: Any, d: duly.Delivery) -> None:
        seen.append((d.attempt, d.deliveries))
        if len(seen) < 3:
            d.release()

    async def act_async(body: Any, d: duly.AsyncDelivery) -> None:
        seen.append((d.attempt, d.deliveries))
        if len(seen) < 3:
            await d.release()

    bench.define(act_async if bench.is_async else act)
    await bench.queue.send("body")

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=3, released=2, acked=1)

    assert seen == [(1, 1), (1, 2), (1, 3)]


async def test_recycle_in_the_handler_may_change_the_body(bench: Bench) -> None:
    seen: list[tuple[Any, int]] = []

    def act(body: Any, d: duly.Delivery) -> None:
        seen.append((body, d.attempt))
        if body["step"] < 3:
            d.recycle(body={"step": body["step"] + 1})

    async def act_async(body: Any, d: duly.AsyncDelivery) -> None:
        seen.append((body, d.attempt))
        if body["step"] < 3:
            await d.recycle(body={"step": body["step"] + 1})

    bench.define(act_async if bench.is_async else act)
    await bench.queue.send({"step": 1})

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=3, recycled=2, acked=1)

    assert seen == [({"step": step}, 1) for step in (1, 2, 3)]


async def test_extend_settles_nothing(bench: Bench) -> None:
    bench.define(settling(bench, "extend", (300,)))
    await bench.queue.send("body")

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=1, acked=1)


@pytest.mark.parametrize(
    ("how", "counts"),
    [
        ("None", {"acked": 1}),
        ("error", {"retried": 1, "delayed": 1}),
        ("Reject", {"buried": 1, "dead": 1}),
        ("Defer", {"deferred": 1}),
    ],
)
async def test_with_d_settles_once(bench: Bench, how: str, counts: dict[str, int]) -> None:
    ran: list[Any] = []

    def act(body: Any, d: duly.Delivery) -> None:
        ran.append(body)
        with d:
            ended("None" if len(ran) > 1 else how)

    async def act_async(body: Any, d: duly.AsyncDelivery) -> None:
        ran.append(body)
        async with d:
            ended("None" if len(ran) > 1 else how)

    bench.define(act_async if bench.is_async else act, retry=Retry(first=60))
    id_ = await bench.queue.send("body")

    async with bench.worker():
        if how == "Defer":
            await eventually(lambda: _is_deferred(bench, id_))
            await bench.queue.promote(id_)
            await bench.comes_to(sent=1, delivered=2, deferred=1, acked=1)
        else:
            await bench.comes_to(sent=1, delivered=1, **counts)

    assert ran == ["body"] * (2 if how == "Defer" else 1)


async def _is_deferred(bench: Bench, id_: str) -> bool:
    return (await bench.seen(id_)).defers == 1


async def test_a_message_cancelled_while_it_runs_is_not_settled(bench: Bench) -> None:
    """The handler gets an error when it settles. Returning is not an error."""
    cancelled = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def cancel(d: Any) -> None:
        await bench.queue.cancel(d.id, running=True)
        cancelled.set()

    def act(body: Any, d: Any) -> Any:
        if bench.is_async:
            return cancel(d)
        asyncio.run_coroutine_threadsafe(cancel(d), loop).result()
        return None

    bench.define(act)
    await bench.queue.send("body")

    async with bench.worker() as worker:
        await cancelled.wait()
        await bench.comes_to(sent=1, delivered=1, cancelled=1)
        await eventually(lambda: not any(runtime.busy for runtime in worker._runtimes))


@pytest.mark.parametrize("verb", ["return", "raise", "ack", "retry"])
async def test_a_handler_that_has_seen_its_lease_lost_settles_nothing(memory_bench: Bench, verb: str) -> None:
    """The renewer marks a delivery as lost after `max_runtime`. The server does not know this yet."""
    refused: list[str] = []

    def act(body: Any, d: Any) -> Any:
        if d.attempt > 1:
            return None
        d.lost = True
        if verb == "raise":
            raise RuntimeError("gave up")
        return None if verb == "return" else settle(d)

    def settle(d: Any) -> Any:
        try:
            found = getattr(d, verb)()
        except duly.LeaseLost as error:
            refused.append(str(error))
            return None
        return awaited(found) if inspect.iscoroutine(found) else found

    async def awaited(settling: Any) -> None:
        try:
            await settling
        except duly.LeaseLost as error:
            refused.append(str(error))

    memory_bench.define(act, lease=0.3)
    await memory_bench.queue.send("x")

    async with memory_bench.worker():
        await memory_bench.comes_to(sent=1, delivered=2, crashed=1, acked=1)

    assert len(refused) == (verb in ("ack", "retry"))
