"""What there is besides queues: topics, workers and schedules."""

from __future__ import annotations

from typing import Final

from duly.web.api import shapes
from duly.web.api.operation import Asked, Operation
from duly.web.api.queues import each_of


async def _topics(asked: Asked) -> shapes.TopicsShown:
    names = asked.site.names

    async def one(name: str) -> shapes.TopicShown:
        topic = names.open_topic(name)
        return shapes.TopicShown(name, await topic.stats(), await topic.groups())

    return shapes.TopicsShown(await each_of(await names.topics(), one))


async def _workers(asked: Asked) -> shapes.WorkersShown:
    return shapes.WorkersShown(await asked.site.app.workers())


async def _schedules(asked: Asked) -> shapes.SchedulesShown:
    found = await asked.site.app.schedules()
    return shapes.SchedulesShown([shapes.schedule(each, with_payload=asked.sees_payloads) for each in found])


OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        method="GET",
        path="/topics",
        name="list_topics",
        summary="Name the topics, count what is in them, and look at their groups.",
        needs="viewer",
        act=_topics,
        answer=shapes.TopicsShown,
    ),
    Operation(
        method="GET",
        path="/workers",
        name="list_workers",
        summary="Show the workers that live, or were silent for a short time.",
        needs="viewer",
        act=_workers,
        answer=shapes.WorkersShown,
    ),
    Operation(
        method="GET",
        path="/schedules",
        name="list_schedules",
        summary="Show the schedules, by name.",
        needs="viewer",
        act=_schedules,
        answer=shapes.SchedulesShown,
    ),
)
