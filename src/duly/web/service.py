"""Serves an ASGI app on a socket until it is stopped, and shuts down gracefully. Needs uvicorn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from socket import socket
from typing import Final

try:
    import uvicorn
except ImportError as _error:
    raise ImportError("uvicorn is missing: the dashboard needs pip install 'duly[web]'") from _error
import ipaddress
from collections.abc import Iterable
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from duly.web.binding import Binding
from duly.web.guards import ResponseTracker, with_security_headers
from duly.web.http_connection import Connection
from duly.web.problems import problem_response

GRACE: Final = 2.0
"""Seconds that running calls have after a stop. Then receives are cancelled and release their messages, and connections
of clients that do not read their response are aborted.
"""
_MAX_SHUTDOWN_SECONDS: Final = 5
"""Seconds after which it stops in any case."""
HANDSHAKE_SECONDS: Final = 5.0
"""How long a TLS handshake may take. Until then uvicorn does not list the connection, but it has a file open."""
_CLIENT_NOISE: Final = (
    "Invalid HTTP request",
    "Unsupported upgrade request",
    "No supported WebSocket library",
    "Cancel 0 running task(s)",  # at a stop, a client kept its connection open
)
"""Log messages of uvicorn that any client can cause without a token, and that need no action."""
_LOG: Final = logging.getLogger("duly.web")


class Service(uvicorn.Server):
    """One run of an app. The caller handles signals."""

    def __init__(
        self, app: ASGIApp, binding: Binding, *, on_listening: Callable[[], None], at_end: Callable[[], Awaitable[None]]
    ) -> None:
        self._calls = RunningCalls(ProxyHeaders(app) if binding.behind_proxy else app)
        self._on_listening = on_listening
        self._at_end = at_end
        super().__init__(_config(self._calls, binding))
        _log_to_duly()

    def stop(self) -> None:
        """Stop soon. May be called from any thread and from signal handlers."""
        self.should_exit = True

    async def serve(self, sockets: list[socket] | None = None) -> None:
        """Serve until a stop, then run `at_end`."""
        try:
            await super().serve(sockets)
        finally:
            await self._at_end()

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Start to listen, and report it."""
        await super().startup([])
        self.servers.extend([await self._start_server(each) for each in sockets or ()])
        try:
            self._on_listening()
        except BaseException:  # the caller could not report the address, so no client could find it
            await self.shutdown(sockets)
            raise

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """Accept no more calls, and wait for the running ones."""
        asyncio.get_running_loop().call_later(GRACE, self._drop_unread)
        self._calls.cancel_after(GRACE)
        await super().shutdown(sockets)

    async def _start_server(self, listener: socket) -> asyncio.Server:
        """Accept connections as uvicorn does, with a shorter timeout for TLS: uvicorn's is a minute."""
        tls = self.config.ssl
        return await asyncio.get_running_loop().create_server(
            self._connection,
            sock=listener,
            ssl=tls,
            backlog=self.config.backlog,
            ssl_handshake_timeout=None if tls is None else HANDSHAKE_SECONDS,
        )

    def _connection(self) -> Connection:
        return Connection(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    def _drop_unread(self) -> None:
        for each in list(self.server_state.connections):
            if isinstance(each, Connection) and each.unread_since is not None:
                each.abort()

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Leave signals to the caller."""
        return nullcontext()


class RunningCalls:
    """An app whose running calls can be cancelled."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._limits: set[asyncio.Timeout] = set()
        self._end_at: float | None = None

    def cancel_after(self, seconds: float) -> None:
        """Cancel the calls that still run after this time."""
        self._end_at = asyncio.get_running_loop().time() + seconds
        for limit in self._limits:
            limit.reschedule(self._end_at)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one call."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        tracker = ResponseTracker(send)
        limit = asyncio.timeout_at(self._end_at)
        try:
            await self._run_limited(limit, scope, receive, tracker)
        except TimeoutError:
            if not limit.expired():
                raise
            if not tracker.has_started:
                response = problem_response(503, "the dashboard was stopped: send the request again")
                await response(scope, receive, with_security_headers(scope, send))

    async def _run_limited(self, limit: asyncio.Timeout, scope: Scope, receive: Receive, send: Send) -> None:
        async with limit:
            self._limits.add(limit)
            try:
                await self._app(scope, receive, send)
            finally:
                self._limits.discard(limit)


def _config(app: ASGIApp, binding: Binding) -> uvicorn.Config:
    tls = binding.certificate
    return uvicorn.Config(
        app,
        http=Connection,
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None else tls.key,
        ws="none",
        workers=1,
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=_MAX_SHUTDOWN_SECONDS,
    )


def _log_to_duly() -> None:
    """Send warnings of uvicorn to the log of Duly, and drop the rest."""
    log = logging.getLogger("uvicorn.error")
    log.handlers = [_DulyLogHandler(logging.WARNING)]
    log.setLevel(logging.WARNING)
    log.propagate = False


class _DulyLogHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        is_client_noise = record.getMessage().startswith(_CLIENT_NOISE)
        if _LOG.isEnabledFor(record.levelno) and not is_client_noise:
            _LOG.handle(record)


_SCHEMES: Final = ("http", "https")


class ProxyHeaders:
    """An app that trusts the X-Forwarded headers of the proxy in front. Without a proxy, any client could set them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._has_warned = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            forwarded = _forwarded_scope(scope["headers"])
            if "client" not in forwarded:
                self._warn_once(scope["headers"])
            scope = {**scope, **forwarded}
        await self._app(scope, receive, send)

    def _warn_once(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        sent = [value.decode("latin-1")[:100] for name, value in headers if name == b"x-forwarded-for"]
        problem = f"does not end with an address: {sent[-1]!r}" if sent else "is missing"
        _LOG.warning(
            "X-Forwarded-For of a request %s. Such clients share one limit for wrong tokens: "
            "let the proxy send the address of the client",
            problem,
        )


def _forwarded_scope(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, Any]:
    """Return the scope entries for client and scheme. Without X-Forwarded-Proto, the scheme is https."""
    values = {name: value.rpartition(b",")[2].strip().decode("latin-1") for name, value in headers}
    scheme = values.get(b"x-forwarded-proto", "").lower()
    forwarded: dict[str, Any] = {"scheme": scheme if scheme in _SCHEMES else "https"}
    # The proxy appended the last address. The client may have forged those before it.
    client = _parse_address(values.get(b"x-forwarded-for", ""))
    if client is not None:
        forwarded["client"] = (client, 0)
    return forwarded


def _parse_address(text: str) -> str | None:
    """Parse an address. Some proxies append the port, with an IPv6 address in brackets."""
    address = text[1:].partition("]")[0] if text.startswith("[") else text
    if address.count(":") == 1:
        address = address.partition(":")[0]
    try:
        return str(ipaddress.ip_address(address.partition("%")[0]))
    except ValueError:
        return None
