"""A delivery: a message that a consumer has leased, and the methods to settle it."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, overload

from duly._async.lock import AsyncLock
from duly._async.primitives import uninterrupted
from duly._core import codec, commits, outcome_rules, replies, results, settles, views
from duly._core.call import Call
from duly._core.delivered import Delivered
from duly._core.observing import Processing

# --- sync only
# | from duly._sync.gates import Gates
# --- end
from duly.errors import CodecError, LeaseLost, UsageError
from duly.message import Committed, Progress
from duly.options import UNCHANGED, BodyT, Retry, Seconds, Unchanged, checked_positive_seconds
from duly.outcomes import Defer, OnBusy, Outcome

if TYPE_CHECKING:
    from duly._async.inbox import AsyncInbox
    from duly._typing import PublishPair, SendPair

OtherT = TypeVar("OtherT")

_LOG: Final = logging.getLogger("duly")
_LOST: Final = "lost"
# --- sync only
# | _gates: Final = Gates()
# --- end
_WHEN_BUSY: Final = Defer(2)


class AsyncDelivery(Delivered[BodyT]):
    """One delivery of a message. Settle it once: ack, commit, retry, defer, recycle, reject or release.

    Every settle is atomic and safe to repeat. If the lease was lost, or if the delivery was settled in another way, it
    changes nothing and raises LeaseLost. `with d:` acks when the block ends, and retries when it raises. It does
    nothing if the block has settled the delivery.
    """

    __slots__ = (
        "__weakref__",
        "_awaits_result",
        "_body",
        "_committed",
        "_counts",
        "_has_failed_for_good",
        "_is_in_handler",
        "_processing",
        "_queue",
        "_record",
        "_settled",
        "_settling",
        "_stored",
        "_task_retry",
        "fence",
        "id",
        "lost",
    )

    _processing: Processing | None
    """Set if an observer sees its handling; None: the worker reports the end, or it was reported."""

    def __init__(
        self,
        queue: "AsyncInbox[BodyT]",
        id: str,  # noqa: A002
        fence: int,
        record: bytes,
        counts: bytes,
    ) -> None:
        self._queue = queue
        self._record = record
        self._counts = counts
        self._stored: codec.Record | None = None
        self._body: Any = UNCHANGED
        self._settled: str | None = None
        self._committed: replies.CommitOutcome | None = None
        self._is_in_handler = False
        """Whether a worker stores the value that its handler returns."""
        self._awaits_result = False
        """Whether it was committed without a result, and the handler may still return one."""
        self._task_retry: Retry | None = None
        """The retry policy of its task, set by a worker."""
        self._has_failed_for_good = False
        """Whether a failure made it dead."""
        # --- async only
        self._settling: tuple[str, asyncio.Future[bool]] | None = None
        # --- end
        self.id: str = id
        self.fence: int = fence
        """The fencing token. It grows with each delivery of the message, so a store can refuse older ones."""
        self.lost: bool = False
        """Whether the lease is known to be lost. If so, stop the work: the message is no longer yours."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self._queue.title}, attempt {self.attempt}>"

    @property
    def queue(self) -> str:
        """The name of the queue; for a group, with its topic: "events/archive"."""
        return self._queue.label

    @property
    def body(self) -> BodyT:
        """The decoded body, in the type of the queue if it has one. Raises CodecError if it cannot be decoded."""
        if self._body is UNCHANGED:
            envelope = self._opened().envelope
            self._body = self._decoded(self._queue._decode_body, envelope)
        body: BodyT = self._body
        return body

    @property
    def raw(self) -> bytes:
        """The encoded body; for an entry that another program added to a topic, its fields as JSON."""
        envelope = self._opened().envelope
        return codec.raw_of(envelope.content, envelope.body)

    @overload
    def decode(self, kind: type[OtherT]) -> OtherT: ...

    @overload
    def decode(self, kind: Any) -> Any: ...

    def decode(self, kind: Any) -> Any:
        """Decode the body to a type. Raises CodecError if that fails."""
        envelope = self._opened().envelope
        return self._decoded(codec.decoder_of(kind), envelope)

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers it was sent with."""
        return self._opened().envelope.headers or {}

    @property
    def key(self) -> str | None:
        """The key it was sent with."""
        return self._opened().key

    @property
    def priority(self) -> int:
        """The priority, 0 to 9."""
        return codec.read_priority(self._record)

    @property
    def has_key(self) -> bool:
        """Whether it was sent with a key."""
        return codec.has_key(self._record)

    @property
    def redrives(self) -> int:
        """How often it was dead and redriven."""
        return codec.read_counts(self._counts).redrives

    @property
    def cycles(self) -> int:
        """How often it was recycled."""
        return codec.read_counts(self._counts).cycles

    @property
    def sent_at(self) -> datetime:
        """When it was stored, by the server's clock."""
        return views.moment(codec.read_stamps(self._record)[0])

    @property
    def due_at(self) -> datetime:
        """When it was due: by its send, or by its last retry or defer."""
        return views.moment(codec.read_counts(self._counts).due or codec.read_stamps(self._record)[1])

    @property
    def failures(self) -> int:
        """The number of failed deliveries before this one."""
        return codec.read_counts(self._counts).failures

    @property
    def crashes(self) -> int:
        """The number of deliveries before this one whose lease expired."""
        return codec.read_counts(self._counts).crashes

    @property
    def defers(self) -> int:
        """The number of times it was deferred."""
        return codec.read_counts(self._counts).defers

    @property
    def attempt(self) -> int:
        """The number of this attempt: failures plus crashes plus one."""
        counts = codec.read_counts(self._counts)
        return counts.failures + counts.crashes + 1

    @property
    def deliveries(self) -> int:
        """The number of deliveries, including this one."""
        counts = codec.read_counts(self._counts)
        return counts.failures + counts.crashes + counts.defers + counts.releases + 1

    @property
    def is_settled(self) -> bool:
        """Whether this delivery was settled, or its lease was lost."""
        return self._settled is not None

    async def ack(self, *, result: Any = None) -> None:
        """Finish the message. A message that was sent with `repeat` is delivered again later.

        Atomic and safe to repeat. Raises LeaseLost.

        Args:
            result: Stored for `queue.result(id)` if the queue has `done=`.

        Example:
            ```python
            [d] = await orders.receive(limit=1)
            await d.ack()
            ```
        """
        await self._settle_by(settles.acked([self], self._packed(result)))

    def _packed(self, result: Any) -> str:
        """Encode a result. Empty: there is none, the queue does not store results, or the message repeats."""
        options = self._queue.options
        if result is None or options.done is None or self._repeat_delay() is not None:
            return ""
        packed = results.packed_result(result, options.max_message_bytes)
        if (why := results.refusal_of(packed)) and self._settled is None:
            _LOG.warning("the result of message %s of %s is not kept: %s", self.id, self._queue.title, why)
        return packed

    async def retry(self, delay: Seconds | None = None, error: BaseException | str | None = None) -> None:
        """Count a failed attempt. The message is redelivered after `delay`, or is dead if this was the last attempt.

        Atomic and safe to repeat. Raises LeaseLost.

        Args:
            delay: Seconds until the next attempt. None: the backoff of the retry policy.
            error: An exception or a text that is stored with the message.

        Example:
            ```python
            await d.retry(delay=60, error="the bank does not answer")
            ```
        """
        await self._settle_by(settles.retried([self], delay, error))

    async def defer(self, delay: Seconds, reason: str = "") -> None:
        """Deliver the message again after `delay` seconds, without using an attempt (snooze).

        `reason` appears in the timeline. Atomic and safe to repeat. Raises LeaseLost.
        """
        await self._settle_by(settles.deferred([self], delay, reason))

    async def recycle(self, delay: Seconds = 0, body: BodyT | Unchanged = UNCHANGED) -> None:
        """Ack the message and enqueue it again as new, with its id, in one step.

        `body` replaces the body. Atomic and safe to repeat. Raises LeaseLost.
        """
        part = b"" if body is UNCHANGED else self._queue._encoder.with_body(self._record, body)
        await self._settle_by(settles.recycled([self], delay, part))

    async def reject(self, reason: str) -> None:
        """Make the message dead at once, without further attempts. Atomic and safe to repeat. Raises LeaseLost."""
        await self._settle_by(settles.rejected([self], reason))

    async def release(self) -> None:
        """Return the message to its place in the queue, without using an attempt (nack).

        It is redelivered at once. Atomic and safe to repeat. Raises LeaseLost.
        """
        await self._settle_by(settles.released([self]))

    async def commit(
        self,
        send: "Iterable[SendPair] | None" = (),
        redis: Iterable[Sequence[str | bytes | float]] | None = (),
        *,
        publish: "Iterable[PublishPair] | None" = (),
        result: Any = None,
    ) -> Committed:
        """Send, publish, change your own keys and ack this message in one atomic step.

        Args:
            send: Pairs of a queue and a body or `Send`, or of a task and its arguments: a tuple or a dict.
            redis: Commands like `("DECRBY", "stock:1", 5)` on the same server.
            publish: Pairs of a topic and a body or `Send`.
            result: Stored if the queue has `done=`. Without it, the value that the handler returns later is stored.

        Example:
            ```python
            await d.commit(send=[(invoices, {"order": 17})], redis=[("DECRBY", "stock:tea", 1)])
            ```

        Returns the replies of `redis`, as a list in the same order. Safe to repeat. If it raises LeaseLost, UsageError
        or QueueFull, nothing was changed. After UsageError or QueueFull, the message is still leased.
        """
        if self._repeat_delay() is not None:
            raise UsageError(
                f"message {self.id} of {self._queue.title} was sent with repeat= and would be delivered again: commit "
                "cannot finish it. Use ack(), or send it without repeat="
            )
        plan, options = commits.planned(self._queue, send, publish, redis), self._queue.options
        if self._settled is None:
            self._awaits_result = self._is_in_handler and options.done is not None and result is None
        result_in = checked_positive_seconds(options.lease, "lease") if self._awaits_result else 0
        await self._settle("commit", plan.call(self._queue, self, self._packed(result), result_in))
        outcome = self._committed
        assert outcome is not None
        if outcome.code != replies.COMMIT_DONE:
            raise plan.refused(self.queue, self.id, outcome)
        return Committed(outcome.replies, outcome.sent, outcome.published)

    async def extend(self, seconds: Seconds) -> None:
        """Set the end of the lease to `seconds` from now. Safe to repeat. Raises LeaseLost."""
        await self._keep_lease(settles.extended([self], seconds))

    async def progress(self, fraction: float, text: str = "") -> None:
        """Report the progress of the work, from 0 to 1, and the current step.

        `get()`, the dashboard and the HTTP API show the last report until this delivery ends. It does not extend the
        lease. Safe to repeat. Raises LeaseLost.
        """
        report = Progress(fraction, text)
        await self._keep_lease(settles.alike("progress", [self], report.fraction, report.text))

    async def _keep_lease(self, steps: Sequence[settles.Step]) -> None:
        """Carry out a step after which the delivery is still leased."""
        (step,) = steps
        if self._settled is not None or self.lost:
            raise replies.lease_lost(self.queue, self.id, step.way.verb)
        lost = await self._queue._link.run(step.call(self._queue._keys, self._queue.options))
        if lost:
            self._note(step.way.verb, is_lost=True)
            raise replies.lease_lost(self.queue, self.id, step.way.verb)

    def lock(self, name: str, ttl: Seconds = 30.0, on_busy: OnBusy = _WHEN_BUSY) -> AsyncLock:
        """Return a lock for a block: `async with d.lock("stock:42", ttl=30):`. It expires after `ttl` seconds.

        `on_busy` is the reaction if another holder has the lock. By default, the message is deferred for 2 s
        (`duly.Defer(2)`). "raise" raises LockBusy. `duly.Wait(5)` waits up to 5 s, then raises LockBusy.
        """
        queue = self._queue
        holder = f", message {self.id} of {self._queue.title}"
        return AsyncLock(queue._link, queue._app.namespace, name, ttl=ttl, on_busy=on_busy, holder=holder)

    async def __aenter__(self) -> Self:
        observer = self._queue._app._definitions.observer
        if observer is not None and not hasattr(self, "_processing"):  # a worker observes its deliveries itself
            self._processing = observer.processing([self], in_worker=False)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        processing = getattr(self, "_processing", None)
        if processing is None:
            return await self._settle_block(error)
        self._processing = None
        failure = error
        try:
            return await self._settle_block(error)
        except BaseException as unsettled:
            failure = unsettled
            raise
        finally:
            is_failure = isinstance(failure, Exception) and not isinstance(failure, Outcome)
            processing.ended([self._settled or "unsettled"], failure if is_failure else None)

    async def _settle_block(self, error: BaseException | None) -> bool:
        """Settle by the end of the block. Return whether it has dealt with the error."""
        if self._settled is not None:
            return isinstance(error, Outcome)
        if error is None:
            await self.ack()
            return False
        try:
            await self._settle_by([self._judged(error)])
        except LeaseLost as lost:
            _LOG.warning("%s", lost)
        return isinstance(error, Outcome)

    def _judged(self, error: BaseException) -> settles.Step:
        """Return the settle for an exception that a block raised."""
        if not isinstance(error, Exception):  # cancelled or interrupted: the message did not fail
            return settles.Step(settles.RELEASE, [(self,)])
        way, row, flaws = settles.choose_way(self, outcome_rules.decision_of_error(error))
        for flaw in flaws:
            _LOG.warning("%s", flaw)
        return settles.Step(way, [row])

    async def _settle_by(self, steps: Iterable[settles.Step]) -> None:
        """Carry out the only step that has a row, and log if the message is dead."""
        (step,) = (each for each in steps if each.rows)
        await self._settle(step.way.verb, step.call(self._queue._keys, self._queue.options))
        if step.way.reason is not None:
            self._has_failed_for_good = step.way is settles.FAIL
            self._log_dead(step.way.reason(step.rows[0]))

    async def _settle(self, verb: str, call: Call[Any]) -> None:
        # --- async only
        if self._settling is not None and self._settling[0] == verb:  # by another task, or before a cancellation
            await asyncio.wait({self._settling[1]})
        # --- end
        if self._settled == verb:
            return
        if self._settled is not None or self.lost:
            raise replies.lease_lost(self.queue, self.id, verb)
        # --- async only
        work = asyncio.ensure_future(self._carry_out(verb, call))
        self._settling = (verb, work)
        is_lost = await uninterrupted(work)
        # --- sync only
        # | is_lost = self._carry_out_alone(verb, call)
        # --- end
        if is_lost:
            raise replies.lease_lost(self.queue, self.id, verb)

    # --- sync only
    # | def _carry_out_alone(self, verb: str, call: Call[Any]) -> bool:
    # |     """Settle, unless another thread has: threads may share a delivery."""
    # |     with _gates.of(self.id):
    # |         return self._carry_out(verb, call) if self._settled is None else self._settled != verb
    # |
    # --- end
    async def _carry_out(self, verb: str, call: Call[Any]) -> bool:
        """Settle and record it, even if the caller is cancelled. Return whether the lease was lost."""
        # --- async only
        return self._conclude(verb, await self._queue._link.run_now(call))
        # --- sync only
        # | answer = self._queue._link.run_whole(call, lambda found: self._conclude(verb, found))
        # | try:
        # |     return self._conclude(verb, answer)
        # | except BaseException:  # a signal handler has raised
        # |     self._conclude(verb, answer)
        # |     raise
        # --- end

    def _conclude(self, verb: str, answer: Any) -> bool:
        """Record the reply to a settle. Return whether the lease was lost."""
        is_lost = bool(answer)
        if isinstance(answer, replies.CommitOutcome):
            self._committed = answer
            if answer.code not in (replies.COMMIT_DONE, replies.COMMIT_LOST):
                return False  # nothing was changed, and the lease is still held
            is_lost = answer.code == replies.COMMIT_LOST
        self._note(verb, is_lost=is_lost)
        return is_lost

    def _log_dead(self, why: str) -> None:
        id_, reason = outcome_rules.on_one_line(self.id), outcome_rules.on_one_line(outcome_rules.storable(why))
        _LOG.warning("message %s of %s is dead: %s", id_, self._queue.title, reason)

    def _note(self, verb: str, *, is_lost: bool) -> None:
        self._settled = _LOST if is_lost else verb
        self.lost = is_lost

    def _decoded(self, decode: Callable[[int, bytes], Any], envelope: codec.Envelope) -> Any:
        try:
            return decode(envelope.content, envelope.body)
        except CodecError as error:
            raise CodecError(
                f"message {self.id} of {self._queue.title}: {error}. Reject it, or fix the type"
            ) from error

    def _opened(self) -> codec.Record:
        if self._stored is None:
            self._stored = codec.read_record(self._record)
        return self._stored

    def _repeat_delay(self) -> float | None:
        """Return the seconds from an ack to the next delivery; None: an ack finishes the message."""
        if not codec.is_repeating(self._record):
            return None
        try:
            rule = self._opened().envelope.repeat
            return None if rule is None else codec.unpacked_repeat(rule).delay_after(self.cycles + 1)
        except (CodecError, UsageError):  # written by another version: an ack must still be possible
            return None

    def _retry_policy(self) -> Retry:
        """Return the policy of the message, with the exceptions of the consumer's; if it has none, the consumer's."""
        consumers = self._task_retry or self._queue.options.retry
        try:
            own = self._opened().envelope.retry
            if own is not None:
                return replace(codec.unpacked_retry(own), only=consumers.only, never=consumers.never)
        except (CodecError, UsageError):  # written by another version: a settle must still be possible
            pass
        return consumers
