"""Redrives dead letters. They are filtered here, page by page, and moved by a script.

The script redrives a dead letter only if it has not changed since it was read. So a redrive that was interrupted can be
started again, and two redrives at once move no message twice.
"""

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from duly._async.primitives import sleep
from duly._core import codec, ops, outgoing
from duly._core.views import Letter
from duly.errors import QueueFull, UsageError
from duly.message import Message
from duly.options import MAX_BATCH, UNCHANGED, checked_count, interval_of
from duly.selection import Matches

if TYPE_CHECKING:
    from duly._async.inbox import AsyncInbox
    from duly._async.queue import AsyncQueue

_LOG: Final = logging.getLogger("duly")
_STEP: Final = 0.1
"""Seconds. With a rate, the dead letters for this time are redriven in one call."""
_LOGGED_EVERY: Final = 5.0

Page = list[Letter]


class AsyncLetters:
    """Pages of the dead letters of a queue or group, without messages that die after the first page was read."""

    def __init__(self, queue: "AsyncInbox[Any]", *, newest: bool = False, after: Message | str | None = None) -> None:
        self._queue = queue
        self._newest = newest
        self._after = after
        self._end: int | None = None
        self._is_over = False

    async def page(self) -> Page | None:
        """Return the next page; None: there are no more."""
        if self._is_over:
            return None
        queue = self._queue
        found = await queue._link.run(
            ops.letters(queue._keys, queue._viewer(), MAX_BATCH, self._after, newest=self._newest)
        )
        end = self._end = found.now if self._end is None else self._end
        letters = [letter for letter in found.letters if letter.died < end]
        self._is_over = found.is_last or (len(letters) < len(found.letters) and not self._newest)
        self._after = letters[-1].message if letters else None
        return letters


async def find(
    queue: "AsyncInbox[Any]",
    matches: Matches,
    limit: int,
    *,
    newest: bool = False,
    after: Message | str | None = None,
) -> list[Message]:
    """Return the oldest or newest dead letters that match."""
    checked_count(limit, "limit")
    letters = AsyncLetters(queue, newest=newest, after=after)
    found: list[Message] = []
    while len(found) < limit and (page := await letters.page()) is not None:
        found += [letter.message for letter in page if matches(letter.message)]
    return found[:limit]


async def purge(
    queue: "AsyncInbox[Any]", matches: Matches, *, dry_run: bool, on_progress: Callable[[int], None] | None = None
) -> int:
    """Purge or count the dead letters that match. A message that was redriven since it was read stays."""
    letters, total = AsyncLetters(queue), 0
    while (page := await letters.page()) is not None:
        meant = [(letter.message.id, letter.died) for letter in page if matches(letter.message)]
        if dry_run or not meant:
            total += len(meant)
        else:
            purged, _ = await queue._link.run(ops.purge_letters(queue._keys, meant))
            total += purged
        if on_progress is not None:
            on_progress(total)
    return total


async def redrive_oldest(
    queue: "AsyncInbox[Any]", limit: int | None, *, at_end: bool, on_progress: Callable[[int], None] | None = None
) -> int:
    """Redrive without a filter: all dead letters of this moment, or the first `limit` of them."""
    left = (await queue._stats_for("redrive")).dead
    wanted = left if limit is None else min(limit, left)
    total = 0
    while total < wanted:
        step = min(wanted - total, MAX_BATCH)
        redriven, _ = await queue._link.run(ops.redrive(queue._keys, step, at_end=at_end))
        if not redriven:
            break
        total += redriven
        if on_progress is not None:
            on_progress(total)
    return total


