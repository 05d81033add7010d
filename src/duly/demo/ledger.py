"""The ledger of a queue: checks the histories of all processes against the guarantees and the server's counters.

Pure: it takes histories and audits, and returns figures and problems. It uses no server and no clock.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from duly import Audit
from duly.demo.history import Acked, Acking, AnyEvent, Delivered, Held, Sent

Lease = tuple[str, int]
"""Id and fence: one delivery of one message."""


@dataclass(frozen=True)
class Redelivery:
    """A message that was delivered again, and why."""

    id: str
    process: str
    """The process that received it."""
    reason: str
    after: float
    """Seconds since its previous delivery."""


@dataclass(frozen=True)
class Ledger:
    """The outcome of the messages of one queue."""

    queue: str
    sent: int
    delivered: int
    acked: int
    redelivered: tuple[Redelivery, ...]
    lost: tuple[str, ...]
    """Ids of messages that were sent and never acked."""
    early: tuple[str, ...]
    """Ids of messages that were delivered before their due time, by the server's clock."""
    unexplained: tuple[str, ...]
    """Descriptions of deliveries that should not have happened."""
    stale_acks: int
    """Acks that were refused because the lease was lost."""
    lateness: Mapping[str, float]
    """Seconds between due time and first delivery: p50, p99, max."""

    def problems(self) -> list[str]:
        """Describe broken guarantees."""
        found = []
        if self.lost:
            found.append(f"{self.queue}: {len(self.lost)} lost, the first is {self.lost[0]}")
        if self.early:
            found.append(f"{self.queue}: {len(self.early)} early, the first is {self.early[0]}")
        return found + [f"{self.queue}: {words}" for words in self.unexplained]


def make_ledger(queue: str, events: Iterable[AnyEvent], lease: float) -> Ledger:
    """Make the ledger of a queue from the histories of all processes."""
    return _QueueEvents([event for event in events if event.queue == queue], lease).ledger(queue)


def disagreements(ledger: Ledger, audit: Audit) -> list[str]:
    """Describe differences between the server's counters and the histories."""
    stats = audit.stats
    pairs = {
        "sent": (ledger.sent, stats.sent),
        "delivered": (ledger.delivered, stats.delivered),
        "acked": (ledger.acked, stats.acked),
        "redelivered": (len(ledger.redelivered), stats.crashed),
        "left over": (0, stats.live),
        "dead": (0, stats.dead),
    }
    found = [
        f"{ledger.queue}: {name} is {ours} by the histories, {theirs} by the server"
        for name, (ours, theirs) in pairs.items()
        if ours != theirs
    ]
    if not audit.ok:
        found.append(
            f"{ledger.queue}: the audit found {len(audit.faults)} faults and a difference of {audit.difference}"
        )
    return found


class _QueueEvents:
    """The events of one queue, by message."""

    def __init__(self, events: Sequence[AnyEvent], lease: float) -> None:
        self.lease_us = round(lease * 1_000_000)
        self.sent = {event.id: event for event in events if isinstance(event, Sent)}
        self.held = {(event.id, event.fence): event.process for event in events if isinstance(event, Held)}
        answers = {(event.id, event.fence): event for event in events if isinstance(event, Acked)}
        self.refused = {lease for lease, answer in answers.items() if answer.lost}
        # An ack without an answer is from a process that was killed. It succeeded, unless the server listed the
        # message as leased afterwards.
        self.finished = {lease for lease, answer in answers.items() if not answer.lost} | {
            (event.id, event.fence)
            for event in events
            if isinstance(event, Acking) and (event.id, event.fence) not in answers.keys() | self.held.keys()
        }
        self.deliveries = self._deliveries(events)

    def _deliveries(self, events: Sequence[AnyEvent]) -> dict[str, list[Delivered]]:
        """Group deliveries by id, in order. Includes those that the killed process had no time to record."""
        seen: set[Lease] = set()
        by_id: dict[str, list[Delivered]] = defaultdict(list)
        for event in events:
            if isinstance(event, Delivered):
                by_id[event.id].append(event)
                seen.add((event.id, event.fence))
        for event in events:
            if isinstance(event, Held) and (event.id, event.fence) not in seen:
                by_id[event.id].append(
                    Delivered(process=event.process, queue=event.queue, id=event.id, fence=event.fence)
                )
        for found in by_id.values():
            found.sort(key=lambda delivery: delivery.fence)
        return by_id

    def ledger(self, queue: str) -> Ledger:
        finished_ids = {id_ for id_, _ in self.finished}
        redelivered, unexplained = self._judge_repeats()
        every = [delivery for found in self.deliveries.values() for delivery in found]
        unexplained += [f"{id_} was delivered but never sent" for id_ in self.deliveries if id_ not in self.sent]
        return Ledger(
            queue=queue,
            sent=len(self.sent),
            delivered=len(every),
            acked=len(self.finished),
            redelivered=tuple(redelivered),
            lost=tuple(id_ for id_ in self.sent if id_ not in finished_ids),
            early=tuple(dict.fromkeys(delivery.id for delivery in every if self._is_early(delivery))),
            unexplained=tuple(unexplained),
            stale_acks=len(self.refused),
            lateness=_percentiles(
                [late for found in self.deliveries.values() if (late := _lateness(found[0])) is not None]
            ),
        )

    def _judge_repeats(self) -> tuple[list[Redelivery], list[str]]:
        redelivered, unexplained = [], []
        for found in self.deliveries.values():
            for before, again in pairwise(found):
                reason = self._reason(before, again)
                if reason:
                    after = (again.fence - before.fence) / 1_000_000
                    redelivered.append(Redelivery(again.id, again.process, reason, after))
                else:
                    unexplained.append(f"{again.id} was delivered to {again.process} again without a cause")
        return redelivered, unexplained

    def _reason(self, before: Delivered, again: Delivered) -> str | None:
        lease = (before.id, before.fence)
        if lease in self.finished or again.fence - before.fence < self.lease_us:
            return None
        if lease in self.held:
            return f"{before.process} was killed while it held the message, and its lease ran out"
        if lease in self.refused:
            return f"{before.process} was slower than its lease"
        return None

    def _is_early(self, delivery: Delivered) -> bool:
        if delivery.due_at is None or delivery.sent_at is None:
            return False
        sent = self.sent.get(delivery.id)
        asked = delivery.sent_at + ceil(sent.delay * 1_000_000) if sent else 0
        return delivery.fence < max(delivery.due_at, asked)


def _lateness(first: Delivered) -> float | None:
    return None if first.due_at is None else (first.fence - first.due_at) / 1_000_000


def _percentiles(values: list[float]) -> dict[str, float]:
    values.sort()
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {name: values[ceil(share * len(values)) - 1] for name, share in shares.items()} if values else {}
