"""The warning that a call of the sync client blocks an event loop: all tasks of the loop wait for the server."""

import logging
import sys
from typing import Final

_LOG: Final = logging.getLogger("duly")
_warned: Final[list[str]] = []
"""Where the call was. One warning is enough for a process."""


def warn() -> None:
    """Warn, once in a process. Not in a notebook: its kernel has an event loop, and cells block it by design."""
    if _warned or "ipykernel" in sys.modules:
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
