"""`/language`: stores the language that a reader chooses in a cookie."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from duly.web.pages.forms import read_small_form
from duly.web.pages.language import COOKIE, LANGUAGES
from duly.web.pages.way_back import redirect_to
from duly.web.problems import Refused
from duly.web.sessions import root_path_of

_SECONDS: Final = 365 * 86_400


async def choose_language(request: Request) -> Response:
    """`POST /language`: store the language, and go back to the page."""
    fields = await read_small_form(request, "the choice of a language")
    code = fields.get("language", "")
    if code not in LANGUAGES:
        raise Refused(422, f"{code!r} is not a language of this dashboard: use one of {', '.join(LANGUAGES)}")
    response = redirect_to(request, fields.get("back", ""))
    response.set_cookie(
        COOKIE,
        code,
        max_age=_SECONDS,
        path=root_path_of(request.scope) or "/",
        secure=request.scope.get("scheme") == "https",
        httponly=True,
        samesite="lax",  # also sent after a link from elsewhere
    )
    return response
