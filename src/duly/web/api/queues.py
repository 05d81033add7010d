"""Queues, and groups of topics: their numbers, and how they are steered."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from duly.errors import UsageError
from duly.message import Pending
from duly.web.api import shapes
from duly.web.api.operation import Asked, Operation

_AT_ONCE: Final = 10
"""Calls to the server at the same time, for one page."""

A = TypeVar("A")
B = TypeVar("B")


async def each_of(given: Iterable[A], do: Callable[[A], Awaitable[B]]) -> list[B]:
    """Do the same with each, a few at a time, and give what came of it in order."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(part: A) -> B:
        async with gate:
            return await do(part)

    return await asyncio.gather(*map(one, given))


async def _list_queues(asked: Asked) -> shapes.QueuesShown:
    page: shapes.QueuePage = asked.query
    names = await asked.site.names.queues()
    first = 0 if page.after is None else bisect_right(names, page.after)
    wanted, rest = names[first : first + page.limit], names[first + page.limit :]

    async def one(name: str) -> shapes.QueueShown:
        return shapes.QueueShown(name, await asked.site.names.open_queue(name).stats())

    return shapes.QueuesShown(await each_of(wanted, one), wanted[-1] if rest else None)


async def _show(asked: Asked) -> shapes.InboxShown:
    inbox = await asked.inbox()
    held = await inbox.pending(limit=0)
    return shapes.InboxShown(inbox.label, await inbox.stats(), shapes.Holders(held.total, held.consumers))


async def _pending(asked: Asked) -> Pending:
    return await (await asked.inbox()).pending(asked.query.consumer, asked.query.limit)


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
        query=shapes.QueuePage,
        answer=shapes.QueuesShown,
    ),
    Operation(
        method="GET",
        path="{inbox}",
        name="show",
        summary="Count what is where, and who holds how much.",
        needs="viewer",
        act=_show,
        answer=shapes.InboxShown,
    ),
    Operation(
        method="GET",
        path="{inbox}/pending",
        name="pending",
        summary="See who holds what: totals, counts by consumer, and the first leases.",
        needs="viewer",
        act=_pending,
        query=shapes.PendingOf,
        answer=Pending,
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
