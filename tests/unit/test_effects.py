"""The form of effects: a number is one that every server reads alike."""

from typing import Any

import pytest

from duly._core.effects import checked_effects
from duly.errors import UsageError

BAD_INTEGERS = [
    "-0",
    "+1",
    "01",
    "-01",
    "00",
    " 1",
    "1 ",
    "1\n",
    "1\0",
    "",
    "-",
    "1.0",
    "1e3",
    "0x1",
    "9" * 19,
    "9" * 400,
]
BAD_FLOATS = [
    "1e-301", "1e-400", "-1e-5000", "0." + "0" * 390 + "1", "1e301", "1e400", "9" * 310, "1e" + "9" * 30,
    "1e-" + "9" * 30, "inf", "-inf", "nan", "0x1p3", "+1", " 1", "1 ", "1\n", "1\0", "", ".", ".5",
    "1.", "1e", "1_0", "1" * 401,
]  # fmt: skip
INTEGER_COMMANDS: list[Any] = [
    lambda text: ("INCRBY", "k", text),
    lambda text: ("DECRBY", "k", text),
    lambda text: ("HINCRBY", "k", "f", text),
    lambda text: ("LREM", "k", text, "x"),
    lambda text: ("LTRIM", "k", text, "1"),
    lambda text: ("LTRIM", "k", "0", text),
    lambda text: ("XADD", "k", "MAXLEN", text, "*", "f", "v"),
    lambda text: ("XADD", "k", "MAXLEN", "~", text, "*", "f", "v"),
    lambda text: ("EXPIRE", "k", text),
    lambda text: ("SETEX", "k", text, "v"),
    lambda text: ("SET", "k", "v", "PX", text),
]
FLOAT_COMMANDS: list[Any] = [
    lambda text: ("INCRBYFLOAT", "k", text),
    lambda text: ("HINCRBYFLOAT", "k", "f", text),
    lambda text: ("ZADD", "k", "1", "m", text, "n"),
    lambda text: ("ZINCRBY", "k", text, "m"),
]


@pytest.mark.parametrize("command", INTEGER_COMMANDS, ids=lambda command: str(command("n")))
def test_an_integer_is_written_in_one_way(command: Any) -> None:
    assert checked_effects([command("17")], ["duly"])
    for text in BAD_INTEGERS:
        with pytest.raises(UsageError, match="effect 1"):
            checked_effects([command(text)], ["duly"])


@pytest.mark.parametrize("command", FLOAT_COMMANDS, ids=lambda command: str(command("n")))
def test_a_float_is_neither_too_large_nor_too_small(command: Any) -> None:
    for text in ("0", "-0", "0.00", "0e-5000", "0e999", "-1.5", "1e-300", "1E+300", "0" * 399 + "1"):
        assert checked_effects([command(text)], ["duly"])
    for text in BAD_FLOATS:
        with pytest.raises(UsageError, match="effect 1"):
            checked_effects([command(text)], ["duly"])


def test_none_is_nothing() -> None:
    assert checked_effects(None, ["duly"]) == []
