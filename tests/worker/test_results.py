"""Results of handlers, and callers that wait for them. A caller polls every 5 s: one that returns sooner was woken."""

import asyncio
import logging
import time
from typing import Any

import pytest

import duly
from duly import Batch, CodecError, HandlerFailed, Keep, Recycle, Reject, Retry
from tests.conftest import StartedServer
from tests.worker.rig import ALL_FLAVOURS, Bench, eventually, given_bench, raising, returning

KEPT = Keep(count=1000)
WOKEN = 4.0
"""Seconds within which a caller that was woken returns."""


@pytest.fixture
def bench(bench: Bench) -> Bench:
    """Make the queue store results."""
    bench.queue = bench.aio.queue(bench.queue_name, done=KEPT)
    return bench


@pytest.mark.parametrize("flavour", ALL_FLAVOURS)
@pytest.mark.parametrize("value", [None, True, 0, "", "done", {"n": [1, 2]}, b"\0raw"], ids=repr)
async def test_the_return_value_of_a_handler_is_its_result(
    backend: str, queue_name: str, flavour: str, value: Any
) -> None:
    async with given_bench(backend, queue_name, flavour) as bench:
        bench.define(returning(value), done=KEPT)
        queue = bench.aio.queue(queue_name, done=KEPT)
        id_ = await queue.send("body")

        async with bench.worker():
            assert await queue.result(id_, wait=60) == value

        await bench.comes_to(sent=1, delivered=1, acked=1, done=1)
        message = await bench.seen(id_)
        assert (message.state, message.result) == ("done", value)


async def test_a_result_wakes_a_caller_that_waits_already(bench: Bench) -> None:
    ended: list[float] = []

    async def slowly() -> str:
        await asyncio.sleep(0.5)
        ended.append(time.monotonic())
        return "here"

    def act(body: Any, d: Any) -> Any:
        if bench.is_async:
            return slowly()
        time.sleep(0.5)
        ended.append(time.monotonic())
        return "here"

    bench.define(act, done=KEPT)
    id_ = await bench.queue.send("body")
    async with bench.worker():
        found = await bench.queue.result(id_, wait=60)
        woken = time.monotonic()

    assert found == "here"
    assert woken - ended[0] < WOKEN


async def test_a_handler_that_gives_up_wakes_with_the_error(bench: Bench) -> None:
    bench.define(raising(Reject("no use")), done=KEPT)
    id_ = await bench.queue.send("body")

    async with bench.worker():
        with pytest.raises(HandlerFailed, match="no use") as failed:
            await bench.queue.result(id_, wait=60)

    assert failed.value.message is not None
    assert failed.value.message.reason == "no use"


async def test_the_last_failure_wakes_with_the_error(bench: Bench) -> None:
    bench.define(raising(ValueError("boom")), done=KEPT, retry=Retry(attempts=2, first=0.01, jitter=0))
    id_ = await bench.queue.send("body")

    async with bench.worker():
        with pytest.raises(HandlerFailed, match=r"failed at attempt 2 of 2, last error: ValueError: boom"):
            await bench.queue.result(id_, wait=60)


