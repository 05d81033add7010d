"""Schedules: declared through the app, fired by whoever consumes the queue that they feed. There is no scheduler."""

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from duly._core import ops, schedules
from duly._core.keys import QueueKeys, ScheduleKeys
from duly.errors import CodecError, DulyError, ServerError
from duly.message import Schedule

_LOG: Final = logging.getLogger("duly")

_REMEMBERED: Final = 1000
_said: Final[set[tuple[bytes, str, bytes]]] = set()
"""What was logged of schedules: those that cannot be fired are met again with every claim."""


async def fire_due(
    link: Any, keys: QueueKeys, now: int, due: Sequence[tuple[str, bytes]], new_id: Callable[[], str]
) -> bool:
    """Send for the slots that a claim found to have come. True: something was sent or planned, so look again.

    Safe to do by any number of consumers at once: the first one wins, and the others change nothing. One that
    cannot be fired here is left to others; it never keeps a consumer from its messages.
    """
    has_changed = False
    for name, row in due:
        try:
            has_changed = await link.run_now(_firing(keys, name, row, now, new_id)) or has_changed
        except (DulyError, ValueError, OverflowError) as error:  # these two: of times that nobody stores
            _say_once(keys, name, row, error)
    return has_changed


def _firing(keys: QueueKeys, name: str, row: bytes, now: int, new_id: Callable[[], str]) -> Any:
    stored = schedules.read_row(row)
    choice = schedules.choose(stored.plan.slots, stored.plan.catch_up, stored.after, now)
    return ops.fire(keys, name, row, choice, schedules.messages(name, stored.plan, choice.slots, new_id))


def _say_once(keys: QueueKeys, name: str, row: bytes, error: Exception) -> None:
    what = (keys.prefix, name, schedules.head_of(row))
    if what in _said:
        return
    if len(_said) >= _REMEMBERED:
        _said.clear()
    _said.add(what)
    is_unavoidable = isinstance(error, DulyError) and not isinstance(error, CodecError)
    advice = "it is tried again" if is_unavoidable else "it is left to consumers that can"
    _LOG.error("schedule %r of %s could not be fired here, %s: %s", name, keys.title, advice, error)


class AsyncSchedules:
    """The schedules of a namespace: each with the queue that it feeds, and a registry that says where it is.

    The registry is written first. What it knows and nobody has is left out, and forgotten after a while: the
    queue was deleted, or a process died in between.
    """

    def __init__(self, link: Any, namespace: str) -> None:
        self._link = link
        self._namespace = namespace
        self._registry = ScheduleKeys(namespace)

    async def put(self, name: str, queue: QueueKeys, plan: schedules.Plan) -> bool:
        """Store a schedule. False: it was there, or is gone again. One of the same name on another queue ends first.

        It is gone when somebody else has removed it, or declared it for another queue, at the same time: what the
        registry says last is what holds.
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
        """Remove a schedule. False: it is not there."""
        entry, known = await self._where(name)
        was_there = await self._remove_from(known, name)
        # Whoever has declared it meanwhile finds no entry any more, or was early enough for a second look.
        if entry is not None and await self._link.run(ops.unregister(self._registry, name, entry)):
            was_there = await self._remove_from(known, name) or was_there
        return was_there

    async def _remove_from(self, known: schedules.Entry | None, name: str) -> bool:
        return known is not None and bool(await self._link.run(ops.unschedule(self._keys(known.queue), name)))

    async def pause(self, name: str) -> bool:
        """Pause a schedule. False: it is not there."""
        _, known = await self._where(name)
        return known is not None and await self._link.run(ops.pause_schedule(self._keys(known.queue), name))

    async def resume(self, name: str) -> bool:
        """Let a schedule go on. False: it is not there."""
        _, known = await self._where(name)
        return known is not None and await self._link.run(ops.resume_schedule(self._keys(known.queue), name))

    async def all(self) -> list[Schedule]:
        """Look at all schedules, by name."""
        now, entries = await self._pages(self._registry)
        names: dict[str, list[str]] = {}
        for name, entry in entries.items():
            if (known := schedules.read_entry(entry)) is not None:
                names.setdefault(known.queue, []).append(name)
        found: list[Schedule] = []
        for queue, expected in names.items():
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
                with contextlib.suppress(ServerError):  # who may only look leaves it to others
                    await self._link.run(ops.unregister(self._registry, name, entry))

    async def _where(self, name: str) -> tuple[bytes | None, schedules.Entry | None]:
        """Ask the registry where a schedule is."""
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
