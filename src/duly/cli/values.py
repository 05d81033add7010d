"""Parsers for arguments: durations, times, headers and bodies. Invalid text raises UsageError."""

from __future__ import annotations

import math
import os
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from io import BufferedReader, RawIOBase
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

import msgspec

from duly._core.durations import read_duration
from duly._core.naming import nearest
from duly.errors import UsageError
from duly.options import MAX_DELAY

_CHUNK: Final = 1 << 20
_LOOKS_LIKE_JSON: Final = ("{", "[", '"')
_EPOCH_SECONDS: Final = (100_000_000, 100_000_000_000)
"""The range of valid times, from 1973 on. Other numbers are dates without dashes, milliseconds, or durations."""

_Read = TypeVar("_Read")


def duration(text: str, option: str) -> float:
    """Parse 500ms, 30s, 5m, 2h, 1d, 1h30m, or a number of seconds."""
    seconds = read_duration(text)
    if seconds is None:
        try:
            seconds = float(text)
        except ValueError:
            seconds = math.nan
    if not math.isfinite(seconds) or seconds < 0:
        raise UsageError(f"{option}: {text!r} is not a duration. Write 500ms, 30s, 5m, 2h, 1d, 1h30m, or seconds")
    if seconds > MAX_DELAY:
        raise UsageError(f"{option}: {text!r} is more than ten years")
    return seconds


def optional_duration(text: str | None, option: str) -> float | None:
    """Parse a duration, or None."""
    return None if text is None else duration(text, option)


def moment(text: str, option: str) -> datetime | float:
    """Parse a time with its zone, like 2026-12-01T09:00+08:00, or seconds since the epoch."""
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        return _checked_epoch(number, text, option)
    try:
        read = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(
            f"{option}: {text!r} is not a time. Write it like 2026-12-01T09:00+08:00, or as seconds since the epoch"
        ) from None
    if read.tzinfo is None:
        whole = (
            text.strip() if ":" in text else f"{read.date()}T{read:%H:%M}"
        )  # a date with only a zone is not a valid time
        raise UsageError(f"{option}: {text!r} has no zone. Add it, like {whole}+08:00, or Z for UTC")
    return read


def _checked_epoch(number: float, text: str, option: str) -> float:
    """Refuse numbers that are unlikely to be meant as epoch seconds: 20261201 would be a day in 1970."""
    least, most = _EPOCH_SECONDS
    if least <= number < most:
        return number
    hint = "It looks like milliseconds: divide it by 1000. " if 10**12 <= number < 10**13 else ""
    raise UsageError(
        f"{option}: {text!r} is not a time: seconds since the epoch have 9 to 11 digits. {hint}"
        "Write a date like 2026-12-01T09:00+08:00"
    )


def aware_moment(text: str, option: str) -> datetime:
    """Parse a time for calls of the library that do not accept a number."""
    read = moment(text, option)
    return read if isinstance(read, datetime) else datetime.fromtimestamp(read, UTC)


def optional_moment(text: str | None, option: str) -> datetime | float | None:
    """Parse a time, or None."""
    return None if text is None else moment(text, option)


def optional_past(text: str | None, option: str) -> datetime | float | None:
    """Parse a time, or a duration before now, like 2h, or None."""
    ago = None if text is None else read_duration(text)
    return optional_moment(text, option) if ago is None else time.time() - ago


def due(delay: str | None, at: str | None) -> dict[str, Any]:
    """Parse --delay and --at, which exclude each other, into arguments of the library."""
    if delay is not None and at is not None:
        raise UsageError("--delay and --at exclude each other: give one")
    read = optional_moment(at, "--at")
    if isinstance(read, datetime) and read.timestamp() - time.time() > MAX_DELAY:
        raise UsageError(f"--at: {at!r} is more than ten years ahead")
    return {"delay": optional_duration(delay, "--delay"), "at": read}


def choice(text: str, option: str, kind: Any) -> Any:
    """Parse one of the words of a Literal."""
    known = get_args(kind)
    if text in known:
        return text
    raise UsageError(
        f"{option} must be {', '.join(known[:-1])} or {known[-1]}, not {text!r}.{nearest(text.lower(), known)}"
    )


def headers(pairs: Iterable[str] | None) -> dict[str, str] | None:
    """Parse a list of NAME=VALUE."""
    found = {}
    for pair in pairs or ():
        name, is_pair, value = pair.partition("=")
        if not is_pair or not name:
            raise UsageError(f"--header: {pair!r} is not a header. Write NAME=VALUE")
        found[name] = value
    return found or None


