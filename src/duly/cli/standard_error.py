"""Standard error that is never in the way: what it does not take stays unsaid, and the command goes on."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress


class _Errors(io.TextIOWrapper):
    def write(self, text: str, /) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


def install(*, is_plain: bool = False) -> None:
    """Put it in place, unless somebody else (a test) has put an own. Where it is closed, nothing is said.

    Python has None then, which `print` takes for standard output. With `is_plain` its errors are left alone, for
    programs that print for themselves.
    """
    before = sys.stderr
    if before is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    elif type(before) is io.TextIOWrapper and not is_plain:
        encoding = before.encoding
        sys.stderr = _Errors(before.detach(), encoding, "backslashreplace", line_buffering=True)
