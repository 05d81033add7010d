"""A queue: an inbox with sending and results. Each method makes one call, or a bounded loop of calls."""

import dataclasses
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from duly._async.inbox import AsyncInbox
from duly._async.outbox import AsyncOutbox
from duly._async.primitives import sleep
from duly._core import codec, ops, outgoing, patience, results
from duly._core.keys import QueueKeys
from duly._core.naming import about
from duly._core.observing import NO_HEADERS, encoded
from duly.errors import NotDurable, NotFinished, QueueFull, UsageError
from duly.message import MessageId, message_ids
from duly.options import (
    MAX_BATCH,
    BodyT,
    Durable,
    QueueOptions,
    Repeat,
    Retry,
    Seconds,
    Send,
    checked_durable,
    checked_seconds,
)

if TYPE_CHECKING:
    from duly._async.app import AsyncDuly

# --- sync only
# | if TYPE_CHECKING:
# |     from duly._async.queue import AsyncQueue
# |
# --- end
_NO_OPTIONS = (None,) * 11


class AsyncQueue(AsyncInbox[BodyT]):
    """A queue. `app.queue(name, ...)` returns it. Threads or tasks may share it like its app."""

    def __init__(self, app: "AsyncDuly", name: str, options: QueueOptions) -> None:
        super().__init__(app, name, QueueKeys(app.namespace, name), options)
        self._outbox = AsyncOutbox(self._link, self._keys, options)

    # --- sync only
    # | @property
    # | def aio(self) -> "AsyncQueue[BodyT]":
    # |     """The async counterpart of this queue, with the same definition."""
    # |     return self._app.aio._queue(self.name, self.options)
    # |
    # --- end
    def _counterpart(self, app: Any) -> Any:
        return app._queue(self.name, self.options)

    # Sending

    async def send(
        self,
        body: BodyT | Send[BodyT],
        *,
        delay: Seconds | None = None,
        at: datetime | float | None = None,
        key: str | None = None,
        priority: int = 0,
        dedup: str | None = None,
        dedup_for: Seconds | None = None,
        replace: bool = False,
        ttl: Seconds | None = None,
        headers: Mapping[str, str] | None = None,
        retry: Retry | None = None,
        id: str | None = None,  # noqa: A002
        repeat: Repeat | None = None,
        spread: Seconds | None = None,
        durable: Durable = None,
    ) -> MessageId:
        """Store a message and return its id.

        Args:
            body: The body, or a `Send` with its own options.
            delay: Seconds until the message is due.
            at: The due time instead: an aware datetime, or seconds since the epoch.
            key: Messages with the same key are delivered one at a time, in order.
            priority: 0 to 9. Higher values are delivered first.
            dedup: A second message with this value within `dedup_for` is not stored. Its send returns the first id.
            dedup_for: The window of `dedup`. None: that of the queue.
            replace: With `dedup`, a message that still waits gets the new body and due time (debounce).
            ttl: Seconds after the due time at which the message expires if it is waiting.
            headers: Texts that go with the message.
            retry: The retry policy of this message. None: that of the consumer's queue.
            id: Your own id. A message with an id that is still in the queue is not stored again.
            repeat: A rule by which the message is delivered again after each ack.
            spread: Make the message due at a random moment within this many seconds after its time.
            durable: Wait until the server has confirmed the write: "fsync", "replica", or a number of replicas. The id
                has the confirmed level in its `durable`.

        Example:
            ```python
            id = await orders.send({"order": 17}, delay=1800, key="customer-42")
            ```

        Atomic. A retry after a lost reply stores the message once. To make a call safe to repeat, pass the same `id` or
        `dedup`. Raises UsageError or TooLarge if nothing was sent, QueueFull if the queue or server is full, NotDurable
        if the message is stored but not confirmed, and Unavailable if the server does not answer.
        """
        options = (delay, at, key, dedup, dedup_for, ttl, headers, retry, id, repeat, spread)
        given: BodyT | Send[BodyT] = body
        if options != _NO_OPTIONS or replace is not False or type(priority) is not int or priority != 0:
            if isinstance(body, Send):
                raise UsageError("a Send has its options in it: give them there, or pass the body itself")
            given = Send(
                body, delay, at, key, priority, dedup, dedup_for, replace, ttl, headers, retry, id, repeat, spread
            )
        if (observer := self._app._definitions.observer) is None:
            return await self._store(self._outgoing(given), durable)
        with observer.sending(self, [given]) as sending:
            stored = await self._store(self._outgoing(given, sending.headers[0]), durable)
            sending.stored([stored])
            return stored

    async def _store(self, message: outgoing.Outgoing, durable: Durable) -> MessageId:
        if durable is not None:
            return (await self._send_all([message], durable))[0]
        tries = 0
        while (stored := await self._outbox.send(message)) is None:
            if self.options.on_full != "block" or not self._could_fit([message]):
                raise self._full([])
            await sleep(patience.room_backoff(tries, random.random))
            tries += 1
        return MessageId(stored)

    async def send_many(
        self, bodies: Iterable[BodyT | Send[BodyT]], *, spread: Seconds | None = None, durable: Durable = None
    ) -> list[MessageId]:
        """Store many messages, up to 1,000 per round trip, and return their ids.

        Args:
            bodies: Bodies, or `Send`s with their own options.
            spread: Make each message due at a random moment within this many seconds after its time, never before. A
                `Send` that has a spread keeps it.
            durable: As in `send`, once for each batch.

        Example:
            ```python
            ids = await orders.send_many([{"order": 1}, duly.Send({"order": 2}, delay=60)])
            ```

        All messages are validated before the first one is sent. Each batch is atomic: if there is no room for it, none
        of it is stored, and `QueueFull.stored` has the ids of the batches before it. Raises the same as `send`.
        """
        if isinstance(bodies, str | bytes | bytearray | Mapping) or not isinstance(bodies, Iterable):
            raise UsageError(f"queue {self.name!r}: send_many takes a list of bodies, not {type(bodies).__name__}")
        if spread is not None:
            with about("queue", self.name):
                checked_seconds(spread, "spread")
            bodies = [_with_spread(body, spread) for body in bodies]
        if (observer := self._app._definitions.observer) is None:
            with about("queue", self.name):
                messages = [self._encoded(body) for body in bodies]
            return await self._send_all(messages, durable)
        given = list(bodies)
        with observer.sending(self, given) as sending:
            messages = [self._outgoing(*each) for each in zip(given, sending.headers, strict=True)]
            stored = await self._send_all(messages, durable)
            sending.stored(stored)
            return stored

    def _outgoing(self, body: Any, added_headers: Mapping[str, str] = NO_HEADERS) -> outgoing.Outgoing:
        try:
            return encoded(self._encoded, body, added_headers) if added_headers else self._encoded(body)
        except UsageError:
            with about("queue", self.name):  # only now: it takes as long as the encoding of a body
                raise

    def _encoded(self, body: Any) -> outgoing.Outgoing:
        new_id = self._app._new_id()
        if isinstance(body, Send):
            return self._encoder.outgoing(body, new_id, time.time(), random.random())  # noqa: S311
        return self._encoder.plain(body, new_id)

    async def _send_all(self, messages: Sequence[outgoing.Outgoing], durable: Durable) -> list[MessageId]:
        checked_durable(durable)
        on_refusal: ops.OnRefusal = "drop" if self.options.on_full == "drop_oldest" else "all"
        stored: list[MessageId] = []
        unconfirmed, confirmed = "", None
        for batch in self._batches(messages):
            tries = 0
            while True:
                call = ops.send(self._keys, batch, self.options, on_refusal)
                if durable is None:
                    outcome = await self._link.run(call)
                else:
                    outcome, (confirmed, missing) = await self._link.run_durably(call, durable)
                    unconfirmed = unconfirmed or missing
                if not outcome.full:
                    break
                if self.options.on_full != "block" or not self._could_fit(batch):
                    raise self._full(stored)
                await sleep(patience.room_backoff(tries, random.random))
                tries += 1
            stored += message_ids(outcome.ids, confirmed)
        if unconfirmed:
            raise NotDurable(
                f"{len(stored)} message(s) are stored in queue {self.name!r} but not confirmed as durable: "
                f"{unconfirmed}. They are delivered unless the server loses them before that",
                ids=stored,
            )
        return stored

    def _batches(self, messages: Sequence[outgoing.Outgoing]) -> list[list[outgoing.Outgoing]]:
        """Split messages into calls. A call that waits for room, or makes room, is never larger than the queue."""
        if self.options.on_full == "raise":
            return outgoing.batches(messages)
        longest, largest = self.options.max_length or MAX_BATCH, self.options.max_bytes or outgoing.MAX_CALL_BYTES
        return outgoing.batches(messages, min(longest, MAX_BATCH), min(largest, outgoing.MAX_CALL_BYTES))

    def _could_fit(self, batch: Sequence[outgoing.Outgoing]) -> bool:
        longest, largest = self.options.max_length, self.options.max_bytes
        size = sum(codec.stored_size(message.part) for message in batch)
        return (longest is None or len(batch) <= longest) and (largest is None or size <= largest)

    def _full(self, stored: Sequence[MessageId]) -> QueueFull:
        bounds = f"max_length={self.options.max_length}, max_bytes={self.options.max_bytes}"
        return QueueFull(
            f"queue {self.name!r} is full ({bounds}): the message was not stored. Add consumers, raise the bound, or "
            "choose another on_full",
            stored=stored,
        )

    async def result(self, id: str, wait: Seconds = 10.0) -> Any:  # noqa: A002
        """Return the value that the handler of a message returned, and wait up to `wait` (10) seconds for it.

        With `wait=0`, it does not wait. The queue needs `done=Keep(...)` here and in the worker. Raises HandlerFailed
        if the message is dead, ResultGone if it is unknown, cancelled, expired or trimmed, and NotFinished if the wait
        timed out. Safe to repeat.
        """
        outgoing.checked_text(id, "id")
        left = checked_seconds(wait, "wait")
        if self.options.done is None:
            raise UsageError(f"queue {self.name!r} keeps no results: give it done=duly.Keep(...)")
        give_up_at = time.monotonic() + left
        with self._link.watch_end(self._keys, id) as watch:
            while True:
                call = ops.await_end(self._keys, self._viewer(), id, min(left, results.REGISTERED))
                end = await self._link.run(call)
                if end.after is None:
                    return results.result_of(self.name, id, end)
                if left <= 0:
                    raise NotFinished(
                        f"message {id} of queue {self.name!r} is not finished after {wait!r} s: wait longer, or see "
                        "explain(id)"
                    )
                await watch.wait(end.after, min(left, results.RECHECK))
                left = max(give_up_at - time.monotonic(), 0)


def _with_spread(given: Any, spread: Seconds) -> Any:
    """Return a message that has a spread: its own, or this one."""
    if not isinstance(given, Send):
        return Send(given, spread=spread)
    return dataclasses.replace(given, spread=spread) if given.spread is None else given
