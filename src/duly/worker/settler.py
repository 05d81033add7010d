"""Sends the outcomes of messages to the server, many in one script, whenever the connection is free.

Decisions collect while one call is in progress. So batches grow under load, and an idle worker settles at once. On a
cluster, each node has its own call in progress.
"""

import asyncio
import logging
import random
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Final

from duly._core import codec, ops, patience, settles
from duly._core.call import Call
from duly._core.outcome_rules import ACK, Decision, described, is_failure, place_of
from duly._core.settles import Row, Step, Way
from duly.errors import DulyError, Unavailable
from duly.options import MAX_BATCH, Retry
from duly.worker.logs import event
from duly.worker.node_work import NodeWork
from duly.worker.queue_runtime import QueueRuntime
from duly.worker.retry_summary import RetrySummary
from duly.worker.source import AnyDelivery

_LOG: Final = logging.getLogger("duly.worker")

Errors = dict[AnyDelivery, BaseException]


class Unsettled:
    """The decisions of one queue that the server does not know yet."""

    __slots__ = ("acks", "decisions", "results", "settling")

    def __init__(self) -> None:
        self.acks: list[AnyDelivery] = []
        self.decisions: deque[tuple[AnyDelivery, Decision]] = deque()
        self.results: list[tuple[AnyDelivery, str]] = []
        """Packed values that handlers returned after a commit."""
        self.settling: Sequence[AnyDelivery] = ()
        """Deliveries of the call in progress. Its reply shows whether a lease was lost."""


