"""Receiving, inspecting and managing messages of a queue or of a group of a topic.

Each method makes one call, or a bounded loop of calls. The queue adds sending, and the topic has publishing.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from duly._async import redriving
from duly._async.auditing import AsyncAuditor
from duly._async.delivery import AsyncDelivery
from duly._async.primitives import uninterrupted
from duly._async.schedules import fire_due
from duly._core import codec, ops, outgoing, patience, replies, settles, views
from duly._core.call import Call
from duly._core.explanation import explained
from duly._core.forecast import checked_ahead
from duly._core.handlers import Handler
from duly._core.history import checked_span
from duly._core.keys import QueueKeys
from duly._core.spanning import check_target
from duly._core.states import STATES, State
from duly._reclaim_log import log_poison, log_reclaimed
from duly.errors import UsageError
from duly.message import Audit, Bucket, Message, Pending, PendingMessage, Stats
from duly.options import (
    MAX_BATCH,
    Batch,
    BodyT,
    QueueOptions,
    Seconds,
    checked_count,
    checked_flag,
    checked_positive_seconds,
    checked_seconds,
    interval_of,
)
from duly.selection import Selection, checked_function, checked_progress, selection_of

if TYPE_CHECKING:
    from duly._async.app import AsyncDuly
    from duly._async.link import AsyncLink
    from duly._async.queue import AsyncQueue
    from duly._typing import EitherDelivery, HandlerOf, Handles, HandlesBatches, Takes, TakesTwo

# `list` is a method here, so these types have names.
Page = list[Message]
Rows = list[PendingMessage]
Buckets = list[Bucket]
Deliveries = list[AsyncDelivery[BodyT]]
Positions = list[int]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[[Message], Any])

_BRIEF = 0.25
"""The client ends waits shorter than this, since a timeout of the server may fire 0.1 s late."""

_MAX_CLAIMS_IN_A_ROW = 1000
"""Claims in a row that found no message and asked for another claim, before a receive waits."""

_FIRED_IN_A_ROW = 10
"""Claims in a row after which schedules may send, before a receive checks its time limit."""

_NOT_TO_TOPICS = (
    "without it, dead letters go back to where they were; for all groups, publish the bodies that find_dead() shows"
)

_PURGED: tuple[State, ...] = ("parked", "ready", "delayed", "leased", "dead", "done")


class AsyncInbox(ABC, Generic[BodyT]):
    """The common base of queues and groups: messages that are delivered, leased and settled."""

    def __init__(self, app: "AsyncDuly", name: str, keys: QueueKeys, options: QueueOptions) -> None:
        self.name: str = name
        """The name of the queue or group. The name of a group does not include its topic."""
        self.options: QueueOptions = options
        """The options in this process."""
        self._app = app
        self._link: AsyncLink = app._link
        self._keys = keys
        self._encoder = outgoing.Encoder(keys.name, options)
        self._decode_body = codec.decoder_of(options.type)
        self._lease = checked_positive_seconds(options.lease, "lease")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.label!r} of {self._app!r}>"

    @property
    def label(self) -> str:
        """The name in logs, deliveries and workers: "orders", or "events/archive" for a group."""
        return self._keys.name

    @property
    def title(self) -> str:
        """The name in sentences: "queue 'orders'", "group 'events/archive'"."""
        return self._keys.title

    @abstractmethod
    def _counterpart(self, app: Any) -> Any:
        """Return the same queue or group, with the same definition, on another app, sync or async."""

    # Handling

    @overload
    def handler(self, function: "Takes[BodyT, P, R]", /) -> Callable[P, R]: ...

    @overload
    def handler(self, function: "TakesTwo[BodyT, EitherDelivery[BodyT], P, R]", /) -> Callable[P, R]: ...

    @overload
    def handler(self, function: "Takes[EitherDelivery[BodyT], P, R]", /) -> Callable[P, R]: ...

    @overload
    def handler(self, function: "TakesTwo[EitherDelivery[BodyT], BodyT, P, R]", /) -> Callable[P, R]: ...

    @overload
    def handler(self, function: "HandlerOf[BodyT]", /) -> Any: ...

    @overload
    def handler(
        self, *, concurrency: int | None = None, batch: None = None, timeout: Seconds | None = None
    ) -> "Handles[BodyT]": ...

    @overload
    def handler(
        self, *, concurrency: int | None = None, batch: Batch, timeout: Seconds | None = None
    ) -> "HandlesBatches[BodyT]": ...

    def handler(
        self,
        function: Any = None,
        *,
        concurrency: int | None = None,
        batch: Batch | None = None,
        timeout: Seconds | None = None,
    ) -> Any:
        """Register the function that workers call with each message: `(body)`, `(body, d)` or `(d: duly.Delivery)`.

        Args:
            function: The function, if the decorator is used without options.
            concurrency: The number of calls that run at once in each process. The default is 100 for an `async def`,
                and 16 for a `def`, which runs in threads.
            batch: With a `duly.Batch`, the function gets lists.
            timeout: Seconds after which the call counts as a failure. An `async def` is cancelled. A `def` keeps its
                thread, and `duly worker --processes` replaces the process.

        Example:
            ```python
            @orders.handler(concurrency=20)
            async def on_order(order: Order) -> None: ...
            ```

        Bodies are decoded to the annotated type. Raises UsageError if an option or the function is invalid, or if there
        is a handler already.
        """

        def register(function: Any) -> Any:
            handler = Handler(function, concurrency=concurrency, batch=batch, timeout=timeout)
            self._app._definitions.add_handler(self, handler)
            return function

        return register if function is None else register(function)

    def on_dead(self, function: F) -> F:
        """Register a function that a worker calls with each message that it makes dead: a `duly.Message`."""
        self._app._definitions.add_on_dead(self.label, function)
        return function

    # Receiving

    async def receive(
        self, limit: int = 10, wait: Seconds = 20.0, lease: Seconds | None = None, renew: bool = False
    ) -> Deliveries[BodyT]:
        """Lease up to `limit` (10) messages that are due, and wait up to `wait` (20) seconds for the first.

        Returns [] if no message was due in that time. A message that is not settled before its lease expires is
        redelivered.

        Args:
            limit: The largest number of messages, 1 to 1,000.
            wait: Seconds to wait for the first message. 0 returns at once.
            lease: Overrides the lease (visibility timeout) of the queue, which is 30 s by default.
            renew: Renew the leases in the background until the deliveries are settled, up to the queue's `max_runtime`.

        Example:
            ```python
            for d in await orders.receive(limit=10, wait=20):
                async with d:               # acks; retries if the block raises
                    handle(d.body)
            ```

        If the call is cancelled or interrupted, its messages are released. Raises UsageError for an invalid argument.
        """
        checked_count(limit, "limit", most=MAX_BATCH)
        left = checked_seconds(wait, "wait")
        seconds = self._lease if lease is None else checked_positive_seconds(lease, "lease")
        began, is_brief = time.monotonic(), left < _BRIEF
        give_up_at = began + left
        period, fruitless, at_once, woken = patience.looking_period(seconds), 0, 0, 0
        then: ops.Then = "watch" if left > 0 else "leave"
        while True:
            call = self._claim(limit=limit, lease=seconds, then=then)
            # --- async only
            claimed = await uninterrupted(self._claimed(call), self._give_back)
            if claimed.ids:
                return self._received(claimed, seconds, began, renew=renew)
            # --- sync only
            # | claimed = self._claimed(call)
            # | if claimed.ids:
            # |     try:
            # |         return self._received(claimed, seconds, began, renew=renew)
            # |     except BaseException:  # a signal handler has raised
            # |         self._give_back(claimed)
            # |         raise
            # --- end
            if claimed.next_in == 0 and at_once < _MAX_CLAIMS_IN_A_ROW:  # it removed expired messages, for example
                at_once += 1
                continue
            left, at_once = give_up_at - time.monotonic(), 0
            if left <= 0:
                if then != "watch":
                    return []
                then = "pass"
                continue
            pause, exact = patience.pause_before(claimed.next_in, left, period, fruitless)
            fruitless = fruitless + 1 if exact else 0
            is_woken = await self._wait(claimed, pause, exact=exact or is_brief, woken=woken)
            woken = woken + 1 if is_woken else 0
            # A consumer that stops watching wakes the next one, since it may have taken the token for a due time.
            then = "watch" if give_up_at > time.monotonic() else "pass"

    def _claim(
        self, *, limit: int, lease: float, then: ops.Then, suspects: ops.Suspects = "with"
    ) -> Call[replies.Claimed]:
        """Return a call that claims due messages."""
        consumer = self._link.consumer
        return ops.claim(
            self._keys, self.options, limit=limit, lease=lease, consumer=consumer, then=then, suspects=suspects
        )

    async def _wait(self, claimed: replies.Claimed, seconds: float, *, exact: bool, woken: int) -> bool:  # noqa: ARG002
        """Wait until more messages may be due. True: a wake token was received.

        `woken` is the number of wake-ups in a row after which no message was found.
        """
        return await self._link.wait_for_token(self._keys, seconds, exact=exact)

    async def _claimed(self, call: Call[replies.Claimed]) -> replies.Claimed:
        """Claim. If schedules are due, send their messages, which are due at once, and claim again."""
        rounds = 0
        while True:
            # --- async only
            claimed = await self._link.run_now(call)
            # --- sync only
            # | claimed = self._link.run_whole(call, self._give_back)
            # --- end
            try:
                is_more = await self._follow_up(claimed)
                claimed = await self._without_poison(claimed)
            except BaseException:  # a reject has failed, or a signal handler has raised
                await self._give_back(claimed)
                raise
            rounds += 1
            if claimed.ids or not is_more or rounds == _FIRED_IN_A_ROW:
                return claimed

    async def _follow_up(self, claimed: replies.Claimed) -> bool:
        """Log expired leases, and send the messages of due schedules. True: more messages may be due."""
        log_reclaimed(self.label, claimed.reclaimed)
        due = claimed.schedules
        return bool(due) and await fire_due(self, claimed.now, due)

    async def _without_poison(self, claimed: replies.Claimed) -> replies.Claimed:
        """Reject messages that have reached the crash limit, as workers do, and return the others."""
        limit = self.options.crash_limit
        if not any(claimed.counts):
            return claimed
        places = [at for at, counts in enumerate(claimed.counts) if replies.is_poison(counts, limit)]
        if not places:
            return claimed
        deliveries = self._deliveries(claimed, self._lease, renew=False)
        poison = [(deliveries[at], "poison", "", "") for at in places]
        lost = await self._link.run_now(ops.reject(self._keys, self.options, poison))
        log_poison(self.label, [delivery.id for at, (delivery, *_) in enumerate(poison) if at not in lost])
        return claimed.without(places)

    def _received(self, claimed: replies.Claimed, lease: float, began: float, *, renew: bool) -> Deliveries[BodyT]:
        """Return the deliveries for the caller of `receive`, which began at a time of the monotonic clock."""
        deliveries = self._deliveries(claimed, lease, renew=renew)
        if (observer := self._app._definitions.observer) is not None:
            observer.received(self, deliveries, time.monotonic() - began)
        return deliveries

    def _deliveries(self, claimed: replies.Claimed, lease: float, *, renew: bool) -> Deliveries[BodyT]:
        fence = claimed.fence
        try:
            rows = zip(claimed.ids, claimed.records, claimed.counts, strict=True)
            deliveries = [AsyncDelivery(self, id_.decode(), fence, record, counts) for id_, record, counts in rows]
        except UnicodeDecodeError:  # another program added an invalid id: the other messages are delivered anyway
            rows = zip(claimed.ids, claimed.records, claimed.counts, strict=True)
            deliveries = [AsyncDelivery(self, codec.visible(id_), fence, *row) for id_, *row in rows]
        if renew:
            cap = self.options.max_runtime
            longest = None if cap is None else checked_positive_seconds(cap, "max_runtime")
            self._app._renewer.add(deliveries, self._keys, lease, longest)
        return deliveries

    async def _give_back(self, claimed: replies.Claimed) -> None:
        """Release the messages of a cancelled or interrupted receive, or wake another consumer if there are none."""
        if claimed.ids:
            await self._link.run_now(ops.release(self._keys, self._deliveries(claimed, self._lease, renew=False)))
        else:
            await self._link.run_now(ops.wake(self._keys))

    async def ack_many(self, deliveries: Iterable[AsyncDelivery[BodyT]]) -> Deliveries[BodyT]:
        """Ack many messages, up to 1,000 per round trip, and return those whose lease was lost.

        Each batch is atomic. Safe to repeat. Raises UsageError for anything but deliveries of this queue or group.
        """
        lost: Deliveries[BodyT] = []
        fresh: Deliveries[BodyT] = []
        for delivery in dict.fromkeys(self._checked_deliveries(deliveries)):
            if delivery.queue != self.label:
                raise UsageError(f"message {delivery.id} is of {delivery._queue.title}, not of {self.label!r}")
            if delivery._settled is None:
                fresh.append(delivery)
            elif delivery._settled != "ack":
                lost.append(delivery)
        for step in settles.bounded(settles.acked(fresh)):
            lost += await self._ack(step.deliveries, step.call(self._keys, self.options))
        return lost

    def _checked_deliveries(self, given: Any) -> Deliveries[BodyT]:
        """Raise UsageError for anything but deliveries, for example ids."""
        if isinstance(given, str | bytes) or not isinstance(given, Iterable):
            raise UsageError(f"{self.title}: ack_many takes a list of deliveries, not {given!r}: for one, use d.ack()")
        found: Deliveries[BodyT] = [*given]
        for each in found:
            if not hasattr(each, "_settled"):
                raise UsageError(f"{self.title}: ack_many takes deliveries as receive() returns them, not {each!r}")
        return found

    async def _ack(self, batch: Deliveries[BodyT], call: Call[Positions]) -> Deliveries[BodyT]:
        """Settle and record it, even if the caller is cancelled, so that a repeat succeeds."""

        def recorded(found: Positions) -> Deliveries[BodyT]:
            positions = set(found)
            for position, delivery in enumerate(batch):
                delivery._note("ack", is_lost=position in positions)
            return [batch[position] for position in sorted(positions)]

        # --- async only
        async def carry_out() -> Deliveries[BodyT]:
            return recorded(await self._link.run_now(call))

        return await uninterrupted(carry_out())
        # --- sync only
        # | found = self._link.run_whole(call, recorded)
        # | try:
        # |     return recorded(found)
        # | except BaseException:  # a signal handler has raised
        # |     recorded(found)
        # |     raise
        # --- end

    # Inspecting

    async def stats(self, *, history: str | Seconds | None = None) -> Stats:
        """Return the number of messages in each state, and the counters, as one atomic snapshot.

        `history` adds the numbers over time: `"1h"` has a point per minute. The points of up to a day, `"24h"`, are ten
        minutes long, and those of up to a week, `"7d"`, an hour.
        """
        return await self._stats_for("stats", None if history is None else checked_span(history))

    async def _stats_for(self, asked: str, history: float | None = None) -> Stats:
        """Return the stats as a part of another call, which error texts name."""
        return await self._link.run(ops.stats(self._keys, history).part_of(asked))

    async def forecast(self, ahead: str | Seconds = 86400) -> Buckets:
        """Return how many messages become due in each interval of the next `ahead` seconds, the next interval first.

        There are at most 61 intervals, of equal length except the first and the last. Messages that are due already and
        future runs of schedules are not included. Raises UsageError for less than a second or more than ten years.
        """
        return await self._link.run(ops.forecast(self._keys, checked_ahead(ahead)))

    async def get(self, id: str) -> Message | None:  # noqa: A002
        """Return one message; None: it is unknown or finished."""
        outgoing.checked_text(id, "id")
        return await self._link.run(ops.get(self._keys, self._viewer(), id))

    async def explain(self, id: str) -> str:  # noqa: A002
        """Explain in one sentence why a message is not being delivered, and when it will be."""
        outgoing.checked_text(id, "id")
        details = await self._link.run(ops.explain(self._keys, self._viewer(), id))
        return explained(self.label, id, details, self.options)

    async def list(
        self, state: State, limit: int = 50, after: Message | str | None = None, *, newest: bool = False
    ) -> Page:
        """Return a page of messages in a state. `after` is the last message of the previous page, or its id.

        Ready and delayed messages are ordered by priority, then by due time; parked ones by key; leased ones by
        deadline; dead and done ones from the oldest, or with `newest` from the newest. A page of large messages may be
        shorter than `limit`. An empty page is the end. Raises UsageError for an invalid argument.
        """
        _check_state(state)
        checked_count(limit, "limit", most=MAX_BATCH)
        _check_after(after)
        if newest and state not in ("dead", "done"):
            raise UsageError(f"newest=True is for dead and done messages, not for {state} ones")
        return await self._listed(state, limit, after, newest=newest)

    async def _listed(self, state: State, limit: int, after: Message | str | None, *, newest: bool) -> Page:
        page, _ = await self._link.run(ops.list_(self._keys, self._viewer(), state, limit, after, newest=newest))
        return page

    async def pending(self, consumer: str | None = None, limit: int = 100) -> Pending:
        """Return the current leases: totals, counts by consumer, and the first `limit` leases by deadline."""
        checked_count(limit, "limit", least=0)
        rows = await self._leases()
        if consumer is not None:
            rows = [row for row in rows if row.consumer == consumer]
        return views.pending(rows, limit)

    async def _leases(self) -> Rows:
        """Return all leases, by deadline."""
        rows: Rows = []
        while page := await self._link.run(ops.pending(self._keys, len(rows), MAX_BATCH)):
            rows += page
            if len(page) < MAX_BATCH:
                break
        return rows

    # Managing

    async def cancel(self, id: str, *, running: bool = False) -> bool:  # noqa: A002
        """Cancel a message that is waiting (ready, delayed or parked) or dead. Atomic and safe to repeat.

        True: this call ended the message. No handler has it, and none will get it.
        False: the message is unknown or finished, is an entry that its group has not read yet, or is leased. A message
        is leased from its claim to its settle. That includes messages that a worker has fetched ahead, and messages
        whose lease has expired but that were not redelivered yet.

        Args:
            id: The id that `send` returned, or your own.
            running: Also end a leased message. Its consumer loses the lease: an `async def` handler is cancelled, and a
                `def` handler finds `d.lost` true. Effects of the handler before that are not undone.

        Example:
            ```python
            if await reminders.cancel("reminder-17"):
                print("no handler has it, and none will get it")
            ```
        """
        outgoing.checked_text(id, "id")
        checked_flag(running, "running")
        return await self._link.run(ops.cancel(self._keys, id, running=running))

    async def reschedule(
        self,
        id: str,  # noqa: A002
        *,
        delay: Seconds | None = None,
        at: datetime | float | None = None,
    ) -> bool:
        """Change the due time of a waiting message, to `delay` seconds from now or to `at`. Atomic and safe to repeat.

        Returns False if the message is not waiting, or if its group has not read it yet.
        """
        outgoing.checked_text(id, "id")
        return await self._link.run(ops.reschedule(self._keys, id, outgoing.new_due(delay, at, time.time())))

    async def promote(self, id: str) -> bool:  # noqa: A002
        """Make a delayed message due now. Atomic and safe to repeat.

        Returns False if the message is not waiting, or if its group has not read it yet.
        """
        outgoing.checked_text(id, "id")
        return await self._link.run(ops.reschedule(self._keys, id, outgoing.NOW))

    async def pause(self) -> None:
        """Stop deliveries to all consumers until `resume`. Sends and settles still work. Safe to repeat."""
        await self._link.run(ops.pause(self._keys, self._link.consumer))

    async def resume(self) -> None:
        """Resume deliveries after `pause`. Safe to repeat."""
        await self._link.run(ops.resume(self._keys))

    async def purge(
        self,
        state: State | None = None,
        *,
        where: Selection | None = None,
        dry_run: bool = False,
        on_progress: Callable[[int], None] | None = None,
    ) -> int:
        """Remove all messages in a state, or in all states, and return their number.

        Consumers of leased messages lose their lease. In a group, unread entries are skipped and counted, and the topic
        keeps them. `where` filters dead letters, as in `redrive`. With `where`, a `dry_run` only counts. `on_progress`
        is called after each thousand with the number so far.

        It runs in atomic steps of up to 1,000 messages, and is safe to repeat. Raises UsageError for an invalid
        argument.
        """
        progress = checked_progress(on_progress)
        if where is None and not dry_run:
            return await self._purge(state, progress)
        if state != "dead":
            raise UsageError("where= and dry_run= choose among dead letters: purge('dead', where=...)")
        return await redriving.purge(self, selection_of(where), dry_run=dry_run, on_progress=progress)

    async def _purge(self, state: State | None, on_progress: Callable[[int], None] | None, done: int = 0) -> int:
        if state is not None:
            _check_state(state)
        for each in _PURGED if state is None else (state,):
            done = await self._purge_state(each, on_progress, done)
        return done

    async def _purge_state(self, state: State, on_progress: Callable[[int], None] | None, done: int) -> int:
        # Only as many as there are now. Messages that are sent or unparked during the purge stay.
        total, most = 0, getattr(await self._stats_for("purge"), state)
        while total < most:
            purged, _ = await self._link.run(ops.purge(self._keys, state, min(most - total, MAX_BATCH)))
            if not purged:
                break
            total += purged
            if on_progress is not None:
                on_progress(done + total)
        return done + total

    async def delete(self) -> None:
        """Delete the queue with its messages, schedules and counters. Atomic and safe to repeat."""
        await self._link.run(ops.delete(self._keys))

    async def redrive(
        self,
        limit: int | None = None,
        where: Selection | None = None,
        to: "str | AsyncQueue[Any] | None" = None,
        rate: str | None = None,
        dry_run: bool = False,
        at_end: bool = False,
        edit: Callable[[Message], Any] | None = None,
        *,
        on_progress: Callable[[int], None] | None = None,
    ) -> int:
        """Redrive (replay) dead letters, oldest first, with all their attempts, and return their number.

        - `limit`: The largest number of dead letters; None: all that are dead now.
        - `where`: A filter: a `duly.Where`, a dict of its fields, or a function of a `duly.Message`.
        - `to`: Another queue to move them to; None: each returns to its own place.
        - `rate`: The highest rate, like "50/s".
        - `dry_run`: Only count them.
        - `at_end`: Place them after all messages that are due now.
        - `edit`: A function that takes a `duly.Message` and returns another body, or `UNCHANGED`.
        - `on_progress`: Called after each step with the number so far.

        It runs in atomic steps. After an interruption, call it again: no message is redriven twice. Raises UsageError
        for an invalid argument or if `where` or `edit` raises, and QueueFull if `to` is full.
        """
        if limit is not None:
            checked_count(limit, "limit")
        interval_of(rate)
        matches = selection_of(where)
        if edit is not None:
            checked_function(edit, "edit", "a function of a duly.Message that returns another body")
        progress = checked_progress(on_progress)
        target = None if to is None else self._app._queue_given(to, "to", _NOT_TO_TOPICS)
        if target is not None and target.label == self.label:
            raise UsageError(f"to is {self.title} itself: without it, dead letters go back to where they were")
        if target is not None:
            check_target(self._link, "redrive(to=)", self._keys, target._keys)
        if where is None and edit is None and target is None and rate is None and not dry_run:
            return await redriving.redrive_oldest(self, limit, at_end=at_end, on_progress=progress)
        walk = redriving.AsyncRedrive(
            self,
            matches,
            limit=limit,
            to=target,
            rate=rate,
            at_end=at_end,
            edit=edit,
            dry_run=dry_run,
            on_progress=progress,
        )
        return await walk.run()

    async def find_dead(
        self,
        where: Selection | None = None,
        limit: int = 50,
        *,
        newest: bool = False,
        after: Message | str | None = None,
    ) -> Page:
        """Return the oldest, or with `newest` the newest, dead letters that match `where`, as in `redrive`.

        `after` is the last message of the previous page, or its id, as in `list`.
        """
        _check_after(after)
        return await redriving.find(self, selection_of(where), limit, newest=newest, after=after)

    async def audit(self, repair: bool = False, *, on_progress: Callable[[int], None] | None = None) -> Audit:
        """Check that every message is accounted for, and that each id is in exactly one place.

        It runs in bounded steps while the queue is in use. With `repair`, it fixes faults without losing a body, and
        returns the faults that it found. `on_progress` is called after each step with the number of ids checked so far.
        Safe to repeat.
        """
        progress = checked_progress(on_progress)
        return await AsyncAuditor(self._link, self._keys, self.label, repair=repair, on_progress=progress).run()

    def _viewer(self) -> views.Viewer:
        return views.Viewer(self.label, self._decode_body)


def _check_after(after: object) -> None:
    if after is not None and not isinstance(after, Message):
        outgoing.checked_text(after, "after")


def _check_state(state: object) -> None:
    if state not in STATES:
        raise UsageError(f"{state!r} is not a state: use one of {', '.join(STATES)}")
