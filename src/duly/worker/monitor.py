"""A monitor: gives the messages of dead consumers back to their queues, without handlers.

`duly worker --only-recover` runs it. Any consumer does the same, so that a monitor is needed only while none is awake.
Several monitors at once do no harm. Each step is one call, and the server carries it out as a whole or not at all.
"""

import asyncio
import logging
import os
import random
import time
from collections.abc import AsyncIterator, Collection
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
from duly.worker.lanes import Lanes
from duly.worker.logs import event
from duly.worker.refusals import is_refusal
from duly.worker.vitals import QueueVitals, Vitals
from duly.worker.worker_apps import open_apps

_LOG: Final = logging.getLogger("duly.worker")

_PERIOD: Final = 5.0
"""Seconds from one round over all queues to the next."""
_SHARE: Final = 0.1
"""The largest share of the time that rounds may take: with very many queues, they are less frequent."""
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

    async def run(self) -> None:
        """Work until a signal or `stop` ends it. Raises ServerError if the server refuses its user from the start."""
        loop = asyncio.get_running_loop()
        self._async_app, sync_app = open_apps(self._app)
        self._link: Any = self._async_app._link
        self._lanes = Lanes(is_spread=bool(self._link.is_spread), on_end=lambda: None)
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
            self._lanes.cancel()
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
            self._lanes.raise_error()
            took = time.monotonic() - began
            await asyncio.sleep(max(self._period - took, took / _SHARE))

    async def _begin(self, keys: QueueKeys, chore: Any, name: str) -> None:
        """Carry out a chore. On a cluster, the node of the keys does it after its other chores, and this returns."""
        await self._lanes.run(self._link.node_of(keys), self._attempt, (chore, name))

    async def _attempt(self, chore_and_name: tuple[Any, str]) -> None:
        chore, name = chore_and_name
        try:
            await chore(name)
        except Unavailable:  # the link has logged it
            pass
        except DulyError as error:
            self._note_failure(name, error)
        else:
            self._recovered_at[name] = time.monotonic()

    def _note_failure(self, name: str | None, error: DulyError) -> None:
        """Log an error, and go on. An error of the first call ends the monitor if its user may not do that."""
        if not self._recovered_at and is_refusal(error):
            raise error
        about: dict[str, Any] = {} if name is None else {"queue": name}
        event(_LOG, logging.WARNING, "monitor.failed", **about, error=str(error))

    # Queues and groups

    async def _list(self) -> None:
        """Find the queues and groups to serve. Those on nodes that do not answer stay as they are."""
        try:
            names = self._names
            if names is None:
                survey = await survey_nodes(self._async_app)
                queues, topics = await survey.queues(), await survey.topics()
            else:
                queues = [name for name in names if "/" not in name]
                topics = list(dict.fromkeys(name.partition("/")[0] for name in names))
            found: dict[str, AsyncInbox[Any]] = {name: self._async_app.queue(name, **_KEEPS_ALL) for name in queues}
            for name in topics:
                found |= {group.label: group async for group in self._groups_of(name)}
        except Unavailable:  # the link has logged it
            return
        except ServerError as error:
            self._note_failure(None, error)
            return
        self._inboxes |= found
        now = time.monotonic()
        for name in [*self._inboxes, *(f"{name}/" for name in self._topics)]:
            self._tidy_at.setdefault(name, now + random.uniform(0, _TIDY_EVERY))  # noqa: S311

    async def _groups_of(self, name: str) -> AsyncIterator[AsyncGroup]:
        topic = self._async_app.topic(name, keep=Keep(), lease=MAX_DELAY, **_KEEPS_ALL)
        for group in await topic._group_names():
            self._topics[name] = topic
            if self._names is None or name in self._names or f"{name}/{group}" in self._names:
                yield topic.group(group)

    def _keys_of(self, name: str) -> QueueKeys:
        return self._topics[name[:-1]]._keys if name.endswith("/") else self._inboxes[name]._keys

    # Chores

    async def _recover(self, name: str) -> None:
        """Reclaim expired leases, in bounded steps. A claim with limit 0 leases nothing."""
        inbox = self._inboxes[name]
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
            if not await self._link.run_on(call):
                return

    def _tidy_call(self, name: str) -> Call[bool]:
        if name.endswith("/"):
            topic = self._topics[name[:-1]]
            return topic_ops.tidy(topic._keys, topic.options.keep)
        inbox = self._inboxes[name]
        return ops.tidy(inbox._keys, inbox.options)
