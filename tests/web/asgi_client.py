"""Calls an ASGI app as a server does, with requests that no HTTP client would send."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message

Headers = Iterable[tuple[str, str]]


@dataclass
class AsgiResponse:
    """The response of an app."""

    status: int
    headers: list[tuple[str, str]]
    content: bytes
    unread: int
    """Pieces of the request that the app did not read."""

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]

    def value(self, name: str) -> str:
        (value,) = self.values(name)
        return value

    @property
    def json(self) -> Any:
        return json.loads(self.content)


@dataclass(frozen=True)
class AsgiClient:
    """A client with an address."""

    app: ASGIApp
    host: str = "localhost"
    address: str | None = "192.0.2.1"
    scheme: str = "http"
    root: str = ""
    http_version: str = "1.1"

    async def request(
        self,
        method: str = "GET",
        path: str = "/",
        headers: Headers = (),
        content: Sequence[bytes] = (),
        *,
        query: str = "",
        stays_open: bool = False,
    ) -> AsgiResponse:
        """Send a request. `content` is sent in pieces; with `stays_open` the last one is not marked as the last."""
        hosts = [] if any(name.lower() == "host" for name, _ in headers) else [("host", self.host)]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": self.http_version,
            "method": method,
            "scheme": self.scheme,
            "path": self.root + path,
            "raw_path": (self.root + path).encode(),
            "root_path": self.root,
            "query_string": query.encode(),
            "headers": [
                (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in [*hosts, *headers]
            ],
            "client": (self.address, 5000) if self.address else None,
            "server": ("127.0.0.1", 8787),
        }
        pieces = [*content] or [b""]
        sent: list[Message] = []

        async def receive() -> Message:
            if not pieces:
                await asyncio.get_running_loop().create_future()
            piece = pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(pieces) or stays_open}

        async def send(message: Message) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        start = sent[0]
        found = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in start["headers"]]
        return AsgiResponse(start["status"], found, b"".join(each.get("body", b"") for each in sent[1:]), len(pieces))
