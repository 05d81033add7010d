"""What looking at a queue or topic shows: plain frozen values. Times are aware datetimes, durations seconds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Final, Literal, NamedTuple

from duly.options import checked_number

MAX_PROGRESS_TEXT: Final = 200


@dataclass(frozen=True)
class Failure:
    """One error that a consumer reported of a message."""

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
    """sent, claimed, progress (of the delivery that is out), how a delivery ended (ack, retry, defer, release, crash,
    reject, or fail at the last attempt), or redrive.
    """
    consumer: str | None = None
    detail: str = ""
    """The beginning of the error or reason."""
    took: float | None = None
    """Seconds from the claim to the end of the delivery."""


@dataclass(frozen=True)
class Progress:
    """How far the work on a delivery is, as its holder has reported it with `d.progress`."""

    fraction: float
    """From 0 to 1."""
    text: str = ""
    """What is being done; what is longer than 200 characters is cut."""
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
    """One message, as it was at the moment of looking."""

    id: str
    queue: str
    state: Literal["ready", "delayed", "leased", "parked", "dead", "done"]
    body: Any
    """Decoded; the raw bytes when it does not decode; None when the body was lost."""
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
    """Who holds it, when leased."""
    deadline: datetime | None = None
    """When its lease runs out, when leased."""
    fence: int | None = None
    reason: str | None = None
    """Why it is dead."""
    finished_at: datetime | None = None
    """When it died or was finished."""
    errors: tuple[Failure, ...] = ()
    cycles: int = 0
    """How often it was recycled."""
    redrives: int = 0
    """How often it was dead and redriven."""
    timeline: tuple[Event, ...] = ()
    """What happened to it, oldest first: the last 20 deliveries that did not simply end."""
    progress: Progress | None = None
    """How far the work is, when leased; None: its holder has reported nothing."""
    result: Any = None
    """What its handler returned, when done; None also when that could not be kept."""
    cursor: tuple[int, int] = field(default=(0, 0), repr=False, compare=False)
    """Its place in its list (score, priority): `list(after=message)` goes on behind it."""

    @property
    def attempt(self) -> int:
        """The number of the current or next delivery that counts."""
        return self.failures + self.crashes + 1

    @property
    def deliveries(self) -> int:
        """How often it was handed out."""
        ended = self.failures + self.crashes + self.defers + self.releases + self.rejects
        return ended + (1 if self.state in ("leased", "done") else 0)


class Kept(NamedTuple):
    """What a number means that the scripts keep."""

    says: str


class Counted(Kept):
    """The same, of a number that never goes down."""


@dataclass(frozen=True)
class Stats:
    """A queue at one moment, by the server's clock, and what it counted since it exists."""

    ready: int
    delayed: int
    leased: int
    parked: int
    dead: int
    done: int
    oldest_age: float
    """Seconds that the ready message that waits longest has been due; 0 when none is ready."""
    lateness: float
    """Seconds that the most overdue message of the last claim was late."""
    next_due_in: float | None
    """Seconds to the next delayed message; None without one."""
    paused: str | None
    """Who paused the queue; None when it is open."""
    bytes: Annotated[int, Kept("Stored bytes of what is live.")]
    dead_bytes: Annotated[int, Kept("Stored bytes of dead letters.")]
    done_bytes: Annotated[int, Kept("Stored bytes of finished messages.")]
    sent: Annotated[int, Counted("Messages that were sent.")]
    delivered: Annotated[int, Counted("Deliveries: a message counts each time it is delivered.")]
    acked: Annotated[int, Counted("Messages that were finished.")]
    retried: Annotated[int, Counted("Deliveries that failed and come again.")]
    deferred: Annotated[int, Counted("Deliveries that were put off.")]
    released: Annotated[int, Counted("Deliveries that were given back.")]
    recycled: Annotated[int, Counted("Messages that were sent round again by their handler.")]
    crashed: Annotated[int, Counted("Leases that ran out.")]
    buried: Annotated[int, Counted("Messages that died, redriven ones included.")]
    redriven: Annotated[int, Counted("Dead letters that were redriven.")]
    cancelled: Annotated[int, Counted("Messages that were cancelled.")]
    expired: Annotated[int, Counted("Messages that went because of their ttl.")]
    dropped: Annotated[int, Counted("Messages that went because the queue was full.")]
    purged: Annotated[int, Counted("Messages that were purged.")]
    moved: Annotated[int, Counted("Dead letters that were redriven to another queue.")]
    trimmed: Annotated[int, Counted("Dead letters that went because of dead=Keep(...).")]
    done_trimmed: Annotated[int, Counted("Finished messages that went because of done=Keep(...).")]
    duplicates: Annotated[int, Counted("Sends that stored nothing, because of their dedup value or id.")]
    replaced: Annotated[int, Counted("Messages that a later send with the same dedup value replaced.")]
    corrected: Annotated[int, Kept("What audits with repair added to the accounts; it may be negative.")]
    unread: Annotated[
        int, Kept("Of a group: entries of its topic that no member has been given yet; they are ready.")
    ] = 0
    missed: Annotated[
        int, Kept("Of a group: entries that went by the topic's `keep` before the group had read them.")
    ] = 0
    filtered: Annotated[int, Kept("Of a group: entries that it passed over, because of its `headers`.")] = 0

    @property
    def live(self) -> int:
        """All that is not over."""
        return self.ready + self.delayed + self.leased + self.parked


@dataclass(frozen=True)
class PendingMessage:
    """One lease that is out."""

    id: str
    consumer: str
    fence: int
    """0: a consumer of another program has it, of a group's stream. Its deadline is when it is taken over."""
    deadline: datetime
    deadline_in: float
    """Seconds to the deadline; negative when it has passed and nobody took the message over yet."""
    attempt: int
    deliveries: int
    idle: float
    """Seconds since it was handed out."""


