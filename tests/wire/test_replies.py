"""Replies that are cut, split, merged, foreign or huge. A caller gets its own reply or an error, never another's."""

import random
import socket
import struct
import threading
import time
from typing import Any

import pytest

from duly._core.pieces import Pieces
from duly._core.resp import ErrorReply, MalformedReply
from tests.wire.driven import Driven, Driver
from tests.wire.scripted import REPLIES, Peer, ScriptedServer, bulk, echo

MEGABYTES = 1 << 20


def outcome_of(wire: Driven, *command: str, timeout: float = 5.0) -> Any:
    """Return the reply, or the text of an error reply."""
    try:
        return wire.ask(*command, timeout=timeout)
    except ErrorReply as error:
        return str(error)


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_that_is_cut_after_any_byte_is_an_error_and_closes_the_wire(driver: Driver, name: str) -> None:
    written, expected = REPLIES[name]
    cuts = iter(range(len(written) + 1))

    def cut(peer: Peer) -> None:
        after = next(cuts)
        peer.command()
        peer.send(b"+first\r\n")
        peer.command()
        peer.send(written[:after])

    with ScriptedServer(cut) as server:
        for after in range(len(written) + 1):
            wire = driver.opened(server.options)
            assert wire.ask("PING") == b"first"
            if after == len(written):
                assert outcome_of(wire, "GET", "it") == expected
                continue
            with pytest.raises(OSError, match=r"closed the connection|reset by peer"):
                wire.ask("GET", "it")
            assert not wire.is_open
            with pytest.raises(ConnectionError):
                wire.ask("PING")


def test_a_login_whose_replies_are_cut_after_any_byte_fails(driver: Driver) -> None:
    written = b"+OK\r\n" * 3
    cuts = iter(range(len(written)))

    def cut(peer: Peer) -> None:
        for _ in range(3):
            peer.command()
        peer.send(written[: next(cuts)])

    with ScriptedServer(cut) as server:
        for _ in range(len(written)):
            wire = driver.wire({**server.options, "username": "me", "password": "x", "db": 1}, name="duly:client")
            with pytest.raises(OSError, match=r"closed the connection|reset by peer"):
                wire.open()
            assert not wire.is_open


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_may_arrive_byte_by_byte(driver: Driver, name: str) -> None:
    written, expected = REPLIES[name]

    def trickle(peer: Peer) -> None:
        while peer.command():
            for byte in written:
                peer.send(bytes([byte]))
                time.sleep(0.0005)

    with ScriptedServer(trickle) as server:
        wire = driver.opened(server.options)
        assert [outcome_of(wire, "GET", "it") for _ in range(2)] == [expected] * 2
        assert wire.is_open


@pytest.mark.parametrize("name", REPLIES)
def test_two_replies_may_arrive_in_one_segment(driver: Driver, name: str) -> None:
    written, expected = REPLIES[name]

    def merge(peer: Peer) -> None:
        peer.command()
        peer.command()
        peer.send(b"+first\r\n" + written)
        peer.answer_all(echo)

    with ScriptedServer(merge) as server:
        wire = driver.opened(server.options)
        if name == "error":
            with pytest.raises(ErrorReply, match=expected):
                wire.ask_both(["FIRST"], ["SECOND"])
        else:
            assert wire.ask_both(["FIRST"], ["SECOND"])[1] == expected
            assert wire.ask("ECHO", "mine") == b"mine"


def test_an_error_reply_to_the_first_of_two_commands_leaves_no_unread_reply(driver: Driver) -> None:
    def refuse(peer: Peer) -> None:
        peer.command()
        peer.command()
        peer.send(b"-ERR first\r\n")
        time.sleep(0.05)
        peer.send(b"+second\r\n")
        peer.answer_all(echo)

    with ScriptedServer(refuse) as server:
        wire = driver.opened(server.options)
        with pytest.raises(ErrorReply, match="ERR first"):
            wire.ask_both(["FIRST"], ["SECOND"])
        if wire.is_open:  # a wire for threads is closed, since its reader could not drop the second reply
            assert wire.ask("ECHO", "mine") == b"mine"


# --- Replies without a command


@pytest.mark.parametrize("commands", [0, 1], ids=["before the first write", "after the first write"])
def test_the_reason_of_a_server_that_refuses_a_connection_is_raised(driver: Driver, commands: int) -> None:
    def refuse(peer: Peer) -> None:
        for _ in range(commands):
            peer.command()
        peer.send(b"-ERR max number of clients reached\r\n")

    with ScriptedServer(refuse) as server:
        for _ in range(20):
            wire = driver.wire({**server.options, "password": "secret", "db": 3}, name="duly:client")
            with pytest.raises(ErrorReply, match="max number of clients"):
                wire.open()
            assert not wire.is_open


def test_the_reason_of_a_refusal_is_raised_if_it_comes_while_credentials_are_fetched(driver: Driver) -> None:
    def slow() -> str:
        time.sleep(0.1)
        return "secret"

    with ScriptedServer(lambda peer: peer.send(b"-ERR max number of clients reached\r\n")) as server:
        wire = driver.wire({**server.options, "credentials": slow}, name="duly:client")
        with pytest.raises(ErrorReply, match="max number of clients"):
            wire.open()


