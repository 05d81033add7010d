"""The link of memory://: who waits is woken, threads and tasks may share it."""

import asyncio
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from duly._core import ops
from duly._core.keys import QueueKeys
from duly._core.outgoing import Encoder
from duly.memory.clock import Clock
from duly.memory.engine import Engine
from duly.memory.link import MemoryLink, _stores, engine_for
from duly.options import QueueOptions, Send

KEYS = QueueKeys("duly", "orders")
OPTIONS = QueueOptions()
LONG = 30.0
DEADLINE = 10.0


@pytest.fixture
def link() -> MemoryLink:
    return MemoryLink(Engine(Clock()))


def send(link: MemoryLink, id_: str = "a") -> None:
    link.run(ops.send(KEYS, [Encoder("orders", OPTIONS).plain("body", id_)], OPTIONS, "each"))


def look(link: MemoryLink) -> list[bytes]:
    return link.run(ops.claim(KEYS, OPTIONS, limit=10, lease=30, consumer="c", then="watch")).ids


def waiters(link: MemoryLink) -> int:
    return len(link.engine._queue(KEYS).waiters)


def until(holds: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < give_up_at
        time.sleep(0.001)


async def until_waiting(link: MemoryLink, count: int = 1) -> None:
    async with asyncio.timeout(DEADLINE):
        while waiters(link) < count:  # noqa: ASYNC110, the engine has no event for that
            await asyncio.sleep(0)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def given_waiting(link: MemoryLink, pool: ThreadPoolExecutor) -> Future[bool]:
    waiting = pool.submit(link.wait_for_token, KEYS, LONG)
    until(lambda: waiters(link) == 1)
    return waiting


def test_a_store_with_a_name_is_shared_and_one_without_is_not() -> None:
    assert engine_for("shop") is engine_for("shop")
    assert engine_for("shop") is not engine_for("bar")
    assert engine_for("") is not engine_for("")


def test_threads_share_a_link(link: MemoryLink) -> None:
    def send_some(thread: int) -> None:
        for number in range(50):
            send(link, f"{thread}-{number}")

    threads = [threading.Thread(target=send_some, args=[thread]) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert link.run(ops.stats(KEYS)).sent == 200


def test_a_thread_that_waits_is_woken_by_a_send(link: MemoryLink, pool: ThreadPoolExecutor) -> None:
    waiting = given_waiting(link, pool)

    send(link)

    assert waiting.result(DEADLINE) is True


def test_a_message_that_is_there_ends_the_wait_at_once(link: MemoryLink) -> None:
    send(link)

    assert link.wait_for_token(KEYS, LONG) is True


def test_the_wait_times_out_and_leaves_no_waiter_behind(link: MemoryLink) -> None:
    assert link.wait_for_token(KEYS, 0.001) is False
    send(link)

    assert waiters(link) == 0


def test_a_due_time_ends_the_wait(link: MemoryLink) -> None:
    link.run(ops.send(KEYS, [Encoder("orders", OPTIONS).outgoing(Send("body", delay=0.01), "a", 0)], OPTIONS, "each"))
    started = time.monotonic()

    assert link.wait_for_token(KEYS, LONG) is False

    assert time.monotonic() - started < DEADLINE


def test_a_moved_clock_ends_the_wait(link: MemoryLink, pool: ThreadPoolExecutor) -> None:
    waiting = given_waiting(link, pool)

    link.engine.clock.advance(3600)

    assert waiting.result(DEADLINE) is False


def test_a_clock_moved_between_claim_and_wait_ends_the_wait_once(link: MemoryLink) -> None:
    look(link)
    link.engine.clock.advance(3600)
    started = time.monotonic()

    first = link.wait_for_token(KEYS, LONG)
    took = time.monotonic() - started
    second = link.wait_for_token(KEYS, 0.001)

    assert (first, second) == (False, False)
    assert took < DEADLINE


async def test_a_task_that_waits_is_woken_from_another_thread(link: MemoryLink) -> None:
    waiting = asyncio.create_task(link.await_for_token(KEYS, LONG))
    await until_waiting(link)

    await asyncio.to_thread(send, link)

    async with asyncio.timeout(DEADLINE):
        assert await waiting is True


async def test_a_task_that_waits_is_woken_by_a_moved_clock(link: MemoryLink) -> None:
    waiting = asyncio.create_task(link.await_for_token(KEYS, LONG))
    await until_waiting(link)

    link.engine.clock.advance(1)

    async with asyncio.timeout(DEADLINE):
        assert await waiting is False


async def test_a_task_finds_a_waiting_entry_even_without_time(link: MemoryLink) -> None:
    nothing = await link.await_for_token(KEYS, 0)
    send(link)

    assert (nothing, await link.await_for_token(KEYS, 0)) == (False, True)


async def test_a_cancelled_task_that_was_woken_wakes_the_next(link: MemoryLink) -> None:
    waiting = asyncio.create_task(link.await_for_token(KEYS, LONG))
    await until_waiting(link)
    other = asyncio.create_task(link.await_for_token(KEYS, LONG))
    await until_waiting(link, 2)

    send(link)  # the first task was chosen to claim, and has had no turn since
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with asyncio.timeout(DEADLINE):
        assert await other is True


async def test_a_cancelled_task_leaves_nothing_behind(link: MemoryLink) -> None:
    waiting = asyncio.create_task(link.await_for_token(KEYS, LONG))
    await until_waiting(link)
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert waiters(link) == 0


async def test_tasks_get_their_turn_before_a_call(link: MemoryLink) -> None:
    turns: list[str] = []
    other = asyncio.create_task(asyncio.sleep(0))
    other.add_done_callback(lambda _: turns.append("other"))

    for _ in range(3):
        await link.arun(ops.stats(KEYS))

    assert turns == ["other"]


async def test_a_cancelled_task_leaves_a_due_time_to_another(link: MemoryLink) -> None:
    waiting = asyncio.create_task(link.await_for_token(KEYS, LONG))
    await until_waiting(link)
    other = asyncio.create_task(link.await_for_token(KEYS, LONG))
    await until_waiting(link, 2)

    message = Encoder("orders", OPTIONS).outgoing(Send("body", delay=60), "a", 0)
    link.run(ops.send(KEYS, [message], OPTIONS, "each"))  # the first task was chosen to keep the due time
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with asyncio.timeout(DEADLINE):
        assert await other is True


def test_a_waiter_whose_loop_was_closed_is_passed_over(link: MemoryLink, pool: ThreadPoolExecutor) -> None:
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(link.await_for_token(KEYS, LONG))
    loop.run_until_complete(asyncio.sleep(0.001))
    loop.close()
    other = pool.submit(link.wait_for_token, KEYS, LONG)
    until(lambda: waiters(link) == 2)

    send(link)

    assert other.result(DEADLINE) is True
    waiting._log_destroy_pending = False  # type: ignore[attr-defined]


def in_a_child(work: Callable[[], bool]) -> bool:
    """Fork, and return the result of `work` in the child."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # with threads, on purpose
        pid = os.fork()
    if not pid:
        code = 1
        try:
            signal.alarm(round(DEADLINE))
            code = 0 if work() else 1
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


def test_a_child_process_can_use_a_store_whose_locks_were_held(link: MemoryLink) -> None:
    send(link)

    with link._lock, link.engine._lock, link.engine.clock._lock, _stores._lock:
        assert in_a_child(lambda: look(link) == [b"a"] and engine_for("shop") is not link.engine)


def test_a_child_process_does_not_wake_threads_of_its_parent(link: MemoryLink, pool: ThreadPoolExecutor) -> None:
    waiting = given_waiting(link, pool)

    def sent_in_the_child() -> bool:
        send(link)
        return link.wait_for_token(KEYS, LONG)

    assert in_a_child(sent_in_the_child)
    assert not waiting.done()
    send(link)
    assert waiting.result(DEADLINE) is True
