"""The cookie that keeps somebody logged in: how it is written, taken back and read."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from starlette.responses import Response
from starlette.types import Scope

from duly.web.access import SESSION_SECONDS

COOKIE: Final = "duly_session"
HOST_COOKIE: Final = f"__Host-{COOKIE}"
"""Of a name that browsers take over TLS alone, from this very host: no page beside it can put one of its own in."""
_MAX_COOKIES: Final = 4
"""A browser sends more than one only when dashboards below different paths of a host have given it one each."""


def root_path_of(scope: Scope) -> str:
    """Name the path that the dashboard is below, as an address has it, without a slash at its end."""
    return quote(scope.get("root_path", "").rstrip("/"), safe="/")


def path_below_root(scope: Scope) -> str:
    """Give the path below the dashboard. Some apps that it is mounted in leave the root in it, others take it out."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "").rstrip("/"))


def cookie_name(scope: Scope) -> str:
    """Name the cookie. One of the locked name would be sent to all of the host, so below a path there is none."""
    return HOST_COOKIE if scope.get("scheme") == "https" and not root_path_of(scope) else COOKIE


def set_session_cookie(response: Response, scope: Scope, session: str) -> None:
    """Have a browser keep a session, for this dashboard alone and away from scripts."""
    _set_cookie(response, scope, session, SESSION_SECONDS)


def clear_session_cookie(response: Response, scope: Scope) -> None:
    """Have a browser forget its session."""
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
    """Find the sessions that a browser sent."""
    sent = b";".join(value for name, value in scope["headers"] if name.lower() == b"cookie").decode("latin-1")
    expected = cookie_name(scope)
    pairs = (each.strip().partition("=") for each in sent.split(";"))
    return [value.strip('"') for name, _, value in pairs if name == expected and value][:_MAX_COOKIES]
