"""How long a page waits for the server: somebody sits before it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final

from starlette.responses import Response

from duly.web.problems import Refused

PATIENCE: Final = 5.0

_under_way: set[asyncio.Future[Any]] = set()


async def within_patience(looking: Awaitable[Response], seconds: float = PATIENCE) -> Response:
    """Wait for a page, but not for long. A look that takes longer goes on: whoever asks next is given what it finds.

    Were it given up, a server with very many keys would never be seen.
    """
    task = asyncio.ensure_future(looking)
    _under_way.add(task)  # the event loop itself would forget it
    task.add_done_callback(_ended)
    try:
        async with asyncio.timeout(seconds):
            return await asyncio.shield(task)
    except TimeoutError:
        raise Refused(
            503, f"the server was looked at for {seconds:g} s, and has not answered: it hangs, or has much to do"
        ) from None


def _ended(task: asyncio.Future[Any]) -> None:
    _under_way.discard(task)
    if not task.cancelled():
        task.exception()  # what went wrong behind the back of who has left is nobody's concern
