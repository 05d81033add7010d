"""The same done with each of several things, a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

_CONCURRENCY: Final = 10
"""Calls to the server at the same time, for one page."""

A = TypeVar("A")
B = TypeVar("B")


async def bounded_gather(items: Iterable[A], function: Callable[[A], Awaitable[B]]) -> list[B]:
    """Do the same with each, a few at a time, and give what came of it in order.

    After the first error nothing is begun any more, and it is raised when all that was under way has ended: nothing
    goes on behind the back of whoever is told of it.
    """
    pending = enumerate(items)
    results: dict[int, B] = {}
    errors: list[Exception] = []

    async def work() -> None:
        for position, item in pending:
            try:
                results[position] = await function(item)
            except Exception as error:  # noqa: BLE001 - it is raised below
                errors.append(error)
            if errors:
                return

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_CONCURRENCY):
            tasks.create_task(work())
    if errors:
        raise errors[0]
    return [results[position] for position in sorted(results)]