def body(argument: str | None, *, as_text: bool = False, as_bytes: bool = False) -> Any:
    """Parse a body: the argument itself, the file after an @, or standard input for - or no argument.

    It is JSON if it is valid JSON, and text otherwise. Text that begins like JSON but is invalid is refused, since it
    was probably meant as JSON.
    """
    _check_forms(as_text=as_text, as_bytes=as_bytes)
    content = _content(argument)
    if argument is None and not content and not (as_text or as_bytes):  # probably a script that forgot the body
        raise UsageError("there is no body: standard input is empty. Give it as an argument; '' is an empty text")
    return _as_body(content, as_text=as_text, as_bytes=as_bytes)


def argument(text: str) -> Any:
    """Parse an argument of a task, like a body: JSON if it is valid JSON, and text otherwise."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        if text.lstrip()[:1] in _LOOKS_LIKE_JSON:
            raise UsageError(f"the argument {text!r} looks like JSON but is not: {error}") from None
    return text


def bodies_by_line(
    argument: str | None, most: int, *, as_text: bool = False, as_bytes: bool = False
) -> Iterator[list[tuple[int, Any]]]:
    """Parse each line of a file or of standard input as a body. Yields line numbers and bodies, without empty lines.

    Yields available lines, up to `most` at a time, so that the lines of a slow pipe do not wait for later ones.
    """
    _check_forms(as_text=as_text, as_bytes=as_bytes)
    if argument is not None and argument != "-" and not _names_a_file(argument):
        raise UsageError("--lines reads a file (@file) or standard input (-), not the argument itself")
    with _opened(argument) as source:
        for lines in _lines_there(source, argument):
            for first in range(0, len(lines), most):
                yield [
                    (number, _as_body(content, as_text=as_text, as_bytes=as_bytes, where=f"line {number}: "))
                    for number, content in lines[first : first + most]
                ]


def _lines_there(source: BufferedReader, argument: str | None) -> Iterator[list[tuple[int, bytes]]]:
    """Yield available lines with their numbers. Blocks only if there are none. Empty lines are counted and left out."""
    numbers = count(1)
    rest = b""
    while chunk := _read(lambda: source.read1(_CHUNK), argument):
        *lines, rest = (rest + chunk).split(b"\n")
        yield _numbered(lines, numbers)
    yield _numbered([rest], numbers)


def _numbered(lines: list[bytes], numbers: Iterator[int]) -> list[tuple[int, bytes]]:
    found = ((next(numbers), line.rstrip(b"\r\n")) for line in lines)
    return [(number, content) for number, content in found if content]


def _check_forms(*, as_text: bool, as_bytes: bool) -> None:
    if as_text and as_bytes:
        raise UsageError("--text and --bytes: a body is one or the other")


def _content(argument: str | None) -> bytes:
    if argument is not None and argument != "-" and not _names_a_file(argument):
        typed = argument[1:] if argument.startswith("@@") else argument
        return typed.encode(errors="surrogateescape")
    with _opened(argument) as source:
        return _read(source.read, argument)


def _read(read: Callable[[], _Read], argument: str | None) -> _Read:
    """Open or read a file, and turn errors into UsageError."""
    try:
        return read()
    except (OSError, ValueError) as error:
        where = "standard input" if argument is None or argument == "-" else repr(argument[1:])
        why = error.strerror if isinstance(error, OSError) else error
        as_text = "" if where == "standard input" else ". @@ in front sends the text as it is"
        raise UsageError(f"the body cannot be read from {where}: {why}{as_text}") from None


def _names_a_file(argument: str) -> bool:
    return argument.startswith("@") and not argument.startswith("@@")


def _opened(argument: str | None) -> BufferedReader:
    if argument is not None and argument != "-":
        return _read(lambda: Path(argument[1:]).open("rb"), argument)
    if sys.stdin is None or (argument is None and sys.stdin.isatty()):
        raise UsageError("there is no body: give it as an argument, as @file, or on standard input")
    return BufferedReader(_StandardInput(sys.stdin.fileno()))


class _StandardInput(RawIOBase):
    """Standard input that blocks, even if another process has made the pipe non-blocking.

    The mode of the pipe is not changed, since the other process shares it.
    """

    def __init__(self, number: int) -> None:
        self._number = number

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            try:
                return os.readv(self._number, [buffer])
            except BlockingIOError:
                select.select([self._number], [], [])


def _as_body(content: bytes, *, as_text: bool, as_bytes: bool, where: str = "") -> Any:
    if as_bytes:
        return content
    if not as_text:
        try:
            return msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if content.lstrip()[:1].decode("latin-1") in _LOOKS_LIKE_JSON:
                raise UsageError(
                    f"{where}the body looks like JSON but is not: {error}. --text sends it as it is"
                ) from None
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{where}the body is neither JSON nor UTF-8 text. --bytes sends it as it is") from None
