"""How large a request may be, and how long it may take to arrive."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope

from duly.web.problems import Refused


def single_header(scope: Scope, name: bytes) -> str | None:
    """Give the value of a header that decides something; None: it is not there.

    Of two, a proxy in front may have looked at the other one, so two are refused.
    """
    values = [value for key, value in scope["headers"] if key.lower() == name]
    if len(values) > 1:
        raise Refused(400, f"the header {name.decode()} came {len(values)} times: send it once")
    return values[0].decode("latin-1").strip() if values else None


@dataclass(frozen=True)
class RequestLimits:
    """The limits of a request."""

    body_bytes: int
    header_bytes: int = 32 * 1024
    address_bytes: int = 8 * 1024
    body_seconds: float = 30.0
    unread_bytes: int = 32 * 1024 * 1024
    """Of content that nobody reads, what is taken and thrown away before its answer."""
    unread_seconds: float = 10.0
    idle_seconds: float = 1.0
    """When so long nothing more of it comes, no more is waited for."""

    @classmethod
    def for_message_size(cls, max_message_bytes: int) -> RequestLimits:
        """Leave room for a message of the largest size written as base64, and for what is said about it."""
        return cls(body_bytes=max_message_bytes * 4 // 3 + 65_536)

    def check(self, scope: Scope) -> None:
        """Refuse what is too large by what its head says, before anything of it is read."""
        path = scope.get("raw_path") or scope["path"].encode(errors="replace")
        address = len(path) + len(scope.get("query_string", b""))
        if address > self.address_bytes:
            raise Refused(414, f"the address has {address} bytes: at most {self.address_bytes} are taken")
        headers = sum(len(name) + len(value) + len(b": \r\n") for name, value in scope["headers"])
        if headers > self.header_bytes:
            raise Refused(431, f"the headers have {headers} bytes: at most {self.header_bytes} are taken")
        length = single_header(scope, b"content-length")
        if length is not None and single_header(scope, b"transfer-encoding") is not None:
            # Two ways to say where it ends: what is the next request to us may be content to a proxy in front.
            raise Refused(400, "Content-Length and Transfer-Encoding do not go together: send one of them")
        self._check_declared(length)

    def _check_declared(self, length: str | None) -> None:
        if length is None:
            return
        if not (length.isascii() and length.isdigit()):
            raise Refused(400, "Content-Length is not a number")
        # A number of more digits than this is too large whatever they are, and costly to read.
        if len(length) > 18 or int(length) > self.body_bytes:
            raise Refused(413, self.too_large_detail())

    def too_large_detail(self) -> str:
        """Say that a request has too much content."""
        return f"the content is too large: at most {self.body_bytes} bytes are taken"


class LimitedBody:
    """What a request brings, counted while it is read: its head may have said nothing, or a lie."""

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
        """Whether no more of it comes, or too late."""
        self.is_refused = False
        """Whether it was too large or too slow: what still comes is not read."""

    async def receive(self) -> Message:
        """Take what comes next, as ASGI has it."""
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
        """Take what nobody reads and throw it away, in bounds. What still comes then is refused.

        Many clients send all they have before they look for an answer. If the connection is closed under them, they
        find none, take it for an outage, and send the same again.
        """
        if self._is_complete or not self._is_expected:
            return
        # What is held back comes only if it is asked for, and to take it would ask.
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