class Settler:
    """Settles. `on_progress` is called when messages were settled or lost, `on_dead` with the ids of dead ones."""

    def __init__(
        self,
        on_progress: Callable[[QueueRuntime], None],
        on_dead: Callable[[QueueRuntime, Sequence[str]], None],
        *,
        is_spread: bool = False,
    ) -> None:
        """Take `is_spread`: whether the queues are on several nodes."""
        self._on_progress = on_progress
        self._on_dead = on_dead
        self._retries = RetrySummary()
        self._runtimes: dict[QueueRuntime, None] = {}
        """Queues that have something to settle."""
        self._in_progress: set[QueueRuntime] = set()
        """Queues that are being settled. One call at a time for each, even if its slot moves to another node."""
        self._unsettled: defaultdict[QueueRuntime, Unsettled] = defaultdict(Unsettled)
        self._has_work = asyncio.Event()
        self._node_work = NodeWork(is_spread=is_spread, on_end=self._has_work.set)
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    def add(self, runtime: QueueRuntime, delivery: AnyDelivery, decision: Decision) -> None:
        """Settle a message soon, unless its handler has settled it or its lease was lost.

        The server would accept an ack after the lease has expired, until another consumer claims the message. But a
        handler that saw `d.lost` has given up, so its message must be redelivered.
        """
        is_given_up = (
            delivery.lost and decision.verb != "release"
        )  # a shutdown marks messages as lost and releases them
        if delivery._settled is not None or decision.verb == "lost" or is_given_up:
            self._note_settled(runtime, delivery, decision)
            return
        if decision is ACK and not codec.is_repeating(delivery._record):
            self._unsettled[runtime].acks.append(delivery)
        else:
            self._unsettled[runtime].decisions.append((delivery, decision))
        if runtime not in self._runtimes:
            self._schedule(runtime)

    def _schedule(self, runtime: QueueRuntime) -> None:
        """Settle a queue when its turn comes."""
        self._runtimes[runtime] = None
        self._is_idle.clear()
        self._has_work.set()

    def settling(self, runtime: QueueRuntime) -> Sequence[AnyDelivery]:
        """Return the deliveries of the call in progress. Any thread may call this."""
        unsettled = self._unsettled.get(runtime)
        return () if unsettled is None else unsettled.settling

    def awaiting_settle(self, runtime: QueueRuntime) -> set[AnyDelivery]:
        """Return the deliveries whose decision the server does not know yet."""
        unsettled = self._unsettled[runtime]
        return {*unsettled.acks, *(delivery for delivery, _ in unsettled.decisions), *unsettled.settling}

    def _note_settled(self, runtime: QueueRuntime, delivery: AnyDelivery, decision: Decision) -> None:
        """Drop a delivery that its handler has settled, or that was lost. A later error is logged, not stored."""
        self._let_go(runtime, [delivery])
        if delivery._settled is not None and not delivery.lost:
            runtime.handled += 1
            if is_failure(decision):
                event(
                    _LOG, logging.WARNING, "handler.failed_after_settle", queue=runtime.name, id=delivery.id,
                    settled=delivery._settled, error=described(decision.error)[0], **place_of(decision.error),
                )  # fmt: skip
            if delivery._settled == "commit" and delivery._awaits_result:
                self._unsettled[runtime].results.append((delivery, decision.result))
                self._schedule(runtime)
        if _was_rejected_by_handler(delivery):
            self._on_dead(runtime, [delivery.id])
        self._on_progress(runtime)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            while True:
                await self._has_work.wait()
                self._has_work.clear()
                self._node_work.raise_error()
                while (runtime := self._next_runtime()) is not None:
                    await self._node_work.run(runtime.source.node, self._settle, runtime)
                if not self._runtimes and self._node_work.is_idle:
                    self._is_idle.set()
        except asyncio.CancelledError:
            self._node_work.cancel()
            raise

    def _next_runtime(self) -> QueueRuntime | None:
        """Choose the next queue to settle."""
        for runtime in self._runtimes:
            if runtime not in self._in_progress:
                del self._runtimes[runtime]
                self._in_progress.add(runtime)
                return runtime
        return None

    async def flush(self) -> None:
        """Wait until all deliveries that were added are settled."""
        await self._is_idle.wait()

    def close(self) -> None:
        """Log the retries that no summary has counted yet."""
        self._retries.close()

    async def _settle(self, runtime: QueueRuntime) -> None:
        try:
            await self._settle_all(runtime)
        finally:
            self._in_progress.discard(runtime)

    async def _settle_all(self, runtime: QueueRuntime) -> None:
        unsettled = self._unsettled[runtime]
        acks, unsettled.acks = unsettled.acks, []
        for first in range(0, len(acks), MAX_BATCH):
            batch = acks[first : first + MAX_BATCH]
            await self._send(runtime, "ack", batch, ops.ack(runtime.source.keys, runtime.options, batch))
        rows: defaultdict[Way, list[Row]] = defaultdict(list)
        errors: Errors = {}
        while unsettled.decisions:
            delivery, decision = unsettled.decisions.popleft()
            way, row = _row_of(runtime, delivery, decision)
            rows[way].append(row)
            if isinstance(decision.error, BaseException) and is_failure(decision):
                errors[delivery] = decision.error
        for step in settles.bounded(Step(way, those) for way, those in rows.items()):
            await self._settle_step(runtime, step, errors)
        returned, unsettled.results = unsettled.results, []
        for first in range(0, len(returned), MAX_BATCH):
            await self._keep_results(runtime, returned[first : first + MAX_BATCH])

    async def _keep_results(self, runtime: QueueRuntime, rows: list[tuple[AnyDelivery, str]]) -> None:
        """Store values that handlers returned after a commit. A failure is only logged: the message is finished."""
        try:
            lost, _ = await self._run_until_answered(runtime, ops.keep_results(runtime.source.keys, rows))
            error = "the message is gone"
        except DulyError as refused:
            lost, error = list(range(len(rows))), str(refused)
        for delivery in (rows[position][0] for position in lost if rows[position][1]):
            event(_LOG, logging.WARNING, "result.lost", queue=runtime.name, id=delivery.id, error=error)

    async def _settle_step(self, runtime: QueueRuntime, step: Step, errors: Errors) -> None:
        way, call = step.way, step.call(runtime.source.keys, runtime.options)
        settled = await self._send(runtime, way.logged or way.verb, step.deliveries, call)
        settled_now = set(settled)
        for row in step.rows:
            if row[0] in settled_now:
                _log_outcome(runtime, way, row, errors.get(row[0]))
                if way is settles.RETRY:
                    self._retries.add(runtime.name, row[2])
        if way.reason is not None and settled:
            self._on_dead(runtime, [delivery.id for delivery in settled])

    async def _send(
        self, runtime: QueueRuntime, verb: str, deliveries: list[AnyDelivery], call: Call[list[int]]
    ) -> list[AnyDelivery]:
        """Carry out a call, however long it takes, and return the deliveries that it settled."""
        self._unsettled[runtime].settling = deliveries
        try:
            lost, tries = await self._run_until_answered(runtime, call)
        except DulyError as error:
            event(
                _LOG, logging.ERROR, "settle.failed", queue=runtime.name, verb=verb, count=len(deliveries),
                error=str(error), fate="delivered again when the leases end",
            )  # fmt: skip
            lost, tries = list(range(len(deliveries))), 0
        for delivery in deliveries:
            delivery._settled = verb
        self._unsettled[runtime].settling = ()
        for position in lost:
            deliveries[position]._note(verb, is_lost=True)
            event(
                _LOG, logging.WARNING, "settle.lost", queue=runtime.name, id=deliveries[position].id, verb=verb,
                may_be_settled=tries > 0,
            )  # fmt: skip
        self._let_go(runtime, deliveries)
        runtime.handled += len(deliveries)
        self._on_progress(runtime)
        return deliveries if not lost else [each for each in deliveries if not each.lost]

    async def _run_until_answered(self, runtime: QueueRuntime, call: Call[list[int]]) -> tuple[list[int], int]:
        """Carry out a call, however long it takes. Return its answer, and how often the server was unavailable."""
        tries = 0
        while True:
            try:
                return await runtime.source.link.run_on(call), tries
            except Unavailable:  # the link has logged it
                await asyncio.sleep(patience.backoff(tries, random.random))
                tries += 1

    def _let_go(self, runtime: QueueRuntime, deliveries: Sequence[AnyDelivery]) -> None:
        runtime.source.held.difference_update(deliveries)
        runtime.busy -= len(deliveries)
        if runtime.started:
            for delivery in deliveries:
                runtime.started.pop(delivery, None)


