"""Which queue or group a page is about, and where its pages and its calls are."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from duly import AsyncGroup
from duly.web.names import Inbox
from duly.web.site import site_of


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
