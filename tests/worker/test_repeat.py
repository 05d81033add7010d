"""Messages that are recycled after their handler has succeeded."""

import time
from typing import Any

import pytest

import duly
from duly import Batch, Keep, Repeat, Retry, Send
from tests.worker.rig import Bench, eventually, raising, returning


@pytest.mark.parametrize("value", [None, True, "anything"])
async def test_a_message_is_recycled_until_its_last_repeat(bench: Bench, value: Any) -> None:
    begun: list[tuple[int, float]] = []

    def act(body: Any, d: Any) -> Any:
        begun.append((d.cycles, time.monotonic()))
        return value

    bench.define(act)
    await bench.queue.send("body", repeat=Repeat(first=0.1, factor=2, times=3))
    async with bench.worker():
        await bench.comes_to(sent=1, delivered=3, recycled=2, acked=1)

    assert [cycle for cycle, _ in begun] == [0, 1, 2]
    moments = [moment for _, moment in begun]
    assert moments[1] - moments[0] > 0.19
    assert moments[2] - moments[1] > 0.39


async def test_with_results_the_last_one_is_kept(bench: Bench) -> None:
    bench.define(lambda body, d: d.cycles, done=Keep(count=10))
    queue = bench.aio.queue(bench.queue_name, done=Keep(count=10))
    id_ = await queue.send("body", repeat=Repeat(first=0.05, times=3))

    async with bench.worker():
        assert await queue.result(id_, wait=60) == 2


async def test_cancel_stops_it(bench: Bench) -> None:
    seen: list[int] = []
    bench.define(lambda body, d: seen.append(d.cycles))
    id_ = await bench.queue.send("body", repeat=Repeat(first=0.05))

    async with bench.worker():
        await eventually(lambda: len(seen) >= 3)
        assert await bench.queue.cancel(id_, running=True)
        await eventually(lambda: _is_empty(bench.queue))

    assert seen == list(range(len(seen)))
    assert (await bench.queue.audit()).ok


async def _is_empty(queue: duly.AsyncQueue) -> bool:
    return (await queue.stats()).live == 0


async def test_a_failure_is_retried_and_is_not_a_repeat(bench: Bench) -> None:
    bench.define(raising(ValueError("boom")), retry=Retry(attempts=2, first=0.01))
    await bench.queue.send("body", delay=0, repeat=Repeat(first=0.05))

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=2, retried=1, buried=1, dead=1)


async def test_a_message_that_its_handler_acks_is_recycled(bench: Bench) -> None:
    async def acked(d: Any) -> None:
        await d.ack()

    bench.define(lambda body, d: acked(d) if bench.is_async else d.ack())
    await bench.queue.send("body", repeat=Repeat(first=0.05, times=2))

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=2, recycled=1, acked=1)


async def test_messages_without_repeat_are_finished(bench: Bench) -> None:
    bench.define(returning(None))
    mixed = [Send(n, delay=0, repeat=Repeat(first=60)) if n % 2 else n for n in range(100)]
    await bench.queue.send_many(mixed)

    async with bench.worker():
        await bench.comes_to(sent=100, delivered=100, recycled=50, acked=50, delayed=50)


async def test_a_batch_handler_repeats_those_that_are_to_be(bench: Bench) -> None:
    def on_batch(bodies: list[int]) -> None: ...

    async def on_batch_async(bodies: list[int]) -> None: ...

    defined: Any = bench.app.queue(bench.queue_name)
    defined.handler(batch=Batch(max=4, wait=20))(on_batch_async if bench.is_async else on_batch)
    again = Repeat(first=60)
    await bench.queue.send_many([1, Send(2, delay=0, repeat=again), Send(3, key="k"), Send(4, delay=0, repeat=again)])

    async with bench.worker():
        await bench.comes_to(sent=4, delivered=4, recycled=2, acked=2, delayed=2)


async def test_hooks_receive_ack_for_a_repeat(bench: Bench) -> None:
    outcomes: list[str] = []
    bench.app.after(lambda d, outcome: outcomes.append(outcome))
    bench.define(returning(None))
    await bench.queue.send("body", delay=0, repeat=Repeat(first=60))

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=1, recycled=1, delayed=1)

    assert outcomes == ["ack"]


async def test_a_task_may_repeat(backend: str, queue_name: str) -> None:
    async with duly.AsyncDuly(backend) as app:
        reminded: list[str] = []

        @app.task(queue=queue_name)
        async def remind(user: str) -> None:
            reminded.append(user)

        await remind.using(repeat=Repeat(first=0.05, times=3)).send("ann")
        async with duly.Worker(app):
            await eventually(lambda: len(reminded) == 3)
            await eventually(lambda: _is_empty(remind.queue))

    assert reminded == ["ann"] * 3
