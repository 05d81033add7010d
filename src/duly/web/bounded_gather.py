"""Runs a coroutine function on many items with bounded concurrency."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

_CONCURRENCY: Final = 10
"""Calls to the server at the same time, for one page."""

A = TypeVar("A")
B = TypeVar("B")


async def bounded_gather(items: Iterable[A], function: Callable[[A], Awaitable[B]]) -> list[B]:
    """Call the function with each item, a few at a time, and return the results in order.

    After the first error no further call starts. The error is raised when all running calls have ended, so nothing
    continues in the background.
    """
    pending = enumerate(items)
    results: dict[int, B] = {}
    errors: list[Exception] = []

    async def work() -> None:
        for position, item in pending:
            try:
                results[position] = await function(item)
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)
            if errors:
                return

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_CONCURRENCY):
            tasks.create_task(work())
    if errors:
        raise errors[0]
    return [results[position] for position in sorted(results)]
