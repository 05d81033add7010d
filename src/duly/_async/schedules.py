"""Schedules: declared through the app, and fired by the consumers of their queue. There is no scheduler process."""

import contextlib
import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from duly._core import ops, schedules
from duly._core.keys import QueueKeys, ScheduleKeys
from duly.errors import CodecError, DulyError, ServerError
from duly.message import Schedule

_LOG: Final = logging.getLogger("duly")

_REMEMBERED: Final = 1000
_logged: Final[set[tuple[bytes, str, bytes]]] = set()
"""Schedules whose failure was logged. A schedule that cannot be fired is found again by every claim."""


async def fire_due(queue: Any, now: int, due: Sequence[tuple[str, bytes]]) -> bool:
    """Send the messages of schedules that a claim found due. True: a schedule has changed, so claim again.

    Any number of consumers may do this at once: the first one succeeds, and the others change nothing. A schedule that
    cannot be fired here is left to other consumers, and does not keep this one from its messages.
    """
    has_changed = False
    for name, row in due:
        try:
            has_changed = await queue._link.run_now(_firing(queue, name, row, now)) or has_changed
        except (DulyError, ValueError, OverflowError) as error:  # the last two: invalid stored times
            _log_once(queue._keys, name, row, error)
    return has_changed


def _firing(queue: Any, name: str, row: bytes, now: int) -> Any:
    stored = schedules.read_row(row)
    choice = schedules.choose(stored.plan.timetable, stored.plan.catch_up, stored.after, now)
    observer = queue._app._definitions.observer
    added_headers = None if observer is None else functools.partial(observer.creating, queue)
    messages = schedules.messages(name, stored.plan, choice.runs, queue._app._new_id, added_headers)
    return ops.fire(queue._keys, name, row, choice, messages)


def _log_once(keys: QueueKeys, name: str, row: bytes, error: Exception) -> None:
    what = (keys.prefix, name, schedules.head_of(row))
    if what in _logged:
        return
    if len(_logged) >= _REMEMBERED:
        _logged.clear()
    _logged.add(what)
    is_unavoidable = isinstance(error, DulyError) and not isinstance(error, CodecError)
    advice = "it is retried" if is_unavoidable else "it is left to consumers that can"
    _LOG.error("schedule %r of %s could not be fired here, %s: %s", name, keys.title, advice, error)


class AsyncSchedules:
    """The schedules of a namespace. Each is stored with its queue, and a registry maps its name to the queue.

    The registry is written first. An entry without a schedule is ignored, and removed after a while: its queue was
    deleted, or a process crashed between the two writes.
    """

    def __init__(self, link: Any, namespace: str) -> None:
        self._link = link
        self._namespace = namespace
        self._registry = ScheduleKeys(namespace)

    async def put(self, name: str, queue: QueueKeys, plan: schedules.Plan) -> bool:
        """Store a schedule, after removing one of the same name from another queue.

        False: it existed, or another client removed it or moved it to another queue at the same time. The last write to
        the registry wins.
        """
        replaced = await self._link.run(ops.register(self._registry, name, queue.name))
        if replaced is not None and replaced.queue != queue.name:
            await self._link.run(ops.unschedule(self._keys(replaced.queue), name))
        is_new: bool = await self._link.run(ops.schedule(queue, name, schedules.written_plan(plan)))
        _, known = await self._where(name)
        if known is not None and known.queue == queue.name:
            return is_new
        await self._link.run(ops.unschedule(queue, name))
        return False

    async def remove(self, name: str) -> bool:
        """Remove a schedule. False: there is none."""
        entry, known = await self._where(name)
        was_there = await self._remove_from(known, name)
        # A client that declared it in the meantime finds no entry, or stored it before this second removal.
        if entry is not None and await self._link.run(ops.unregister(self._registry, name, entry)):
            was_there = await self._remove_from(known, name) or was_there
        return was_there

    async def _remove_from(self, known: schedules.Entry | None, name: str) -> bool:
        return known is not None and bool(await self._link.run(ops.unschedule(self._keys(known.queue), name)))

    async def pause(self, name: str) -> bool:
        """Pause a schedule. False: there is none."""
        _, known = await self._where(name)
        return known is not None and await self._link.run(ops.pause_schedule(self._keys(known.queue), name))

    async def resume(self, name: str) -> bool:
        """Resume a schedule. False: there is none."""
        _, known = await self._where(name)
        return known is not None and await self._link.run(ops.resume_schedule(self._keys(known.queue), name))

    async def read(self, name: str) -> tuple[str, int, schedules.Plan] | None:
        """Return the queue of a schedule, the server's time, and its plan. None: there is none."""
        _, known = await self._where(name)
        if known is None:
            return None
        page = await self._link.run(ops.schedules(self._keys(known.queue), name=name))
        row = page.rows.get(name)
        return None if row is None else (known.queue, page.now, schedules.read_row(row).plan)

    async def all(self, may_read: Callable[[QueueKeys], bool] = lambda _: True) -> list[Schedule]:
        """Return all schedules, sorted by name, without those of queues that `may_read` leaves out."""
        now, entries = await self._pages(self._registry)
        names: dict[str, list[str]] = {}
        for name, entry in entries.items():
            if (known := schedules.read_entry(entry)) is not None:
                names.setdefault(known.queue, []).append(name)
        found: list[Schedule] = []
        for queue, expected in names.items():
            if not may_read(self._keys(queue)):
                continue
            queue_now, rows = await self._pages(self._keys(queue))
            there = [name for name in expected if name in rows]
            views = [schedules.view(queue, name, rows[name], queue_now) for name in there]
            found += [each for each in views if each is not None]
            await self._forget({name: entries[name] for name in expected if name not in rows}, now)
        return sorted(found, key=lambda each: each.name)

    async def _forget(self, abandoned: dict[str, bytes], now: int) -> None:
        for name, entry in abandoned.items():
            known = schedules.read_entry(entry)
            if known is not None and now - known.noted_at > schedules.ABANDONED:
                with contextlib.suppress(ServerError):  # a client with read permissions only cannot remove it
                    await self._link.run(ops.unregister(self._registry, name, entry))

    async def _where(self, name: str) -> tuple[bytes | None, schedules.Entry | None]:
        """Return the registry entry of a schedule, raw and decoded."""
        page = await self._link.run(ops.schedules(self._registry, name=name))
        entry = page.rows.get(name)
        return entry, None if entry is None else schedules.read_entry(entry)

    async def _pages(self, keys: QueueKeys) -> tuple[int, dict[str, bytes]]:
        cursor, rows = "0", dict[str, bytes]()
        while True:
            page = await self._link.run(ops.schedules(keys, cursor=cursor))
            rows.update(page.rows)
            cursor = page.cursor
            if cursor == "0":
                return page.now, rows

    def _keys(self, queue: str) -> QueueKeys:
        return QueueKeys(self._namespace, queue)
