"""The pages of the dashboard. They work without scripts. Most only read: changes are API calls, or forms."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from duly.web.pages import dead, language_switch, login, resend, search, views
from duly.web.pages.errors import error_handlers
from duly.web.problems import Refused
from duly.web.site import Site, match_whole_path, role_of

__all__ = ["error_handlers", "routes"]

_View = Callable[[Request], Awaitable[Response]]


def routes(site: Site) -> list[BaseRoute]:
    """Create the routes of the pages. Each dashboard has its own, because some pages keep state."""
    queue, group = "/queues/{queue}", "/topics/{topic}/groups/{group}"
    inbox = views.InboxPage()
    return [
        _page_route("/", views.OverviewPage(site), "overview"),
        _page_route("/queues", views.queues, "queues"),
        _page_route(queue, inbox, "queue"),
        _page_route(group, inbox, "group"),
        _page_route(queue + "/dead", dead.show, "dead"),
        _page_route(group + "/dead", dead.show, "group_dead"),
        *(_form_route(each + "/dead/preview", dead.preview) for each in (queue, group)),
        *(_form_route(each + "/dead/change", dead.change) for each in (queue, group)),
        # An id may be any text, even with slashes.
        _page_route(queue + "/messages/{id:path}", views.message, "message"),
        _page_route(group + "/messages/{id:path}", views.message, "group_message"),
        _page_route(queue + "/resend/{id:path}", resend.show, "resend"),
        _form_route(queue + "/resend/{id:path}", resend.submit),
        _page_route("/search", search.show, "search"),
        _page_route("/topics", views.topics, "topics"),
        _page_route("/topics/{topic}", views.topic, "topic"),
        _page_route("/workers", views.workers, "workers"),
        _page_route("/schedules", views.schedules, "schedules"),
        Route("/login", login.login, methods=["GET"], name="login"),
        Route("/login", login.submit, methods=["POST"], name="enter"),
        Route("/logout", login.logout, methods=["POST"], name="logout"),
        Route("/language", language_switch.choose_language, methods=["POST"], name="language"),
        Route("/static/{name}", static, methods=["GET"], name="static"),
    ]


def _page_route(path: str, view: _View, name: str) -> Route:
    async def serve(request: Request) -> Response:
        return await with_timeout(view(request)) if role_of(request) is not None else login.redirect_to_login(request)

    return match_whole_path(Route(path, serve, methods=["GET"], name=name))


def _form_route(path: str, view: _View) -> Route:
    async def serve(request: Request) -> Response:
        if role_of(request) is None:
            return login.redirect_to_login(request)
        return await with_timeout(view(request), CHANGE_TIMEOUT, _STILL_RUNNING)

    return match_whole_path(Route(path, serve, methods=["POST"]))


PAGE_TIMEOUT: Final = 5.0
CHANGE_TIMEOUT: Final = 20.0
_NO_ANSWER: Final = "the server has not answered within {:g} s: it hangs, or is busy"
_STILL_RUNNING: Final = (
    "not finished within {:g} s: it continues in the background, so reload the page before you repeat it"
)

_running: set[asyncio.Future[Any]] = set()


async def with_timeout(page: Awaitable[Response], seconds: float = PAGE_TIMEOUT, problem: str = _NO_ANSWER) -> Response:
    """Wait for a page with a timeout. A slow page continues in the background and fills the cache for the next request.

    If it were cancelled, the pages of a server with very many keys would never be ready.
    """
    task = asyncio.ensure_future(page)
    _running.add(task)  # the event loop keeps only a weak reference
    task.add_done_callback(_finish)
    try:
        async with asyncio.timeout(seconds):
            return await asyncio.shield(task)
    except TimeoutError:
        raise Refused(503, problem.format(seconds)) from None


def _finish(task: asyncio.Future[Any]) -> None:
    _running.discard(task)
    if not task.cancelled():
        task.exception()  # no request waits for this error


_FOLDER: Final = Path(__file__).parents[1] / "static"
_TYPES: Final = {"duly.css": "text/css", "duly.js": "text/javascript", "icon.svg": "image/svg+xml"}
_CONTENTS: Final = {name: (_FOLDER / name).read_bytes() for name in _TYPES}


async def static(request: Request) -> Response:
    """Serve a static file."""
    name = request.path_params["name"]
    if name not in _CONTENTS:
        raise HTTPException(404)
    return Response(_CONTENTS[name], media_type=_TYPES[name])
