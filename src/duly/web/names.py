"""The existing queues and topics by name, opened with the options of this process.

The server scans its keys to list the names, so the lists are cached for a few seconds. Whether one name exists is
looked up directly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from duly import AsyncDuly, AsyncGroup, AsyncQueue, AsyncTopic, Keep
from duly import _port as port
from duly._port import Inbox, nearest
from duly.errors import DulyError, Unavailable
from duly.message import Histogram
from duly.web.cache import Cached

_TTL: Final = 3.0
_SURVEY_COST_FACTOR: Final = 5
"""A node that hangs delays a survey by a second. The survey is cached for this many times as long."""


class NotFound(DulyError):
    """The named object does not exist."""


class NodeAway(Unavailable):
    """A node of a cluster does not answer. Its text is for pages as well."""


def message_not_found(inbox: Inbox, id_: str) -> NotFound:
    """Create the error for an unknown message."""
    return NotFound(f"{inbox.title} has no message {id_!r}: it is unknown, finished or cancelled")


class Names:
    """The queues and topics of an app.

    They are opened with the options of the app's handlers, but without `type`. Bodies are returned as they were sent,
    even if they do not decode to the type.
    """

    def __init__(self, app: AsyncDuly) -> None:
        self._app = app
        self._survey = Cached(lambda: port.survey_nodes(app), cost_factor=_SURVEY_COST_FACTOR)
        self._queues = Cached(self._fetch_queues, _TTL)
        self._topics = Cached(self._fetch_topics, _TTL)

    async def survey(self) -> port.AsyncSurvey:
        """Return which nodes of a cluster answer."""
        return await self._survey.get()

    async def queues(self) -> list[str]:
        """Return the sorted names of the queues on the nodes that answer."""
        survey, found = await self.survey(), await self._queues.get()
        return [each for each in found if survey.absence_of(self._app.queue(each)) is None] if survey.away else found

    async def topics(self) -> list[str]:
        """Return the sorted names of the topics on the nodes that answer."""
        survey, found = await self.survey(), await self._topics.get()
        return [each for each in found if survey.absence_of(self._app.topic(each)) is None] if survey.away else found

    async def _fetch_queues(self) -> list[str]:
        return sorted(await (await self.survey()).queues())

    async def _fetch_topics(self) -> list[str]:
        return sorted(await (await self.survey()).topics())

    async def check_reached(self, path: Mapping[str, str]) -> None:
        """Raise NodeAway if the node of a path does not answer. A page need not wait for it."""
        source = self._app.topic(path["topic"]) if "topic" in path else self._app.queue(path["queue"])
        away = (await self.survey()).absence_of(source)
        if away is not None:
            raise NodeAway(f"this is on {away.node}, which does not answer: {away.reason}")

    # Existing queues and topics

    async def queue(self, name: str) -> AsyncQueue:
        """Open an existing queue. Finds one that was created a moment ago."""
        queue = self.open_queue(name)
        if name not in await self.queues() and not _has_counts(await queue.stats()):
            raise NotFound(f"there is no queue {name!r}.{nearest(name, await self.queues())}")
        return queue

    async def topic(self, name: str) -> AsyncTopic:
        """Open an existing topic."""
        topic = self.open_topic(name)
        if name not in await self.topics() and not _has_counts(await topic.stats()):
            raise NotFound(f"there is no topic {name!r}.{nearest(name, await self.topics())}")
        return topic

    async def group(self, topic: str, name: str) -> AsyncGroup:
        """Open an existing group."""
        group = self.open_group(topic, name)
        known = await port.group_names(group.topic)
        if name not in known:
            await self.topic(topic)
            raise NotFound(f"topic {topic!r} has no group {name!r}.{nearest(name, known)}")
        return group

    async def inbox(self, path: Mapping[str, str]) -> Inbox:
        """Open the existing queue or group that the path names."""
        return await (self.group(path["topic"], path["group"]) if "group" in path else self.queue(path["queue"]))

    # Queues and topics that may not exist

    def open_queue(self, name: str, *, typed: bool = False) -> AsyncQueue:
        """Open a queue, existing or not. `typed` validates the bodies that are sent to it."""
        queue = port.registered_queue(self._app, name)
        return queue if typed else port.open_queue(self._app, name, dataclasses.replace(queue.options, type=None))

    def open_for_sending(self, name: str) -> AsyncQueue:
        """Open a queue to send to. A full queue rejects the call even with `on_full="block"`: the client can wait."""
        queue = self.open_queue(name, typed=True)
        if queue.options.on_full != "block":
            return queue
        return port.open_queue(self._app, name, dataclasses.replace(queue.options, on_full="raise"))

    def open_for_results(self, name: str) -> AsyncQueue:
        """Open a queue to read results. Workers decide whether they are kept: this process may not know it."""
        queue = self.open_queue(name)
        if queue.options.done is not None:
            return queue
        return port.open_queue(self._app, name, dataclasses.replace(queue.options, done=Keep()))

    def open_topic(self, name: str, *, typed: bool = False) -> AsyncTopic:
        """Open a topic, existing or not, with the options of the handler of any of its groups."""
        topic = self._app.topic(name)
        found = next((each.topic for each in port.registered_groups(self._app) if each.topic.name == name), topic)
        options = found.options if typed else dataclasses.replace(found.options, type=None)
        return port.open_topic(self._app, name, options)

    def open_group(self, topic: str, name: str, *, typed: bool = False) -> AsyncGroup:
        """Open a group, existing or not, with the start position and the header filter of its handler."""
        opened = self.open_topic(topic, typed=typed)
        group = opened.group(name)
        found = next((each for each in port.registered_groups(self._app) if each.label == group.label), None)
        return group if found is None else opened.group(name, start=found.start, headers=found.headers)

    def open_inbox(self, path: Mapping[str, str], *, typed: bool = False) -> Inbox:
        """Open the queue or group that the path names, existing or not."""
        if "group" in path:
            return self.open_group(path["topic"], path["group"], typed=typed)
        return self.open_queue(path["queue"], typed=typed)

    def open_label(self, label: str) -> Inbox:
        """Open a queue or group by its label. The label of a group has a slash: events/archive."""
        topic, slash, group = label.partition("/")
        return self.open_group(topic, group) if slash else self.open_queue(label)


def _has_counts(stats: Any) -> bool:
    """Return whether any counter is not zero."""
    values = (getattr(stats, each.name) for each in dataclasses.fields(stats))
    return any(value for value in values if not isinstance(value, Histogram))
