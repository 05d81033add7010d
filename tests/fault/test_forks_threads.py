"""Processes fork, threads share, tasks are cancelled: each reply belongs to its call, and nothing stays behind."""

import asyncio
import gc
import multiprocessing
import os
import random
import select
import threading
import traceback
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis

import duly
from tests.conftest import StartedServer
from tests.fault.proxy import Delay, Policy, Proxy, Stage
from tests.fault.recorded import assert_drained
from tests.servers import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.fault


class Child:
    """A forked copy of this process that does one thing and ends."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._report, sink = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # with threads, on purpose
            self.pid = os.fork()
        if self.pid:
            os.close(sink)
            return
        try:
            work()
        except BaseException:  # noqa: BLE001 - it is reported to the parent
            os.write(sink, traceback.format_exc().encode())
        finally:
            os._exit(0)

    def join(self, seconds: float = 60) -> None:
        """Wait for its end, and raise what it raised."""
        readable, _, _ = select.select([self._report], [], [], seconds)
        if not readable:
            os.kill(self.pid, 9)
        told = b"" if not readable else os.read(self._report, 1 << 16)
        os.close(self._report)
        os.waitpid(self.pid, 0)
        assert readable, "the child hangs"
        assert not told, told.decode()


def open_files() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def send_and_finish(queue: duly.Queue, count: int) -> None:
    """Send `count` messages, and ack all that there are."""
    for number in range(count):
        queue.send(number)
        for delivery in queue.receive(2, wait=0.01):
            delivery.ack()


def drain(queue: duly.Queue) -> None:
    while found := queue.receive(100, wait=0):
        assert queue.ack_many(found) == []


# --- Forks -------------------------------------------------------------------------------------------------


def test_parent_and_children_use_one_app_after_a_fork(server: StartedServer, queue_name: str) -> None:
    with duly.Duly(server("valkey").url) as app:
        queue = app.queue(queue_name)
        send_and_finish(queue, 5)  # connections are open, and one has waited
        assert queue.receive(1, wait=0.01) == []
        children = [Child(lambda: send_and_finish(queue, 50)) for _ in range(4)]
        send_and_finish(queue, 50)
        for child in children:
            child.join()
        drain(queue)
        assert_drained(queue, sent=255, acked=255, crashed=0)


def test_a_child_makes_other_ids_and_closes_none_of_its_parents_connections(queue_name: str) -> None:
    with Server("valkey") as server, duly.Duly(server.url) as app, redis.Redis.from_url(server.url) as client:
        queue = app.queue(queue_name)
        send_and_finish(queue, 3)
        before = {one["id"] for one in client.client_list()}

        def use_and_leave() -> None:
            for number in range(20):
                queue.send(f"child {number}")
            app.close()
            gc.collect()

        Child(use_and_leave).join()
        for number in range(20):
            queue.send(f"parent {number}")
        assert before <= {one["id"] for one in client.client_list()}
        assert len({message.id for message in queue.list("ready", limit=100)}) == 40


def test_a_fork_leaves_a_blocked_receive_of_the_parent_alone(server: StartedServer, queue_name: str) -> None:
    upstream = server("valkey")
    with duly.Duly(upstream.url) as app, ThreadPoolExecutor(1) as pool:
        queue = app.queue(queue_name)
        other = app.queue(f"{queue_name}-other")
        waiting = pool.submit(queue.receive, 1, 60)
        with redis.Redis.from_url(upstream.url) as client:
            wait_until(lambda: client.info("clients")["blocked_clients"] >= 1)

        def work() -> None:
            assert other.receive(1, wait=0.05) == []
            send_and_finish(other, 20)
            queue.send("from the child")

        Child(work).join()
        (delivery,) = waiting.result(timeout=30)
        assert delivery.body == "from the child"
        delivery.ack()
        drain(other)
        assert_drained(queue, sent=1, acked=1)
        assert_drained(other, sent=20, acked=20, crashed=0)


def test_leases_are_renewed_in_parent_and_child_by_their_own_threads(server: StartedServer, queue_name: str) -> None:
    with duly.Duly(server("valkey").url) as app:
        queue = app.queue(queue_name, lease=6)
        queue.send_many(["parent", "child"])

        def is_renewed(delivery: duly.Delivery) -> bool:
            (deadline,) = [row.deadline for row in queue.pending().messages if row.id == delivery.id]
            return deadline.timestamp() > delivery.fence / 1e6 + 6 + 1

        (held,) = queue.receive(1, wait=30, renew=True)

        def hold() -> None:
            assert not any(thread.name == "duly-renewer" for thread in threading.enumerate())
            (taken,) = queue.receive(1, wait=30, renew=True)
            wait_until(lambda: is_renewed(taken))
            taken.ack()

        child = Child(hold)
        wait_until(lambda: is_renewed(held))
        held.ack()
        child.join()
        assert_drained(queue, sent=2, acked=2, crashed=0)


async def test_a_fork_inside_an_event_loop_leaves_the_parents_loop_alone(
    server: StartedServer, queue_name: str
) -> None:
    async with duly.AsyncDuly(server("valkey").url) as app:
        queue = app.queue(queue_name)

        async def work(count: int) -> None:
            for number in range(count):
                await queue.send(number)
                for delivery in await queue.receive(2, wait=0.01):
                    await delivery.ack()

        await work(5)
        waiting = asyncio.create_task(app.queue(f"{queue_name}-other").receive(1, wait=60))
        await asyncio.sleep(0.1)
        child = Child(lambda: asyncio.run(work(30)))
        await work(30)
        await asyncio.to_thread(child.join)
        await app.queue(f"{queue_name}-other").send("x")
        (delivery,) = await asyncio.wait_for(waiting, 30)
        await delivery.ack()
        for left in await queue.receive(100, wait=0):
            await left.ack()
        audit = await queue.audit()
        assert audit.ok
        assert (audit.stats.sent, audit.stats.acked, audit.stats.crashed) == (65, 65, 0)


def work_in_a_pool(url: str, queue_name: str, count: int) -> int:
    with duly.Duly(url) as app:
        send_and_finish(app.queue(queue_name), count)
    return os.getpid()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_of_multiprocessing_share_a_queue(server: StartedServer, queue_name: str, method: str) -> None:
    url = server("valkey").url
    with duly.Duly(url) as app:
        queue = app.queue(queue_name)
        send_and_finish(queue, 5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
                work = [pool.submit(work_in_a_pool, url, queue_name, 30) for _ in range(4)]
                pids = {each.result(timeout=60) for each in work}
        assert os.getpid() not in pids
        drain(queue)
        assert_drained(queue, sent=125, acked=125, crashed=0)


# --- Threads -----------------------------------------------------------------------------------------------


def test_sixteen_threads_share_an_app_and_each_gets_its_own_answers(server: StartedServer, queue_name: str) -> None:
    delivered: Counter[str] = Counter()
    lock = threading.Lock()
    with duly.Duly(server("valkey").url) as app, ThreadPoolExecutor(16) as pool:
        queue = app.queue(queue_name)

        def work(number: int) -> list[duly.MessageId]:
            sent = []
            for serial in range(60):
                body = f"{number}-{serial}"
                sent.append(queue.send(body, delay=600) if serial % 3 == 0 else queue.send(body))
                if serial % 3 == 0:
                    message = queue.get(sent[-1])
                    assert message is not None
                    assert message.body == body
                    assert queue.promote(sent[-1])
                found = queue.receive(3, wait=0.001 if serial % 5 else 0)
                with lock:
                    delivered.update(each.id for each in found)
                assert queue.ack_many(found[1:]) == []
                for each in found[:1]:
                    each.extend(60)
                    each.ack()
            return sent

        sent = [message_id for each in pool.map(work, range(16)) for message_id in each]
        for left in queue.receive(1000, wait=0):
            delivered[left.id] += 1
            left.ack()
        assert delivered == Counter(sent)
        assert_drained(queue, sent=960, acked=960, crashed=0)


# --- Event loops and cancellation --------------------------------------------------------------------------


def test_an_async_app_is_used_by_one_event_loop_after_the_other(server: StartedServer, queue_name: str) -> None:
    app = duly.AsyncDuly(server("valkey").url)
    queue = app.queue(queue_name)

    async def work(number: int) -> None:
        await asyncio.gather(*(queue.send(f"{number}-{serial}") for serial in range(10)))
        found = await queue.receive(100, wait=5)
        assert await queue.receive(1, wait=0.01) == []  # leaves a connection for waiting behind
        assert await queue.ack_many(found) == []

    asyncio.run(work(0))
    before = open_files()
    for number in range(1, 20):
        asyncio.run(work(number))
    assert open_files() <= before + 2

    async def end() -> None:
        audit = await queue.audit()
        assert audit.ok
        assert (audit.stats.sent, audit.stats.acked) == (200, 200)
        await app.aclose()

    asyncio.run(end())


class Jitter(Policy):
    """Holds some commands, and the replies of others, for a few milliseconds."""

    def __init__(self, seed: int) -> None:
        super().__init__(only={"EVALSHA", "EVAL", "BLPOP", "WAIT"})
        self._random = random.Random(seed)

    def choose(self, command: Any) -> Delay | None:
        stage = self._random.choice([Stage.BEFORE, Stage.EXECUTED, None])
        return stage and Delay(self._random.uniform(0, 0.006), stage)


async def cut_short(work: Awaitable[Any], seconds: float) -> Any:
    """Cancel a call that is not done by then, and return its result, or None."""
    try:
        return await asyncio.wait_for(work, seconds)
    except TimeoutError:
        return None


async def until_nothing_is_leased(queue: duly.AsyncQueue) -> None:
    async with asyncio.timeout(30):
        while (await queue.stats()).leased:  # noqa: ASYNC110 - it is the server that changes
            await asyncio.sleep(0.02)


async def test_2000_cancelled_receives_lose_nothing_and_leave_no_lease_no_file_and_no_wrong_reply(
    server: StartedServer, queue_name: str
) -> None:
    chance = random.Random(21)
    policy = Jitter(22)
    upstream = server("valkey")
    finished: Counter[str] = Counter()
    cancelled = 0
    before = open_files()
    with Proxy(upstream.port, policy) as proxy:
        async with duly.AsyncDuly(upstream.url) as direct, duly.AsyncDuly(proxy.url) as app:
            queue = app.queue(queue_name, lease=600)
            known = await direct.queue(queue_name).send("known", delay=6000)
            sent = [await direct.queue(queue_name).send(number) for number in range(300)]
            await queue.stats()

            async def storm(rounds: int) -> None:
                nonlocal cancelled
                for _ in range(rounds):
                    wait = chance.choice([0, 0.5])
                    found = await cut_short(queue.receive(2, wait=wait), chance.uniform(0, 0.012))
                    cancelled += found is None
                    for delivery in found or ():
                        if chance.random() < 0.5:
                            finished[delivery.id] += 1
                            await delivery.ack()
                        else:
                            await delivery.release()
                    message = await cut_short(queue.get(known), chance.uniform(0.001, 0.02))
                    assert message is None or message.body == "known"

            files: list[int] = []
            for _ in range(4):
                await asyncio.gather(*(storm(25) for _ in range(20)))
                await until_nothing_is_leased(direct.queue(queue_name))
                files.append(open_files())
            while found := await queue.receive(100, wait=0):
                finished.update(each.id for each in found)
                assert await queue.ack_many(found) == []
            assert cancelled > 1000
            assert policy.fired > 1000
            assert finished == Counter(sent)
            audit = await direct.queue(queue_name).audit()
            assert audit.ok
            assert (audit.stats.acked, audit.stats.live, audit.stats.crashed) == (300, 1, 0)
    # A connection is three files here, with both of the proxy's. An app makes up to 32 of them to call, and each of
    # the twenty tasks one to wait and perhaps one that is being left: a leak of one in ten would be 600 files.
    assert max(files) - before < 3 * (32 + 2 * 20), (before, files)


def until_all_have_arrived(proxy: Proxy, server: Server) -> None:
    """Wait until nothing is on its way any more from those who have left, and the server has dealt with it."""
    wait_until(lambda: proxy.connections == 0)
    with redis.Redis.from_url(server.url) as client:
        for _ in range(2):  # calls before the first of them are done before the second one
            client.ping()


async def test_cancelled_sends_and_settles_happen_once_or_not_at_all(server: StartedServer, queue_name: str) -> None:
    chance = random.Random(31)
    upstream = server("valkey")
    stored: set[str] = set()
    with Proxy(upstream.port, Jitter(32)) as proxy:
        async with duly.AsyncDuly(upstream.url) as direct, duly.AsyncDuly(proxy.url) as app:
            queue = direct.queue(queue_name)

            async def send(number: int) -> None:
                sending = app.queue(queue_name).send(number, id=f"m{number}")
                message_id = await cut_short(sending, chance.uniform(0, 0.01))
                if message_id is not None:
                    stored.add(message_id)

            await asyncio.gather(*(send(number) for number in range(500)))
            await app.aclose()
            await asyncio.to_thread(until_all_have_arrived, proxy, upstream)
            kept = {message.id for message in await queue.list("ready", limit=1000)}
            assert stored <= kept
            assert (await queue.stats()).sent == len(kept)

        async with duly.AsyncDuly(upstream.url) as direct, duly.AsyncDuly(proxy.url) as app:
            queue = app.queue(queue_name, lease=600)
            verbs = ["ack", "release", "retry", "defer", "recycle"]
            seen: Counter[str] = Counter()

            async def settle(delivery: duly.AsyncDelivery) -> None:
                seen[delivery.id] += 1
                verb = chance.choice(verbs) if seen[delivery.id] < 4 else "ack"
                args = [0] if verb in {"retry", "defer", "recycle"} else []
                await cut_short(getattr(delivery, verb)(*args), chance.uniform(0, 0.006))

            async with asyncio.timeout(60):
                while (await direct.queue(queue_name).stats()).live:
                    found = await queue.receive(50, wait=0.1)
                    await asyncio.gather(*(settle(delivery) for delivery in found))
            audit = await direct.queue(queue_name).audit()
    assert audit.ok
    assert (audit.stats.sent, audit.stats.acked, audit.stats.crashed) == (len(kept), len(kept), 0)
    assert audit.stats.delivered == seen.total()
