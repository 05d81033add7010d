"""Deadlines: connecting, login and replies end in time, however a server delays them."""

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from duly._async.wire import AsyncWire
from duly._core.resp import UnfinishedReply
from tests.servers import LOOPBACK
from tests.wire.driven import Driver
from tests.wire.scripted import Gone, Peer, ScriptedServer, echo

SHORT = 0.2
GENEROUS = 3.0
"""Seconds on a busy machine, and less than the timeout that is replaced by SHORT."""


@pytest.fixture
def short_connect(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver.module, "CONNECT_TIMEOUT", SHORT)


@contextmanager
def in_time() -> Iterator[None]:
    began_at = time.monotonic()
    yield
    assert SHORT * 0.9 <= time.monotonic() - began_at < GENEROUS


@contextmanager
def black_hole() -> Iterator[dict[str, Any]]:
    """Give an address that drops the packets of new connections: its queue is full, and nothing is accepted."""
    waiting = []
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen(0)
        for _ in range(8):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
            waiting.append(client)
        time.sleep(0.02)
        yield {"host": LOOPBACK, "port": listener.getsockname()[1]}
    for client in waiting:
        client.close()


@pytest.mark.usefixtures("short_connect")
def test_a_connection_to_a_black_hole_ends_at_the_deadline(driver: Driver) -> None:
    with black_hole() as options:
        wire = driver.wire(options)
        with in_time(), pytest.raises(TimeoutError):
            wire.open()
        assert not wire.is_open


