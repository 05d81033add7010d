"""The pages themselves: each asks the library and shows what it says. None changes anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from duly import AsyncGroup
from duly._core.replies import NUMBERS
from duly._core.states import LIVE, STATES
from duly.message import Message
from duly.web.access import sees_payloads
from duly.web.bounded_gather import each_of
from duly.web.names import Inbox, no_message
from duly.web.opaque import cursor_of, position_of
from duly.web.overview import Sights
from duly.web.pages.renderer import path_of, render
from duly.web.pages.text import for_people
from duly.web.pages.trends import Paces
from duly.web.pagination import Page, page_of
from duly.web.site import Site, role_of, site_of

ROWS: Final = 100

T = TypeVar("T")


class Overview:
    """`/`: the server, and all queues, groups and topics."""

    def __init__(self, site: Site) -> None:
        self._app = site.app
        self._sights = Sights(site.app, site.names)

    async def __call__(self, request: Request) -> Response:
        """Show a page of them, and the sums over all."""
        seen = await self._sights.get()
        wanted, after = request.query_params.get("find", "").strip(), request.query_params.get("after")
        if wanted in seen.inboxes:
            return to_inbox(request, wanted)
        labels = [each for each in seen.inboxes if wanted.casefold() in each.casefold()]
        begin = labels.index(after) + 1 if after in labels else 0
        shown = labels[begin : begin + ROWS]
        more = shown[-1] if begin + ROWS < len(labels) else None
        where = self._app._address.shown  # without user and password
        topics = list(seen.topics.items())[:ROWS]
        return render(
            request, "overview.html", seen=seen, shown=shown, begin=begin, more=more, topics=topics, where=where,
            rates=self._sights.rates, wanted=wanted,
        )  # fmt: skip


def to_inbox(request: Request, label: str) -> Response:
    """Go to the page of a queue, or of a group, that somebody has named."""
    topic, _, group = label.partition("/")
    parts = ("topics", topic, "groups", group) if group else ("queues", label)
    return RedirectResponse(path_of(request, *parts), 303)


_COUNTERS: Final = [name for name in NUMBERS if not name.endswith("bytes")]
"""What a page shows of Stats beside states and sizes."""


async def queues(request: Request) -> Response:
    """`/queues`: the overview has them all."""
    return RedirectResponse(path_of(request), 303)


class InboxView:
    """`/queues/{queue}`, `/topics/{topic}/groups/{group}`: numbers, messages by state, and what can be done."""

    def __init__(self) -> None:
        self._paces = Paces()

    async def __call__(self, request: Request) -> Response:
        """Show a page of the messages in one state."""
        place, asked = await place_of(request), request.query_params
        page = await listed(place.inbox, asked.get("state") or "ready", asked.get("after") or None)
        held = await site_of(request).looks.leases.held(place.inbox)
        course = self._paces.course(place.inbox.label, held.stats)
        return render(
            request, "inbox.html", place=place, page=page, held=held, course=course, states=STATES,
            over=OVER, counters=_COUNTERS,
        )  # fmt: skip


async def message(request: Request) -> Response:
    """`.../messages/{id}`: all of a message."""
    place, id_ = await place_of(request), request.path_params["id"]
    found = await place.inbox.get(id_)
    if found is None:
        raise no_message(place.inbox, id_)
    why = for_people(await place.inbox.explain(id_)) if sees_payloads(role_of(request)) else None
    return render(request, "message.html", place=place, message=found, why=why, over=OVER)


async def topics(request: Request) -> Response:
    """`/topics`: each with its groups."""
    site = site_of(request)
    page = _page(request, await site.names.topics(), str)
    found = await each_of(page.items, site.looks.topic)
    return render(request, "topics.html", topics=found, page=page, only=None)


async def topic(request: Request) -> Response:
    """`/topics/{topic}`: one of them."""
    site, name = site_of(request), request.path_params["topic"]
    await site.names.topic(name)
    found = await site.looks.topic(name)
    return render(request, "topics.html", topics=[found], page=Page([name], None, is_behind=False), only=name)


async def workers(request: Request) -> Response:
    """`/workers`: those that live, or were silent for a short time."""
    page = _page(request, await site_of(request).looks.workers(), attrgetter("id"))
    return render(request, "workers.html", page=page)


async def schedules(request: Request) -> Response:
    """`/schedules`: what is sent by the clock, and what nobody would send."""
    looks = site_of(request).looks
    page = _page(request, await looks.schedules(), attrgetter("name"))
    served = {name for each in await looks.workers() for name in each.queues}
    unserved = sorted({each.queue for each in page.items if not each.paused} - served)
    return render(request, "schedules.html", page=page, unserved=unserved)


def _page(request: Request, everything: Sequence[T], name: Callable[[T], str]) -> Page[T]:
    """Take the rows that the address asks for: behind a name, or beginning with it."""
    asked = request.query_params
    return page_of(everything, name, ROWS, asked.get("after") or None, asked.get("begin") or None)


@dataclass(frozen=True)
class Place:
    """A queue, or a group of a topic."""

    inbox: Inbox
    parts: tuple[str, ...]
    """Of its path: below the root for people, below api/v1 for programs."""

    @property
    def topic(self) -> str | None:
        """The topic that a group is of; None: it is a queue."""
        return self.inbox.topic.name if isinstance(self.inbox, AsyncGroup) else None

    @property
    def kind(self) -> str:
        """What it is called."""
        return "queue" if self.topic is None else "group"


async def place_of(request: Request) -> Place:
    """Find what the path names; NotFound: it does not exist."""
    path = request.path_params
    inbox = await site_of(request).names.inbox(path)
    is_group = isinstance(inbox, AsyncGroup)
    return Place(inbox, ("topics", path["topic"], "groups", path["group"]) if is_group else ("queues", path["queue"]))


OVER: Final = tuple(state for state in STATES if state not in LIVE)
"""States in which no attempt is to come."""
_A_PAGE: Final = 50


@dataclass(frozen=True)
class Listing:
    """What is shown of a state."""

    state: str
    messages: Sequence[Message]
    next: str | None
    """The cursor that the next page begins behind; None: this is the last."""
    is_behind: bool
    """Whether this is not the first page."""
    lost: str | None
    """The id that the page should have begun behind, and that has left the state meanwhile: it begins anew."""


async def listed(inbox: Inbox, state: Any, after: str | None) -> Listing:
    """Look at a page. It may be short where messages are large, so that a second look tells whether more follow."""
    begin = None if after is None else position_of(after, state)
    lost = begin if isinstance(begin, str) and await _has_left(inbox, state, begin) else None
    begin = begin if lost is None else None
    newest = state in OVER  # what has just failed is what people look for
    page = await inbox.list(state, limit=_A_PAGE, after=begin, newest=newest)
    has_more = bool(page) and bool(await inbox.list(state, limit=1, after=page[-1], newest=newest))
    return Listing(state, page, cursor_of(page[-1]) if has_more else None, begin is not None, lost)


async def _has_left(inbox: Inbox, state: str, id_: str) -> bool:
    """Tell whether a message is in another state by now, or gone: then its id alone does not tell where to go on."""
    found = await inbox.get(id_)
    return found is None or found.state != state
