"""Beats for the worker, tidies its queues and topics, and looks at the server, all in the background.

Before the first claim, it has the groups made that the app has handlers for.
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

_BEAT_EVERY: Final = 5.0
_FORGET_AFTER: Final = 60.0
"""Seconds after which a worker that is not heard of any more is forgotten."""

_LOOK_EVERY: Final = 60.0
"""Seconds between looks whether the server may evict keys: somebody may have switched that on."""

_TIDY_EVERY: Final = 60.0
_TIDY_STEPS: Final = 20
"""Steps for one queue or topic at a time: the rest is for the next time."""


class Janitor:
    """One task for all queues of a worker."""

    def __init__(
        self, runtimes: Sequence[QueueRuntime], groups: Sequence[AsyncGroup], namespace: str, concurrency: int
    ) -> None:
        """Take what is served, and all groups that have handlers, served here or elsewhere."""
        self._runtimes = runtimes
        self._link: Any = runtimes[0].source.link
        self._keys = RegistryKeys(namespace)
        self._concurrency = concurrency
        self._started_at = datetime.now(UTC)
        self._speaking = asyncio.Lock()
        self._is_gone = False
        now = time.monotonic()
        self._chores = _chores(runtimes)
        self._unmade = {group.label: group for group in groups}
        self._look_at = now + _LOOK_EVERY
        self._make_at = now + _TIDY_EVERY
        """When to try again to make them."""
        self._tidy_at = {name: now + random.uniform(0, _TIDY_EVERY) for name in self._chores}  # noqa: S311

    async def run(self) -> None:
        """Work until cancelled. What fails is tried again the next time."""
        while True:
            try:
                await self._beat()
                await self._tidy_what_is_due()
                if self._look_at <= time.monotonic():
                    self._look_at = time.monotonic() + _LOOK_EVERY
                    await self._link.check_eviction()
                if self._unmade and self._make_at <= time.monotonic():
                    await self.make_groups()
            except Unavailable:  # the link has said so
                pass
            except DulyError as error:
                event(_LOG, logging.WARNING, "janitor.failed", error=str(error))
            await asyncio.sleep(_BEAT_EVERY)

    async def make_groups(self) -> None:
        """Make the groups that do not exist, however long the server is away. One that it refuses is tried again.

        Also those that others serve: where entries are freed when every group has acked them, a group that is made
        later than another has acked would never see them.
        """
        self._make_at = time.monotonic() + _TIDY_EVERY
        for label, group in list(self._unmade.items()):
            try:
                await self._link.run_on(topic_ops.seek(group._keys, group._start, makes=True))
            except DulyError as error:
                event(_LOG, logging.WARNING, "janitor.failed", queue=label, error=str(error))
            else:
                self._unmade.pop(label, None)

    async def depart(self) -> None:
        """Take the worker off the list. A beat that is under way comes before, and none after."""
        self._is_gone = True
        async with self._speaking:
            await self._link.run_now(ops.depart(self._keys, self._link.consumer))
            for runtime in self._runtimes:
                if isinstance(runtime.queue, AsyncGroup):
                    await self._link.run_now(topic_ops.leave_group(runtime.queue._keys, self._link.consumer))

    async def _beat(self) -> None:
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
        async with self._speaking:
            if not self._is_gone:
                await self._link.run_on(ops.beat(self._keys, self._link.consumer, written_info(info), _FORGET_AFTER))

    async def _tidy_what_is_due(self) -> None:
        for name, due in self._tidy_at.items():
            if due <= time.monotonic():
                self._tidy_at[name] = time.monotonic() + _TIDY_EVERY
                try:
                    await self._tidy(self._chores[name])
                except Unavailable:
                    raise
                except DulyError as error:  # the others are tidied nevertheless
                    event(_LOG, logging.WARNING, "janitor.failed", queue=name, error=str(error))

    async def _tidy(self, chore: Call[bool]) -> None:
        """Drop what expired and what is kept no longer, in bounded steps."""
        for _ in range(_TIDY_STEPS):
            if not await self._link.run_on(chore):
                break


def _chores(runtimes: Sequence[QueueRuntime]) -> dict[str, Call[bool]]:
    """Say what to do to tidy each queue and group, and each topic once, by name."""
    chores = {runtime.name: ops.tidy(runtime.source.keys, runtime.options) for runtime in runtimes}
    for runtime in runtimes:
        if isinstance(runtime.queue, AsyncGroup):
            topic = runtime.queue.topic
            chores[f"{topic.name}/"] = topic_ops.tidy(topic._keys, topic.options.keep)
    return chores


def _version() -> str:
    try:
        return metadata.version("duly")
    except metadata.PackageNotFoundError:  # run from a source tree
        return ""
