"""A monitor: gives the messages of dead consumers back to their queues, without handlers.

`duly worker --only-recover` runs it. Any consumer does the same, so that a monitor is needed only while none is awake.
Several monitors at once do no harm. Each step is one call, and the server carries it out as a whole or not at all.
"""

import asyncio
import logging
import os
import random
import time
from collections.abc import Collection, Sequence
from typing import Any, Final

from duly._async.app import AsyncDuly
from duly._async.group import AsyncGroup
from duly._async.inbox import AsyncInbox
from duly._async.schedules import fire_due
from duly._async.survey import survey_nodes
from duly._async.topic import AsyncTopic
from duly._core import ops, topic_ops
from duly._core.bounds import RECLAIMED_PER_CALL
from duly._core.call import Call
from duly._core.keys import QueueKeys
from duly._reclaim_log import log_reclaimed
from duly._sync.app import Duly
from duly.errors import DulyError, ServerError, Unavailable
from duly.options import MAX_COUNT, MAX_DELAY, Keep
from duly.worker import signals
from duly.worker.logs import event
from duly.worker.node_work import NodeWork
from duly.worker.refusals import is_refusal
from duly.worker.vitals import QueueVitals, Vitals
from duly.worker.worker_apps import open_apps

_LOG: Final = logging.getLogger("duly.worker")

_PERIOD: Final = 5.0
"""Seconds from one round over all queues to the next."""
_REST: Final = 0.005
"""Seconds per queue from one round to the next: with more than a thousand queues, rounds are less frequent."""
_LIST_EVERY: Final = 60.0
"""Seconds between two searches for new queues: a search scans the names of all keys."""
_TIDY_EVERY: Final = 60.0
_STEPS: Final = 100
"""Calls per queue and round. The next round continues."""

_KEEPS_ALL: Final[dict[str, Any]] = {"crash_limit": MAX_COUNT, "dead": Keep()}
"""Options are not stored, so a monitor does not know them. It makes no message dead, and removes no dead letter."""


