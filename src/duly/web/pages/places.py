"""The queue or group that the path of a page names."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from duly import AsyncGroup
from duly._port import Inbox
from duly.web.site import site_of


@dataclass(frozen=True)
class Place:
    """A queue, or a group of a topic."""

    inbox: Inbox
    parts: tuple[str, ...]
    """The parts of its path, the same for pages and below api/v1."""

    @property
    def topic(self) -> str | None:
        """The topic of a group. None: it is a queue."""
        return self.inbox.topic.name if isinstance(self.inbox, AsyncGroup) else None

    @property
    def kind(self) -> str:
        """The word for it on pages."""
        return "queue" if self.topic is None else "group"


async def find_place(request: Request) -> Place:
    """Open the queue or group of the path. Raises NotFound."""
    path = request.path_params
    await site_of(request).names.check_reached(path)
    inbox = await site_of(request).names.inbox(path)
    is_group = isinstance(inbox, AsyncGroup)
    return Place(inbox, ("topics", path["topic"], "groups", path["group"]) if is_group else ("queues", path["queue"]))


def parts_of_label(label: str) -> tuple[str, ...]:
    """Return the parts of the path of a queue or group. The label of a group has a slash: events/archive."""
    topic, slash, group = label.partition("/")
    return ("topics", topic, "groups", group) if slash else ("queues", label)