class AsyncRedrive:
    """One pass over the dead letters of a queue or group that redrives those that match."""

    def __init__(
        self,
        queue: "AsyncInbox[Any]",
        matches: Matches,
        *,
        limit: int | None = None,
        to: "AsyncQueue[Any] | None" = None,
        rate: str | None = None,
        at_end: bool = False,
        edit: Callable[[Message], Any] | None = None,
        dry_run: bool = False,
        on_progress: Callable[[int], None] | None = None,
    ) -> None:
        self._queue = queue
        self._matches = matches
        self._limit = limit
        self._to = to
        self._at_end = at_end
        self._edit = edit
        self._dry_run = dry_run
        self._on_progress = on_progress
        self._interval = interval_of(rate) / 1_000_000
        self._step = MAX_BATCH if rate is None else max(1, min(MAX_BATCH, int(_STEP / self._interval)))
        self._batch: list[tuple[str, int, codec.Part]] = []
        self._batch_bytes = 0
        self._free_at = 0.0
        self._logged_at = time.monotonic()
        self._redriven = 0

    async def run(self) -> int:
        """Redrive, and return the number of redriven messages."""
        letters = AsyncLetters(self._queue)
        while not self._has_enough() and (page := await letters.page()) is not None:
            for letter in page:
                await self._take(letter)
                if self._has_enough():
                    break
        await self._flush()
        return self._redriven

    def _has_enough(self) -> bool:
        return self._redriven == self._limit

    async def _take(self, letter: Letter) -> None:
        """Add a dead letter to the batch if it matches. A full batch is sent."""
        if not letter.is_readable:
            return
        try:
            if not self._matches(letter.message):
                return
            part = self._part(letter)
        except Exception as error:
            await self._flush()
            raise self._failed(letter, error) from error
        self._batch.append((letter.message.id, letter.died, part))
        self._batch_bytes += len(part)
        left = MAX_BATCH if self._limit is None else self._limit - self._redriven
        if len(self._batch) >= min(self._step, left) or self._batch_bytes > outgoing.MAX_CALL_BYTES:
            await self._flush()

    def _part(self, letter: Letter) -> codec.Part:
        """Encode the new body of a dead letter; empty: it keeps its body."""
        body = UNCHANGED if self._edit is None else self._edit(letter.message)
        if body is UNCHANGED:
            return b""
        if body is None and letter.message.body is not None:
            raise UsageError(f"edit returned None for message {letter.message.id}: return the body, or duly.UNCHANGED")
        return (self._to or self._queue)._encoder.with_body(letter.record, body)

    def _failed(self, letter: Letter, error: Exception) -> UsageError:
        return UsageError(
            f"{self._queue.title}: dead letter {letter.message.id} stays dead, where= or edit= failed for it: "
            f"{type(error).__name__}: {error}. {self._summary} before it"
        )

    @property
    def _summary(self) -> str:
        verb = "would be" if self._dry_run else "were"
        return f"{self._redriven} {verb} redriven"

    async def _flush(self) -> None:
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        if not batch:
            return
        if self._dry_run:
            self._redriven += len(batch)
        else:
            await self._redrive(batch)
            self._log_progress()
        if self._on_progress is not None:
            self._on_progress(self._redriven)

    async def _redrive(self, batch: list[tuple[str, int, codec.Part]]) -> None:
        await self._keep_pace(len(batch))
        if self._to is None:
            call = ops.redrive(self._queue._keys, len(batch), batch, at_end=self._at_end)
            redriven, _ = await self._queue._link.run(call)
            self._redriven += redriven
        else:
            await self._move(self._to, batch)

    async def _move(self, to: "AsyncQueue[Any]", batch: list[tuple[str, int, codec.Part]]) -> None:
        outcome = await self._queue._link.run(ops.move(self._queue._keys, to._keys, to.options, batch))
        self._redriven += outcome.moved
        for id_ in outcome.known:
            _LOG.warning("dead letter %s stays in %s: %s has a message with that id", id_, self._queue.title, to.title)
        if outcome.is_full:
            bounds = f"max_length={to.options.max_length}, max_bytes={to.options.max_bytes}"
            raise QueueFull(
                f"{to.title} is full ({bounds}): {self._redriven} dead letters of {self._queue.title} "
                "were moved there, the others stay. Redrive again when there is room"
            )

    async def _keep_pace(self, count: int) -> None:
        now = time.monotonic()
        if now < self._free_at:
            await sleep(self._free_at - now)
        self._free_at = max(self._free_at, now) + count * self._interval

    def _log_progress(self) -> None:
        now = time.monotonic()
        if now - self._logged_at >= _LOGGED_EVERY:
            self._logged_at = now
            _LOG.info("redrive of %s: %s so far", self._queue.title, self._summary)
