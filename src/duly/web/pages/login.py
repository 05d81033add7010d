"""`/login` and `/logout`: a token is given once, and a cookie stands for it from then on."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs, quote, urlencode

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from duly.web.access import UNKNOWN_TO_US
from duly.web.guards import address_of
from duly.web.login_throttle import LockedOut
from duly.web.pages.renderer import render
from duly.web.problems import ASK_FOR_TOKEN, Refused
from duly.web.sessions import forget_session, keep_session, path_within, root_of
from duly.web.site import role_of, site_of

_FORM: Final = "application/x-www-form-urlencoded"
_MOST_BYTES: Final = 16 * 1024
_MOST_FIELDS: Final = 8
_LONGEST_NEXT: Final = 2048
_AS_THEY_ARE: Final = "/?&=%:@!$'()*+,;~-._"
"""Signs of an address that mean something in it; all else of a text is written as %.."""


def to_login(request: Request) -> Response:
    """Send somebody who is not known to the login, and back afterwards."""
    asked = local_path(_asked_for(request), request) if request.method in {"GET", "HEAD"} else None
    query = "?" + urlencode({"next": asked}) if asked else ""
    return RedirectResponse(f"{root_of(request.scope)}/login{query}", 303)


async def login(request: Request) -> Response:
    """`GET /login`: ask for a token, unless it is known who looks."""
    wanted = request.query_params.get("next", "")
    if role_of(request) is not None:
        return _onward(request, wanted)
    return _form(request, 200, wanted)


async def enter(request: Request) -> Response:
    """`POST /login`: take a token, and keep who brought it logged in."""
    fields = await _fields(request)
    token, wanted = fields.get("token", "").strip(), fields.get("next", "")
    access = site_of(request).access
    try:
        role = None if access.is_open else access.enter(token, address_of(request.scope))
    except LockedOut as locked:
        return _form(request, 429, wanted, str(locked), {"Retry-After": str(locked.seconds)})
    if role is None and not access.is_open:
        return _form(request, 401, wanted, UNKNOWN_TO_US, ASK_FOR_TOKEN)
    response = _onward(request, wanted)
    if role is not None:
        keep_session(response, request.scope, access.new_session(token))
    return response


async def logout(request: Request) -> Response:
    """`POST /logout`: forget who looks."""
    response = RedirectResponse(f"{root_of(request.scope)}/login", 303)
    forget_session(response, request.scope)
    return response


def local_path(text: str, request: Request) -> str | None:
    """Give an address of a page of this dashboard as a browser takes it; None: it leads somewhere else.

    A browser reads two slashes as the name of another server, takes a backslash for a slash, and leaves out tabs and
    newlines before it reads anything.
    """
    root = root_of(request.scope)
    is_plain = (
        len(text) <= _LONGEST_NEXT and "\\" not in text and not any(each <= " " or each == "\x7f" for each in text)
    )
    if not is_plain or not text.startswith(root + "/") or text.startswith("//"):
        return None
    return quote(text, safe=_AS_THEY_ARE, errors="replace")


def _asked_for(request: Request) -> str:
    path = path_within(request.scope)
    query = request.scope.get("query_string", b"").decode("latin-1")
    return root_of(request.scope) + quote(path, errors="replace") + ("?" + query if query else "")


def _onward(request: Request, wanted: str) -> Response:
    return RedirectResponse(local_path(wanted, request) or f"{root_of(request.scope)}/", 303)


def _form(
    request: Request, status: int, wanted: str, wrong: str | None = None, headers: dict[str, str] | None = None
) -> Response:
    page = render(request, "login.html", status, wrong=wrong, next=local_path(wanted, request))
    page.headers.update(headers or {})
    return page


async def _fields(request: Request) -> dict[str, str]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _FORM:
        raise Refused(415, f"the login takes a form: send it with Content-Type: {_FORM}")
    try:
        fields = parse_qs(
            (await _content(request)).decode("latin-1"), keep_blank_values=True, max_num_fields=_MOST_FIELDS
        )
    except ValueError:
        raise Refused(400, f"the form has more than {_MOST_FIELDS} fields") from None
    return {name: values[0] for name, values in fields.items() if len(values) == 1}


async def _content(request: Request) -> bytes:
    content = b""
    try:
        async for part in request.stream():
            content += part
            if len(content) > _MOST_BYTES:
                raise Refused(413, f"the form is too large: at most {_MOST_BYTES} bytes are taken")
    except ClientDisconnect:
        raise Refused(408, "the client went away before its request was whole") from None
    return content
