"""Concurrent sends of one queue become one script call.

While a call is on its way, further sends collect; when it is answered, all that collected goes as the
next one. Alone, a send goes at once. The twin of this file is written by hand too.
"""

import asyncio

from duly._async.link import AsyncLink
from duly._async.wire import in_background
from duly._core import ops
from duly._core.keys import QueueKeys
from duly._core.outgoing import Outgoing, batches
from duly.options import QueueOptions


class AsyncOutbox:
    """The sends of one queue that wait for their call."""

    def __init__(self, link: AsyncLink, keys: QueueKeys, options: QueueOptions) -> None:
        self._link = link
        self._keys = keys
        self._options = options
        self._on_refusal: ops.OnRefusal = "drop" if options.on_full == "drop_oldest" else "each"
        self._collected: list[tuple[Outgoing, asyncio.Future[str | None]]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_busy = False

    async def send(self, message: Outgoing) -> str | None:
        """Store a message and return its id; None: there was no room."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._collected, self._is_busy = loop, [], False
        answer: asyncio.Future[str | None] = loop.create_future()
        self._collected.append((message, answer))
        if not self._is_busy:
            self._is_busy = True
            in_background(self._empty())
        return await answer

    async def _empty(self) -> None:
        try:
            while self._collected:
                collected, self._collected = self._collected, []
                at = 0
                for batch in batches([message for message, _ in collected]):
                    await self._send(batch, [answer for _, answer in collected[at : at + len(batch)]])
                    at += len(batch)
        finally:
            self._is_busy = False
            if self._collected:  # this task was cancelled: they must not wait for ever
                self._is_busy = True
                in_background(self._empty())

    async def _send(self, batch: list[Outgoing], answers: list[asyncio.Future[str | None]]) -> None:
        try:
            outcome = await self._link.run_now(ops.send(self._keys, batch, self._options, self._on_refusal))
        except BaseException as error:
            for answer in answers:
                if not answer.done():
                    answer.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        full = set(outcome.full)
        for position, answer in enumerate(answers):
            if not answer.done():
                answer.set_result(None if position in full else outcome.ids[position])
