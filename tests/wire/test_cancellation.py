"""Callers that are cancelled or interrupted. No other caller gets their reply."""

import asyncio
import gc
import os
import random
import signal
import time
from types import FrameType
from typing import Any, NoReturn

import pytest

from duly._async.wire import AsyncWire
from duly._core.resp import ErrorReply
from duly._sync.wire import Wire
from tests.conftest import StartedServer
from tests.servers import Server
from tests.wire.driven import Driver
from tests.wire.scripted import Peer, ScriptedServer, echo

CALLS = 1000


async def overlapping(wire: AsyncWire, seed: int) -> tuple[int, int]:
    """Send many calls at once, cancel half of them at random, and check each reply. Return (replies, cancelled)."""
    chance = random.Random(seed)
    replies, cancelled = 0, 0

    async def ask(number: int) -> None:
        nonlocal replies, cancelled
        await asyncio.sleep(chance.random() * 0.02)
        try:
            answer = await wire.ask([b"ECHO", b"%d" % number])
        except asyncio.CancelledError:
            cancelled += 1
            raise
        assert answer == b"%d" % number
        replies += 1

    async def cancel(task: "asyncio.Task[None]") -> None:
        await asyncio.sleep(chance.random() * 0.03)
        task.cancel()

    tasks = [asyncio.create_task(ask(number)) for number in range(CALLS)]
    await asyncio.gather(*(cancel(task) for task in tasks if chance.random() < 0.5))
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        assert outcome is None or isinstance(outcome, asyncio.CancelledError)
    return replies, cancelled


