"""Queues, and groups of topics: their numbers, and how they are steered."""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from msgspec import UNSET

from duly import AsyncGroup
from duly.errors import DulyError, Unavailable, UsageError
from duly.web.api import requests, responses
from duly.web.api.operation import Asked, Operation
from duly.web.bounded_gather import each_of
from duly.web.pagination import page_of
from duly.web.problems import Refused


async def _list_queues(asked: Asked) -> responses.QueuesShown:
    names = asked.site.names
    page = page_of(await names.queues(), str, asked.query.limit, asked.query.after)

    async def one(name: str) -> responses.QueueShown:
        try:
            return responses.QueueShown(name, await names.open_queue(name).stats())
        except Unavailable:
            raise
        except DulyError as error:  # somebody has damaged it, which must not hide the others
            return responses.QueueShown(name, None, str(error))

    return responses.QueuesShown(await each_of(page.items, one), page.next)


async def _show(asked: Asked) -> responses.InboxShown:
    inbox = await asked.inbox()
    held = await asked.site.looks.leases.held(inbox)
    consumers = None if held.pending is None else held.pending.consumers
    return responses.InboxShown(inbox.label, held.stats, responses.Holders(held.total, consumers))


async def _pending(asked: Asked) -> responses.PendingShown:
    inbox, given = await asked.inbox(), asked.query
    held = await asked.site.looks.leases.held(inbox)
    found = held.of(given.consumer, given.limit, is_group=isinstance(inbox, AsyncGroup))
    if found is not None:
        return responses.PendingShown(found.total, found.min_id, found.max_id, found.consumers, found.messages)
    if given.consumer is not None:
        raise Refused(409, f"{held.total} messages of {inbox.title} are held: too many to look which of them are his")
    return responses.PendingShown(held.total)


async def _pause(asked: Asked) -> responses.Paused:
    inbox = await asked.inbox()
    await inbox.pause()
    return responses.Paused((await inbox.stats()).paused)


async def _resume(asked: Asked) -> responses.Paused:
    inbox = await asked.inbox()
    await inbox.resume()
    return responses.Paused((await inbox.stats()).paused)


async def _purge(asked: Asked) -> responses.Purged:
    inbox, given = await asked.inbox(), asked.body
    if given.confirm != inbox.label:
        raise UsageError(f"confirm must be {inbox.label!r}, the name of what is purged, not {given.confirm!r}")
    return responses.Purged(await inbox.purge(given.state))


async def _redrive(asked: Asked) -> responses.Redriven:
    """Redrive while somebody waits for it: with a rate it may take long, and can simply be asked for again."""
    inbox, given = await asked.inbox(), asked.body
    where = None if given.where is None else given.where.checked()
    work = inbox.redrive(given.limit, where, given.to, given.rate, given.dry_run, given.at_end)
    return responses.Redriven(await asked.while_there(work))


OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        method="GET",
        path="/queues",
        name="list_queues",
        summary="Name the queues and count what is in them, a page at a time.",
        needs="viewer",
        act=_list_queues,
        query=requests.NamePage,
        answer=responses.QueuesShown,
    ),
    Operation(
        method="GET",
        path="{inbox}",
        name="show",
        summary="Count what is where, and who holds how much; above 10,000 leases, only how many they are.",
        needs="viewer",
        act=_show,
        answer=responses.InboxShown,
    ),
    Operation(
        method="GET",
        path="{inbox}/pending",
        name="pending",
        summary="See who holds what: totals, counts by consumer, and the first leases; above 10,000, only the total.",
        needs="viewer",
        act=_pending,
        query=requests.PendingOf,
        answer=responses.PendingShown,
    ),
    Operation(
        method="POST",
        path="{inbox}/pause",
        name="pause",
        summary="Hand nothing out until it is resumed. Sends and settles go on.",
        needs="operator",
        act=_pause,
        answer=responses.Paused,
        is_logged=True,
    ),
    Operation(
        method="POST",
        path="{inbox}/resume",
        name="resume",
        summary="Hand out again.",
        needs="operator",
        act=_resume,
        answer=responses.Paused,
        is_logged=True,
    ),
    Operation(
        method="POST",
        path="{inbox}/redrive",
        name="redrive",
        summary="Put dead letters back to work. It ends when the client goes away, and may be asked for again.",
        needs="operator",
        act=_redrive,
        body=requests.Redrive,
        may_be_empty=True,
        answer=responses.Redriven,
        is_logged=True,
    ),
    Operation(
        method="POST",
        path="{inbox}/purge",
        name="purge",
        summary="End all messages of a state, or all there are. Holders find their lease lost.",
        needs="admin",
        act=_purge,
        body=requests.Purge,
        answer=responses.Purged,
        is_logged=True,
    ),
)


async def _topics(asked: Asked) -> responses.TopicsShown:
    page = page_of(await asked.site.names.topics(), str, asked.query.limit, asked.query.after)
    found = await each_of(page.items, asked.site.looks.topic)
    shown = [responses.TopicShown(each.name, each.stats, each.groups, each.error or UNSET) for each in found]
    return responses.TopicsShown(shown, page.next)


async def _workers(asked: Asked) -> responses.WorkersShown:
    page = page_of(await asked.site.looks.workers(), attrgetter("id"), asked.query.limit, asked.query.after)
    return responses.WorkersShown(page.items, page.next)


async def _schedules(asked: Asked) -> responses.SchedulesShown:
    page = page_of(await asked.site.looks.schedules(), attrgetter("name"), asked.query.limit, asked.query.after)
    shown = [responses.schedule(each, with_payload=asked.sees_payloads) for each in page.items]
    return responses.SchedulesShown(shown, page.next)


OTHER_OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        method="GET",
        path="/topics",
        name="list_topics",
        summary="Name the topics, count what is in them, and look at their groups, a page at a time.",
        needs="viewer",
        act=_topics,
        query=requests.NamePage,
        answer=responses.TopicsShown,
    ),
    Operation(
        method="GET",
        path="/workers",
        name="list_workers",
        summary="Show the workers that live, or were silent for a short time, by id, a page at a time.",
        needs="viewer",
        act=_workers,
        query=requests.NamePage,
        answer=responses.WorkersShown,
    ),
    Operation(
        method="GET",
        path="/schedules",
        name="list_schedules",
        summary="Show the schedules, by name, a page at a time.",
        needs="viewer",
        act=_schedules,
        query=requests.NamePage,
        answer=responses.SchedulesShown,
    ),
)
