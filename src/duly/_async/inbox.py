"""What a consumer, a looker or a steerer does with messages, be they of a queue or of a group of a topic.

Each method is one call, or a bounded loop of them. Sending is the queue's own, publishing the topic's.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from duly._async import redriving
from duly._async.auditing import AsyncAuditor
from duly._async.delivery import AsyncDelivery
from duly._async.schedules import fire_due
from duly._async.wire import uninterrupted
from duly._core import codec, ops, outgoing, patience, replies, settles, views
from duly._core.call import Call
from duly._core.explanation import explained
from duly._core.handlers import Handler
from duly._core.keys import QueueKeys
from duly._core.states import STATES, State
from duly._reclaim_log import log_reclaimed
from duly.errors import UsageError
from duly.message import Audit, Message, Pending, PendingMessage, Stats
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
Deliveries = list[AsyncDelivery[BodyT]]
Positions = list[int]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[[Message], Any])

_BRIEF = 0.25
"""A wait so short is ended by the client: a server's time-out may fire 0.1 s late."""

_LOOKS_AT_ONCE = 1000
"""Claims in a row that found nothing to hand out and said to look again, before a receive waits a little."""

_FIRED_IN_A_ROW = 10
"""Calls in which schedules may send before a receive looks at the time again."""

_NOT_TO_TOPICS = (
    "without it, dead letters go back to where they were; for all groups, publish the bodies that find_dead() shows"
)

_PURGED: tuple[State, ...] = ("parked", "ready", "delayed", "leased", "dead", "done")