def test_a_reply_without_a_command_is_not_the_reply_of_the_next_command(driver: Driver) -> None:
    def talk(peer: Peer) -> None:
        peer.command()
        peer.send(b"+mine\r\n+nobody asked\r\n")
        peer.answer_all(echo)

    with ScriptedServer(talk) as server:
        wire = driver.opened(server.options)
        assert wire.ask("PING") == b"mine"
        driver.rest(0.02)
        with pytest.raises((MalformedReply, OSError)):
            wire.ask("ECHO", "other")
        assert not wire.is_open


# --- Other protocols


GARBAGE = {
    "HTTP": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    "a TLS alert": b"\x15\x03\x01\x00\x02\x02\x28",
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "zeros": bytes(4096),
    "a length that is not a number": b"$five\r\nhello\r\n",
    "a negative list": b"*-7\r\n",
}


@pytest.mark.parametrize("name", GARBAGE)
def test_a_peer_with_another_protocol_is_reported_and_the_wire_is_closed(driver: Driver, name: str) -> None:
    def talk(peer: Peer) -> None:
        peer.command()
        peer.send(GARBAGE[name])
        peer.wait_for_end()

    with ScriptedServer(talk) as server:
        wire = driver.opened(server.options)
        with pytest.raises(MalformedReply, match="not in the Redis protocol"):
            wire.ask("PING")
        assert not wire.is_open


RESP3 = {
    "push": b">2\r\n+invalidate\r\n*1\r\n+key\r\n",
    "true": b"#t\r\n",
    "false": b"#f\r\n",
    "double": b",1.5\r\n",
    "map": b"%1\r\n+a\r\n:1\r\n",
}


@pytest.mark.parametrize("name", RESP3)
def test_a_reply_of_the_next_protocol_version_is_not_taken_for_a_reply(driver: Driver, name: str) -> None:
    # The wire never asks for RESP3. If a push were a reply, each later caller would get the reply of the one before.
    def talk(peer: Peer) -> None:
        peer.command()
        peer.send(RESP3[name] + b"+mine\r\n")
        peer.answer_all(echo)

    with ScriptedServer(talk) as server:
        wire = driver.opened(server.options)
        with pytest.raises(MalformedReply):
            wire.ask("PING")
        assert not wire.is_open


def test_the_text_of_an_error_need_not_be_unicode(driver: Driver) -> None:
    with ScriptedServer(lambda peer: peer.answer_all(lambda _: b"-ERR \xff\xfe \xc3\xa9 \xe9\r\n")) as server:
        wire = driver.opened(server.options)
        for _ in range(2):
            with pytest.raises(ErrorReply, match=r"^ERR .* é .$"):
                wire.ask("PING")
        assert wire.is_open


# --- Large


def test_a_bulk_of_64_megabytes_is_read(driver: Driver) -> None:
    large = bytes(64 * MEGABYTES)

    with ScriptedServer(lambda peer: peer.answer_all(lambda _: bulk(large))) as server:
        wire = driver.opened(server.options)
        assert wire.ask("GET", "it", timeout=60) == large


def test_a_large_command_reaches_a_server_that_reads_slowly(driver: Driver) -> None:
    large = bytes(8 * MEGABYTES)

    def slow(peer: Peer) -> None:
        time.sleep(0.2)
        peer.answer_all(lambda command: b":%d\r\n" % len(command[-1]))

    with ScriptedServer(slow) as server:
        wire = driver.opened(server.options)
        assert wire.ask("SET", "it", large, timeout=30) == len(large)
        assert wire.ask("SET", "it", b"1234") == 4


def test_large_arguments_arrive_unchanged_and_in_order(driver: Driver) -> None:
    received: list[list[bytes]] = []

    def note(command: list[bytes]) -> bytes:
        received.append(command)
        return b"+OK\r\n"

    large = [random.Random(seed).randbytes(3 * MEGABYTES) for seed in range(3)]
    with ScriptedServer(lambda peer: peer.answer_all(note)) as server:
        wire = driver.opened(server.options)
        wire.ask("MSET", "a", large[0], "b", Pieces(b"head", large[1], b"tail"), timeout=30)
        wire.ask_both([b"SET", b"c", large[2]], [b"GET", b"c"])
    assert received == [
        [b"MSET", b"a", large[0], b"b", b"head" + large[1] + b"tail"],
        [b"SET", b"c", large[2]],
        [b"GET", b"c"],
    ]


def test_a_large_command_on_a_connection_that_was_reset_fails(driver: Driver) -> None:
    is_open, is_reset = threading.Event(), threading.Event()

    def reset(peer: Peer) -> None:
        assert is_open.wait(20)
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.socket.close()
        is_reset.set()

    with ScriptedServer(reset) as server:
        wire = driver.opened(server.options)
        is_open.set()
        assert is_reset.wait(20)
        with pytest.raises(OSError, match=r"closed|reset by peer|[Bb]roken pipe"):
            wire.ask("SET", "it", bytes(8 * MEGABYTES))
        assert not wire.is_open


def test_a_large_command_to_a_server_that_does_not_read_ends_at_its_deadline(driver: Driver) -> None:
    with ScriptedServer(Peer.stay_silent) as server:
        wire = driver.opened(server.options)
        began_at = time.monotonic()
        with pytest.raises(TimeoutError):
            wire.ask("SET", "it", bytes(32 * MEGABYTES), timeout=0.2)
        assert time.monotonic() - began_at < 2
        assert not wire.is_open
