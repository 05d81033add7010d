"""The warning that a call of the sync client blocks an event loop: all tasks of the loop wait for the server."""

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_LOG: Final = logging.getLogger("duly")
_warned: Final[list[str]] = []
"""Where the call was. One warning is enough for a process."""
_here: Final = threading.local()
"""Of a thread: whether it blocks its event loop on purpose."""


@contextmanager
def on_purpose() -> Iterator[None]:
    """Do not warn about calls of this thread: no other task has to run meanwhile."""
    _here.is_on_purpose = True
    try:
        yield
    finally:
        _here.is_on_purpose = False


def warn() -> None:
    """Warn, once in a process. Not in a notebook: its kernel has an event loop, and cells block it by design."""
    if _warned or "ipykernel" in sys.modules or getattr(_here, "is_on_purpose", False):
        return
    _warned.append(_caller())
    _LOG.warning(
        "a call of the sync client blocks the running event loop (at %s): no other task runs until the server answers. "
        "In a coroutine, use app.aio or duly.AsyncDuly, and await the call",
        _warned[0],
    )


def _caller() -> str:
    """Find the line outside of this package that made the call."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("duly."):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
