"""The queues and topics that there are, by name, and how this process uses them.

To find them all, the server goes through its keys. However many look at the dashboard, it is asked every few seconds
at the most; whether there is one of a certain name, it tells at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from duly import AsyncDuly, AsyncGroup, AsyncQueue, AsyncTopic
from duly import _port as port
from duly._port import Inbox, nearest
from duly.errors import DulyError
from duly.web.cache import Cached

_TTL: Final = 3.0


class NotFound(DulyError):
    """What was named is not there."""


def message_not_found(inbox: Inbox, id_: str) -> NotFound:
    """Say that an inbox has no such message."""
    return NotFound(f"{inbox.title} has no message {id_!r}: it is unknown, finished or cancelled")


class Names:
    """The queues and topics of an app.

    What is opened has the options that a handler of the app was registered with, but for its `type`: bodies are shown
    and handed out as they were sent, also those that do not decode to it.
    """

    def __init__(self, app: AsyncDuly) -> None:
        self._app = app
        self._queues = Cached(lambda: _sorted_names(app.queues), _TTL)
        self._topics = Cached(lambda: _sorted_names(app.topics), _TTL)

    async def queues(self) -> list[str]:
        """Name the queues, in order."""
        return await self._queues.get()

    async def topics(self) -> list[str]:
        """Name the topics, in order."""
        return await self._topics.get()

    # What exists

    async def queue(self, name: str) -> AsyncQueue:
        """Open a queue that exists. One that was made a moment ago is found too."""
        queue = self.open_queue(name)
        if name not in await self.queues() and not _has_counts(await queue.stats()):
            raise NotFound(f"there is no queue {name!r}.{nearest(name, await self.queues())}")
        return queue

    async def topic(self, name: str) -> AsyncTopic:
        """Open a topic that exists."""
        topic = self.open_topic(name)
        if name not in await self.topics() and not _has_counts(await topic.stats()):
            raise NotFound(f"there is no topic {name!r}.{nearest(name, await self.topics())}")
        return topic

    async def group(self, topic: str, name: str) -> AsyncGroup:
        """Open a group that exists."""
        group = self.open_group(topic, name)
        known = await port.group_names(group.topic)
        if name not in known:
            await self.topic(topic)
            raise NotFound(f"topic {topic!r} has no group {name!r}.{nearest(name, known)}")
        return group

    async def inbox(self, path: Mapping[str, str]) -> Inbox:
        """Open the queue or group that the words of a path name, and that exists."""
        return await (self.group(path["topic"], path["group"]) if "group" in path else self.queue(path["queue"]))

    # What may exist

    def open_queue(self, name: str, *, typed: bool = False) -> AsyncQueue:
        """Open a queue, whether it exists or not; `typed`: bodies that are sent to it are checked."""
        queue = port.registered_queue(self._app, name)
        return queue if typed else port.open_queue(self._app, name, dataclasses.replace(queue.options, type=None))

    def open_for_sending(self, name: str) -> AsyncQueue:
        """Open a queue to send to. Who waits for room does so at home: a call that finds none is refused."""
        queue = self.open_queue(name, typed=True)
        if queue.options.on_full != "block":
            return queue
        return port.open_queue(self._app, name, dataclasses.replace(queue.options, on_full="raise"))

    def open_topic(self, name: str, *, typed: bool = False) -> AsyncTopic:
        """Open a topic, whether it exists or not: as a handler of any of its groups was registered with."""
        topic = self._app.topic(name)
        found = next((each.topic for each in port.registered_groups(self._app) if each.topic.name == name), topic)
        options = found.options if typed else dataclasses.replace(found.options, type=None)
        return port.open_topic(self._app, name, options)

    def open_group(self, topic: str, name: str, *, typed: bool = False) -> AsyncGroup:
        """Open a group, whether it exists or not: it begins, and passes over, what its handler says."""
        opened = self.open_topic(topic, typed=typed)
        group = opened.group(name)
        found = next((each for each in port.registered_groups(self._app) if each.label == group.label), None)
        return group if found is None else opened.group(name, start=found.start, headers=found.headers)

    def open_inbox(self, path: Mapping[str, str], *, typed: bool = False) -> Inbox:
        """Open the queue or group that the words of a path name, whether it exists or not."""
        if "group" in path:
            return self.open_group(path["topic"], path["group"], typed=typed)
        return self.open_queue(path["queue"], typed=typed)

    def open_label(self, label: str) -> Inbox:
        """Open what has a label: that of a group, events/archive, has a slash."""
        topic, slash, group = label.partition("/")
        return self.open_group(topic, group) if slash else self.open_queue(label)


def _has_counts(stats: Any) -> bool:
    """Tell whether anything was ever counted."""
    return any(getattr(stats, each.name) for each in dataclasses.fields(stats))


async def _sorted_names(fetch: Callable[[], Awaitable[list[str]]]) -> list[str]:
    return sorted(await fetch())
