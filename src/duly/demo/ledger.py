"""The books: what the histories say, whether it is what was promised, and whether the server agrees.

Pure: histories and audits come in, figures and problems go out. No server and no clock in here.
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
    """A message that was handed out again, and why."""

    id: str
    process: str
    """Who got it now."""
    reason: str
    after: float
    """Seconds since it was handed out before."""


@dataclass(frozen=True)
class Accounts:
    """What became of the messages of one queue."""

    queue: str
    sent: int
    delivered: int
    acked: int
    redelivered: tuple[Redelivery, ...]
    lost: tuple[str, ...]
    """Ids whose send returned and that nobody finished."""
    early: tuple[str, ...]
    """Ids that were handed out before their due time, by the server's clock."""
    unexplained: tuple[str, ...]
    """Deliveries that should not have been, in words."""
    stale_acks: int
    """Acks that were refused because the lease had moved on."""
    lateness: Mapping[str, float]
    """Seconds between due time and first delivery: p50, p99, max."""

    def problems(self) -> list[str]:
        """Say what breaks a promise."""
        found = []
        if self.lost:
            found.append(f"{self.queue}: {len(self.lost)} lost, the first is {self.lost[0]}")
        if self.early:
            found.append(f"{self.queue}: {len(self.early)} early, the first is {self.early[0]}")
        return found + [f"{self.queue}: {words}" for words in self.unexplained]


def draw_up(queue: str, events: Iterable[AnyEvent], lease: float) -> Accounts:
    """Draw up the accounts of a queue from the histories of all processes."""
    return _Books([event for event in events if event.queue == queue], lease).accounts(queue)


def disagreements(accounts: Accounts, audit: Audit) -> list[str]:
    """Say where the server's own counters and the histories differ."""
    stats = audit.stats
    pairs = {
        "sent": (accounts.sent, stats.sent),
        "delivered": (accounts.delivered, stats.delivered),
        "acked": (accounts.acked, stats.acked),
        "redelivered": (len(accounts.redelivered), stats.crashed),
        "left over": (0, stats.live),
        "dead": (0, stats.dead),
    }
    found = [
        f"{accounts.queue}: {name} is {ours} by the histories, {theirs} by the server"
        for name, (ours, theirs) in pairs.items()
        if ours != theirs
    ]
    if not audit.ok:
        found.append(
            f"{accounts.queue}: the audit found {len(audit.faults)} faults and a difference of {audit.difference}"
        )
    return found


class _Books:
    """The events of one queue, sorted by what they are about."""

    def __init__(self, events: Sequence[AnyEvent], lease: float) -> None:
        self.lease_us = round(lease * 1_000_000)
        self.sent = {event.id: event for event in events if isinstance(event, Sent)}
        self.held = {(event.id, event.fence): event.process for event in events if isinstance(event, Held)}
        answers = {(event.id, event.fence): event for event in events if isinstance(event, Acked)}
        self.refused = {lease for lease, answer in answers.items() if answer.lost}
        # An ack that nobody answered was made by a process that was killed: it was carried out, unless the
        # server listed the message as held afterwards.
        self.finished = {lease for lease, answer in answers.items() if not answer.lost} | {
            (event.id, event.fence)
            for event in events
            if isinstance(event, Acking) and (event.id, event.fence) not in answers.keys() | self.held.keys()
        }
        self.deliveries = self._deliveries(events)

    def _deliveries(self, events: Sequence[AnyEvent]) -> dict[str, list[Delivered]]:
        """Group deliveries by id, in order, with those that the killed had no time to write down."""
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

    def accounts(self, queue: str) -> Accounts:
        finished_ids = {id_ for id_, _ in self.finished}
        redelivered, unexplained = self._judge_repeats()
        every = [delivery for found in self.deliveries.values() for delivery in found]
        unexplained += [f"{id_} was delivered but never sent" for id_ in self.deliveries if id_ not in self.sent]
        return Accounts(
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
