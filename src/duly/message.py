"""Results of inspecting queues and topics: frozen values. Times are aware datetimes, durations are seconds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple

from duly.options import checked_number

MAX_PROGRESS_TEXT: Final = 200

Confirmed = Literal["fsync"] | int | None
"""The confirmed durability of a write: "fsync", or the number of replicas that have it; None: nothing is confirmed."""


class MessageId(str):
    """The id of a stored message: a `str` with the durability that the server confirmed for the message.

    `str(id)` is the plain text, for encoders that refuse subclasses of `str`.
    """

    __slots__ = ("_durable",)
    _durable: Confirmed

    @property
    def durable(self) -> Confirmed:
        """The level that the server confirmed for `durable=`: "fsync", or the number of replicas; None: neither."""
        found: Confirmed = getattr(self, "_durable", None)
        return found


def message_ids(ids: Iterable[str], confirmed: Confirmed = None) -> list[MessageId]:
    """Return the ids of messages that were stored by one call."""
    found = list(map(MessageId, ids))
    if confirmed is not None:
        for each in found:
            each._durable = confirmed
    return found


@dataclass(frozen=True)
class Failure:
    """One failed attempt at a message, as its consumer reported it."""

    at: datetime
    attempt: int
    consumer: str
    error: str
    traceback: str


@dataclass(frozen=True)
class Event:
    """One entry of a message's timeline."""

    at: datetime
    what: str
    """One of: sent, claimed, progress (of the current delivery), redrive; or the end of a delivery: ack, retry, defer,
    release, crash, reject, or fail for the last attempt.
    """
    consumer: str | None = None
    detail: str = ""
    """The beginning of the error or reason."""
    took: float | None = None
    """Seconds from the claim to the end of the delivery."""


@dataclass(frozen=True)
class Progress:
    """The progress of a delivery, as its consumer reported it with `d.progress`."""

    fraction: float
    """From 0 to 1."""
    text: str = ""
    """The current step. It is cut after 200 characters."""
    at: datetime | None = None
    """When it was reported, by the server's clock."""

    def __post_init__(self) -> None:
        checked_number(self.fraction, "fraction", most=1)
        object.__setattr__(self, "fraction", float(self.fraction))
        text = str(self.text)[:MAX_PROGRESS_TEXT]
        object.__setattr__(self, "text", text.encode(errors="backslashreplace").decode())

    def __str__(self) -> str:
        return f"{self.fraction:.0%}: {self.text}" if self.text else f"{self.fraction:.0%}"


@dataclass(frozen=True)
class Message:
    """A snapshot of one message."""

    id: str
    queue: str
    state: Literal["ready", "delayed", "leased", "parked", "dead", "done"]
    body: Any
    """The decoded body; the raw bytes if it cannot be decoded; None if the body was lost."""
    raw: bytes | None
    headers: Mapping[str, str]
    key: str | None
    priority: int
    sent_at: datetime | None
    due_at: datetime | None
    failures: int
    crashes: int
    defers: int
    releases: int
    rejects: int = 0
    consumer: str | None = None
    """The consumer that holds it, if it is leased."""
    deadline: datetime | None = None
    """When its lease expires, if it is leased."""
    fence: int | None = None
    reason: str | None = None
    """Why the message is dead."""
    finished_at: datetime | None = None
    """When it died or was finished."""
    errors: tuple[Failure, ...] = ()
    cycles: int = 0
    """The number of times it was recycled."""
    redrives: int = 0
    """The number of times it was redriven."""
    timeline: tuple[Event, ...] = ()
    """Its history, oldest first: the last 20 deliveries that did not end with a plain ack."""
    progress: Progress | None = None
    """The progress of the current delivery, if it is leased; None: its consumer has not reported any."""
    result: Any = None
    """The value that its handler returned, if it is done. It is None as well if the value could not be stored."""
    cursor: tuple[int, int] = field(default=(0, 0), repr=False, compare=False)
    """Its position in its list (score, priority): `list(after=message)` continues after it."""

    @property
    def attempt(self) -> int:
        """The number of the current or next attempt: failures plus crashes plus one."""
        return self.failures + self.crashes + 1

    @property
    def deliveries(self) -> int:
        """The number of times it was delivered."""
        ended = self.failures + self.crashes + self.defers + self.releases + self.rejects
        return ended + (1 if self.state in ("leased", "done") else 0)


class Kept(NamedTuple):
    """The meaning of a number that the scripts maintain."""

    says: str


class Counted(Kept):
    """The meaning of a counter, which never decreases."""


