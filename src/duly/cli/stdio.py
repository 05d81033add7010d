"""Standard output, whose errors are reported, and standard error, whose errors are ignored."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from duly.errors import DulyError


class Unwritable(DulyError):
    """A result could not be printed. The command's effects remain."""


@contextmanager
def writing() -> Iterator[None]:
    """Turn errors of standard output into `Unwritable`, so that other errors are not taken for them.

    A reader that closes the pipe is not an error: it ends the command quietly.
    """
    try:
        yield
    except BrokenPipeError:
        abandon()  # Python 3.13 prints an error for output that a stream cannot write when it is deleted
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


class _Errors(io.TextIOWrapper):
    def write(self, text: str, /) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


def install_output(*, is_plain: bool = False) -> None:
    """Replace standard output, unless a test has replaced it already. Characters outside the encoding are escaped.

    With `is_plain`, write errors are not handled: the handlers of a worker print for themselves.
    """
    before = sys.stdout
    if isinstance(before, io.TextIOWrapper):
        before.reconfigure(errors="backslashreplace")
    if type(before) is io.TextIOWrapper and not is_plain:
        encoding, by_line = before.encoding, before.line_buffering
        sys.stdout = _Output(before.detach(), encoding, "backslashreplace", line_buffering=by_line)


def install_errors(*, is_plain: bool = False) -> None:
    """Replace standard error, unless a test has replaced it already. If it is closed, its output is discarded.

    Python sets a closed stream to None, and `print` would write to standard output then. With `is_plain`, write errors
    are not handled: the handlers of a worker print for themselves.
    """
    before = sys.stderr
    if before is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    elif type(before) is io.TextIOWrapper and not is_plain:
        encoding = before.encoding
        sys.stderr = _Errors(before.detach(), encoding, "backslashreplace", line_buffering=True)


def abandon() -> None:
    """Discard unwritten output: Python would retry it at exit, and block on a reader that does not read."""
    if isinstance(sys.stdout, _Output):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