class Monitor:
    """Reclaims expired leases of queues and groups, fires their schedules, and tidies them, until it is stopped."""

    def __init__(self, app: Duly | AsyncDuly, names: Collection[str] | None = None, *, period: float = _PERIOD) -> None:
        """Take names like "orders", "events/archive", or "events" for all groups of a topic. None: all there are."""
        self._app = app
        self._names = names
        self._period = period
        self._is_stopping = asyncio.Event()
        self._inboxes: dict[str, AsyncInbox[Any]] = {}
        self._topics: dict[str, AsyncTopic[Any]] = {}
        self._tidy_at: dict[str, float] = {}
        self._recovered_at: dict[str, float] = {}
        """When the last call for each queue or group succeeded, by the monotonic clock."""
        self._has_listed = False
        self._has_recovered = False

    async def run(self) -> None:
        """Work until a signal or `stop` ends it. Raises ServerError if the server refuses its user from the start."""
        loop = asyncio.get_running_loop()
        self._async_app, sync_app = open_apps(self._app)
        self._link: Any = self._async_app._link
        self._node_work = NodeWork(is_spread=bool(self._link.is_spread), on_end=lambda: None)
        work = loop.create_task(self._work())
        stop = loop.create_task(self._is_stopping.wait())
        try:
            with signals.handled(lambda _: self.stop()):
                await asyncio.wait([work, stop], return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            work.cancel()
            stop.cancel()
            self._node_work.cancel()
            await asyncio.wait([work, stop])
            await self._async_app.aclose()
            sync_app.close()
            event(_LOG, logging.INFO, "monitor.stopped")

    def stop(self) -> None:
        """End it. A call that is in progress may be cut off: it changes nothing, or is complete on the server."""
        self._is_stopping.set()

    def vitals(self) -> Vitals:
        """Return the state of this monitor, for probes. Any thread may call this."""
        now = time.monotonic()
        queues = tuple(QueueVitals(name, 0, 0, round(now - at, 3)) for name, at in sorted(self._recovered_at.items()))
        return Vitals(os.getpid(), self._trouble(), queues=queues)

    def _trouble(self) -> str | None:
        if self._is_stopping.is_set():
            return "the monitor is stopping"
        if not self._has_listed:
            return "the monitor is starting"
        inboxes = list(self._inboxes.values())
        if inboxes and all(self._link.is_down_at(inbox._keys) for inbox in inboxes):
            return f"{self._app._address.shown} does not answer"
        return None

    async def _work(self) -> None:
        event(_LOG, logging.INFO, "monitor.started", queues=self._names or "all", pid=os.getpid())
        list_at = 0.0
        while True:
            began = time.monotonic()
            if began >= list_at:
                await self._list()
                list_at = began + (_LIST_EVERY if self._inboxes else self._period)
            for name, inbox in self._inboxes.items():
                await self._begin(inbox._keys, self._recover, name)
            for name in [name for name, due in self._tidy_at.items() if due <= began]:
                self._tidy_at[name] = began + _TIDY_EVERY
                await self._begin(self._keys_of(name), self._tidy, name)
            self._node_work.raise_error()
            await asyncio.sleep(max(self._period, len(self._inboxes) * _REST))

    async def _begin(self, keys: QueueKeys, chore: Any, name: str) -> None:
        """Carry out a chore. On a cluster, the node of the keys does it after its other chores, and this returns."""
        await self._node_work.run(self._link.node_of(keys), self._attempt, (chore, name))

    async def _attempt(self, chore_and_name: tuple[Any, str]) -> None:
        chore, name = chore_and_name
        try:
            await chore(name)
        except Unavailable:  # the link has logged it
            pass
        except DulyError as error:
            self._note_failure(name, error)
        else:
            self._has_recovered = True
            if name in self._inboxes:
                self._recovered_at[name] = time.monotonic()

    def _note_failure(self, name: str | None, error: DulyError) -> None:
        """Log an error, and go on. An error of the first call ends the monitor if its user may not do that."""
        if not self._has_recovered and is_refusal(error):
            raise error
        about: dict[str, Any] = {} if name is None else {"queue": name}
        event(_LOG, logging.WARNING, "monitor.failed", **about, error=str(error))

    # Queues and groups

    async def _list(self) -> None:
        """Find the queues and groups to serve. Those on nodes that do not answer stay as they are."""
        try:
            queues, topics, is_complete = await self._named_or_all()
            found: dict[str, AsyncInbox[Any]] = {name: self._async_app.queue(name, **_KEEPS_ALL) for name in queues}
            for name in topics:
                found |= {group.label: group for group in await self._groups_of(name)}
        except Unavailable:  # the link has logged it
            return
        except ServerError as error:
            self._note_failure(None, error)
            return
        self._inboxes = found if is_complete else self._inboxes | found
        self._topics = {name: topic for name, topic in self._topics.items() if not is_complete or name in topics}
        self._recovered_at = {name: at for name, at in self._recovered_at.items() if name in self._inboxes}
        now, tidied = time.monotonic(), [*self._inboxes, *(f"{name}/" for name in self._topics)]
        self._tidy_at = {
            name: self._tidy_at.get(name, now + random.uniform(0, _TIDY_EVERY))  # noqa: S311
            for name in tidied
        }
        self._has_listed = True

    async def _named_or_all(self) -> tuple[Sequence[str], Sequence[str], bool]:
        """Return the names of queues and of topics, and whether every node has answered."""
        if self._names is not None:
            queues = [name for name in self._names if "/" not in name]
            return queues, list(dict.fromkeys(name.partition("/")[0] for name in self._names)), True
        survey = await survey_nodes(self._async_app)
        queues, topics = await survey.queues(), await survey.topics()
        return queues, topics, not survey.away

    async def _groups_of(self, name: str) -> list[AsyncGroup]:
        """Return the groups of a topic to serve: those that are named, or all."""
        topic = self._async_app.topic(name, keep=Keep(), lease=MAX_DELAY, **_KEEPS_ALL)
        names = [each.partition("/")[2] for each in self._names or () if each.startswith(f"{name}/")]
        if self._names is None or name in self._names:
            names = list(dict.fromkeys([*names, *await self._group_names(topic)]))
        if names:
            self._topics[name] = topic
        return [topic.group(each) for each in names]

    async def _group_names(self, topic: AsyncTopic[Any]) -> list[str]:
        try:
            return await topic._group_names()
        except ServerError as error:
            if self._names is None or not is_refusal(error):
                raise
            return []  # the role of consumers may not list groups, and the name may be that of a queue

    def _keys_of(self, name: str) -> QueueKeys:
        return self._topics[name[:-1]]._keys if name.endswith("/") else self._inboxes[name]._keys

    # Chores

    async def _recover(self, name: str) -> None:
        """Reclaim expired leases, in bounded steps. A claim with limit 0 leases nothing."""
        inbox = self._inboxes.get(name)
        if inbox is None:  # it was deleted while this waited for its node
            return
        for _ in range(_STEPS):
            claimed = await self._link.run_claim(inbox._claim(limit=0, lease=inbox._lease, then="leave"))
            log_reclaimed(name, claimed.reclaimed)
            if claimed.schedules:
                await fire_due(inbox, claimed.now, claimed.schedules)
            if len(claimed.reclaimed) < RECLAIMED_PER_CALL:
                return

    async def _tidy(self, name: str) -> None:
        """Remove expired messages and records, in bounded steps."""
        call = self._tidy_call(name)
        for _ in range(_STEPS):
            if call is None or not await self._link.run_on(call):
                return

    def _tidy_call(self, name: str) -> Call[bool] | None:
        topic, inbox = self._topics.get(name.removesuffix("/")), self._inboxes.get(name)
        if name.endswith("/"):
            return None if topic is None else topic_ops.tidy(topic._keys, topic.options.keep)
        return None if inbox is None else ops.tidy(inbox._keys, inbox.options)
