"""The session cookie of a browser: setting, clearing and reading it."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from starlette.responses import Response
from starlette.types import Scope

from duly.web.access import SESSION_SECONDS

COOKIE: Final = "duly_session"
HOST_COOKIE: Final = f"__Host-{COOKIE}"
"""Browsers accept cookies with this prefix over TLS from this host only, so that other hosts cannot set them."""
_MAX_COOKIES: Final = 4
"""A browser sends several only if several dashboards run below different paths of one host."""


def root_path_of(scope: Scope) -> str:
    """Return the path that the dashboard is mounted at, URL-encoded, without a trailing slash."""
    return quote(scope.get("root_path", "").rstrip("/"), safe="/")


def path_below_root(scope: Scope) -> str:
    """Return the path below the dashboard's root. Some frameworks leave the root in the path, others remove it."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "").rstrip("/"))


def cookie_name(scope: Scope) -> str:
    """Return the name of the cookie. Below a path it has no `__Host-` prefix, which requires the path `/`."""
    return HOST_COOKIE if scope.get("scheme") == "https" and not root_path_of(scope) else COOKIE


def set_session_cookie(response: Response, scope: Scope, session: str) -> None:
    """Set the session cookie for this dashboard only, hidden from scripts."""
    _set_cookie(response, scope, session, SESSION_SECONDS)


def clear_session_cookie(response: Response, scope: Scope) -> None:
    """Remove the session cookie."""
    _set_cookie(response, scope, "", 0)


def _set_cookie(response: Response, scope: Scope, value: str, seconds: int) -> None:
    response.set_cookie(
        cookie_name(scope),
        value,
        max_age=seconds,
        path=root_path_of(scope) or "/",
        secure=scope.get("scheme") == "https",
        httponly=True,
        samesite="strict",
    )


def session_cookies(scope: Scope) -> list[str]:
    """Return the sessions that a browser sent."""
    sent = b";".join(value for name, value in scope["headers"] if name.lower() == b"cookie").decode("latin-1")
    expected = cookie_name(scope)
    pairs = (each.strip().partition("=") for each in sent.split(";"))
    return [value.strip('"') for name, _, value in pairs if name == expected and value][:_MAX_COOKIES]
