"""The log of changes: operations that can explain why a queue has stopped, or is empty."""

from __future__ import annotations

import logging
from typing import Final

from starlette.requests import Request

from duly.web.site import role_of

_LOG: Final = logging.getLogger("duly.web.changes")


def log_change(name: str, request: Request) -> None:
    """Log a change. Values from the client are written with repr, so that they stay on one line."""
    address = request.client.host if request.client else "unknown"
    _LOG.info("%s of %r by %s at %r", name, request.url.path, role_of(request), address)