@pytest.mark.usefixtures("short_connect")
def test_all_addresses_of_a_host_share_one_deadline(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    with black_hole() as options:
        found = socket.getaddrinfo(LOOPBACK, options["port"], type=socket.SOCK_STREAM)
        driver.resolve_as("four.addresses", found * 4, monkeypatch)
        monkeypatch.setattr(driver.module, "CONNECT_TIMEOUT", 0.8)
        began_at = time.monotonic()
        with pytest.raises(TimeoutError):
            driver.wire({**options, "host": "four.addresses"}).open()
        assert time.monotonic() - began_at < 1.5  # with a share of the whole time for each it would be 1.67


@pytest.mark.usefixtures("short_connect")
@pytest.mark.parametrize("login", [{}, {"username": "me", "password": "secret", "db": 2}], ids=["none", "login"])
def test_a_server_that_is_silent_after_accept_ends_the_login_at_the_deadline(
    driver: Driver, login: dict[str, Any]
) -> None:
    with ScriptedServer(Peer.stay_silent) as server:
        wire = driver.wire({**server.options, **login}, name="duly:client")
        with in_time(), pytest.raises(TimeoutError):
            wire.open()
        assert not wire.is_open


@pytest.mark.usefixtures("short_connect")
def test_the_replies_to_a_login_share_one_deadline(driver: Driver) -> None:
    def trickle(peer: Peer) -> None:
        for byte in b"+OK\r\n" * 3:
            peer.send(bytes([byte]))
            time.sleep(SHORT / 2)

    with ScriptedServer(trickle) as server:
        wire = driver.wire({**server.options, "password": "secret", "db": 2}, name="duly:client")
        began_at = time.monotonic()
        with pytest.raises(TimeoutError):
            wire.open()
        assert time.monotonic() - began_at < 0.9  # the whole login takes 1.5 s


def test_a_server_that_does_not_reply_ends_the_call_at_its_deadline(driver: Driver) -> None:
    with ScriptedServer(Peer.wait_for_end) as server:
        wire = driver.opened(server.options)
        with in_time(), pytest.raises(TimeoutError, match="did not reply in time"):
            wire.ask("PING", timeout=SHORT)
        assert not wire.is_open


def test_half_a_reply_and_then_silence_ends_the_call_at_its_deadline(driver: Driver) -> None:
    def half(peer: Peer) -> None:
        peer.command()
        peer.send(b"*2\r\n$5\r\nhel")
        peer.wait_for_end()

    with ScriptedServer(half) as server:
        wire = driver.opened(server.options)
        with in_time(), pytest.raises(TimeoutError) as raised:
            wire.ask("PING", timeout=SHORT)
        assert driver.is_async or isinstance(raised.value, UnfinishedReply)
        assert not wire.is_open


def test_a_reply_that_trickles_ends_at_the_deadline_of_the_whole(driver: Driver) -> None:
    def trickle(peer: Peer) -> None:
        peer.command()
        for byte in b"$100\r\n" + bytes(100) + b"\r\n":
            peer.send(bytes([byte]))
            time.sleep(0.03)

    with ScriptedServer(trickle) as server:
        wire = driver.opened(server.options)
        began_at = time.monotonic()
        with pytest.raises(TimeoutError):
            wire.ask("GET", "it", timeout=SHORT)
        assert time.monotonic() - began_at < 1.5  # the whole reply takes 3 s
        assert not wire.is_open


def test_the_parts_of_a_large_command_share_one_deadline(driver: Driver) -> None:
    def read_slowly(peer: Peer) -> None:
        while peer.socket.recv(1 << 20, socket.MSG_WAITALL):
            time.sleep(SHORT / 2)
        raise Gone

    with ScriptedServer(read_slowly) as server:
        wire = driver.opened(server.options)
        with in_time(), pytest.raises(TimeoutError):
            wire.ask("MSET", *[bytes(1 << 20)] * 60, timeout=SHORT)  # all of them take 6 s
        assert not wire.is_open


def test_a_reply_after_the_deadline_is_given_to_no_other_call(driver: Driver) -> None:
    def late(peer: Peer) -> None:
        peer.command()
        time.sleep(SHORT * 2)
        peer.send(b"+late\r\n")
        peer.answer_all(echo)

    with ScriptedServer(late) as server:
        wire = driver.opened(server.options)
        with pytest.raises(TimeoutError):
            wire.ask("PING", timeout=SHORT)
        driver.rest(SHORT * 2)
        with pytest.raises(OSError, match=r"closed|not reply"):
            wire.ask("ECHO", "mine")


def test_a_slow_reply_within_the_deadline_is_returned(driver: Driver) -> None:
    def slow(peer: Peer) -> None:
        peer.command()
        time.sleep(SHORT)
        peer.send(b"+slow\r\n")
        peer.answer_all(echo)

    with ScriptedServer(slow) as server:
        wire = driver.opened(server.options)
        assert wire.ask("PING", timeout=30) == b"slow"
        assert wire.ask("ECHO", "mine", timeout=SHORT * 5) == b"mine"


def test_a_blocking_call_has_no_deadline_until_it_is_finished(driver: Driver) -> None:
    def block(peer: Peer) -> None:
        peer.command()
        time.sleep(SHORT)
        peer.send(b"*-1\r\n")
        peer.answer_all(echo)

    with ScriptedServer(block) as server:
        wire = driver.opened(server.options)
        wire.begin("BLPOP", "key", 0)
        assert not wire.poll(0.01)
        assert wire.poll(20)
        assert wire.finish() is None
        assert wire.ask("ECHO", "mine") == b"mine"


# --- Overlapping calls on one wire for asyncio


@pytest.mark.parametrize("order", [(SHORT, 30.0), (30.0, SHORT)], ids=["short first", "short last"])
def test_the_earliest_deadline_of_overlapping_calls_ends_all_of_them(
    async_driver: Driver, order: tuple[float, ...]
) -> None:
    # The replies come in order. After one that did not come in time, no other can be trusted to come.
    async def overlapping(wire: AsyncWire) -> list[Any]:
        calls = (wire.ask([b"PING"], timeout) for timeout in order)
        return await asyncio.gather(*calls, return_exceptions=True)

    with ScriptedServer(Peer.wait_for_end) as server:
        wire = async_driver.opened(server.options)
        with in_time():
            outcomes = async_driver.run(lambda: overlapping(wire.wire))
        assert [type(outcome) for outcome in outcomes] == [TimeoutError, TimeoutError]
        assert outcomes[0] is not outcomes[1]
        assert not wire.is_open


def test_calls_that_end_in_time_do_not_end_those_with_later_deadlines(async_driver: Driver) -> None:
    def in_turn(peer: Peer) -> None:
        for _ in range(3):
            peer.command()
        for seconds in (0.02, SHORT * 1.5, SHORT):
            time.sleep(seconds)
            peer.send(b"+done\r\n")
        peer.wait_for_end()

    async def overlapping(wire: AsyncWire) -> list[Any]:
        return await asyncio.gather(*(wire.ask([b"PING"], timeout) for timeout in (SHORT, 30.0, 60.0)))

    with ScriptedServer(in_turn) as server:
        wire = async_driver.opened(server.options)
        assert async_driver.run(lambda: overlapping(wire.wire)) == [b"done"] * 3
        assert wire.is_open
