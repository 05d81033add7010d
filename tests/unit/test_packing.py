"""Commands are written so that an interrupt cannot end the process, and without copies of large arguments."""

import random
import signal
import time
from typing import Any

import hiredis
import pytest

from duly._core.pieces import LARGE_PIECE, Pieces
from duly._core.resp import Arg, packed, packed_both


@pytest.mark.parametrize(
    ("command", "written"),
    [
        ([b"GET", "kéy"], b"*2\r\n$3\r\nGET\r\n$4\r\nk\xc3\xa9y\r\n"),
        ([b"X", 0, -12, 2**63], b"*4\r\n$1\r\nX\r\n$1\r\n0\r\n$3\r\n-12\r\n$19\r\n9223372036854775808\r\n"),
    ],
)
def test_a_command_is_written(command: list[Arg], written: bytes) -> None:
    assert packed(command) == [written]


BODY = b"x" * LARGE_PIECE


@pytest.mark.parametrize(
    "command",
    [
        [b"SET", b"k", BODY],
        [BODY],
        [b"X", BODY, 7, BODY, "kéy"],
        [b"X", Pieces(b"head", BODY, b"tail"), BODY[1:], b""],
        [b"X", Pieces(b"", BODY), Pieces(BODY, b"")],
    ],
)
def test_a_large_argument_is_written_without_a_copy(command: list[Arg]) -> None:
    whole: list[Any] = [bytes(arg) if isinstance(arg, Pieces) else arg for arg in command]
    given = [piece for arg in command for piece in (arg.pieces if isinstance(arg, Pieces) else [arg])]

    pieces = packed(command)

    assert b"".join(pieces) == hiredis.pack_command(tuple(whole))
    assert sum(piece is BODY for piece in pieces) == sum(piece is BODY for piece in given)


def test_a_large_text_is_written() -> None:
    command: Any = (b"SET", "k", "é" * LARGE_PIECE)
    assert b"".join(packed(command)) == hiredis.pack_command(command)


@pytest.mark.parametrize("second", [[b"GET", b"k"], [b"SET", b"k", BODY]])
def test_two_commands_begin_in_one_piece(second: list[Arg]) -> None:
    pieces = packed_both([b"ASKING"], second)
    assert b"".join(pieces) == b"*1\r\n$6\r\nASKING\r\n" + b"".join(packed(second))
    assert len(pieces) == len(packed(second))


def test_an_interrupt_while_numbers_are_written_is_an_exception() -> None:
    """The library below writes numbers with a call that runs signal handlers, and does not check whether one raised."""
    command: list[Arg] = [b"EVALSHA"]
    for number in range(20):
        command += (b"x", 12345 + number)
    chance, ends_at, interrupts = random.Random(3), time.monotonic() + 0.5, 0
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        while time.monotonic() < ends_at:
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.00005, 0.0003))
                while True:
                    packed(command)
            except KeyboardInterrupt:
                interrupts += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupts > 10