async def cut_off(wire: AsyncWire) -> int:
    """Cancel callers after their command is on its way and before its reply is read."""
    tasks = [asyncio.create_task(wire.ask([b"ECHO", b"%d" % number])) for number in range(CALLS)]
    await asyncio.sleep(0)  # all of them have written
    for task in tasks[::2]:
        task.cancel()
    replies = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(reply) for reply in replies[::2]] == [asyncio.CancelledError] * (CALLS // 2)
    assert replies[1::2] == [b"%d" % number for number in range(1, CALLS, 2)]
    return len(replies[1::2])


@pytest.mark.parametrize("place", ["a real server", "a server that replies byte by byte"])
def test_every_caller_that_is_not_cancelled_gets_its_own_reply(
    async_driver: Driver, server: StartedServer, place: str
) -> None:
    def talk(peer: Peer) -> None:
        while True:
            for byte in echo(peer.command()):
                peer.send(bytes([byte]))

    with ScriptedServer(talk) as scripted:
        real = server("valkey")
        options = {"host": "127.0.0.1", "port": real.port} if place == "a real server" else scripted.options
        wire = async_driver.opened(options)
        assert async_driver.run(lambda: cut_off(wire.wire)) == CALLS // 2
        replies, cancelled = async_driver.run(lambda: overlapping(wire.wire, seed=1))
        assert replies + cancelled <= CALLS
        assert replies > 100
        assert cancelled > 0

        assert wire.is_open
        assert wire.ask("ECHO", "mine") == b"mine"
        assert not wire.wire._pending  # no reply is unread
        gc.collect()  # errors that nothing retrieved are reported now
        assert async_driver.reports == []


def test_callers_that_are_cancelled_while_the_connection_ends_leave_no_report(async_driver: Driver) -> None:
    async def cancel_some(wire: AsyncWire) -> list[Any]:
        tasks = [asyncio.create_task(wire.ask([b"PING"])) for _ in range(20)]
        await asyncio.sleep(0.01)
        for task in tasks[::2]:
            task.cancel()
        wire.hang_up()
        return await asyncio.gather(*tasks, return_exceptions=True)

    with ScriptedServer(Peer.wait_for_end) as server:
        wire = async_driver.opened(server.options)
        outcomes = async_driver.run(lambda: cancel_some(wire.wire))
        assert {type(outcome) for outcome in outcomes} == {asyncio.CancelledError, ConnectionError}
        gc.collect()
        async_driver.rest(0.01)
        assert async_driver.reports == []


def test_no_timer_is_left_behind_by_a_closed_wire(async_driver: Driver, server: StartedServer) -> None:
    wire = async_driver.opened({"host": "127.0.0.1", "port": server("valkey").port})
    wire.ask("PING")
    wire.close()

    assert wire.wire._timer is None


@pytest.mark.parametrize("moment", ["connecting", "login"])
def test_a_cancelled_open_closes_the_connection(async_driver: Driver, moment: str) -> None:
    ended: list[bool] = []

    def silent(peer: Peer) -> None:
        while peer.socket.recv(100):
            pass
        ended.append(True)

    async def open_briefly(wire: AsyncWire) -> None:
        task = asyncio.create_task(wire.open())
        await asyncio.sleep(0 if moment == "connecting" else 0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with ScriptedServer(silent) as server:
        wire = async_driver.wire(server.options, name="duly:client")
        async_driver.run(lambda: open_briefly(wire.wire))
        assert not wire.is_open
        if moment == "login":
            async_driver.rest_until(lambda: ended)


def test_the_reply_to_a_cancelled_blocking_call_goes_to_no_other_call(async_driver: Driver) -> None:
    def block(peer: Peer) -> None:
        peer.command()
        time.sleep(0.1)
        peer.send(b"+blocked\r\n")
        peer.answer_all(echo)

    async def give_up(wire: AsyncWire) -> Any:
        await wire.begin([b"BLPOP", b"key", 0])
        with pytest.raises(TimeoutError):
            await wire.finish(0.02)
        return await wire.ask([b"ECHO", b"mine"])

    with ScriptedServer(block) as server:
        wire = async_driver.opened(server.options)
        assert async_driver.run(lambda: give_up(wire.wire)) == b"mine"


# --- Signals, in a thread


class Interrupted(Exception):
    """Raised by the signal handler."""


def test_an_interrupted_call_of_a_thread_closes_its_wire() -> None:
    def interrupt(peer: Peer) -> None:
        peer.command()
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.05)
        peer.send(b"+late\r\n")
        peer.answer_all(echo)

    def handle(number: int, frame: FrameType | None) -> NoReturn:
        raise Interrupted

    previous = signal.signal(signal.SIGUSR1, handle)
    try:
        with ScriptedServer(interrupt) as server:
            wire = Wire("tcp", server.options)
            wire.open()
            with pytest.raises(Interrupted):
                wire.ask([b"PING"])
            assert not wire.is_open
            with pytest.raises(ConnectionError):
                wire.ask([b"PING"])
    finally:
        signal.signal(signal.SIGUSR1, previous)


# --- The peer ends an idle connection


def test_a_connection_that_the_server_closes_while_it_is_idle_is_noticed(async_driver: Driver) -> None:
    with Server("valkey") as server:
        wire = async_driver.opened({"host": "127.0.0.1", "port": server.port})
        other = async_driver.opened({"host": "127.0.0.1", "port": server.port})
        number = wire.ask("CLIENT", "ID")
        other.ask("CLIENT", "KILL", "ID", number)
        async_driver.rest_until(lambda: not wire.is_open)
        with pytest.raises(ConnectionError, match="the server closed the connection"):
            wire.ask("PING")

        server.kill9()
        async_driver.rest_until(lambda: not other.is_open)


def test_an_error_reply_is_raised_in_each_caller_as_its_own(async_driver: Driver, server: StartedServer) -> None:
    async def refused_twice(wire: AsyncWire) -> list[Any]:
        return await asyncio.gather(*(wire.ask([b"NO-SUCH-COMMAND"]) for _ in range(2)), return_exceptions=True)

    wire = async_driver.opened({"host": "127.0.0.1", "port": server("valkey").port})
    first, second = async_driver.run(lambda: refused_twice(wire.wire))
    assert isinstance(first, ErrorReply)
    assert isinstance(second, ErrorReply)
    assert first is not second
