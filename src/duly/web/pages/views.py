"""The pages. Each reads from the library and renders a template; none changes anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from duly._port import LIVE, NUMBERS, STATES, Inbox, server_address
from duly.errors import ServerError
from duly.message import HistoryPoint, Message
from duly.web.access import sees_payloads
from duly.web.bounded_gather import bounded_gather
from duly.web.cache import CachedByKey
from duly.web.names import message_not_found
from duly.web.opaque import decode_cursor, encode_cursor
from duly.web.overview import OverviewCache
from duly.web.pages.attempts import attempts_of
from duly.web.pages.charts import SPANS, Chart, charts_of, forecast_charts, total
from duly.web.pages.filters import Filter
from duly.web.pages.places import find_place, parts_of_label
from duly.web.pages.renderer import path_of, render
from duly.web.pages.text import explanation_for_page
from duly.web.pages.trends import RateHistory
from duly.web.pagination import Page, page_of
from duly.web.scanning import Scan, scan
from duly.web.site import Site, role_of, site_of

ROWS: Final = 100

T = TypeVar("T")


class OverviewPage:
    """`/`: the server, and all queues, groups and topics."""

    def __init__(self, site: Site) -> None:
        self._app = site.app
        self._overviews = OverviewCache(site.names)
        self._charts = CachedByKey(self._draw)

    async def __call__(self, request: Request) -> Response:
        """Show one page of queues, and the totals."""
        overview = await self._overviews.get()
        query, after = request.query_params.get("find", "").strip(), request.query_params.get("after")
        if query in overview.inboxes:
            return redirect_to_inbox(request, query)
        labels = [each for each in overview.inboxes if query.casefold() in each.casefold()]
        state = request.query_params.get("state", "")
        if state in STATES:
            labels = overview.most_first(labels, state)
        begin = labels.index(after) + 1 if after in labels else 0
        shown = labels[begin : begin + ROWS]
        more = shown[-1] if begin + ROWS < len(labels) else None
        server = server_address(self._app)
        topics = list(overview.topics.items())[:ROWS]
        return render(
            request, "overview.html", overview=overview, labels=shown, begin=begin, more=more, topics=topics,
            server=server, rates=self._overviews.rates, query=query, state=state if state in STATES else "",
            charts=await self._charts.get(history_span(request)), history_span=history_span(request), drawn=ROWS,
        )  # fmt: skip

    async def _draw(self, span: str) -> list[Chart]:
        """Draw the sum of the histories of all queues and groups, up to a number."""
        overview = await self._overviews.get()
        readable = [inbox for label, inbox in overview.inboxes.items() if label in overview.stats]

        async def history_of(inbox: Inbox) -> Sequence[HistoryPoint]:
            try:
                return (await inbox.stats(history=span)).history
            except ServerError:  # damaged since
                return ()

        return charts_of(total(await bounded_gather(readable[:ROWS], history_of)))


def redirect_to_inbox(request: Request, label: str) -> Response:
    """Redirect to the page of a queue or group."""
    return RedirectResponse(path_of(request, *parts_of_label(label)), 303)


_COUNTERS: Final = [name for name in NUMBERS if not name.endswith("bytes")]
"""Counters of Stats that a page shows, without states and sizes."""


async def queues(request: Request) -> Response:
    """`/queues`: the overview lists the queues."""
    return RedirectResponse(path_of(request), 303)


class InboxPage:
    """`/queues/{queue}`, `/topics/{topic}/groups/{group}`: counters, messages by state, and actions."""

    def __init__(self) -> None:
        self._history = RateHistory()

    async def __call__(self, request: Request) -> Response:
        """Show a page of the messages in one state."""
        place, params = await find_place(request), request.query_params
        if params.get("state") == "dead":
            return RedirectResponse(path_of(request, *place.parts, "dead"), 303)
        filter_ = Filter.of(params, sees_payloads=sees_payloads(role_of(request)))
        state, after = params.get("state") or "ready", params.get("after") or None
        page = await (
            find_messages(place.inbox, state, filter_, after) if filter_ else list_messages(place.inbox, state, after)
        )
        leases = await site_of(request).snapshots.leases.of(place.inbox)
        rates = self._history.add(place.inbox.label, leases.stats)
        span = history_span(request)
        history = (await place.inbox.stats(history=span)).history
        charts = [*charts_of(history), *forecast_charts(await place.inbox.forecast(span))]
        return render(
            request, "inbox.html", place=place, page=page, filter=filter_, leases=leases, rates=rates, states=STATES,
            final_states=FINAL_STATES, counters=_COUNTERS, charts=charts, history_span=span,
            options=await site_of(request).snapshots.published_options(place.inbox),
        )  # fmt: skip


def history_span(request: Request) -> str:
    """Return how much history the URL asks for."""
    asked = request.query_params.get("history", "")
    return asked if asked in SPANS else next(iter(SPANS))


async def message(request: Request) -> Response:
    """`.../messages/{id}`: one message in full."""
    place, id_ = await find_place(request), request.path_params["id"]
    found = await place.inbox.get(id_)
    if found is None:
        raise message_not_found(place.inbox, id_)
    explanation = None
    if sees_payloads(role_of(request)):
        explanation = explanation_for_page(await site_of(request).snapshots.explain(place.inbox, id_))
    return render(
        request, "message.html", place=place, message=found, explanation=explanation, final_states=FINAL_STATES,
        attempts=attempts_of(found, datetime.now(UTC)),
    )  # fmt: skip


async def topics(request: Request) -> Response:
    """`/topics`: the topics with their groups."""
    site = site_of(request)
    page = _page(request, await site.names.topics(), str)
    found = await bounded_gather(page.items, site.snapshots.topic)
    away = (await site.names.survey()).away
    return render(request, "topics.html", topics=found, page=page, only=None, away=away)


async def topic(request: Request) -> Response:
    """`/topics/{topic}`: one topic."""
    site, name = site_of(request), request.path_params["topic"]
    await site.names.check_reached(request.path_params)
    await site.names.topic(name)
    found = await site.snapshots.topic(name)
    page = Page([name], None, has_previous=False)
    return render(request, "topics.html", topics=[found], page=page, only=name, away=())


_RUNS_SHOWN: Final = 10
"""Messages that the page names for each worker."""


async def workers(request: Request) -> Response:
    """`/workers`: live workers, and those whose last heartbeat is recent."""
    page = _page(request, await site_of(request).snapshots.workers(), attrgetter("id"))
    running = await site_of(request).snapshots.running()
    return render(request, "workers.html", page=page, running=running, shown=_RUNS_SHOWN, inbox_parts=parts_of_label)


async def schedules(request: Request) -> Response:
    """`/schedules`: the schedules, and a warning for those that no worker serves."""
    site = site_of(request)
    survey = await site.names.survey()
    page = _page(request, await site.snapshots.schedules(), attrgetter("name"))
    workers = await survey.workers()
    served = {name for each in workers or () for name in each.queues}
    unserved = [] if workers is None else sorted({each.queue for each in page.items if not each.paused} - served)
    return render(request, "schedules.html", page=page, unserved=unserved, away=survey.away)


def _page(request: Request, items: Sequence[T], name: Callable[[T], str]) -> Page[T]:
    """Return the rows that the URL asks for: after a name, or from a name on."""
    params = request.query_params
    return page_of(items, name, ROWS, params.get("after") or None, params.get("begin") or None)


FINAL_STATES: Final = tuple(state for state in STATES if state not in LIVE)
"""States without a further attempt."""
_PAGE_SIZE: Final = 50


@dataclass(frozen=True)
class Listing:
    """A page of the messages in one state."""

    state: str
    messages: Sequence[Message]
    next: str | None
    """The cursor of the next page. None: this is the last page."""
    has_previous: bool
    """Whether there is a page before this one."""
    missing_id: str | None = None
    """The id that the page should start after, if that message has left the state. Then this is the first page."""
    scan: Scan | None = None
    """The search for the messages, if the list is filtered."""


async def list_messages(inbox: Inbox, state: Any, after: str | None) -> Listing:
    """Fetch a page. Pages of large messages are short, so a second call checks whether there is more."""
    begin = None if after is None else decode_cursor(after, state)
    missing_id = begin if isinstance(begin, str) and await _has_left(inbox, state, begin) else None
    begin = begin if missing_id is None else None
    newest = state in FINAL_STATES  # the newest failures matter most
    page = await inbox.list(state, limit=_PAGE_SIZE, after=begin, newest=newest)
    has_more = bool(page) and bool(await inbox.list(state, limit=1, after=page[-1], newest=newest))
    return Listing(state, page, encode_cursor(page[-1]) if has_more else None, begin is not None, missing_id)


async def find_messages(inbox: Inbox, state: Any, filter_: Filter, after: str | None) -> Listing:
    """Search for a page of messages that match a filter."""
    begin = None if after is None else decode_cursor(after, state)
    newest = state in FINAL_STATES
    found = await scan(inbox, state, filter_.where().matches, after=begin, newest=newest, wanted=_PAGE_SIZE)
    more = None if found.is_complete or found.last is None else encode_cursor(found.last)
    return Listing(state, found.matches, more, begin is not None, scan=found)


async def _has_left(inbox: Inbox, state: str, id_: str) -> bool:
    """Return whether a message has left the state. Then its id does not determine a position."""
    found = await inbox.get(id_)
    return found is None or found.state != state
