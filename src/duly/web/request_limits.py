"""Limits on the size of a request and on the time it may take to arrive."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope

from duly.web.problems import Refused


def single_header(scope: Scope, name: bytes) -> str | None:
    """Return the value of a header that must not be repeated. None: it is absent.

    A proxy in front may use the other value of a repeated header, so requests that repeat it are rejected.
    """
    values = [value for key, value in scope["headers"] if key.lower() == name]
    if len(values) > 1:
        raise Refused(400, f"the header {name.decode()} was sent {len(values)} times: send it once")
    return values[0].decode("latin-1").strip() if values else None


@dataclass(frozen=True)
class RequestLimits:
    """The limits of a request."""

    body_bytes: int
    header_bytes: int = 32 * 1024
    address_bytes: int = 8 * 1024
    body_seconds: float = 30.0
    unread_bytes: int = 32 * 1024 * 1024
    """How much of an unused body is read and discarded before the response."""
    unread_seconds: float = 10.0
    idle_seconds: float = 1.0
    """How long to wait for more of an unused body."""

    @classmethod
    def for_message_size(cls, max_message_bytes: int) -> RequestLimits:
        """Allow for a message of the maximum size in base64, and for the fields around it."""
        return cls(body_bytes=max_message_bytes * 4 // 3 + 65_536)

    def check(self, scope: Scope) -> None:
        """Reject a request that is too large by its head, before its body is read."""
        path = scope.get("raw_path") or scope["path"].encode(errors="replace")
        address = len(path) + len(scope.get("query_string", b""))
        if address > self.address_bytes:
            raise Refused(414, f"the URL has {address} bytes: the limit is {self.address_bytes}")
        headers = sum(len(name) + len(value) + len(b": \r\n") for name, value in scope["headers"])
        if headers > self.header_bytes:
            raise Refused(431, f"the headers have {headers} bytes: the limit is {self.header_bytes}")
        length = single_header(scope, b"content-length")
        if length is not None and single_header(scope, b"transfer-encoding") is not None:
            # With both, a proxy in front may disagree about where the next request begins (request smuggling).
            raise Refused(400, "Content-Length and Transfer-Encoding exclude each other: send one of them")
        self._check_declared(length)

    def _check_declared(self, length: str | None) -> None:
        if length is None:
            return
        if not (length.isascii() and length.isdigit()):
            raise Refused(400, "Content-Length is not a number")
        # A longer number is too large in any case, and slow to parse.
        if len(length) > 18 or int(length) > self.body_bytes:
            raise Refused(413, self.too_large_detail())

    def too_large_detail(self) -> str:
        """Describe the size limit."""
        return f"the content is too large: the limit is {self.body_bytes} bytes"


class LimitedBody:
    """The body of a request, counted while it is read: Content-Length may be missing or wrong."""

    def __init__(self, scope: Scope, receive: Receive, limits: RequestLimits) -> None:
        self._receive = receive
        named = {name for name, value in scope["headers"] if value != b"0"}
        self._is_expected = not named.isdisjoint({b"content-length", b"transfer-encoding"})
        self._expects_continue = b"expect" in named
        self._limits = limits
        self._deadline = asyncio.get_running_loop().time() + limits.body_seconds
        self._received = 0
        self._is_complete = False
        self._is_incomplete = False
        """Whether the client has disconnected, or sent too late."""
        self.is_refused: bool = False
        """Whether the body was too large or too slow. The rest is not read."""

    async def receive(self) -> Message:
        """Receive the next ASGI message."""
        if self.is_refused:
            return {"type": "http.disconnect"}
        if self._is_complete:
            return await self._receive()
        message = await self._receive_in_time()
        if message["type"] == "http.request":
            self._received += len(message.get("body", b""))
            self._is_complete = not message.get("more_body", False)
            if self._received > self._limits.body_bytes:
                raise self._refusal(413, self._limits.too_large_detail())
        else:
            self._is_incomplete = True
        return message

    async def discard(self) -> None:
        """Read and discard an unused body, within limits.

        Many clients send the whole body before they read the response. If the connection is closed early, they miss the
        response, treat it as an outage, and send the request again.
        """
        if self._is_complete or not self._is_expected:
            return
        # After `Expect: 100-continue` the client sends the body only if it is read.
        if not self._is_incomplete and not self._expects_continue:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.unread_seconds):
                    await self._drain()
        self.is_refused = self.is_refused or not self._is_complete

    async def _drain(self) -> None:
        while not self._is_complete and self._received <= self._limits.unread_bytes:
            async with asyncio.timeout(self._limits.idle_seconds):
                message = await self._receive()
            if message["type"] != "http.request":
                return
            self._received += len(message.get("body", b""))
            self._is_complete = not message.get("more_body", False)

    async def _receive_in_time(self) -> Message:
        try:
            async with asyncio.timeout_at(self._deadline):
                return await self._receive()
        except TimeoutError:
            self._is_incomplete = True
            detail = f"the content did not arrive within {self._limits.body_seconds:g} seconds"
            raise self._refusal(408, detail) from None

    def _refusal(self, status: int, detail: str) -> HTTPException:
        self.is_refused = True
        return HTTPException(status, detail)
