"""Queues and groups: statistics and control. Topics and workers: lists."""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from msgspec import UNSET, UnsetType

from duly import AsyncGroup
from duly._port import AsyncSurvey
from duly.errors import DulyError, Unavailable, UsageError
from duly.message import Histogram
from duly.web.api import requests, responses
from duly.web.api.operation import ApiCall, Operation
from duly.web.bounded_gather import bounded_gather
from duly.web.overview import TopicSnapshot, read_within
from duly.web.pagination import page_of
from duly.web.problems import Refused


async def _list_queues(call: ApiCall) -> responses.QueuesShown:
    return await read_queues(call, call.query.limit, call.query.after)


async def read_queues(call: ApiCall, limit: int, after: str | None) -> responses.QueuesShown:
    """Read the statistics of a page of queues."""
    names = call.site.names
    survey = await names.survey()
    page = page_of(await names.queues(), str, limit, after)

    async def one(name: str) -> responses.QueueShown | None:
        queue = names.open_queue(name)
        try:
            stats = await read_within(survey, queue, queue.stats)
            return None if stats is None else responses.QueueShown(name, stats)
        except Unavailable:
            raise
        except DulyError as error:  # damaged data must not hide the other queues
            return responses.QueueShown(name, None, str(error))

    shown = [each for each in await bounded_gather(page.items, one) if each is not None]
    return responses.QueuesShown(shown, page.next, _missing(survey))


def _missing(survey: AsyncSurvey) -> list[responses.MissingNode] | UnsetType:
    return responses.missing_nodes(survey.away)


async def _show(call: ApiCall) -> responses.InboxShown:
    inbox = await call.inbox()
    leases = await call.site.snapshots.leases.of(inbox)
    consumers = None if leases.pending is None else leases.pending.consumers
    return responses.InboxShown(inbox.label, leases.stats, responses.Holders(leases.total, consumers))


async def _history(call: ApiCall) -> responses.HistoryShown:
    inbox = await call.inbox()
    stats = await inbox.stats(history=_seconds_or_text(call.query.since))
    return responses.HistoryShown(inbox.label, Histogram.BOUNDS, stats.history)


async def _forecast(call: ApiCall) -> responses.ForecastShown:
    inbox = await call.inbox()
    return responses.ForecastShown(inbox.label, await inbox.forecast(_seconds_or_text(call.query.ahead)))


def _seconds_or_text(duration: str) -> str | float:
    return float(duration) if duration.isdecimal() else duration


async def _pending(call: ApiCall) -> responses.PendingShown:
    inbox, options = await call.inbox(), call.query
    leases = await call.site.snapshots.leases.of(inbox)
    found = leases.of(options.consumer, options.limit, is_group=isinstance(inbox, AsyncGroup))
    if found is not None:
        return responses.PendingShown(found.total, found.min_id, found.max_id, found.consumers, found.messages)
    if options.consumer is not None:
        raise Refused(409, f"{inbox.title} has {leases.total} leases: too many to filter by consumer")
    return responses.PendingShown(leases.total)


async def _pause(call: ApiCall) -> responses.Paused:
    inbox = await call.inbox()
    await inbox.pause()
    return responses.Paused((await inbox.stats()).paused)


async def _resume(call: ApiCall) -> responses.Paused:
    inbox = await call.inbox()
    await inbox.resume()
    return responses.Paused((await inbox.stats()).paused)


async def _purge(call: ApiCall) -> responses.Purged:
    inbox, options = await call.inbox(), call.body
    if options.confirm != inbox.label:
        raise UsageError(
            f"confirm must be {inbox.label!r}, the name of the queue or group to purge, not {options.confirm!r}"
        )
    where = None if options.where is None else options.where.to_duly()
    return responses.Purged(await inbox.purge(options.state, where=where, dry_run=options.dry_run))


async def _redrive(call: ApiCall) -> responses.Redriven:
    """Redrive until the client disconnects. With a rate it may take long, and it can be repeated."""
    inbox, options = await call.inbox(), call.body
    where = None if options.where is None else options.where.to_duly()
    work = inbox.redrive(options.limit, where, options.to, options.rate, options.dry_run, options.at_end)
    return responses.Redriven(await call.run_while_connected(work))


OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        method="GET",
        path="/queues",
        name="list_queues",
        summary="List the queues with their statistics, a page at a time.",
        needs="viewer",
        handle=_list_queues,
        query=requests.NamePage,
        answer=responses.QueuesShown,
    ),
    Operation(
        method="GET",
        path="{inbox}",
        name="show",
        summary="Return the statistics and the number of leases per consumer; above 10,000 leases, only their total.",
        needs="viewer",
        handle=_show,
        answer=responses.InboxShown,
    ),
    Operation(
        method="GET",
        path="{inbox}/history",
        name="history",
        summary="Return the history: what happened in each minute, ten minutes or hour, the oldest first.",
        needs="viewer",
        handle=_history,
        query=requests.HistoryOf,
        answer=responses.HistoryShown,
    ),
    Operation(
        method="GET",
        path="{inbox}/forecast",
        name="forecast",
        summary="Return how many messages become due in each interval from now on, the next interval first.",
        needs="viewer",
        handle=_forecast,
        query=requests.ForecastOf,
        answer=responses.ForecastShown,
    ),
    Operation(
        method="GET",
        path="{inbox}/pending",
        name="pending",
        summary="List the leases: total, counts per consumer, and the first ones; above 10,000, only the total.",
        needs="viewer",
        handle=_pending,
        query=requests.PendingOf,
        answer=responses.PendingShown,
    ),
    Operation(
        method="POST",
        path="{inbox}/pause",
        name="pause",
        summary="Stop deliveries until it is resumed. Sends and settles continue.",
        needs="operator",
        handle=_pause,
        answer=responses.Paused,
        is_logged=True,
    ),
    Operation(
        method="POST",
        path="{inbox}/resume",
        name="resume",
        summary="Continue deliveries.",
        needs="operator",
        handle=_resume,
        answer=responses.Paused,
        is_logged=True,
    ),
    Operation(
        method="POST",
        path="{inbox}/redrive",
        name="redrive",
        summary="Redrive dead letters. It stops when the client disconnects, and can be repeated.",
        needs="operator",
        handle=_redrive,
        body=requests.Redrive,
        is_body_optional=True,
        answer=responses.Redriven,
        is_logged=True,
    ),
    Operation(
        method="POST",
        path="{inbox}/purge",
        name="purge",
        summary="Remove all messages of a state, or of all states, or the dead letters that match `where`.",
        needs="admin",
        handle=_purge,
        body=requests.Purge,
        answer=responses.Purged,
        is_logged=True,
    ),
)


async def _topics(call: ApiCall) -> responses.TopicsShown:
    page = page_of(await call.site.names.topics(), str, call.query.limit, call.query.after)
    found = await bounded_gather(page.items, call.site.snapshots.topic)
    shown = [_topic_shown(each) for each in found]
    return responses.TopicsShown(shown, page.next, _missing(await call.site.names.survey()))


async def _topic(call: ApiCall) -> responses.TopicShown:
    name = call.path_param("topic")
    await call.site.names.check_reached(call.request.path_params)
    await call.site.names.topic(name)
    return _topic_shown(await call.site.snapshots.topic(name))


def _topic_shown(source: TopicSnapshot) -> responses.TopicShown:
    return responses.TopicShown(source.name, source.stats, source.groups, source.error or UNSET)


async def _workers(call: ApiCall) -> responses.WorkersShown:
    page = page_of(await call.site.snapshots.workers(), attrgetter("id"), call.query.limit, call.query.after)
    return responses.WorkersShown(page.items, page.next)


OTHER_OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        method="GET",
        path="/topics",
        name="list_topics",
        summary="List the topics with their statistics and groups, a page at a time.",
        needs="viewer",
        handle=_topics,
        query=requests.NamePage,
        answer=responses.TopicsShown,
    ),
    Operation(
        method="GET",
        path="/topics/{topic}",
        name="topic",
        summary="Return a topic with its statistics and groups.",
        needs="viewer",
        handle=_topic,
        answer=responses.TopicShown,
    ),
    Operation(
        method="GET",
        path="/workers",
        name="list_workers",
        summary="List live workers, and those whose last heartbeat is recent, by id, a page at a time.",
        needs="viewer",
        handle=_workers,
        query=requests.NamePage,
        answer=responses.WorkersShown,
    ),
)
