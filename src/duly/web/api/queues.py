"""Queues, and groups of topics: their numbers, and how they are steered."""

from __future__ import annotations

from typing import Final

from duly import AsyncGroup
from duly.errors import DulyError, Unavailable, UsageError
from duly.web.api import shapes
from duly.web.api.operation import Asked, Operation
from duly.web.paging import page_of
from duly.web.problems import Refused
from duly.web.several import each_of


async def _list_queues(asked: Asked) -> shapes.QueuesShown:
    names = asked.site.names
    page = page_of(await names.queues(), str, asked.query.limit, asked.query.after)

    async def one(name: str) -> shapes.QueueShown:
        try:
            return shapes.QueueShown(name, await names.open_queue(name).stats())
        except Unavailable:
            raise
        except DulyError as error:  # somebody has damaged it, which must not hide the others
            return shapes.QueueShown(name, None, str(error))

    return shapes.QueuesShown(await each_of(page.items, one), page.next)


async def _show(asked: Asked) -> shapes.InboxShown:
    inbox = await asked.inbox()
    held = await asked.site.looks.leases.held(inbox)
    consumers = None if held.pending is None else held.pending.consumers
    return shapes.InboxShown(inbox.label, held.stats, shapes.Holders(held.total, consumers))


async def _pending(asked: Asked) -> shapes.PendingShown:
    inbox, given = await asked.inbox(), asked.query
    held = await asked.site.looks.leases.held(inbox)
    found = held.of(given.consumer, given.limit, is_group=isinstance(inbox, AsyncGroup))
    if found is not None:
        return shapes.PendingShown(found.total, found.min_id, found.max_id, found.consumers, found.messages)
    if given.consumer is not None:
        raise Refused(409, f"{held.total} messages of {inbox.title} are held: too many to look which of them are his")
    return shapes.PendingShown(held.total)


async def _pause(asked: Asked) -> shapes.Paused:
    inbox = await asked.inbox()
    await inbox.pause()
    return shapes.Paused((await inbox.stats()).paused)


async def _resume(asked: Asked) -> shapes.Paused:
    inbox = await asked.inbox()
    await inbox.resume()
    return shapes.Paused((await inbox.stats()).paused)


async def _purge(asked: Asked) -> shapes.Purged:
    inbox, given = await asked.inbox(), asked.body
    if given.confirm != inbox.label:
        raise UsageError(f"confirm must be {inbox.label!r}, the name of what is purged, not {given.confirm!r}")
    return shapes.Purged(await inbox.purge(given.state))


async def _redrive(asked: Asked) -> shapes.Redriven:
    """Redrive while somebody waits for it: with a rate it may take long, and can simply be asked for again."""
    inbox, given = await asked.inbox(), asked.body
    where = None if given.where is None else given.where.checked()
    work = inbox.redrive(given.limit, where, given.to, given.rate, given.dry_run, given.at_end)
    return shapes.Redriven(await asked.while_there(work))


OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        method="GET",
        path="/queues",
        name="list_queues",
        summary="Name the queues and count what is in them, a page at a time.",
        needs="viewer",
        act=_list_queues,
        query=shapes.NamePage,
        answer=shapes.QueuesShown,
    ),
    Operation(
        method="GET",
        path="{inbox}",
        name="show",
        summary="Count what is where, and who holds how much; above 10,000 leases, only how many they are.",
        needs="viewer",
        act=_show,
        answer=shapes.InboxShown,
    ),
    Operation(
        method="GET",
        path="{inbox}/pending",
        name="pending",
        summary="See who holds what: totals, counts by consumer, and the first leases; above 10,000, only the total.",
        needs="viewer",
        act=_pending,
        query=shapes.PendingOf,
        answer=shapes.PendingShown,
    ),
    Operation(
        method="POST",
        path="{inbox}/pause",
        name="pause",
        summary="Hand nothing out until it is resumed. Sends and settles go on.",
        needs="operator",
        act=_pause,
        answer=shapes.Paused,
        is_logged=True,
    ),
    Operation(
        method="POST",
        path="{inbox}/resume",
        name="resume",
        summary="Hand out again.",
        needs="operator",
        act=_resume,
        answer=shapes.Paused,
        is_logged=True,
    ),
    Operation(
        method="POST",
        path="{inbox}/redrive",
        name="redrive",
        summary="Put dead letters back to work. It ends when the client goes away, and may be asked for again.",
        needs="operator",
        act=_redrive,
        body=shapes.Redrive,
        may_be_empty=True,
        answer=shapes.Redriven,
        is_logged=True,
    ),
    Operation(
        method="POST",
        path="{inbox}/purge",
        name="purge",
        summary="End all messages of a state, or all there are. Holders find their lease lost.",
        needs="admin",
        act=_purge,
        body=shapes.Purge,
        answer=shapes.Purged,
        is_logged=True,
    ),
)
