"""A queue whose every operation goes into a history, for threads and for processes that get killed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from duly.errors import LeaseLost

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from duly import Delivery, Queue
    from duly.message import Stats
    from tests.fault.history import Recorder


AHEAD_NS: Final = time.time_ns() - time.monotonic_ns()


class RecordedQueue:
    """Sends, claims and settles one queue, and records each message of each call.

    Each body is unique, so that the history can check that it arrives unchanged.
    """

    def __init__(self, queue: Queue, recorder: Recorder, lease: float) -> None:
        self.queue = queue
        self.recorder = recorder
        self.lease = lease

    def send(self, body: str, **options: Any) -> str:
        """Send one message. Give it an id where the send may fail: otherwise its id is unknown."""
        began = time.monotonic_ns()
        if "id" in options:
            with self.recorder.operation("send", options["id"], digest=body):
                return self.queue.send(body, **options)
        message_id = self.queue.send(body, **options)
        self._note_sent(message_id, body, began)
        return message_id

    def send_many(self, bodies: Sequence[str]) -> Sequence[str]:
        """Send many in one call."""
        began = time.monotonic_ns()
        ids = self.queue.send_many(bodies)
        for message_id, body in zip(ids, bodies, strict=True):
            self._note_sent(message_id, body, began)
        return ids

    def _note_sent(self, message_id: str, body: str, began: int) -> None:
        self.recorder.record("send", "invoke", id=message_id, mono_ns=began, digest=body)
        self.recorder.record("send", "ok", id=message_id, invoked_ns=began, digest=body)

    def receive(self, limit: int, wait: float) -> list[Delivery]:
        """Claim, with a lease of `lease` seconds."""
        # A fence is the server's time of the claim, and the server runs here: claims are placed exactly.
        with self.recorder.operation("claim", lease_us=round(self.lease * 1e6)) as done:
            found = self.queue.receive(limit, wait, lease=self.lease)
            returned = time.monotonic_ns()
            for each in found:
                moment = min(each.fence * 1000 - AHEAD_NS, returned)
                done(id=each.id, invoked_ns=moment, fence=each.fence, attempt=each.attempt, digest=each.body)
        return found

    def ack_many(self, deliveries: Sequence[Delivery]) -> None:
        """Ack the messages of one claim. A lost lease is an error: no consumer in these tests takes that long."""
        if deliveries:
            with self.recorder.operation("ack", *(each.id for each in deliveries), fence=deliveries[0].fence):
                lost = self.queue.ack_many(deliveries)
                assert not lost, lost

    def settle(self, verb: str, delivery: Delivery, *args: Any) -> None:
        """Settle, or extend, one delivery."""
        act: Callable[..., None] = getattr(delivery, verb)
        with self.recorder.operation(verb, delivery.id, fence=delivery.fence, refusals=(LeaseLost,)) as done:
            act(*args)
            if verb == "extend":
                done(lease_us=round(args[0] * 1e6))

    def cancel(self, message_id: str) -> None:
        """Cancel a message that surely exists."""
        with self.recorder.operation("cancel", message_id):
            assert self.queue.cancel(message_id, running=True)


def assert_accounts(queue: Queue, **expected: int) -> Stats:
    """Fail unless the audit is right and these counters have these values."""
    audit = queue.audit()
    assert audit.ok, (audit.difference, audit.faults[:10], audit.stats)
    stats = audit.stats
    assert {name: getattr(stats, name) for name in expected} == expected
    return stats


def assert_drained(queue: Queue, **expected: int) -> None:
    """Fail unless all that was sent is over, nothing is dead, and the accounts are right."""
    stats = assert_accounts(queue, dead=0, leased=0, ready=0, delayed=0, **expected)
    assert stats.bytes == 0, stats
