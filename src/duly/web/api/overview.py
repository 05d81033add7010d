"""What there is besides queues: topics, workers and schedules."""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from msgspec import UNSET

from duly.web.api import shapes
from duly.web.api.operation import Asked, Operation
from duly.web.paging import page_of
from duly.web.several import each_of


async def _topics(asked: Asked) -> shapes.TopicsShown:
    page = page_of(await asked.site.names.topics(), str, asked.query.limit, asked.query.after)
    found = await each_of(page.items, asked.site.looks.topic)
    shown = [shapes.TopicShown(each.name, each.stats, each.groups, each.error or UNSET) for each in found]
    return shapes.TopicsShown(shown, page.next)


async def _workers(asked: Asked) -> shapes.WorkersShown:
    page = page_of(await asked.site.looks.workers(), attrgetter("id"), asked.query.limit, asked.query.after)
    return shapes.WorkersShown(page.items, page.next)


async def _schedules(asked: Asked) -> shapes.SchedulesShown:
    page = page_of(await asked.site.looks.schedules(), attrgetter("name"), asked.query.limit, asked.query.after)
    shown = [shapes.schedule(each, with_payload=asked.sees_payloads) for each in page.items]
    return shapes.SchedulesShown(shown, page.next)


OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        method="GET",
        path="/topics",
        name="list_topics",
        summary="Name the topics, count what is in them, and look at their groups, a page at a time.",
        needs="viewer",
        act=_topics,
        query=shapes.NamePage,
        answer=shapes.TopicsShown,
    ),
    Operation(
        method="GET",
        path="/workers",
        name="list_workers",
        summary="Show the workers that live, or were silent for a short time, by id, a page at a time.",
        needs="viewer",
        act=_workers,
        query=shapes.NamePage,
        answer=shapes.WorkersShown,
    ),
    Operation(
        method="GET",
        path="/schedules",
        name="list_schedules",
        summary="Show the schedules, by name, a page at a time.",
        needs="viewer",
        act=_schedules,
        query=shapes.NamePage,
        answer=shapes.SchedulesShown,
    ),
)
