"""Checks that every request passes first: limits, host, origin, and the role of the client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from duly._port import max_message_bytes
from duly.web.access import Role
from duly.web.hosts import AllowedHosts, Host, is_origin_of, parse_host
from duly.web.login_throttle import LockedOut
from duly.web.problems import Refused, error_response, fault_response
from duly.web.request_limits import LimitedBody, RequestLimits, single_header
from duly.web.sessions import path_below_root, session_cookies
from duly.web.site import Site

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITES: Final = frozenset({"same-origin", "none"})
_POLICY_VIOLATION: Final = 1008
_PUBLIC_PATHS: Final = ("/static/", "/healthz")
"""Paths that are the same for all clients. No token is checked there."""
_LOGIN_PATHS: Final = ("/login", "/logout")
"""Paths that a client needs to log in again."""


class Guards:
    """ASGI middleware that checks requests. It adds the site and the role of the client to the state of the request."""

    def __init__(
        self, app: ASGIApp, site: Site, hosts: Collection[str] | None = None, *, limits: RequestLimits | None = None
    ) -> None:
        self._app = app
        self._site = site
        self._hosts = AllowedHosts(hosts, allow_any=not site.access.is_open)
        self._limits = limits or RequestLimits.for_message_size(max_message_bytes(site.app))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve an ASGI connection. Websockets are closed."""
        if scope["type"] == "http":
            await self._serve(scope, receive, with_security_headers(scope, send))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
        else:
            await self._app(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = LimitedBody(scope, receive, self._limits)
        try:
            role, has_own_origin = self._check_request(scope)
        except Refused as refused:
            body.is_refused = True
            response: Response = error_response(refused)
            await response(scope, body.receive, _with_connection_close(scope, body, send))
            return
        # A copy, because the `state` of the scope belongs to the app that this one is mounted in.
        state = {"site": self._site, "role": role, "has_token": bool(_bearer_token(scope))}
        state["has_own_origin"] = has_own_origin
        inner = {**scope, "state": {**scope.get("state", {}), **state}}
        await self._serve_admitted(inner, body, ResponseTracker(_with_connection_close(scope, body, send)))

    async def _serve_admitted(self, scope: Scope, body: LimitedBody, response_tracker: ResponseTracker) -> None:
        """Serve an accepted request. An unexpected error is logged and answered once, either here or by the API."""
        try:
            await self._app(scope, body.receive, response_tracker)
        except Exception as fault:
            if not response_tracker.has_started:
                response = await _fault_handler(scope)(Request(scope), fault)
                await response(scope, body.receive, response_tracker)
            elif (
                not response_tracker.is_complete
            ):  # too late for an error response: the ASGI server cuts the connection
                raise

    def _check_request(self, scope: Scope) -> tuple[Role | None, bool]:
        """Check a request. Returns the role of its client, and whether a page of this dashboard made the request.

        None: the client is unknown. Raises Refused.
        """
        self._limits.check(scope)
        host = self._check_host(scope)
        changes = scope["method"] not in _SAFE_METHODS
        has_own_origin = _check_origin(scope, host) if changes else False
        role, is_by_cookie = self._role(scope)
        if changes and is_by_cookie and not has_own_origin:
            raise Refused(403, "a change with a cookie must name the page it comes from: send Origin")
        return role, has_own_origin

    def _check_host(self, scope: Scope) -> Host:
        header = single_header(scope, b"host")
        host = parse_host(header or "")
        if header is None or host is None:
            raise Refused(400, "the request has no valid host: send one Host header")
        if not self._hosts.allows(host):
            allow = f"start it with --allow-host {host.name}, or give create_app this name in hosts"
            raise Refused(421, f"{host.name} is not a host name of this dashboard: {allow}")
        return host

    def _role(self, scope: Scope) -> tuple[Role | None, bool]:
        """Return the role of the client, and whether a cookie granted it."""
        access, address = self._site.access, client_address(scope)
        if access.is_open:
            return "admin", False
        if path_below_root(scope).startswith(_PUBLIC_PATHS):
            return None, False
        token = _bearer_token(scope)
        try:
            if token is not None:
                return access.authenticate_token(token, address), False
            role = access.authenticate_session(session_cookies(scope), address)
        except LockedOut as lockout:
            if token is None and path_below_root(scope) in _LOGIN_PATHS:
                return None, False
            raise Refused(429, str(lockout), {"Retry-After": str(lockout.seconds)}) from None
        return role, role is not None


def client_address(scope: Scope) -> str:
    """Return the address of the client. Behind a proxy, the service has replaced it by the forwarded address."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def _bearer_token(scope: Scope) -> str | None:
    """Return the bearer token of a request. Other schemes are ignored: a proxy may use basic authentication."""
    scheme, _, token = (single_header(scope, b"authorization") or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _check_origin(scope: Scope, host: Host) -> bool:
    """Reject a change that comes from a page of another origin. Returns whether the request names its own origin."""
    site, origin = single_header(scope, b"sec-fetch-site"), single_header(scope, b"origin")
    if site is not None and site.lower() not in _OWN_SITES:
        raise Refused(403, f"a change from another site ({site!r}) is rejected: use the pages of this dashboard")
    scheme = scope.get("scheme", "http")
    if origin is not None and not is_origin_of(origin, scheme, host):
        raise Refused(
            403,
            f"a change from the origin {origin!r} is rejected: this is {scheme}://{host.name}. "
            "A proxy in front must forward Host, and the scheme as X-Forwarded-Proto",
        )
    return site is not None or origin is not None


def _fault_handler(scope: Scope) -> Callable[[Request, Exception], Awaitable[Response]]:
    handlers = getattr(scope.get("app"), "exception_handlers", {})
    handler: Callable[[Request, Exception], Awaitable[Response]] = handlers.get(Exception, fault_response)
    return handler


def _with_connection_close(scope: Scope, body: LimitedBody, send: Send) -> Send:
    """Close the connection after the response if the body of the request was not read to its end."""

    async def send_with_close(message: Message) -> None:
        if message["type"] == "http.response.start" and scope.get("http_version") == "1.1":
            await body.discard()
            if body.is_refused:
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
        await send(message)

    return send_with_close


class ResponseTracker:
    """Forwards a response and records how far it has been sent."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_started: bool = False
        self.is_complete: bool = False

    async def __call__(self, message: Message) -> None:
        """Send one ASGI message."""
        self.has_started = True
        await self._send(message)
        self.is_complete = message["type"] == "http.response.body" and not message.get("more_body", False)


CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)


SECURITY_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def with_security_headers(scope: Scope, send: Send) -> Send:
    """Add the security headers to a response. Browsers and proxies may cache static files only."""
    is_static = path_below_root(scope).startswith("/static/")

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=list(message.get("headers", ())))
            headers.update(SECURITY_HEADERS)
            is_cacheable = is_static and message["status"] < 400
            headers["Cache-Control"] = headers.get("Cache-Control", "no-cache") if is_cacheable else "no-store"
            message = {**message, "headers": headers.raw}
        await send(message)

    return send_with_headers
