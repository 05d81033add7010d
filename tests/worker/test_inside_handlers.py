"""The environment of a handler: context variables, all of asyncio, and nothing left from other handlers."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

import duly
from duly import Keep, Retry
from tests.worker.rig import SOON, Bench

LEFT = contextvars.ContextVar("LEFT", default="nothing")


async def test_context_variables_do_not_go_from_one_message_to_the_next(memory_bench: Bench) -> None:
    seen: list[str] = []

    def act(body: Any, d: Any) -> None:
        seen.append(LEFT.get())
        LEFT.set(str(body))

    memory_bench.define(act, concurrency=1)
    await memory_bench.queue.send_many(range(10))

    async with memory_bench.worker():
        await memory_bench.comes_to(sent=10, delivered=10, acked=10)

    assert seen == ["nothing"] * 10


async def test_context_variables_last_as_long_as_the_handler(async_bench: Bench) -> None:
    seen: list[tuple[str, str, str]] = []

    async def child() -> str:
        return LEFT.get()

    async def act(body: Any, d: Any) -> None:
        LEFT.set(str(body))
        await asyncio.sleep(0.001)
        seen.append((LEFT.get(), await asyncio.create_task(child()), await asyncio.to_thread(LEFT.get)))

    async_bench.define(act)
    await async_bench.queue.send_many(range(10))

    async with async_bench.worker():
        await async_bench.comes_to(sent=10, delivered=10, acked=10)

    assert sorted(seen) == [(str(n), str(n), str(n)) for n in range(10)]


async def test_a_handler_reports_its_progress(async_bench: Bench) -> None:
    seen: list[duly.Message | None] = []

    async def act(body: Any, d: duly.AsyncDelivery) -> None:
        await d.progress(0.4, "loading")
        seen.append(await async_bench.queue.get(d.id))

    async_bench.define(act)
    id_ = await async_bench.queue.send("body")

    async with async_bench.worker():
        await async_bench.comes_to(sent=1, delivered=1, acked=1)

    (message,) = seen
    assert message is not None
    assert str(message.progress) == "40%: loading"
    assert await async_bench.queue.get(id_) is None
    assert (await async_bench.queue.audit()).ok


async def test_nothing_is_left_of_the_progress_of_a_handler(bench: Bench) -> None:
    bench.define(lambda body, d: d.progress(0.4, "loading"), done=Keep(count=10))
    id_ = await bench.queue.send("body")

    async with bench.worker():
        await bench.comes_to(sent=1, delivered=1, acked=1, done=1)

    message = await bench.queue.get(id_)
    assert message is not None
    assert (message.state, message.progress, message.result) == ("done", None, None)
    assert (await bench.queue.audit()).ok


async def test_context_variables_of_the_worker_are_seen(memory_bench: Bench) -> None:
    seen: list[str] = []
    memory_bench.define(lambda body, d: seen.append(LEFT.get()))
    await memory_bench.queue.send("body")
    token = LEFT.set("by the program")

    try:
        async with memory_bench.worker():
            await memory_bench.comes_to(sent=1, delivered=1, acked=1)
    finally:
        LEFT.reset(token)

    assert seen == ["by the program"]


async def _uses_timeout() -> str:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()
    async with asyncio.timeout(60):
        await asyncio.sleep(0)
    return "timeout"


async def _uses_wait_for() -> str:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 0.001)
    return await asyncio.wait_for(asyncio.sleep(0, "wait_for"), 60)


async def _uses_task_group() -> str:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(asyncio.sleep(0.001, n)) for n in range(3)]
    assert [task.result() for task in tasks] == [0, 1, 2]
    return "task group"


async def _uses_failing_task_group() -> str:
    async def fail() -> None:
        raise LookupError("child")

    async def all_of_them() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup):
        await all_of_them()
    return "failing task group"


async def _uses_shield() -> str:
    inner = asyncio.ensure_future(asyncio.sleep(0.005, "shield"))
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(inner), 0.001)
    return await inner


async def _uses_current_task() -> str:
    task = asyncio.current_task()
    assert task is not None
    await asyncio.sleep(0)
    assert asyncio.current_task() is task
    assert task in asyncio.all_tasks()
    assert task.cancelling() == 0
    return "current task"


async def _uses_async_generator() -> str:
    async def numbers() -> AsyncIterator[int]:
        for number in range(3):
            await asyncio.sleep(0)
            yield number

    assert [number async for number in numbers()] == [0, 1, 2]
    return "async generator"


async def _uses_anyio() -> str:
    found: list[int] = []

    async def child(number: int) -> None:
        await anyio.sleep(0.001)
        found.append(number)

    async with anyio.create_task_group() as group:
        for number in range(3):
            group.start_soon(child, number)
    with anyio.move_on_after(0.001) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    with pytest.raises(TimeoutError):
        with anyio.fail_after(0.001):
            await anyio.sleep_forever()
    assert sorted(found) == [0, 1, 2]
    return "anyio"


async def _uses_cancelled_scope() -> str:
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep_forever)
        group.cancel_scope.cancel()
    return "cancelled scope"


USES = (
    _uses_timeout, _uses_wait_for, _uses_task_group, _uses_failing_task_group, _uses_shield, _uses_current_task,
    _uses_async_generator, _uses_anyio, _uses_cancelled_scope,
)  # fmt: skip


@pytest.mark.parametrize("concurrency", [1, 10])
async def test_a_handler_may_use_all_of_asyncio(async_bench: Bench, concurrency: int) -> None:
    """All messages run in the same slot, so that a leftover of one would affect the next."""
    results: list[str] = []

    async def act(body: int, d: Any) -> None:
        results.append(await USES[body]())

    async_bench.define(act, concurrency=concurrency, retry=Retry(attempts=1))
    await async_bench.queue.send_many([*range(len(USES)), *reversed(range(len(USES)))])

    async with async_bench.worker():
        await async_bench.comes_to(sent=2 * len(USES), delivered=2 * len(USES), acked=2 * len(USES))

    assert len(results) == 2 * len(USES)


async def test_a_task_that_the_handler_leaves_behind_lives_on(async_bench: Bench) -> None:
    tasks: list[asyncio.Task[str]] = []

    async def act(body: Any, d: Any) -> None:
        tasks.append(asyncio.create_task(asyncio.sleep(0.01, "done")))

    async_bench.define(act, concurrency=1)
    await async_bench.queue.send_many(["a", "b"])

    async with async_bench.worker():
        await async_bench.comes_to(sent=2, delivered=2, acked=2)
        assert await asyncio.gather(*tasks) == ["done", "done"]


async def _awaits_something_cancelled() -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def _cancels_itself_and_pauses() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def _cancels_itself_and_goes_on() -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await _cancels_itself_and_pauses()


async def _cancels_itself_and_returns() -> None:
    task = asyncio.current_task()
    assert task is not None
    await asyncio.sleep(0)
    task.cancel()


@pytest.mark.parametrize(
    ("oddity", "is_failure"),
    [
        (_awaits_something_cancelled, True),
        (_cancels_itself_and_pauses, True),
        (_cancels_itself_and_goes_on, False),
        (_cancels_itself_and_returns, False),
    ],
)
async def test_a_handler_that_cancels_itself_affects_no_other(
    async_bench: Bench, oddity: Any, is_failure: bool
) -> None:
    """One slot: a leftover of the cancellation would affect the next message."""
    bench = async_bench
    cancelling: list[int] = []

    async def act(body: str, d: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        cancelling.append(task.cancelling())
        await (oddity() if body == "odd" else _uses_failing_task_group())

    bench.define(act, concurrency=1, retry=Retry(first=60))
    await bench.queue.send("odd")
    counts = {"retried": 1, "delayed": 1} if is_failure else {"acked": 1}

    async with bench.worker() as worker:
        await bench.comes_to(sent=1, delivered=1, **counts)
        await bench.queue.send_many(["good", "good"])
        counts["acked"] = counts.get("acked", 0) + 2
        await bench.comes_to(sent=3, delivered=3, **counts)

    assert cancelling == [0, 0, 0]
    assert not worker.was_cut_off


def test_a_program_that_is_torn_down_around_a_worker_ends(queue_name: str) -> None:
    """`asyncio.run` cancels all remaining tasks. A handler that was running must not revive its slot."""
    ends: list[str] = []

    async def main() -> None:
        app = duly.AsyncDuly("memory://")
        queue = app.queue(queue_name)
        started = asyncio.Event()

        @queue.handler(concurrency=1)
        async def on_message(body: Any) -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                ends.append("cancelled")

        await queue.send("body")
        await duly.Worker(app).__aenter__()  # and never exit
        await started.wait()

    program = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    program.start()
    program.join(SOON)

    assert not program.is_alive()
    assert ends == ["cancelled"]


async def test_a_block_that_is_cancelled_twice_is_left_at_once_and_in_order(async_bench: Bench) -> None:
    """The first cancellation leaves the block and starts the grace. The second acts like a second signal."""
    started = asyncio.Event()
    events: list[str] = []

    async def act(body: Any, d: Any) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            events.append("handler")

    async def serve() -> None:
        async with async_bench.worker(grace=600):
            await asyncio.Event().wait()

    async_bench.define(act)
    async_bench.app.on_stop(lambda: events.append("stop"))
    await async_bench.queue.send("body")
    serving = asyncio.ensure_future(serve())
    await started.wait()

    serving.cancel()
    await asyncio.sleep(0.05)
    assert not serving.done()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(serving, SOON)

    assert events == ["handler", "stop"]
    await async_bench.comes_to(sent=1, delivered=1, released=1, ready=1)
