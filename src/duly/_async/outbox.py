"""Concurrent sends of one queue become one script call.

While a call is in progress, further sends are collected; its reply starts the next call with all of them. A single
send is sent at once. The sync counterpart of this file is written by hand.
"""

import asyncio

from duly._async.link import AsyncLink
from duly._async.primitives import in_background
from duly._core import ops
from duly._core.keys import QueueKeys
from duly._core.outgoing import Outgoing, batches
from duly.errors import Unavailable
from duly.options import MAX_BATCH, QueueOptions


class AsyncOutbox:
    """Collects the sends of one queue."""

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
            self._start()
        return await answer

    def _start(self) -> None:
        self._is_busy = True
        in_background(self._empty()).add_done_callback(self._ended)

    def _ended(self, _task: asyncio.Future[object]) -> None:
        """Restart for the remaining sends if the task was cancelled, possibly before its first step."""
        self._is_busy = False
        self._collected = [each for each in self._collected if not each[1].done()]
        if self._collected:
            self._start()

    async def _empty(self) -> None:
        while self._collected:
            batch = batches([message for message, _ in self._collected[:MAX_BATCH]])[0]
            answers = [answer for _, answer in self._collected[: len(batch)]]
            del self._collected[: len(batch)]
            await self._send(batch, answers)

    async def _send(self, batch: list[Outgoing], answers: list[asyncio.Future[str | None]]) -> None:
        try:
            outcome = await self._link.run_now(ops.send(self._keys, batch, self._options, self._on_refusal))
        except Exception as error:  # noqa: BLE001 - raised in each waiting send
            _fail(answers, error)
            return
        except BaseException:
            _fail(answers, Unavailable(f"a send to queue {self._keys.name!r} was cut off: it may or may not be stored"))
            raise
        full = set(outcome.full)
        for position, answer in enumerate(answers):
            if not answer.done():
                answer.set_result(None if position in full else outcome.ids[position])


def _fail(answers: list[asyncio.Future[str | None]], error: Exception) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_exception(error)
