"""Concurrent sends to one queue, or publishes to one topic, become one script call.

While a call is in progress, further ones are collected; its reply starts the next call with all of them. A single one
is sent at once. The sync counterpart of this file is written by hand.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from duly._async.link import AsyncLink
from duly._async.primitives import in_background
from duly._core import ops, publishing, topic_ops
from duly._core.keys import QueueKeys, TopicKeys
from duly._core.outgoing import Outgoing, batches
from duly._core.topic_ops import Publication
from duly.errors import Unavailable
from duly.options import MAX_BATCH, Keep, QueueOptions

T = TypeVar("T")
A = TypeVar("A")


class _JointCalls(Generic[T, A]):
    """Collects items, and carries out one call at a time with all that have been collected."""

    def __init__(
        self,
        bounded: Callable[[list[T]], list[list[T]]],
        carry: Callable[[list[T]], Awaitable[list[A]]],
        cut_off: str,
    ) -> None:
        """`bounded` cuts items into calls, `carry` returns an answer for each item, `cut_off` is the error of a cut."""
        self._bounded = bounded
        self._carry = carry
        self._cut_off = cut_off
        self._collected: list[tuple[T, asyncio.Future[A]]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_busy = False

    async def add(self, item: T) -> A:
        """Carry out a call with this item and others that were collected, and return its answer."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._collected, self._is_busy = loop, [], False
        answer: asyncio.Future[A] = loop.create_future()
        self._collected.append((item, answer))
        if not self._is_busy:
            self._start()
        return await answer

    def _start(self) -> None:
        self._is_busy = True
        in_background(self._empty()).add_done_callback(self._ended)

    def _ended(self, _task: asyncio.Future[object]) -> None:
        """Restart for the remaining items if the task was cancelled, possibly before its first step."""
        self._is_busy = False
        self._collected = [each for each in self._collected if not each[1].done()]
        if self._collected:
            self._start()

    async def _empty(self) -> None:
        while self._collected:
            batch = self._bounded([item for item, _ in self._collected[:MAX_BATCH]])[0]
            answers = [answer for _, answer in self._collected[: len(batch)]]
            del self._collected[: len(batch)]
            await self._call(batch, answers)

    async def _call(self, batch: list[T], answers: list[asyncio.Future[A]]) -> None:
        try:
            found = await self._carry(batch)
        except Exception as error:  # noqa: BLE001 - raised in each waiting call
            _fail(answers, error)
            return
        except BaseException:
            _fail(answers, Unavailable(self._cut_off))
            raise
        for answer, value in zip(answers, found, strict=True):
            if not answer.done():
                answer.set_result(value)


class AsyncOutbox:
    """Collects the sends of one queue."""

    def __init__(self, link: AsyncLink, keys: QueueKeys, options: QueueOptions) -> None:
        self._link = link
        self._keys = keys
        self._options = options
        self._on_refusal: ops.OnRefusal = "drop" if options.on_full == "drop_oldest" else "each"
        cut_off = f"a send to queue {keys.name!r} was cut off: it may or may not be stored"
        self._calls: _JointCalls[Outgoing, str | None] = _JointCalls(batches, self._send, cut_off)

    async def send(self, message: Outgoing) -> str | None:
        """Store a message and return its id; None: there was no room."""
        return await self._calls.add(message)

    async def _send(self, batch: list[Outgoing]) -> list[str | None]:
        outcome = await self._link.run_now(ops.send(self._keys, batch, self._options, self._on_refusal))
        full = set(outcome.full)
        return [None if position in full else id_ for position, id_ in enumerate(outcome.ids)]


class AsyncPublishes:
    """Collects the publishes of one topic that are not delayed."""

    def __init__(self, link: AsyncLink, keys: TopicKeys, keep: Keep | None) -> None:
        self._link = link
        self._keys = keys
        self._keep = keep
        cut_off = f"a publish to topic {keys.name!r} was cut off: it may or may not be stored"
        self._calls: _JointCalls[Publication, str] = _JointCalls(publishing.batches, self._publish, cut_off)

    async def publish(self, entry: Publication) -> str:
        """Add an entry to the stream and return its id."""
        return await self._calls.add(entry)

    async def _publish(self, batch: list[Publication]) -> list[str]:
        return await self._link.run_now(topic_ops.publish(self._keys, batch, self._keep))


def _fail(answers: list[asyncio.Future[A]], error: Exception) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_exception(error)