@dataclass(frozen=True)
class Pending:
    """Who holds what, like XPENDING."""

    total: int
    min_id: str | None
    max_id: str | None
    consumers: Mapping[str, int]
    messages: tuple[PendingMessage, ...]
    """The first ones: of a queue by deadline, of a group by id."""


@dataclass(frozen=True)
class Entry:
    """One entry of a topic's stream, as it was read without a group."""

    id: str
    topic: str
    body: Any
    """Decoded; the raw bytes when it does not decode. Of an entry that another program added: a dict of its fields."""
    raw: bytes
    headers: Mapping[str, str]
    key: str | None
    published_at: datetime
    """When it was published: before it entered the stream, if it was delayed."""


@dataclass(frozen=True)
class GroupInfo:
    """One group of a topic, as it was at the moment of looking."""

    name: str
    unread: int
    """Entries that no member has been given yet."""
    pending: int
    """Entries that members hold, by the stream's own list."""
    consumers: int
    last_id: str
    """The last entry that was read."""
    missed: int
    """Entries that went by the topic's `keep` before the group had read them."""
    ready: int
    """What is due: unread entries, and others that wait for another attempt."""
    delayed: int
    parked: int
    dead: int


@dataclass(frozen=True)
class TopicStats:
    """A topic at one moment, by the server's clock."""

    length: int
    """Entries in the stream."""
    bytes: int
    """What the stream takes of the server's memory."""
    delayed: int
    """Publishes that have not entered the stream yet."""
    published: int
    """Entries that were added to the stream through Duly, since the topic exists."""
    duplicates: int
    """Publishes that stored nothing, because of their dedup value."""
    trimmed: int
    """Entries that went because of `keep`."""
    groups: int
    """How many groups it has, those of other programs included."""
    first_id: str | None
    """The oldest entry in the stream; None: it is empty."""
    last_id: str | None
    """The newest entry in the stream."""


@dataclass(frozen=True)
class WorkerInfo:
    """One worker that beats, as it was at the moment of looking."""

    id: str
    """The name under which it holds leases, as in `Pending.consumers`."""
    host: str
    pid: int
    queues: tuple[str, ...]
    concurrency: int
    in_flight: int
    handled: int
    """Messages that it worked off since it started."""
    started_at: datetime
    last_poll: float | None
    """Seconds since it last asked for messages; None: it never did."""
    last_beat: float
    """Seconds since it last showed that it lives."""
    version: str


@dataclass(frozen=True)
class Schedule:
    """One schedule, as it was at the moment of looking."""

    name: str
    queue: str
    """The name of the queue that it feeds."""
    cron: str | None
    every: float | None
    """Seconds between two slots; None: by `cron`."""
    tz: str
    catch_up: Literal["one", "skip", "all"]
    paused: bool
    next_at: datetime | None
    """The next slot by the server's clock; None when it is paused, or has no slot any more."""
    last_slot: datetime | None
    """The last slot that a message was sent for; None: none since the schedule is as it is now."""
    body: Any
    """Decoded; the raw bytes when it does not decode."""


@dataclass(frozen=True)
class AuditFault:
    """One thing that is wrong in a queue, group or topic: somebody else changed its keys, or the server lost data."""

    id: str
    """Of the message; or the name of a counter, key, schedule or dedup value that is wrong."""
    what: str
    """Short and always the same, for programs."""
    detail: str = field(default="", compare=False)
    """Of a counter: what it says, and what is right."""
    meaning: str = field(default="", compare=False)
    """What it means for the message, in a sentence."""
    mend: str = field(default="", compare=False)
    """What a repair does about it, in a sentence."""

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.id}: {self.what}{detail}. {self.meaning} {self.mend}".rstrip()


class Committed(list[Any]):
    """What a commit did: a list of the replies to `redis=`, in that order, and the ids of what it sent and published.

    A reply is what the server answered: an int, bytes, or None for a SET with NX or XX that set nothing.
    """

    def __init__(self, replies: Iterable[Any], sent: Iterable[str], published: Iterable[str]) -> None:
        super().__init__(replies)
        self.sent: list[str] = list(sent)
        """The ids of `send=`, in its order. A duplicate has the id that was there first."""
        self.published: list[str] = list(published)
        """The ids of `publish=`, in its order, as `publish` returns them."""


@dataclass(frozen=True)
class Audit:
    """The accounts of a queue or group, or of what waits to enter a topic.

    `sent + corrected = acked + expired + cancelled + dropped + purged + moved + trimmed + dead + live`,
    and each id in exactly one place. Of a topic, `sent` counts delayed publishes, and `entered` is in place of acked.
    """

    queue: str
    stats: Stats
    checked: int
    """Ids that were looked at, each as often as it was met."""
    faults: tuple[AuditFault, ...]
    repaired: bool
    entered: int = 0
    """Of a topic: delayed publishes that have entered the stream."""

    @property
    def difference(self) -> int:
        """What came in minus what can be accounted for: 0 when the accounts are right."""
        s = self.stats
        gone = s.acked + self.entered + s.expired + s.cancelled + s.dropped + s.purged + s.moved + s.trimmed
        return s.sent + s.corrected - gone - s.dead - (s.live - s.unread)

    @property
    def ok(self) -> bool:
        """Whether nothing was found and the accounts are right."""
        return not self.faults and self.difference == 0

    @property
    def explanation(self) -> tuple[str, ...]:
        """All that was found in sentences, a line each; empty when all is right."""
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
            return f"{self.queue}: the accounts are right, {self.checked:,} entries were looked at"
        return "\n".join((f"{self.queue}: something is wrong", *self.explanation))

    def __bool__(self) -> bool:
        return self.ok