@dataclass(frozen=True)
class Histogram:
    """Times of deliveries, in buckets whose bounds never change."""

    BOUNDS: ClassVar[tuple[float, ...]] = (
        0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800
    )  # fmt: skip
    """The upper bounds of the buckets, in seconds. Times over the last bound are in one more bucket."""

    counts: tuple[int, ...]
    """The number of times in each bucket."""
    total: float
    """The sum of the times, in seconds."""

    @classmethod
    def empty(cls) -> "Histogram":
        """Return a histogram without times."""
        return cls((0,) * (len(cls.BOUNDS) + 1), 0.0)

    @property
    def count(self) -> int:
        """The number of times."""
        return sum(self.counts)

    @property
    def mean(self) -> float | None:
        """The average in seconds; None: there are no times."""
        return self.total / self.count if self.count else None

    def quantile(self, share: float) -> float | None:
        """Return the upper bound of the bucket in which a share of the times ends, for example 0.95.

        It is infinite for times over the last bound, and None without times.
        """
        left = share * self.count
        for count, bound in zip(self.counts, (*self.BOUNDS, float("inf")), strict=True):
            left -= count
            if count and left <= 0:
                return float(bound)
        return None


@dataclass(frozen=True)
class Bucket:
    """One interval of a forecast. Times are by the server's clock."""

    start: datetime
    end: datetime
    count: int
    """Messages that become due after the start, and not after the end."""


@dataclass(frozen=True)
class HistoryPoint:
    """One interval of the history of a queue or group. Times are by the server's clock."""

    start: datetime
    end: datetime
    """The interval is a minute; ten minutes if the history is longer than an hour; an hour if it is longer than a day.
    """
    sent: int
    """Messages that were sent in the interval; of a group: entries that it has read."""
    delivered: int
    acked: int
    retried: int
    crashed: int
    dead: int
    """Messages that died in the interval."""
    expired: int
    depth: int | None
    """Due messages that waited at the start: ready, parked or unread. None: unknown."""
    oldest_age: float | None
    """Seconds for which the oldest of them had been due at the start; parked ones do not count. None: unknown."""
    lateness: Histogram
    """Deliveries to workers: seconds from the due time to the delivery."""
    handling: Histogram
    """Handlers of workers: seconds from the start of the handler to its end."""


@dataclass(frozen=True)
class Stats:
    """A snapshot of a queue or group, and its counters since it was created. Times are by the server's clock."""

    ready: int
    delayed: int
    leased: int
    parked: int
    dead: int
    done: int
    oldest_age: float
    """Seconds for which the oldest ready message has been due; 0 if no message is ready."""
    lateness: float
    """The lateness of the most overdue message of the last receive, in seconds."""
    next_due_in: float | None
    """Seconds until the next delayed message is due; None: there is none."""
    paused: str | None
    """The client that paused the queue; None: the queue is not paused."""
    bytes: Annotated[int, Kept("Stored bytes of live messages.")]
    dead_bytes: Annotated[int, Kept("Stored bytes of dead letters.")]
    done_bytes: Annotated[int, Kept("Stored bytes of finished messages.")]
    sent: Annotated[int, Counted("Messages that were sent.")]
    delivered: Annotated[int, Counted("Deliveries: a message counts each time it is delivered.")]
    acked: Annotated[int, Counted("Messages that were finished.")]
    retried: Annotated[int, Counted("Deliveries that failed and are retried.")]
    deferred: Annotated[int, Counted("Deliveries that were deferred.")]
    released: Annotated[int, Counted("Deliveries that were released.")]
    recycled: Annotated[int, Counted("Messages that were recycled: acked and enqueued again.")]
    crashed: Annotated[int, Counted("Leases that expired.")]
    buried: Annotated[int, Counted("Messages that died, redriven ones included.")]
    redriven: Annotated[int, Counted("Dead letters that were redriven.")]
    cancelled: Annotated[int, Counted("Messages that were cancelled.")]
    expired: Annotated[int, Counted("Messages that expired by their ttl.")]
    dropped: Annotated[int, Counted("Messages that were dropped because the queue was full.")]
    purged: Annotated[int, Counted("Messages that were purged.")]
    moved: Annotated[int, Counted("Dead letters that were redriven to another queue.")]
    trimmed: Annotated[int, Counted("Dead letters that were removed by dead=Keep(...).")]
    done_trimmed: Annotated[int, Counted("Finished messages that were removed by done=Keep(...).")]
    duplicates: Annotated[int, Counted("Sends that stored nothing, because of their dedup value or id.")]
    replaced: Annotated[int, Counted("Messages that a later send with the same dedup value replaced.")]
    corrected: Annotated[int, Kept("The sum of corrections by audits with repair; it may be negative.")]
    unread: Annotated[
        int, Kept("Of a group: entries of its topic that have not been delivered to it yet; they are ready.")
    ] = 0
    missed: Annotated[int, Kept("Of a group: entries that the topic's `keep` removed before the group read them.")] = 0
    filtered: Annotated[int, Kept("Of a group: entries that it skipped because of its `headers`.")] = 0
    lateness_times: Histogram = field(default_factory=Histogram.empty)
    """Deliveries to workers since the queue was created: seconds from the due time to the delivery."""
    handling_times: Histogram = field(default_factory=Histogram.empty)
    """Handlers of workers since then: seconds from the start of the handler to its end."""
    history: tuple[HistoryPoint, ...] = ()
    """One point per minute, the oldest first, if `stats` was asked for it."""
    dead_why_bytes: int | None = None
    """Stored bytes of the errors and timelines of dead letters. None: unknown, because an earlier version of Duly, or a
    repair, has changed the queue while there were more than 1,000 dead letters. An audit with `repair` counts them.
    """
    done_why_bytes: int | None = None
    """Stored bytes of the results and timelines of finished messages. None: unknown, as above."""

    @property
    def live(self) -> int:
        """The number of live messages: ready, delayed, leased and parked."""
        return self.ready + self.delayed + self.leased + self.parked

    @property
    def stored_bytes(self) -> int:
        """The stored bytes of all messages, with errors, timelines and results of dead and finished ones if known."""
        rows = (self.dead_why_bytes or 0) + (self.done_why_bytes or 0)
        return self.bytes + self.dead_bytes + self.done_bytes + rows


