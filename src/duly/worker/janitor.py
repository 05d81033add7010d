"""Sends the heartbeats of a worker, tidies its queues and topics, and checks the server, all in the background.

Before the first claim, it creates the groups that the app has handlers for. On a cluster, the chores of one node wait
only for each other.
"""

import asyncio
import contextlib
import logging
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, Final

from duly._async.group import AsyncGroup
from duly._core import ops, topic_ops
from duly._core.call import Call
from duly._core.keys import GroupKeys, QueueKeys, RegistryKeys
from duly._core.published import published
from duly._core.registry import Info, written_info
from duly.errors import DulyError, Unavailable
from duly.worker.logs import event
from duly.worker.node_work import NodeWork
from duly.worker.queue_runtime import QueueRuntime
from duly.worker.source import Source

_LOG: Final = logging.getLogger("duly.worker")

_HEARTBEAT_EVERY: Final = 5.0
_FORGET_AFTER: Final = 60.0
"""Seconds after its last heartbeat until a worker is removed from the registry."""

_CHECK_EVERY: Final = 60.0
"""Seconds between two checks whether the server may evict keys: its configuration can change."""

_REPORT_EVERY: Final = 15.0
"""Seconds between two reports of the times of a queue to its history."""

_TIDY_EVERY: Final = 60.0
"""Seconds between two tidies of a queue or topic."""
_TIDIES_PER_SECOND: Final = 20
"""Queues and topics that are tidied per second, at the most. Of more than 1,200, each is tidied less often."""
_TIDIES_PER_ROUND: Final = int(_TIDIES_PER_SECOND * _HEARTBEAT_EVERY)
"""A round that is late makes no more, since the next heartbeat waits for its end."""
_TIDY_STEPS: Final = 20
"""Steps per queue or topic and round. The next round continues."""


Chore = Callable[..., Awaitable[None]]


