"""The pages themselves: each asks the library and shows what it says. None changes anything."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from duly.message import Pending
from duly.web.names import NotFound
from duly.web.pages import listing
from duly.web.pages.place import Place, place_of
from duly.web.pages.sight import Sights
from duly.web.pages.view import render, sees_payloads
from duly.web.site import role_of, site_of

_ROWS: Final = 100
_MOST_LEASES: Final = 10_000
"""To say who holds what, each lease is looked at."""


class Overview:
    """`/`: the server, and all queues, groups and topics."""

    def __init__(self) -> None:
        self._sights = Sights()

    async def __call__(self, request: Request) -> Response:
        """Show a page of them, and the sums over all."""
        site = site_of(request)
        seen = await self._sights.get(site)
        labels = list(seen.inboxes)
        after = request.query_params.get("after")
        begin = labels.index(after) + 1 if after in labels else 0
        shown = labels[begin : begin + _ROWS]
        more = shown[-1] if begin + _ROWS < len(labels) else None
        where = repr(site.app).strip("<>").partition(" on ")[2]
        return render(
            request, "overview.html", seen=seen, shown=shown, begin=begin, more=more, where=where, rates=site.rates
        )


async def inbox(request: Request) -> Response:
    """`/queues/{queue}`, `/topics/{topic}/groups/{group}`: numbers, messages by state, and what can be done."""
    place = await place_of(request)
    state, after = request.query_params.get("state", "ready"), request.query_params.get("after")
    page = await listing.listed(place.inbox, state, after)
    stats = await place.inbox.stats()
    held = await _held(place) if 0 < stats.leased <= _MOST_LEASES else None
    return render(
        request, "inbox.html", place=place, stats=stats, page=page, held=held, states=listing.STATES, over=listing.OVER
    )


async def _held(place: Place) -> Pending:
    return await place.inbox.pending(limit=0)


async def message(request: Request) -> Response:
    """`.../messages/{id}`: all of a message."""
    place, id_ = await place_of(request), request.path_params["id"]
    found = await place.inbox.get(id_)
    if found is None:
        raise NotFound(f"{place.inbox.title} has no message {id_!r}: it is unknown, finished or cancelled")
    why = await place.inbox.explain(id_) if sees_payloads(role_of(request)) else None
    return render(request, "message.html", place=place, message=found, why=why, over=listing.OVER)


async def topics(request: Request) -> Response:
    """`/topics`: each with its groups."""
    site = site_of(request)
    opened = [site.names.open_topic(name) for name in await site.names.topics()]
    found = [(each, await each.stats(), await each.groups()) for each in opened]
    return render(request, "topics.html", topics=found)


async def workers(request: Request) -> Response:
    """`/workers`: those that live, or were silent for a short time."""
    return render(request, "workers.html", workers=await site_of(request).app.workers())


async def schedules(request: Request) -> Response:
    """`/schedules`: what is sent by the clock, and what nobody would send."""
    app = site_of(request).app
    found = await app.schedules()
    served = {name for each in await app.workers() for name in each.queues}
    unserved = sorted({each.queue for each in found if not each.paused} - served)
    return render(request, "schedules.html", schedules=found, unserved=unserved)