@dataclass(frozen=True)
class PendingMessage:
    """One current lease."""

    id: str
    consumer: str
    fence: int
    """The fencing token. 0: a consumer of another program read it from the group's stream. Duly takes it over at the
    deadline.
    """
    deadline: datetime
    deadline_in: float
    """Seconds to the deadline. Negative: it has passed, and the message has not been redelivered yet."""
    attempt: int
    deliveries: int
    idle: float
    """Seconds since it was delivered."""


@dataclass(frozen=True)
class Pending:
    """The current leases and their consumers, like the reply of XPENDING."""

    total: int
    min_id: str | None
    max_id: str | None
    consumers: Mapping[str, int]
    messages: tuple[PendingMessage, ...]
    """The first leases: of a queue by deadline, of a group by id."""


@dataclass(frozen=True)
class Entry:
    """One entry of a topic's stream, read without a group."""

    id: str
    topic: str
    body: Any
    """The decoded body; the raw bytes if it cannot be decoded; a dict of the fields of an entry of another program."""
    raw: bytes
    headers: Mapping[str, str]
    key: str | None
    published_at: datetime
    """When `publish` was called. A delayed entry enters the stream later."""


@dataclass(frozen=True)
class GroupInfo:
    """A snapshot of one group of a topic."""

    name: str
    unread: int
    """Entries that have not been delivered to the group yet."""
    pending: int
    """Entries that consumers hold, by the stream's pending list."""
    consumers: int
    last_id: str
    """The last entry that the group read."""
    missed: int
    """Entries that the topic's `keep` removed before the group read them."""
    ready: int
    """Messages that are due: unread entries, and messages to be retried."""
    delayed: int
    parked: int
    dead: int


@dataclass(frozen=True)
class TopicStats:
    """A snapshot of a topic, and its counters since it was created."""

    length: int
    """Entries in the stream."""
    bytes: int
    """The memory that the stream uses on the server, in bytes."""
    delayed: int
    """Publishes that have not entered the stream yet."""
    published: int
    """Entries that Duly has added to the stream since the topic was created."""
    duplicates: int
    """Publishes that stored nothing, because of their dedup value."""
    trimmed: int
    """Entries that were removed by `keep`."""
    groups: int
    """The number of groups, including those of other programs."""
    first_id: str | None
    """The oldest entry in the stream; None: the stream is empty."""
    last_id: str | None
    """The newest entry in the stream."""


@dataclass(frozen=True)
class WorkerInfo:
    """A snapshot of one worker, from its last heartbeat."""

    id: str
    """The name under which it holds leases, as in `Pending.consumers`."""
    host: str
    pid: int
    queues: tuple[str, ...]
    concurrency: int
    in_flight: int
    handled: int
    """Messages that it has handled since it started."""
    started_at: datetime
    last_poll: float | None
    """Seconds since it last asked for messages; None: it has not yet."""
    last_beat: float
    """Seconds since its last heartbeat."""
    version: str
    rolled_back: int = 0
    """Calls that a server confirmed to it and then lost, by a fail-over or a restart, since it started."""
    options: Mapping[str, Mapping[str, str | int | float | None]] = field(default_factory=dict)
    """The options of its queues that differ from the defaults. Retry policies and retentions are described as text."""


