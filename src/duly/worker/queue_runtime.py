"""One queue or group of a worker: its handler, its slots, and how much more it may claim."""

import time

from duly._async.delivery import AsyncDelivery
from duly._async.group import AsyncGroup
from duly._async.inbox import AsyncInbox
from duly._core import codec, replies
from duly._core.handlers import Handler, TaskDefinition, TaskSet
from duly._core.replies import Claimed
from duly._sync.delivery import Delivery
from duly._sync.inbox import Inbox
from duly.errors import CodecError
from duly.options import QueueOptions, checked_positive_seconds
from duly.worker.handler_pace import HandlerPace
from duly.worker.lease_validity import LeaseValidity
from duly.worker.source import AnyDelivery, Source
from duly.worker.times import Times


class QueueRuntime:
    """The state of one queue or group that the parts of a worker share. All times are of the monotonic clock.

    Only the event loop writes here, except for `lease_validity`, which the renewer's thread writes.
    """

    def __init__(
        self, queue: AsyncInbox, sync_queue: Inbox, handler: Handler | TaskSet, weight: int, concurrency: int | None
    ) -> None:
        self.queue = queue
        self.sync_queue = sync_queue
        self.options: QueueOptions = queue.options
        self.handler = handler
        self.weight = weight
        self.lease: float = checked_positive_seconds(self.options.lease, "lease")
        self.max_runtime: float | None = (
            None
            if self.options.max_runtime is None
            else checked_positive_seconds(self.options.max_runtime, "max_runtime")
        )
        self.is_async: bool
        self.is_mixed: bool
        self.is_async, self.is_mixed = _kinds(handler)
        self.slots: int = _slot_count(handler, concurrency)
        """Handlers at once."""
        self.per_slot: int = handler.batch.max if handler.batch else 1

        self.busy: int = 0
        """Messages that were claimed and are not settled. A hung handler counts even after its lease was lost."""
        self.collected = 0
        """Those of them that are in a batch which is not full yet."""
        self.batches = 0
        """Batches that were passed to the runner and are not finished."""
        self.handled = 0
        """Messages settled since the worker started."""
        self.started: dict[AnyDelivery, float] = {}
        """When handlers started. Only with `max_runtime`."""

        self.times: Times = Times(is_group=isinstance(queue, AsyncGroup))
        """Lateness and handling times for the history."""

        now = time.monotonic()
        self.pace: HandlerPace = HandlerPace(now)
        self.lease_validity: LeaseValidity = LeaseValidity(now + self.lease)
        self.excess_since: float | None = None
        """Since when more messages wait for slots than the pace allows."""
        self.source: Source = Source(self, queue)
        """The store that messages are claimed from."""

    @property
    def name(self) -> str:
        """The name of the queue or group."""
        return self.queue.label

    @property
    def calls(self) -> int:
        """Handler calls that run or wait, and the batch that is being collected."""
        return self.busy if self.handler.batch is None else self.batches + bool(self.collected)

    @property
    def batch_space(self) -> int:
        """How many messages fit into the batch that is being collected."""
        return self.per_slot - self.collected if self.collected else 0

    @property
    def ahead(self) -> int:
        """How many messages may be claimed beyond the free slots.

        None for a mix of `def` and `async def` tasks: each kind has its own runner, and together they would exceed the
        slots.
        """
        return 0 if self.is_mixed else self.pace.ahead(self.handled, time.monotonic())

    @property
    def room(self) -> int:
        """How many more messages may be claimed. Claims ahead are made in large pieces, because each one is a call."""
        ahead = self.ahead
        room = ahead + (self.slots - self.calls) * self.per_slot + self.batch_space
        return room if room > ahead // 4 else 0

    def take(self, claimed: Claimed) -> list[AnyDelivery]:
        """Make deliveries of claimed messages, and hold them."""
        rows = zip(claimed.ids, claimed.records, claimed.counts, strict=True)
        self.times.add_claimed(claimed)
        fence, queue, sync_queue = claimed.fence, self.queue, self.sync_queue
        deliveries: list[AnyDelivery]
        if self.is_mixed:
            deliveries = [self._delivery(i.decode(), fence, record, counts) for i, record, counts in rows]
        elif self.is_async:
            deliveries = [AsyncDelivery(queue, i.decode(), fence, record, counts) for i, record, counts in rows]
        else:
            deliveries = [Delivery(sync_queue, i.decode(), fence, record, counts) for i, record, counts in rows]
        self.source.held.update(deliveries)
        self.busy += len(deliveries)
        return deliveries

    def _delivery(self, id_: str, fence: int, record: bytes, counts: bytes) -> AnyDelivery:
        """Make the kind of delivery that the task of the message takes."""
        delivery = AsyncDelivery(self.queue, id_, fence, record, counts)
        task = self._task_of(delivery)
        return delivery if task is None or task.is_async else Delivery(self.sync_queue, id_, fence, record, counts)

    def _task_of(self, delivery: AnyDelivery) -> TaskDefinition | None:
        if not isinstance(self.handler, TaskSet):
            return None
        try:
            envelope = delivery._opened().envelope
            return self.handler.find(envelope.content, envelope.body)[0]
        except CodecError:
            return None

    def has_crashed_too_often(self, delivery: AnyDelivery) -> bool:
        """Return whether the message has reached the crash limit."""
        return replies.is_poison(delivery._counts, self.options.crash_limit)

    def is_suspect(self, delivery: AnyDelivery) -> bool:
        """Return whether the next crash of the message would make it dead."""
        return replies.is_suspect(codec.read_counts(delivery._counts), self.options.crash_limit)


def _slot_count(handler: Handler | TaskSet, concurrency: int | None) -> int:
    """Return how many handlers run at once: the concurrency of the queue, limited by that of the worker."""
    if concurrency is None:
        return handler.concurrency
    return min(handler.concurrency, concurrency) if handler.has_own_concurrency or handler.batch else concurrency


def _kinds(handler: Handler | TaskSet) -> tuple[bool, bool]:
    """Return whether all functions are async, and whether `def` and `async def` are mixed."""
    if isinstance(handler, Handler):
        return handler.is_async, False
    kinds = {task.is_async for task in handler.tasks.values()}
    return kinds == {True}, len(kinds) > 1
