"""`/search`: the messages with an id, in all queues and groups."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from duly.message import Message
from duly.web.pages.places import parts_of_label
from duly.web.pages.renderer import path_of, render
from duly.web.searching import search
from duly.web.site import site_of

_NO_LINK = (".", "..")
"""Ids that browsers resolve as directories."""


async def show(request: Request) -> Response:
    """Show where a message is. The only hit of a complete search is opened at once."""
    params = request.query_params
    id_, after = params.get("id", "").strip(), params.get("after") or None
    if not id_:
        return RedirectResponse(path_of(request), 303)
    found = await search(site_of(request).names, id_, after)
    is_complete = found.next is None and after is None and not found.away
    if len(found.hits) == 1 and is_complete and id_ not in _NO_LINK:
        return RedirectResponse(message_path(request, found.hits[0]), 303)
    hits = [(each, message_path(request, each)) for each in found.hits]
    return render(request, "search.html", id=id_, hits=hits, found=found, has_previous=after is not None)


def message_path(request: Request, message: Message) -> str:
    """Return the URL of a message."""
    return path_of(request, *parts_of_label(message.queue), "messages", message.id)
