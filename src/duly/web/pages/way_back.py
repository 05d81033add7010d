"""The page that a form or the login leads back to. It is always one of this dashboard."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from duly.web.sessions import path_below_root, root_path_of

_MAX_NEXT: Final = 2048
_SAFE_CHARACTERS: Final = "/?&=%:@!$'()*+,;~-._"
"""Characters with a meaning in a URL. All others are percent-encoded."""


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


def requested_page(request: Request) -> str | None:
    """Return the URL of the page that a request asks for. None: it is a form, or its URL is too long."""
    if request.method not in {"GET", "HEAD"}:
        return None
    path = path_below_root(request.scope)
    query = request.scope.get("query_string", b"").decode("latin-1")
    requested = root_path_of(request.scope) + quote(path, errors="replace") + ("?" + query if query else "")
    return local_path(requested, request)


def redirect_to(request: Request, next_path: str) -> Response:
    """Redirect to a page of this dashboard; to the overview if the path leads elsewhere."""
    return RedirectResponse(local_path(next_path, request) or f"{root_path_of(request.scope)}/", 303)
