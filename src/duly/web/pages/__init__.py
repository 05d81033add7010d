"""The pages: everything can be looked at in a browser, also without its scripts. Changes are calls of the API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from duly.web.pages import login, looking
from duly.web.pages.errors import error_handlers
from duly.web.pages.patience import within_patience
from duly.web.pages.static import static
from duly.web.paths import to_its_end
from duly.web.site import Site, role_of

__all__ = ["error_handlers", "routes"]

_View = Callable[[Request], Awaitable[Response]]


def routes(site: Site) -> list[BaseRoute]:
    """Name the pages of a dashboard. It has routes of its own: some remember what they saw."""
    queue, group = "/queues/{queue}", "/topics/{topic}/groups/{group}"
    inbox = looking.Inbox()
    return [
        _page("/", looking.Overview(site), "overview"),
        _page("/queues", looking.queues, "queues"),
        _page(queue, inbox, "queue"),
        _page(group, inbox, "group"),
        # An id may be any text, also one with slashes.
        _page(queue + "/messages/{id:path}", looking.message, "message"),
        _page(group + "/messages/{id:path}", looking.message, "group_message"),
        _page("/topics", looking.topics, "topics"),
        _page("/topics/{topic}", looking.topic, "topic"),
        _page("/workers", looking.workers, "workers"),
        _page("/schedules", looking.schedules, "schedules"),
        Route("/login", login.login, methods=["GET"], name="login"),
        Route("/login", login.enter, methods=["POST"], name="enter"),
        Route("/logout", login.logout, methods=["POST"], name="logout"),
        Route("/static/{name}", static, methods=["GET"], name="static"),
    ]


def _page(path: str, view: _View, name: str) -> Route:
    async def shown(request: Request) -> Response:
        return await within_patience(view(request)) if role_of(request) is not None else login.to_login(request)

    return to_its_end(Route(path, shown, methods=["GET"], name=name))
