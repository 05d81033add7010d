"""What a proxy in front of the dashboard tells of a request: who asks, and whether TLS was used.

Only for those who said that there is one: anybody else could write these headers.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterable
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send

_SCHEMES: Final = ("http", "https")
_LOG: Final = logging.getLogger("duly.web")


class Forwarded:
    """An app that believes the proxy in front of it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._has_warned = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            told = _told(scope["headers"])
            if "client" not in told:
                self._warn_once(scope["headers"])
            scope = {**scope, **told}
        await self._app(scope, receive, send)

    def _warn_once(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        sent = [value.decode("latin-1")[:100] for name, value in headers if name == b"x-forwarded-for"]
        what = f"has no address at its end: {sent[-1]!r}" if sent else "is missing"
        _LOG.warning(
            "X-Forwarded-For of a request %s. All who come so count as one, also for wrong tokens: "
            "have the proxy send the address of who asks",
            what,
        )


def _told(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, Any]:
    """Read who asks, and how. A proxy that does not say how does TLS: that is what it is there for."""
    last = {name: value.rpartition(b",")[2].strip().decode("latin-1") for name, value in headers}
    scheme = last.get(b"x-forwarded-proto", "").lower()
    told: dict[str, Any] = {"scheme": scheme if scheme in _SCHEMES else "https"}
    # The last is what the proxy itself saw. Those before it are the caller's own words.
    client = _address(last.get(b"x-forwarded-for", ""))
    if client is not None:
        told["client"] = (client, 0)
    return told


def _address(text: str) -> str | None:
    """Read an address; some proxies write its port behind it, and an IPv6 address in brackets then."""
    bare = text[1:].partition("]")[0] if text.startswith("[") else text
    if bare.count(":") == 1:
        bare = bare.partition(":")[0]
    try:
        return str(ipaddress.ip_address(bare.partition("%")[0]))
    except ValueError:
        return None
