"""Commands are written so that an interrupt cannot end the process."""

import random
import signal
import time

import pytest

from duly._core.resp import packed


@pytest.mark.parametrize(
    ("command", "written"),
    [
        ([b"GET", "kéy"], b"*2\r\n$3\r\nGET\r\n$4\r\nk\xc3\xa9y\r\n"),
        ([b"X", 0, -12, 2**63], b"*4\r\n$1\r\nX\r\n$1\r\n0\r\n$3\r\n-12\r\n$19\r\n9223372036854775808\r\n"),
    ],
)
def test_a_command_is_written(command: list[bytes | str | int], written: bytes) -> None:
    assert packed(command) == written


def test_an_interrupt_while_numbers_are_written_is_an_exception() -> None:
    """The library below writes numbers with a call that runs signal handlers, and does not check whether one raised."""
    command: list[bytes | str | int] = [b"EVALSHA"]
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