class Janitor:
    """One task for all queues of a worker, and on a cluster one for each node that has something to do."""

    def __init__(
        self, runtimes: Sequence[QueueRuntime], groups: Sequence[AsyncGroup], namespace: str, concurrency: int
    ) -> None:
        """Take the queues of this worker, and all groups that have handlers, even if other workers serve them."""
        self._runtimes = runtimes
        self._by_name = {runtime.name: runtime for runtime in runtimes}
        self._names = tuple(self._by_name)
        self._link: Any = runtimes[0].source.link
        self._node_work = self._new_node_work()
        self._keys = RegistryKeys(namespace)
        self._concurrency = concurrency
        self._started_at = datetime.now(UTC)
        self._options: Any = published({runtime.name: runtime.options for runtime in runtimes})
        self._registry_lock = asyncio.Lock()
        self._has_departed = False
        now = time.monotonic()
        self._tidy_calls = _tidy_calls(runtimes)
        self._missing_groups = {group.label: group for group in groups}
        self._report_at = now + _REPORT_EVERY
        self._check_server_at = now + _CHECK_EVERY
        self._create_groups_at = now if self._link.is_spread else now + _TIDY_EVERY
        """When to create the missing groups, or to try again."""
        self._tidy_every = max(_TIDY_EVERY, len(self._tidy_calls) / _TIDIES_PER_SECOND)
        self._tidy_at = {name: now + random.uniform(0, self._tidy_every) for name in self._tidy_calls}  # noqa: S311

    def _new_node_work(self) -> NodeWork:
        return NodeWork(is_spread=bool(self._link.is_spread), on_end=lambda: None)

    async def run(self) -> None:
        """Work until cancelled. A chore that fails is retried in the next round."""
        try:
            while True:
                self._node_work.raise_error()
                await self._begin_chores(time.monotonic())
                await asyncio.sleep(_HEARTBEAT_EVERY)
        except asyncio.CancelledError:
            self._node_work.cancel()
            raise

    async def _begin_chores(self, now: float) -> None:
        """Begin the chores that are due. On one server, this returns when they have ended."""
        await self._begin(self._keys, self._send_heartbeat)
        if self._report_at <= now:
            self._report_at = now + _REPORT_EVERY
            for runtime in [each for each in self._runtimes if each.times.has_any]:
                await self._begin(runtime.source.keys, self._report_times, runtime.name)
        due = sorted((at, name) for name, at in self._tidy_at.items() if at <= now)
        for _, name in due[:_TIDIES_PER_ROUND]:  # after an outage, all are due
            self._tidy_at[name] = now + self._tidy_every
            await self._begin(self._tidy_calls[name].keys, self._tidy, name)
        if self._check_server_at <= now:
            self._check_server_at = now + _CHECK_EVERY
            await self._node_work.run("every node", self._attempt, (self._link.check_eviction, ()))
        if self._missing_groups and self._create_groups_at <= now:
            self._create_groups_at = now + _TIDY_EVERY
            for label, group in list(self._missing_groups.items()):
                await self._begin(group._keys, self._create_group, label)

    async def _begin(self, keys: QueueKeys, chore: Chore, *names: str) -> None:
        """Carry out a chore. On a cluster, the node of the keys does it after its other chores, and this returns."""
        await self._node_work.run(self._link.node_of(keys), self._attempt, (chore, names))

    async def _attempt(self, chore_and_names: tuple[Chore, Sequence[str]]) -> None:
        chore, names = chore_and_names
        try:
            await chore(*names)
        except Unavailable:  # the link has logged it
            pass
        except DulyError as error:  # the other chores are still done
            about: dict[str, Any] = {"queue": names[0]} if names else {}
            event(_LOG, logging.WARNING, "janitor.failed", **about, error=str(error))

    async def create_groups(self) -> None:
        """Create the groups that do not exist, and wait as long as the server is unavailable. Retry refused ones later.

        This includes groups that other workers serve. Entries may be freed as soon as every group has acked them, and
        a group that is created after that would never receive them.
        """
        self._create_groups_at = time.monotonic() + _TIDY_EVERY
        for label in list(self._missing_groups):
            await self._create_group(label)

    async def create_groups_beside(self, source: Source) -> None:
        """Like `create_groups`, for the groups of one topic: that of a group which is about to be claimed from."""
        if isinstance(source.keys, GroupKeys):
            topic = source.keys.topic.prefix
            for label in [label for label, group in self._missing_groups.items() if group._keys.topic.prefix == topic]:
                await self._create_group(label)

    async def _create_group(self, label: str) -> None:
        group = self._missing_groups.get(label)
        if group is None:
            return
        try:
            await self._link.run_on(topic_ops.seek(group._keys, group._start, makes=True))
        except DulyError as error:
            event(_LOG, logging.WARNING, "janitor.failed", queue=label, error=str(error))
        else:
            self._missing_groups.pop(label, None)

    async def depart(self) -> None:
        """Remove the worker from the registry. A pending heartbeat ends first, and no other follows."""
        self._has_departed = True
        node_work = self._new_node_work()
        await node_work.run(self._link.node_of(self._keys), self._leave_registry, self._keys)
        for runtime in self._runtimes:
            if runtime.times.has_any:
                await node_work.run(runtime.source.node, self._report_last_times, runtime)
            if isinstance(runtime.queue, AsyncGroup):
                await node_work.run(runtime.source.node, self._leave_group, runtime.queue)
        await node_work.join()

    async def _leave_registry(self, keys: RegistryKeys) -> None:
        async with self._registry_lock:
            await self._link.run_now(ops.depart(keys, self._link.consumer))

    async def _report_last_times(self, runtime: QueueRuntime) -> None:
        with contextlib.suppress(DulyError):
            await self._link.run_now(self._times_call(runtime))

    async def _leave_group(self, group: AsyncGroup) -> None:
        await self._link.run_now(topic_ops.leave_group(group._keys, self._link.consumer))

    async def _send_heartbeat(self) -> None:
        now = time.monotonic()
        info = Info(
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=self._names,
            concurrency=self._concurrency,
            in_flight=sum(runtime.busy for runtime in self._runtimes),
            handled=sum(runtime.handled for runtime in self._runtimes),
            started_at=self._started_at,
            last_poll=now - max(runtime.source.polled_at for runtime in self._runtimes),
            version=_version(),
            rolled_back=self._link.rolled_back,
            options=self._options,
        )
        async with self._registry_lock:
            if not self._has_departed:
                await self._link.run_on(ops.beat(self._keys, self._link.consumer, written_info(info), _FORGET_AFTER))

    async def _report_times(self, name: str) -> None:
        """Add the times of a queue to its history. They are lost if the call fails: a repeat could count them twice."""
        await self._link.run_on(self._times_call(self._by_name[name]))

    def _times_call(self, runtime: QueueRuntime) -> Call[bool]:
        return ops.measure(runtime.source.keys, *runtime.times.take())

    async def _tidy(self, name: str) -> None:
        """Remove expired messages and records, in bounded steps."""
        for _ in range(_TIDY_STEPS):
            if not await self._link.run_on(self._tidy_calls[name]):
                break


def _tidy_calls(runtimes: Sequence[QueueRuntime]) -> dict[str, Call[bool]]:
    """Return the calls that tidy each queue and group, and each topic once, by name."""
    calls = {runtime.name: ops.tidy(runtime.source.keys, runtime.options) for runtime in runtimes}
    for runtime in runtimes:
        if isinstance(runtime.queue, AsyncGroup):
            topic = runtime.queue.topic
            calls[f"{topic.name}/"] = topic_ops.tidy(topic._keys, topic.options.keep)
    return calls


def _version() -> str:
    try:
        return metadata.version("duly")
    except metadata.PackageNotFoundError:  # run from a source tree
        return ""
