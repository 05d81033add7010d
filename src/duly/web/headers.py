"""The headers that every answer has, and those of a request that may come once at most."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import Message, Scope, Send

from duly.web.problems import Refused
from duly.web.sessions import path_within

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
EVERYWHERE: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def with_headers(scope: Scope, send: Send) -> Send:
    """Add the headers of every answer to what is sent. Nothing is kept by a browser or a proxy but static files."""
    is_static = path_within(scope).startswith("/static/")

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=list(message.get("headers", ())))
            headers.update(EVERYWHERE)
            is_kept = is_static and message["status"] < 400
            headers["Cache-Control"] = headers.get("Cache-Control", "no-cache") if is_kept else "no-store"
            message = {**message, "headers": headers.raw}
        await send(message)

    return send_with_headers


def sole(scope: Scope, name: bytes) -> str | None:
    """Give the value of a header that decides something; None: it is not there.

    Of two, a proxy in front may have looked at the other one, so two are refused.
    """
    values = [value for key, value in scope["headers"] if key.lower() == name]
    if len(values) > 1:
        raise Refused(400, f"the header {name.decode()} came {len(values)} times: send it once")
    return values[0].decode("latin-1").strip() if values else None
