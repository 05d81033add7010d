"""What a proxy in front of the dashboard tells of a request: who asks, and whether TLS was used.

Only for those who said that there is one: anybody else could write these headers.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send

_SCHEMES: Final = ("http", "https")


class Forwarded:
    """An app that believes the proxy in front of it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            scope = {**scope, **_told(scope["headers"])}
        await self._app(scope, receive, send)


def _told(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, Any]:
    """Read who asks, and how. A proxy that does not say how does TLS: that is what it is there for."""
    last = {name: value.rpartition(b",")[2].strip().decode("latin-1") for name, value in headers}
    scheme = last.get(b"x-forwarded-proto", "").lower()
    told: dict[str, Any] = {"scheme": scheme if scheme in _SCHEMES else "https"}
    # The last is what the proxy itself saw. Those before it are the caller's own words.
    if _is_address(client := last.get(b"x-forwarded-for", "")):
        told["client"] = (client, 0)
    return told


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