@dataclass(frozen=True)
class Schedule:
    """A snapshot of one schedule."""

    name: str
    queue: str
    """The name of the queue that it sends to."""
    cron: str | None
    every: float | None
    """Seconds between two runs; None: `cron` is set."""
    tz: str
    catch_up: Literal["one", "skip", "all"]
    paused: bool
    next_at: datetime | None
    """The next run, by the server's clock; None: the schedule is paused, or has no further run."""
    last_slot: datetime | None
    """The last run that sent a message; None: there was none since the schedule was last changed."""
    body: Any
    """The decoded body; the raw bytes if it cannot be decoded."""


@dataclass(frozen=True)
class AuditFault:
    """One inconsistency in a queue, group or topic. Its keys were changed from outside, or the server lost data."""

    id: str
    """The id of the message; or the name of the counter, key, schedule or dedup value that is wrong."""
    what: str
    """A short, stable text for programs."""
    detail: str = field(default="", compare=False)
    """For a counter: its value, and the correct one."""
    meaning: str = field(default="", compare=False)
    """The effect on the message, in one sentence."""
    fix: str = field(default="", compare=False)
    """The effect of a repair, in one sentence."""

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.id}: {self.what}{detail}. {self.meaning} {self.fix}".rstrip()

    @property
    def mend(self) -> str:
        """The former name of `fix`."""
        return self.fix


class Committed(list[Any]):
    """The result of a commit: a list of the replies to `redis=`, in that order, and the ids of the new messages.

    A reply is an int, bytes, or None for a SET with NX or XX that set nothing.
    """

    def __init__(self, replies: Iterable[Any], sent: Iterable[str], published: Iterable[str]) -> None:
        super().__init__(replies)
        self.sent: list[MessageId] = message_ids(sent)
        """The ids of `send=`, in that order. A duplicate has the id of the first message."""
        self.published: list[MessageId] = message_ids(published)
        """The ids of `publish=`, in that order, as `publish` returns them."""


@dataclass(frozen=True)
class Audit:
    """The result of an audit of a queue, a group, or the delayed publishes of a topic. It is true if nothing is wrong.

    `sent + corrected = acked + expired + cancelled + dropped + purged + moved + trimmed + dead + live`,
    and each id is in exactly one place. For a topic, `sent` counts delayed publishes, and `entered` replaces `acked`.
    """

    queue: str
    stats: Stats
    checked: int
    """The number of ids that were checked. An id that was found in several keys counts several times."""
    faults: tuple[AuditFault, ...]
    repaired: bool
    entered: int = 0
    """For a topic: delayed publishes that have entered the stream."""

    @property
    def difference(self) -> int:
        """The number of messages that came in and are not accounted for. 0: every message is accounted for."""
        s = self.stats
        gone = s.acked + self.entered + s.expired + s.cancelled + s.dropped + s.purged + s.moved + s.trimmed
        return s.sent + s.corrected - gone - s.dead - (s.live - s.unread)

    @property
    def ok(self) -> bool:
        """Whether no fault was found and every message is accounted for."""
        return not self.faults and self.difference == 0

    @property
    def explanation(self) -> tuple[str, ...]:
        """The findings in sentences, one per line; empty if nothing is wrong."""
        lines = [str(fault) for fault in self.faults]
        if self.difference:
            lines.append(self._explained_difference())
        return tuple(lines)

    def _explained_difference(self) -> str:
        s, count = self.stats, abs(self.difference)
        gone = ("acked", "expired", "cancelled", "dropped", "purged", "moved", "trimmed", "dead")
        counted = {"entered": self.entered, **{name: getattr(s, name) for name in gone}}
        parts = " + ".join(f"{name} {number:,}" for name, number in counted.items() if number)
        live = s.live - s.unread
        came, accounted = s.sent + s.corrected, s.sent + s.corrected - self.difference
        which = f"{count:,} {'more' if self.difference > 0 else 'fewer'} came in than can be accounted for"
        return (
            f"accounts: {which}. sent {s.sent:,} + corrected {s.corrected:,} is {came:,}, but "
            f"{parts + ' + ' if parts else ''}live {live:,} is {accounted:,}. Messages were removed or added "
            f"behind the queue's back, or a counter was changed. A repair counts the difference as corrected."
        )

    def __str__(self) -> str:
        if self.ok:
            return f"{self.queue}: every message is accounted for, {self.checked:,} entries were checked"
        return "\n".join((f"{self.queue}: something is wrong", *self.explanation))

    def __bool__(self) -> bool:
        return self.ok
