"""Waiting for results while connections are cut, processes fork, event loops end and the server is full."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

import duly
from tests.binaries import Kind
from tests.servers import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.fault

KEPT = duly.Keep(count=100)
AT_THE_LATEST = 15.0
"""Seconds: a waiting caller polls after 5 s, woken or not."""


@pytest.fixture
def own_server(kind: Kind) -> Iterator[Server]:
    with Server(kind) as server:
        yield server


@pytest.fixture
def client(own_server: Server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(own_server.url) as client:
        yield client


def blocked(client: redis.Redis) -> int:
    return int(client.info("clients")["blocked_clients"])


def cut_all(client: redis.Redis) -> None:
    client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")  # type: ignore[no-untyped-call]


def test_a_cut_connection_costs_no_result(own_server: Server, client: redis.Redis) -> None:
    with duly.Duly(own_server.url) as app, ThreadPoolExecutor(5) as pool:
        queue = app.queue("results", done=KEPT)
        ids = queue.send_many(range(5))
        waiters = [pool.submit(queue.result, id_, 60) for id_ in ids]
        for _ in range(3):
            wait_until(lambda: blocked(client) == 1)
            cut_all(client)
        for delivery in queue.receive(limit=5):
            delivery.ack(result=delivery.body)

        assert [waiter.result(AT_THE_LATEST) for waiter in waiters] == list(range(5))


def test_an_end_that_is_not_announced_is_found_later(own_server: Server, client: redis.Redis) -> None:
    with duly.Duly(own_server.url) as app, ThreadPoolExecutor(1) as pool:
        queue = app.queue("results", done=KEPT)
        id_ = queue.send("body")
        waiter = pool.submit(queue.result, id_, 60)
        wait_until(lambda: blocked(client) == 1)
        client.delete("duly:{results}:awaited")  # as if it had expired
        [delivery] = queue.receive()
        delivery.ack(result=1)

        assert waiter.result(AT_THE_LATEST) == 1
        assert client.exists("duly:{results}:ends") == 0


def test_a_full_server_still_gives_results(own_server: Server, client: redis.Redis) -> None:
    with duly.Duly(own_server.url) as app, ThreadPoolExecutor(1) as pool:
        queue = app.queue("results", done=KEPT)
        id_ = queue.send("body")
        client.setrange("filler", 30_000_000, ".")  # a large value that is not sent
        client.config_set("maxmemory", "20mb")
        waiter = pool.submit(queue.result, id_, 60)
        wait_until(lambda: blocked(client) == 1)
        [delivery] = queue.receive()
        delivery.ack(result=1)

        assert waiter.result(4) == 1


def test_a_child_waits_alongside_its_parent(own_server: Server, client: redis.Redis) -> None:
    app = duly.Duly(own_server.url)
    queue = app.queue("results", done=KEPT)
    id_ = queue.send("body")
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(queue.result, id_, 60)
        wait_until(lambda: blocked(client) == 1)
        child = os.fork()
        if not child:
            try:
                os._exit(0 if queue.result(id_, 60) == 1 else 1)
            finally:
                os._exit(2)
        wait_until(lambda: blocked(client) == 2)
        [delivery] = queue.receive()
        delivery.ack(result=1)

        assert waiter.result(4) == 1
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    app.close()


def test_an_event_loop_that_ends_leaves_nothing_behind(own_server: Server, client: redis.Redis) -> None:
    app = duly.AsyncDuly(own_server.url)
    queue = app.queue("results", done=KEPT)

    async def leave() -> str:
        id_ = await queue.send("body")
        task = asyncio.create_task(queue.result(id_, 60))
        await asyncio.sleep(0.3)
        assert not task.done()
        return id_  # asyncio.run cancels the task

    async def again(id_: str) -> object:
        task = asyncio.create_task(queue.result(id_, 60))
        await asyncio.sleep(0.3)
        [delivery] = await queue.receive()
        await delivery.ack(result=1)
        found = await asyncio.wait_for(task, 4)
        await app.aclose()
        return found

    assert asyncio.run(again(asyncio.run(leave()))) == 1
    wait_until(lambda: blocked(client) == 0)


def test_threads_that_come_and_go_leave_one_that_reads(own_server: Server) -> None:
    """However short others wait, one who waits long is woken at once."""
    with duly.Duly(own_server.url) as app, ThreadPoolExecutor(9) as pool:
        queue = app.queue("results", done=KEPT)
        stuck, awaited = queue.send("stuck", delay=600), queue.send("awaited", delay=600)
        is_over = threading.Event()

        def come_and_go() -> None:
            while not is_over.is_set():
                with pytest.raises(duly.NotFinished):
                    queue.result(stuck, 0.05)

        others = [pool.submit(come_and_go) for _ in range(8)]
        waiter = pool.submit(lambda: (queue.result(awaited, 60), time.monotonic()))
        time.sleep(1)
        queue.promote(awaited)
        [delivery] = queue.receive()
        delivery.ack(result=1)
        acked = time.monotonic()
        found, moment = waiter.result(AT_THE_LATEST)
        is_over.set()
        for other in others:
            other.result(AT_THE_LATEST)

        assert found == 1
        assert moment - acked < 4