class AsyncInbox(ABC, Generic[BodyT]):
    """A store of messages that are handed out, leased and settled: a queue, or a group of a topic."""

    def __init__(self, app: "AsyncDuly", name: str, keys: QueueKeys, options: QueueOptions) -> None:
        self.name: str = name
        """The name it was made with; of a group, without its topic."""
        self.options: QueueOptions = options
        """How this process uses it."""
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
        """What it is called in logs, in deliveries, and by workers: "orders", or "events/archive" for a group."""
        return self._keys.name

    @property
    def title(self) -> str:
        """What it is called in sentences: "queue 'orders'", "group 'events/archive'"."""
        return self._keys.title

    @abstractmethod
    def _twin(self, app: Any) -> Any:
        """Make the same on another app, of either colour: with the same definition."""

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
        """Decorate the function that workers call with each message: `(body)`, `(body, d)` or `(d: duly.Delivery)`.

        Of a coroutine function 100 run at once, of a plain one 16, in threads; or `concurrency` of them in
        each process. Bodies are decoded to the annotated type. With `batch`, it gets a list. `timeout`
        cancels a coroutine function after so many seconds, which counts as a failure.
        """

        def register(function: Any) -> Any:
            handler = Handler(function, concurrency=concurrency, batch=batch, timeout=timeout)
            self._app._definitions.add_handler(self, handler)
            return function

        return register if function is None else register(function)

    def on_dead(self, function: F) -> F:
        """Decorate a function that a worker tells of each message that it makes dead: a `duly.Message`."""
        self._app._definitions.add_on_dead(self.label, function)
        return function

    # Receiving

    async def receive(
        self, limit: int = 10, wait: Seconds = 20.0, lease: Seconds | None = None, renew: bool = False
    ) -> Deliveries[BodyT]:
        """Take up to `limit` (10) messages that are due, waiting up to `wait` (20) seconds for the first.

        Returns [] when the wait is over. What is not settled comes back when its lease ends: after the
        queue's `lease` (30 s), or this one. With `renew`, leases are renewed in the background until the
        deliveries are settled, up to the queue's `max_runtime`.
        """
        checked_count(limit, "limit", most=MAX_BATCH)
        left = checked_seconds(wait, "wait")
        seconds = self._lease if lease is None else checked_positive_seconds(lease, "lease")
        give_up_at, is_brief = time.monotonic() + left, left < _BRIEF
        period, fruitless, at_once, woken = patience.looking_period(seconds), 0, 0, 0
        then: ops.Then = "watch" if left > 0 else "leave"
        while True:
            call = self._claim(limit=limit, lease=seconds, then=then)
            # --- async only
            claimed = await uninterrupted(self._claimed(call), self._give_back)
            if claimed.ids:
                return self._deliveries(claimed, seconds, renew=renew)
            # --- sync only
            # | claimed = self._claimed(call)
            # | if claimed.ids:
            # |     try:
            # |         return self._deliveries(claimed, seconds, renew=renew)
            # |     except BaseException:  # a signal handler has raised
            # |         self._give_back(claimed)
            # |         raise
            # --- end
            if claimed.next_in == 0 and at_once < _LOOKS_AT_ONCE:  # it was busy, with what is past its ttl, say
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
            # Whoever has watched and goes tells the next: it may have taken the token that announced a due time.
            then = "watch" if give_up_at > time.monotonic() else "pass"

    def _claim(
        self, *, limit: int, lease: float, then: ops.Then, suspects: ops.Suspects = "with"
    ) -> Call[replies.Claimed]:
        """Ask for what is due."""
        consumer = self._link.consumer
        return ops.claim(
            self._keys, self.options, limit=limit, lease=lease, consumer=consumer, then=then, suspects=suspects
        )

    async def _wait(self, claimed: replies.Claimed, seconds: float, *, exact: bool, woken: int) -> bool:  # noqa: ARG002
        """Wait until there may be more than a claim found. True: somebody said so.

        `woken` is how often that was said in a row, and nothing was found.
        """
        return await self._link.wait_for_token(self._keys, seconds, exact=exact)

    async def _claimed(self, call: Call[replies.Claimed]) -> replies.Claimed:
        """Claim. What schedules have to send by now is sent; what was sent is due at once, so claim again."""
        rounds = 0
        while True:
            # --- async only
            claimed = await self._link.run_now(call)
            is_more = await self._follow_up(claimed)
            # --- sync only
            # | claimed = self._link.run_whole(call, self._give_back)
            # | try:
            # |     is_more = self._follow_up(claimed)
            # | except BaseException:  # a signal handler has raised
            # |     self._give_back(claimed)
            # |     raise
            # --- end
            rounds += 1
            if claimed.ids or not is_more or rounds == _FIRED_IN_A_ROW:
                return claimed

    async def _follow_up(self, claimed: replies.Claimed) -> bool:
        """Log what a claim took back, and send for the slots of schedules that have come. True: more may be due."""
        log_reclaimed(self.label, claimed.reclaimed)
        due = claimed.schedules
        return bool(due) and await fire_due(self._link, self._keys, claimed.now, due, self._app._new_id)

    def _deliveries(self, claimed: replies.Claimed, lease: float, *, renew: bool) -> Deliveries[BodyT]:
        fence = claimed.fence
        try:
            rows = zip(claimed.ids, claimed.records, claimed.counts, strict=True)
            deliveries = [AsyncDelivery(self, id_.decode(), fence, record, counts) for id_, record, counts in rows]
        except UnicodeDecodeError:  # somebody else put an id among them: the others are not to suffer for it
            rows = zip(claimed.ids, claimed.records, claimed.counts, strict=True)
            deliveries = [AsyncDelivery(self, codec.visible(id_), fence, *row) for id_, *row in rows]
        if renew:
            cap = self.options.max_runtime
            longest = None if cap is None else checked_positive_seconds(cap, "max_runtime")
            self._app._renewer.add(deliveries, self._keys, lease, longest)
        return deliveries

    async def _give_back(self, claimed: replies.Claimed) -> None:
        """Release what a cancelled or interrupted receive has claimed, or pass on what it was about to watch."""
        if claimed.ids:
            await self._link.run_now(ops.release(self._keys, self._deliveries(claimed, self._lease, renew=False)))
        else:
            await self._link.run_now(ops.wake(self._keys))

    async def ack_many(self, deliveries: Iterable[AsyncDelivery[BodyT]]) -> Deliveries[BodyT]:
        """Finish many messages in a round trip a thousand; return those whose lease was lost."""
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
        """Refuse what `receive` has not given, like ids."""
        if isinstance(given, str | bytes) or not isinstance(given, Iterable):
            raise UsageError(f"{self.title}: ack_many takes a list of deliveries, not {given!r}: for one, use d.ack()")
        found: Deliveries[BodyT] = [*given]
        for each in found:
            if not hasattr(each, "_settled"):
                raise UsageError(f"{self.title}: ack_many takes deliveries as receive() gives them, not {each!r}")
        return found

    async def _ack(self, batch: Deliveries[BodyT], call: Call[Positions]) -> Deliveries[BodyT]:
        """Settle, and note it whatever becomes of the caller: the same again is a success."""

        def noted(found: Positions) -> Deliveries[BodyT]:
            positions = set(found)
            for position, delivery in enumerate(batch):
                delivery._note("ack", is_lost=position in positions)
            return [batch[position] for position in sorted(positions)]

        # --- async only
        async def carry_out() -> Deliveries[BodyT]:
            return noted(await self._link.run_now(call))

        return await uninterrupted(carry_out())
        # --- sync only
        # | found = self._link.run_whole(call, noted)
        # | try:
        # |     return noted(found)
        # | except BaseException:  # a signal handler has raised
        # |     noted(found)
        # |     raise
        # --- end

    # Looking

    async def stats(self) -> Stats:
        """Count what is where, at one moment."""
        return await self._stats_for("stats")

    async def _stats_for(self, asked: str) -> Stats:
        """Count, for something that the user has called: it is named when that fails."""
        return await self._link.run(ops.stats(self._keys).part_of(asked))

    async def get(self, id: str) -> Message | None:  # noqa: A002
        """Look at one message; None when it is unknown or finished."""
        outgoing.checked_text(id, "id")
        return await self._link.run(ops.get(self._keys, self._viewer(), id))

    async def explain(self, id: str) -> str:  # noqa: A002
        """Say in one sentence why a message is not being delivered, and when it will be."""
        outgoing.checked_text(id, "id")
        sight = await self._link.run(ops.explain(self._keys, self._viewer(), id))
        return explained(self.label, id, sight, self.options)

    async def list(
        self, state: State, limit: int = 50, after: Message | str | None = None, *, newest: bool = False
    ) -> Page:
        """Look at a page of the messages in a state; `after` is the last one of the page before.

        Ready and delayed ones come by priority, then by due time; parked ones by key; leased ones by deadline; dead and
        done ones oldest first, or with `newest` the newest first. A page of large messages may be shorter than
        `limit`; an empty one is the end.
        """
        _check_state(state)
        checked_count(limit, "limit", most=MAX_BATCH)
        if after is not None and not isinstance(after, Message):
            outgoing.checked_text(after, "after")
        if newest and state not in ("dead", "done"):
            raise UsageError(f"newest=True is for dead and done messages, not for {state} ones")
        return await self._listed(state, limit, after, newest=newest)

    async def _listed(self, state: State, limit: int, after: Message | str | None, *, newest: bool) -> Page:
        page, _ = await self._link.run(ops.list_(self._keys, self._viewer(), state, limit, after, newest=newest))
        return page

    async def pending(self, consumer: str | None = None, limit: int = 100) -> Pending:
        """See who holds what: totals, counts by consumer, and the first `limit` leases by deadline."""
        checked_count(limit, "limit", least=0)
        rows = await self._leases()
        if consumer is not None:
            rows = [row for row in rows if row.consumer == consumer]
        return views.pending(rows, limit)

    async def _leases(self) -> Rows:
        """Look at all leases, by deadline."""
        rows: Rows = []
        while page := await self._link.run(ops.pending(self._keys, len(rows), MAX_BATCH)):
            rows += page
            if len(page) < MAX_BATCH:
                break
        return rows

    # Steering

    async def cancel(self, id: str, *, running: bool = False) -> bool:  # noqa: A002
        """End a message that waits (ready, delayed or parked) or is dead.

        True: this call ended it. No handler has it, and none will get it.
        False: it is unknown or over, an entry that its group has not read yet, or a consumer has it. A consumer has a
        message from the claim to the settle: also one that a worker claimed ahead, and one whose lease ran out but that
        no other consumer took over.
        `running=True` also ends a message that a consumer has. The consumer's lease is lost: an `async def` handler is
        cancelled, a `def` handler sees `d.lost`. What the handler did before that stays done.
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
        """Give a waiting message another due time. False: it does not wait, or its group has not read it yet."""
        outgoing.checked_text(id, "id")
        return await self._link.run(ops.reschedule(self._keys, id, outgoing.new_due(delay, at, time.time())))

    async def promote(self, id: str) -> bool:  # noqa: A002
        """Make a delayed message due now. False: it does not wait, or its group has not read it yet."""
        outgoing.checked_text(id, "id")
        return await self._link.run(ops.reschedule(self._keys, id, outgoing.NOW))

    async def pause(self) -> None:
        """Hand nothing out until `resume`. Sends and settles go on."""
        await self._link.run(ops.pause(self._keys, self._link.consumer))

    async def resume(self) -> None:
        """Hand out again."""
        await self._link.run(ops.resume(self._keys))

    async def purge(
        self,
        state: State | None = None,
        *,
        where: Selection | None = None,
        dry_run: bool = False,
        on_progress: Callable[[int], None] | None = None,
    ) -> int:
        """End all messages of a state, or all there are, and return how many. Holders find their lease lost.

        Of a group, entries that it has not read are passed over and counted; the topic keeps them.
        `where` chooses among dead letters, as for `redrive`; a `dry_run` of that only counts them. `on_progress` is
        called after each thousand with the number that ended so far.
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
        # No more than there are now: what is sent meanwhile may stay, and so does what was parked behind them.
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
        """Remove the queue with all that is in it and all that it counted."""
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
        """Put dead letters back to work, oldest first, with their attempts anew, and return how many.

        `where` chooses among them; `rate` like "50/s" spreads them over time. Each goes to its own place, with
        `at_end` behind all that is due now, or into another queue, `to`. `edit` is given a `Message` and returns
        another body, or `UNCHANGED`. A `dry_run` changes nothing and tells how many it would be. `on_progress` is
        called after each step with the number so far. Interrupted, it may simply be called again.
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
    ) -> Page:
        """Look at the oldest, or with `newest` the newest, dead letters that `where` means, as for `redrive`."""
        return await redriving.find(self, selection_of(where), limit, newest=newest)

    async def audit(self, repair: bool = False, *, on_progress: Callable[[int], None] | None = None) -> Audit:
        """Prove the accounts: what was sent is accounted for, and each id is in exactly one place.

        Online and in bounded steps. With `repair`, mends what it finds without losing a body; the audit that comes
        back tells what was wrong. `on_progress` is called after each step with the number of ids looked at so far.
        """
        progress = checked_progress(on_progress)
        return await AsyncAuditor(self._link, self._keys, self.label, repair=repair, on_progress=progress).run()

    def _viewer(self) -> views.Viewer:
        return views.Viewer(self.label, self._decode_body)


def _check_state(state: object) -> None:
    if state not in STATES:
        raise UsageError(f"{state!r} is not a state: use one of {', '.join(STATES)}")
