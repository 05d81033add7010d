"""A server that was restarted without its last writes: the client counts the confirmed calls that were lost."""

import logging
import re
from typing import Any

import pytest

import duly
from tests.conftest import need
from tests.matrix import SERVERS
from tests.servers import Server

pytestmark = [pytest.mark.fault, pytest.mark.parametrize("kind", SERVERS)]


def lost_calls(caplog: pytest.LogCaptureFixture) -> list[int]:
    found = (re.search(r"does not know (\d+) calls?", record.getMessage()) for record in caplog.records)
    return [int(match[1]) for match in found if match]


def test_confirmed_calls_that_a_restart_lost_are_counted(
    kind: Any, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    need(kind)
    caplog.set_level(logging.WARNING, "duly")
    with Server(kind) as server, duly.Duly(server.url) as app:
        orders, mails = app.queue(queue_name), app.queue(f"{queue_name}-mails")
        for number in range(25):
            orders.send(number)
        mails.send_many(range(10))
        server.kill9()
        server.start()
        orders.send("after")
        mails.send("after")

        assert lost_calls(caplog) == [26]
        assert app._link.connections.rollbacks.total == 26
        assert "25 on queue" in caplog.text


def test_a_restart_that_loses_nothing_is_not_reported(
    kind: Any, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    need(kind)
    caplog.set_level(logging.WARNING, "duly")
    with Server(kind, {"appendonly": "yes", "appendfsync": "always"}) as server, duly.Duly(server.url) as app:
        queue = app.queue(queue_name)
        for number in range(25):
            queue.send(number)
        (delivery,) = queue.receive(1)
        assert queue.receive(1, lease=30)
        server.kill9()
        server.start()
        delivery.ack()
        queue.pause()

        assert lost_calls(caplog) == []
        assert app._link.connections.rollbacks.total == 0
        assert queue.stats().sent == 25


async def test_an_async_client_counts_them_too(kind: Any, queue_name: str, caplog: pytest.LogCaptureFixture) -> None:
    need(kind)
    caplog.set_level(logging.WARNING, "duly")
    with Server(kind) as server:
        async with duly.AsyncDuly(server.url) as app:
            queue = app.queue(queue_name)
            for number in range(25):
                await queue.send(number)
            server.kill9()
            server.start()
            await queue.send("after")

            assert lost_calls(caplog) == [25]
