"""Standard output that says when it takes nothing any more: a full disk is an error to tell, no traceback."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from duly.errors import DulyError


class Unwritable(DulyError):
    """What was to be printed could not be. What is done is done."""


@contextmanager
def writing() -> Iterator[None]:
    """Tell errors of the output from all others. A reader that has enough is none: it ends the command quietly."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Unwritable(f"cannot write to standard output: {error.strerror or error}") from error


class _Output(io.TextIOWrapper):
    def write(self, text: str, /) -> int:
        with writing():
            return super().write(text)

    def flush(self) -> None:
        with writing():
            super().flush()


def install(*, is_plain: bool = False) -> None:
    """Put it in place, unless somebody else (a test) has put an own. What the encoding lacks is escaped.

    With `is_plain` its errors are left alone, for programs that print for themselves.
    """
    before = sys.stdout
    if isinstance(before, io.TextIOWrapper):
        before.reconfigure(errors="backslashreplace")
    if type(before) is io.TextIOWrapper and not is_plain:
        encoding, by_line = before.encoding, before.line_buffering
        sys.stdout = _Output(before.detach(), encoding, "backslashreplace", line_buffering=by_line)


def abandon() -> None:
    """Forget what was not written: Python would try again at its end, and wait for a reader that does not read."""
    if isinstance(sys.stdout, _Output):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
