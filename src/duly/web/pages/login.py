"""`/login` and `/logout`: exchange a token for a session cookie."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from duly.web.access import UNKNOWN_CREDENTIAL
from duly.web.guards import client_address
from duly.web.login_throttle import LockedOut
from duly.web.pages.forms import read_form
from duly.web.pages.renderer import render
from duly.web.problems import BEARER_CHALLENGE
from duly.web.sessions import clear_session_cookie, path_below_root, root_path_of, set_session_cookie
from duly.web.site import role_of, site_of

_MAX_BYTES: Final = 16 * 1024
_MAX_FIELDS: Final = 8
_MAX_NEXT: Final = 2048
_SAFE_CHARACTERS: Final = "/?&=%:@!$'()*+,;~-._"
"""Characters with a meaning in a URL. All others are percent-encoded."""


def redirect_to_login(request: Request) -> Response:
    """Redirect an unknown client to the login, and back afterwards."""
    requested = local_path(_requested_path(request), request) if request.method in {"GET", "HEAD"} else None
    query = "?" + urlencode({"next": requested}) if requested else ""
    return RedirectResponse(f"{root_path_of(request.scope)}/login{query}", 303)


async def login(request: Request) -> Response:
    """`GET /login`: ask for a token, unless the client is logged in."""
    next_path = request.query_params.get("next", "")
    if role_of(request) is not None:
        return _redirect(request, next_path)
    return _login_page(request, 200, next_path)


async def submit(request: Request) -> Response:
    """`POST /login`: check a token and set the session cookie."""
    fields = await _fields(request)
    token, next_path = fields.get("token", "").strip(), fields.get("next", "")
    access = site_of(request).access
    try:
        role = None if access.is_open else access.authenticate_token(token, client_address(request.scope))
    except LockedOut as lockout:
        return _login_page(request, 429, next_path, str(lockout), {"Retry-After": str(lockout.seconds)})
    if role is None and not access.is_open:
        return _login_page(request, 401, next_path, UNKNOWN_CREDENTIAL, BEARER_CHALLENGE)
    response = _redirect(request, next_path)
    if role is not None:
        set_session_cookie(response, request.scope, access.new_session(token))
    return response


async def logout(request: Request) -> Response:
    """`POST /logout`: remove the session cookie."""
    response = RedirectResponse(f"{root_path_of(request.scope)}/login", 303)
    clear_session_cookie(response, request.scope)
    return response


def local_path(text: str, request: Request) -> str | None:
    """Return the URL of a page of this dashboard, safely encoded. None: it leads elsewhere.

    Browsers read two slashes as the start of a host name, treat a backslash as a slash, and drop tabs and newlines
    before parsing.
    """
    root = root_path_of(request.scope)
    is_plain = len(text) <= _MAX_NEXT and "\\" not in text and not any(each <= " " or each == "\x7f" for each in text)
    if not is_plain or not text.startswith(root + "/") or text.startswith("//"):
        return None
    return quote(text, safe=_SAFE_CHARACTERS, errors="replace")


def _requested_path(request: Request) -> str:
    path = path_below_root(request.scope)
    query = request.scope.get("query_string", b"").decode("latin-1")
    return root_path_of(request.scope) + quote(path, errors="replace") + ("?" + query if query else "")


def _redirect(request: Request, next_path: str) -> Response:
    return RedirectResponse(local_path(next_path, request) or f"{root_path_of(request.scope)}/", 303)


def _login_page(
    request: Request, status: int, next_path: str, problem: str | None = None, headers: dict[str, str] | None = None
) -> Response:
    page = render(request, "login.html", status, problem=problem, next=local_path(next_path, request))
    page.headers.update(headers or {})
    return page


async def _fields(request: Request) -> dict[str, str]:
    fields = await read_form(request, "the login", most_bytes=_MAX_BYTES, most_fields=_MAX_FIELDS)
    return {name: values[0] for name, values in fields.items() if len(values) == 1}