async def test_a_result_that_cannot_be_kept_ends_nothing(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.define(returning(object()), done=KEPT)
    id_ = await bench.queue.send("body")

    with caplog.at_level(logging.WARNING, "duly.worker"):
        async with bench.worker():
            with pytest.raises(CodecError, match="of type object cannot be kept"):
                await bench.queue.result(id_, wait=60)

    await bench.comes_to(sent=1, delivered=1, acked=1, done=1)
    assert [record.getMessage().count("result.refused") for record in caplog.records] == [1]


async def test_a_result_is_packed_when_the_handler_returns(bench: Bench) -> None:
    kept: list[dict[str, int]] = []

    def act(body: Any, d: Any) -> dict[str, int]:
        kept.append({"n": 1})
        return kept[-1]

    bench.define(act, done=KEPT, concurrency=1)
    ids = await bench.queue.send_many(["a", "b"])
    async with bench.worker():
        results = [await bench.queue.result(id_, wait=60) for id_ in ids]
        kept[0]["n"] = 2

    assert results == [{"n": 1}] * 2


async def test_settled_by_hand_the_result_is_given_there(bench: Bench) -> None:
    async def acked(d: Any) -> str:
        await d.ack(result="by hand")
        return "returned"

    def act(body: Any, d: Any) -> Any:
        if bench.is_async:
            return acked(d)
        d.ack(result="by hand")
        return "returned"

    bench.define(act, done=KEPT)
    id_ = await bench.queue.send("body")
    async with bench.worker():
        assert await bench.queue.result(id_, wait=60) == "by hand"


async def test_outcomes_are_not_results(bench: Bench) -> None:
    outcomes = iter([Recycle(0), False, "at last"])
    bench.define(lambda body, d: next(outcomes), done=KEPT, retry=Retry(first=0.01))
    id_ = await bench.queue.send("body")

    async with bench.worker():
        assert await bench.queue.result(id_, wait=60) == "at last"

    await bench.comes_to(sent=1, delivered=3, recycled=1, retried=1, acked=1, done=1)


async def test_a_message_with_a_key_has_its_result(bench: Bench) -> None:
    bench.define(lambda body, d: body * 2, done=KEPT)
    ids = [await bench.queue.send(n, key="k") for n in range(5)]

    async with bench.worker():
        assert [await bench.queue.result(id_, wait=60) for id_ in ids] == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("outcomes", [None, [1, "two", None]], ids=["nothing", "a list"])
async def test_a_batch_handler_gives_no_results(bench: Bench, outcomes: Any) -> None:
    def on_batch(bodies: list[int]) -> Any:
        return outcomes

    async def on_batch_async(bodies: list[int]) -> Any:
        return outcomes

    defined: Any = bench.app.queue(bench.queue_name, done=KEPT)
    defined.handler(batch=Batch(max=3, wait=20))(on_batch_async if bench.is_async else on_batch)
    ids = await bench.queue.send_many([1, 2, 3])

    async with bench.worker():
        assert [await bench.queue.result(id_, wait=60) for id_ in ids] == [None] * 3


async def test_tasks_have_results(backend: str, queue_name: str) -> None:
    async with duly.AsyncDuly(backend) as app:
        mail = app.queue(queue_name, done=KEPT)

        @app.task(queue=mail)
        async def welcome(user: int) -> dict[str, int]:
            return {"user": user}

        @app.task(queue=mail)
        def farewell(user: int) -> str:
            raise Reject(f"user {user} stays")

        ids = [await welcome.send(42), await farewell.send(43)]
        async with duly.Worker(app):
            assert await welcome.result(ids[0], wait=60) == {"user": 42}
            assert await welcome.queue.result(ids[0], wait=0) == {"user": 42}
            with pytest.raises(HandlerFailed, match="user 43 stays"):
                await farewell.result(ids[1], wait=60)


async def test_a_queue_that_keeps_nothing_finishes_as_ever(bench: Bench) -> None:
    bench.define(returning({"n": 1}))
    id_ = await bench.queue.send("body")

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=1, acked=1)

    with pytest.raises(HandlerFailed, match="no done="):
        await bench.queue.result(id_, wait=0)


async def test_a_handler_may_wait_for_the_result_of_another(backend: str, queue_name: str) -> None:
    async with duly.AsyncDuly(backend) as app:
        outer, inner = (app.queue(f"{queue_name[:100]}-{name}", done=KEPT) for name in ("outer", "inner"))

        @inner.handler
        async def on_inner(body: int) -> int:
            return body + 1

        @outer.handler
        async def on_outer(body: int) -> int:
            found: int = await inner.result(await inner.send(body), wait=60)
            return found * 10

        async with duly.Worker(app):
            ids = await outer.send_many(range(20))
            results = await asyncio.gather(*(outer.result(id_, wait=60) for id_ in ids))

        assert results == [(n + 1) * 10 for n in range(20)]


async def test_two_hundred_waiting_callers_share_a_few_connections(server: StartedServer, queue_name: str) -> None:
    import redis

    url, may_end = server("valkey").url, asyncio.Event()
    async with duly.AsyncDuly(url) as app, duly.AsyncDuly(url) as waiting_app:
        defined = app.queue(queue_name, done=KEPT)

        @defined.handler(concurrency=200)
        async def on_message(body: int) -> int:
            await may_end.wait()
            return body

        queue = waiting_app.queue(queue_name, done=KEPT)
        ids = await queue.send_many(range(200))
        with redis.Redis.from_url(url) as client:
            before = len(client.client_list())
            waiters = [asyncio.create_task(queue.result(id_, wait=60)) for id_ in ids]
            await eventually(lambda: client.zcard(f"duly:{{{queue_name}}}:awaited") == 200)
            async with duly.Worker(app):
                await eventually(lambda: client.info("clients")["blocked_clients"] >= 1)
                connections = len(client.client_list()) - before
                began = time.monotonic()
                may_end.set()
                results = await asyncio.gather(*waiters)

    assert results == list(range(200))
    assert time.monotonic() - began < 60
    assert connections < 60, "32 for calls, one to read, and those of the worker"
