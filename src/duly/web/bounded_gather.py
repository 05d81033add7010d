"""The same done with each of several things, a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

_AT_ONCE: Final = 10
"""Calls to the server at the same time, for one page."""

A = TypeVar("A")
B = TypeVar("B")


async def each_of(given: Iterable[A], do: Callable[[A], Awaitable[B]]) -> list[B]:
    """Do the same with each, a few at a time, and give what came of it in order.

    After the first error nothing is begun any more, and it is raised when all that was under way has ended: nothing
    goes on behind the back of whoever is told of it.
    """
    rest = enumerate(given)
    found: dict[int, B] = {}
    errors: list[Exception] = []

    async def take_turns() -> None:
        for at, part in rest:
            try:
                found[at] = await do(part)
            except Exception as error:  # noqa: BLE001 - it is raised below
                errors.append(error)
            if errors:
                return

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_AT_ONCE):
            tasks.create_task(take_turns())
    if errors:
        raise errors[0]
    return [found[at] for at in sorted(found)]
