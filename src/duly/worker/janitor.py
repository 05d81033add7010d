"""Sends the heartbeats of a worker, tidies its queues and topics, and checks the server, all in the background.

Before the first claim, it creates the groups that the app has handlers for.
"""

import asyncio
import logging
import os
import random
import socket
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, Final

from duly._async.group import AsyncGroup
from duly._core import ops, topic_ops
from duly._core.call import Call
from duly._core.keys import RegistryKeys
from duly._core.registry import Info, written_info
from duly.errors import DulyError, Unavailable
from duly.worker.logs import event
from duly.worker.queue_runtime import QueueRuntime

_LOG: Final = logging.getLogger("duly.worker")

_HEARTBEAT_EVERY: Final = 5.0
_FORGET_AFTER: Final = 60.0
"""Seconds after its last heartbeat until a worker is removed from the registry."""

_CHECK_EVERY: Final = 60.0
"""Seconds between two checks whether the server may evict keys: its configuration can change."""

_TIDY_EVERY: Final = 60.0
_TIDY_STEPS: Final = 20
"""Steps per queue or topic and round. The next round continues."""


class Janitor:
    """One task for all queues of a worker."""

    def __init__(
        self, runtimes: Sequence[QueueRuntime], groups: Sequence[AsyncGroup], namespace: str, concurrency: int
    ) -> None:
        """Take the queues of this worker, and all groups that have handlers, even if other workers serve them."""
        self._runtimes = runtimes
        self._link: Any = runtimes[0].source.link
        self._keys = RegistryKeys(namespace)
        self._concurrency = concurrency
        self._started_at = datetime.now(UTC)
        self._registry_lock = asyncio.Lock()
        self._has_departed = False
        now = time.monotonic()
        self._tidy_calls = _tidy_calls(runtimes)
        self._missing_groups = {group.label: group for group in groups}
        self._check_server_at = now + _CHECK_EVERY
        self._create_groups_at = now + _TIDY_EVERY
        """When to try again to create the missing groups."""
        self._tidy_at = {name: now + random.uniform(0, _TIDY_EVERY) for name in self._tidy_calls}  # noqa: S311

    async def run(self) -> None:
        """Work until cancelled. A step that fails is retried in the next round."""
        while True:
            try:
                await self._send_heartbeat()
                await self._tidy_due()
                if self._check_server_at <= time.monotonic():
                    self._check_server_at = time.monotonic() + _CHECK_EVERY
                    await self._link.check_eviction()
                if self._missing_groups and self._create_groups_at <= time.monotonic():
                    await self.create_groups()
            except Unavailable:  # the link has logged it
                pass
            except DulyError as error:
                event(_LOG, logging.WARNING, "janitor.failed", error=str(error))
            await asyncio.sleep(_HEARTBEAT_EVERY)

    async def create_groups(self) -> None:
        """Create the groups that do not exist, and wait as long as the server is unavailable. Retry refused ones later.

        This includes groups that other workers serve. Entries may be freed as soon as every group has acked them, and
        a group that is created after that would never receive them.
        """
        self._create_groups_at = time.monotonic() + _TIDY_EVERY
        for label, group in list(self._missing_groups.items()):
            try:
                await self._link.run_on(topic_ops.seek(group._keys, group._start, makes=True))
            except DulyError as error:
                event(_LOG, logging.WARNING, "janitor.failed", queue=label, error=str(error))
            else:
                self._missing_groups.pop(label, None)

    async def depart(self) -> None:
        """Remove the worker from the registry. A pending heartbeat ends first, and no other follows."""
        self._has_departed = True
        async with self._registry_lock:
            await self._link.run_now(ops.depart(self._keys, self._link.consumer))
            for runtime in self._runtimes:
                if isinstance(runtime.queue, AsyncGroup):
                    await self._link.run_now(topic_ops.leave_group(runtime.queue._keys, self._link.consumer))

    async def _send_heartbeat(self) -> None:
        now = time.monotonic()
        info = Info(
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=tuple(runtime.name for runtime in self._runtimes),
            concurrency=self._concurrency,
            in_flight=sum(runtime.busy for runtime in self._runtimes),
            handled=sum(runtime.handled for runtime in self._runtimes),
            started_at=self._started_at,
            last_poll=now - max(runtime.source.polled_at for runtime in self._runtimes),
            version=_version(),
        )
        async with self._registry_lock:
            if not self._has_departed:
                await self._link.run_on(ops.beat(self._keys, self._link.consumer, written_info(info), _FORGET_AFTER))

    async def _tidy_due(self) -> None:
        for name, due in self._tidy_at.items():
            if due <= time.monotonic():
                self._tidy_at[name] = time.monotonic() + _TIDY_EVERY
                try:
                    await self._tidy(self._tidy_calls[name])
                except Unavailable:
                    raise
                except DulyError as error:  # the other queues are still tidied
                    event(_LOG, logging.WARNING, "janitor.failed", queue=name, error=str(error))

    async def _tidy(self, call: Call[bool]) -> None:
        """Remove expired messages and records, in bounded steps."""
        for _ in range(_TIDY_STEPS):
            if not await self._link.run_on(call):
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