def _was_rejected_by_handler(delivery: AnyDelivery) -> bool:
    """Return whether its handler has settled it in a way that makes it dead."""
    return delivery._settled == "reject" or delivery._has_failed_for_good


def _row_of(runtime: QueueRuntime, delivery: AnyDelivery, decision: Decision) -> tuple[Way, Row]:
    """Turn a decision into arguments of a script. A decision that cannot be encoded must not end the worker."""
    try:
        way, row, flaws = settles.choose_way(delivery, decision)
    except Exception as error:  # noqa: BLE001
        event(_LOG, logging.ERROR, "outcome.invalid", queue=runtime.name, id=delivery.id, exc_info=error)
        why = f"the outcome could not be encoded: {type(error).__name__}"
        return settles.RETRY, (delivery, Retry().delay_after(1), why, "")
    for flaw in flaws:
        _LOG.warning("%s", flaw)
    return way, row


def _log_outcome(runtime: QueueRuntime, way: Way, row: Row, error: BaseException | None) -> None:
    """Log one line for a message that was not simply acked, and where its handler failed."""
    delivery, *rest = row
    known = {"queue": runtime.name, "id": delivery.id, "attempt": delivery.attempt}
    if error is not None:
        event(_LOG, logging.DEBUG, "handler.failed", **known, exc_info=error)
    place = place_of(error)
    if way is settles.RETRY:
        event(_LOG, logging.INFO, "message.retry", **known, delay=round(rest[0], 3), error=rest[1], **place)
    elif way.reason is not None:
        event(_LOG, logging.WARNING, "message.dead", **known, reason=rest[0], error=rest[1], **place)
    elif way is settles.RELEASE:
        event(_LOG, logging.INFO, "message.release", **known)
    elif way is settles.DEFER:
        because = {"reason": rest[1]} if rest[1] else {}
        event(_LOG, logging.DEBUG, "message.defer", **known, delay=rest[0], **because)
    elif way in (settles.RECYCLE, settles.REPEAT):
        event(_LOG, logging.DEBUG, "message.recycle", **known, delay=rest[0])
