"""`/login` and `/logout`: exchange a token for a session cookie."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from duly.web.access import SPENT_CODE, UNKNOWN_CREDENTIAL
from duly.web.guards import client_address
from duly.web.login_throttle import LockedOut
from duly.web.one_time_codes import PREFIX
from duly.web.pages.forms import read_small_form
from duly.web.pages.renderer import render
from duly.web.pages.way_back import local_path, redirect_to, requested_page
from duly.web.problems import BEARER_CHALLENGE
from duly.web.sessions import clear_session_cookie, root_path_of, set_session_cookie
from duly.web.site import role_of, site_of


def redirect_to_login(request: Request) -> Response:
    """Redirect an unknown client to the login, and back afterwards."""
    return RedirectResponse(_login_path(request, requested_page(request)), 303)


def _login_path(request: Request, next_path: str | None) -> str:
    query = "?" + urlencode({"next": next_path}) if next_path else ""
    return f"{root_path_of(request.scope)}/login{query}"


async def login(request: Request) -> Response:
    """`GET /login`: ask for a token, unless the client is logged in."""
    next_path = request.query_params.get("next", "")
    if role_of(request) is not None:
        return redirect_to(request, next_path)
    return _login_page(request, 200, next_path)


async def submit(request: Request) -> Response:
    """`POST /login`: check a token, or the code of a one-time link, and set the session cookie."""
    fields = await read_small_form(request, "the login")
    given, next_path = fields.get("token", "").strip(), fields.get("next", "")
    access = site_of(request).access
    token = access.codes.token_of(given) or given
    try:
        role = None if access.is_open else access.authenticate_token(token, client_address(request.scope))
    except LockedOut as lockout:
        return _login_page(request, 429, next_path, str(lockout), {"Retry-After": str(lockout.seconds)})
    if role is None and not access.is_open:
        problem = SPENT_CODE if given.startswith(PREFIX) else UNKNOWN_CREDENTIAL
        return _login_page(request, 401, next_path, problem, BEARER_CHALLENGE)
    access.codes.spend(given)  # only now: an address that is locked out may use its link later
    response = redirect_to(request, next_path)
    if role is not None:
        set_session_cookie(response, request.scope, access.new_session(token))
    return response


async def logout(request: Request) -> Response:
    """`POST /logout`: remove the session cookie."""
    response = RedirectResponse(f"{root_path_of(request.scope)}/login", 303)
    clear_session_cookie(response, request.scope)
    return response


def _login_page(
    request: Request, status: int, next_path: str, problem: str | None = None, headers: dict[str, str] | None = None
) -> Response:
    next_page = local_path(next_path, request)
    this_page = _login_path(request, next_page)
    page = render(request, "login.html", status, problem=problem, next=next_page, this_page=this_page)
    page.headers.update(headers or {})
    return page
