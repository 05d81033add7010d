"""Options of queues, topics, messages and retries: frozen values, validated when they are created.

This module does no I/O. Durations are seconds, as a number or a timedelta.
"""

import math
import random
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypedDict, TypeVar

from duly.errors import InvalidName, UsageError

if TYPE_CHECKING:  # only type checkers read `default`: Python supports it from 3.13
    import typing_extensions

    BodyT = typing_extensions.TypeVar("BodyT", default=Any)
    SentT_co = typing_extensions.TypeVar("SentT_co", default=Any, covariant=True)
else:
    BodyT = TypeVar("BodyT")
    SentT_co = TypeVar("SentT_co", covariant=True)

Seconds = float | int | timedelta
"""A duration: seconds as a number, or a timedelta."""
OnFull = Literal["raise", "block", "drop_oldest"]
OnDead = Literal["continue", "block"]
Durable = Literal["fsync", "replica"] | int | None

MAX_DELAY: Final = 10 * 366 * 86400.0
"""Ten years, in seconds. A longer delay is probably a mistake in units, so it is refused."""

MAX_BATCH: Final = 1000
"""Messages in one script call: far below the 8,000 values that Lua can unpack."""

MAX_COUNT: Final = 2**53
"""Lua represents every integer up to this one exactly."""

MAX_DELAYS: Final = 1000
"""The largest number of delays in a retry policy. The policy is stored with each message that has one."""

MAX_REPLICAS: Final = 1000
"""The largest number of replicas to wait for.

The server would refuse a number that WAIT cannot parse only after the write.
"""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Unchanged:
    """The type of UNCHANGED."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged()
"""`d.recycle(body=UNCHANGED)`: the message keeps its body."""


def checked_name(name: object, what: str = "queue") -> str:
    """Return `name` if it may be part of a key; raise InvalidName otherwise.

    A namespace may be in braces, as in "{shop}". Then all of its keys share a slot of a cluster.
    """
    if not isinstance(name, str) or not is_name(_without_braces(name) if what == "namespace" else name):
        raise InvalidName(
            f"{name!r} is not a {what} name: use 1 to 128 ASCII letters (a-z, A-Z), digits, '.', '_' or '-', "
            f"beginning with a letter or digit{_hint_of(name, what)}"
        )
    return name


def _without_braces(name: str) -> str:
    return name[1:-1] if name[:1] == "{" and name[-1:] == "}" else name


def _hint_of(name: object, what: str) -> str:
    """Return a hint for a name like "events/archive", which workers and logs use for a group, or for a namespace."""
    if what == "namespace":
        return ". Braces around all of it, as in '{shop}', keep its keys on one node of a cluster"
    if what != "queue":
        return ""
    topic, slash, group = name.partition("/") if isinstance(name, str) else ("", "", "")
    return f". A group of a topic is app.topic({topic!r}).group({group!r})" if slash and is_name(topic) else ""


def is_name(name: str) -> bool:
    """Return whether a queue, topic or group may have this name."""
    return _NAME.fullmatch(name) is not None


def checked_seconds(value: object, what: str, *, least: float = 0.0) -> float:
    """Return a duration in seconds. Raise UsageError if it is not finite, below `least` or above ten years."""
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{what} must be seconds or a timedelta, not {value!r}")
    else:
        try:
            seconds = float(value)
        except OverflowError:
            raise UsageError(f"{what} must be at most ten years, not {value!r}") from None
    if not math.isfinite(seconds) or seconds < least:
        raise UsageError(f"{what} must be a finite number of at least {least:g} seconds, not {value!r}")
    if seconds > MAX_DELAY:
        raise UsageError(f"{what} must be at most ten years, not {value!r} seconds")
    return seconds


def checked_positive_seconds(value: object, what: str) -> float:
    """Return a duration in seconds. Raise UsageError unless it is more than zero."""
    seconds = checked_seconds(value, what)
    if seconds < 1e-6:
        raise UsageError(f"{what} must be more than 0 seconds, not {value!r}")
    return seconds


def checked_epoch(value: object, what: str = "at") -> float:
    """Return a point in time as seconds since the epoch."""
    if isinstance(value, datetime):
        if value.tzinfo is None or value.utcoffset() is None:
            raise UsageError(f"{what}={shown_time(value)} has no time zone: use an aware datetime")
        value = value.timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{what} must be an aware datetime or epoch seconds, not {value!r}")
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds) or seconds < 0:
        raise UsageError(f"{what} must be a finite point in time after 1970, not {value!r}")
    return seconds


def shown_time(value: datetime | float) -> str:
    """Format a time for an error text. A datetime is in ISO format, which is shorter than its repr."""
    return value.isoformat() if isinstance(value, datetime) else repr(value)


def checked_count(value: object, what: str, *, least: int = 1, most: int = MAX_COUNT) -> int:
    """Return a whole number. Raise UsageError if it is outside its bounds."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{what} must be a whole number, not {value!r}")
    if not least <= value <= most:
        bounds = f"at least {least}" if value < least and most == MAX_COUNT else f"from {least} to {most}"
        raise UsageError(f"{what} must be {bounds}, not {value!r}")
    return value


def checked_number(value: object, what: str, *, most: float) -> None:
    """Raise UsageError unless a value is a number from 0 to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= min(most, sys.float_info.max):
        bounds = "finite and not negative" if most == math.inf else f"from 0 to {most:g}"
        raise UsageError(f"{what} must be a number, {bounds}, not {value!r}")


def checked_flag(value: object, what: str) -> bool:
    """Return a bool. Raise UsageError for any other value, since the string "false" would be true."""
    if not isinstance(value, bool):
        raise UsageError(f"{what} must be True or False, not {value!r}")
    return value


def checked_durable(value: object) -> None:
    """Raise UsageError unless a value is valid for `durable=`."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_REPLICAS
    if value is not None and value not in ("fsync", "replica") and not is_count:
        choices = f'"fsync", "replica" or a number of replicas, at most {MAX_REPLICAS}'
        raise UsageError(f"durable must be {choices}, not {value!r}")


def _checked_exceptions(value: object, what: str) -> tuple[type[Exception], ...]:
    """Return exception classes as a tuple. A single class is accepted."""
    given = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    for each in given:
        if not isinstance(each, type) or not issubclass(each, Exception):
            raise UsageError(f"{what} must be exceptions like (ConnectionError, TimeoutError), not {value!r}")
    return tuple(given)


def _checked_choice(value: object, what: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(f"{what} must be one of {', '.join(map(repr, choices))}, not {value!r}")


@dataclass(frozen=True)
class Retry:
    """A retry policy: how often a failed message is redelivered, and with which delays (backoff).

    `Retry()` waits 1, 2, 4 and 8 s, and the message is dead when the fifth attempt fails. With `factor < 1` the
    delays become shorter. `Retry(delays=[120, 600])` is an explicit list. `Retry(delay=f)` calls `f(attempt)`.

    The number of an attempt is failures plus crashes plus one. A crash uses an attempt, but only a failure can be the
    last attempt. `crash_limit` of the queue limits crashes.

    - `attempts`: The attempt at which a failure makes the message dead; 1: no retries. Default: 5, or len(delays) + 1.
    - `first`: Seconds before the second attempt.
    - `factor`: The factor by which each further delay is multiplied.
    - `max`: The longest delay, in seconds.
    - `jitter`: A delay d becomes a random delay within d * (1 ± jitter). 0 to 1. Not applied to `delays`.
    - `delays`: Explicit delays. The last one repeats if `attempts` is larger.
    - `delay`: A function from the number of the failed attempt (1, 2 ...) to seconds. Not stored with a message.
    - `only`: The exceptions to retry. Any other makes the message dead at once. None: all. Not stored with a message.
    - `never`: The exceptions that make the message dead at once, even if `only` lists them. Not stored with a message.
    """

    attempts: int | None = None
    first: Seconds = 1.0
    factor: float = 2.0
    max: Seconds = 3600.0
    jitter: float = 0.1
    delays: Sequence[Seconds] | None = None
    delay: Callable[[int], Seconds] | None = None
    only: type[Exception] | Sequence[type[Exception]] | None = None
    never: type[Exception] | Sequence[type[Exception]] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "never", _checked_exceptions(self.never, "Retry.never"))
        if self.only is not None:
            object.__setattr__(self, "only", _checked_exceptions(self.only, "Retry.only"))
            if not self.only:
                raise UsageError("Retry.only must not be empty: for no retries use Retry(attempts=1)")
        checked_seconds(self.first, "Retry.first")
        checked_seconds(self.max, "Retry.max")
        checked_number(self.factor, "Retry.factor", most=math.inf)
        checked_number(self.jitter, "Retry.jitter", most=1)
        if self.delay is not None and not callable(self.delay):
            raise UsageError(f"Retry.delay must be a callable, not {self.delay!r}")
        if self.delays is not None:
            given: object = self.delays
            if isinstance(given, str) or not isinstance(given, Sequence):
                raise UsageError(f"Retry.delays must be a list of seconds, not {given!r}")
            if not self.delays:
                raise UsageError("Retry.delays must not be empty: for no retries use Retry(attempts=1)")
            if len(self.delays) > MAX_DELAYS:
                raise UsageError(
                    f"Retry.delays has {len(self.delays)} delays: at most {MAX_DELAYS} are allowed, the last repeats"
                )
            object.__setattr__(self, "delays", tuple(checked_seconds(d, "Retry.delays") for d in self.delays))
        if self.attempts is None:
            object.__setattr__(self, "attempts", 5 if self.delays is None else len(self.delays) + 1)
        checked_count(self.attempts, "Retry.attempts")

    def is_last(self, attempt: int) -> bool:
        """Return whether a failure of this attempt makes the message dead."""
        assert self.attempts is not None
        return attempt >= self.attempts

    def retries(self, error: BaseException) -> bool:
        """Return whether a failure with this exception may be retried."""
        never, only = self.never, self.only
        assert isinstance(never, tuple)
        assert only is None or isinstance(only, tuple)
        return not isinstance(error, never) and (only is None or isinstance(error, only))

    @staticmethod
    def _asked(delay: Callable[[int], Seconds], attempt: int) -> Seconds:
        try:
            return delay(attempt)
        except Exception as error:
            raise UsageError(f"Retry.delay({attempt}) raised {type(error).__name__}: {error}") from error

    def delay_after(self, attempt: int, spread: Callable[[float, float], float] = random.uniform) -> float:
        """Return the seconds to wait after `attempt` (1, 2 ...) has failed.

        Raises UsageError if `delay` raises or returns something other than a duration.
        """
        if self.delay is not None:
            return checked_seconds(self._asked(self.delay, attempt), "Retry.delay()")
        if self.delays is not None:
            chosen = self.delays[min(attempt, len(self.delays)) - 1]
            return checked_seconds(chosen, "Retry.delays")
        longest = checked_seconds(self.max, "Retry.max")
        try:
            plain = checked_seconds(self.first, "Retry.first") * self.factor ** (attempt - 1)
        except OverflowError:
            plain = longest
        plain = min(plain, longest)
        if not self.jitter or not plain:
            return plain
        return min(spread(plain * (1 - self.jitter), plain * (1 + self.jitter)), longest)


@dataclass(frozen=True)
class Repeat:
    """A repeat rule: an acked message is delivered again later, for example as a reminder.

    `Repeat(first=60, factor=2)` is due 60 s after it was sent, and 120, 240 s ... after each ack.

    - `first`: Seconds until the message is first due, unless `delay` or `at` is given.
    - `factor`: The factor by which each further delay is multiplied; below 1 it needs `times`.
    - `times`: The number of acks after which the message is finished; None: it repeats until it is cancelled.
    - `max`: The longest delay, in seconds.
    """

    first: Seconds = 60.0
    factor: float = 1.0
    times: int | None = None
    max: Seconds = 30 * 86400.0

    def __post_init__(self) -> None:
        first = checked_positive_seconds(self.first, "Repeat.first")
        longest = checked_positive_seconds(self.max, "Repeat.max")
        if first > longest:
            raise UsageError(f"Repeat.first={self.first!r} is longer than Repeat.max={self.max!r}")
        if self.times is not None:
            checked_count(self.times, "Repeat.times")
        checked_number(self.factor, "Repeat.factor", most=math.inf)
        if self.factor < 1 and self.times is None:
            raise UsageError(f"Repeat.factor={self.factor!r} makes each delay shorter, without an end: give times=")

    def delay_after(self, acks: int) -> float | None:
        """Return the seconds from the given ack (1, 2 ...) to the next delivery; None: the message is finished."""
        if self.times is not None and acks >= self.times:
            return None
        longest = checked_seconds(self.max, "Repeat.max")
        try:
            return min(checked_seconds(self.first, "Repeat.first") * self.factor**acks, longest)
        except OverflowError:
            return longest


@dataclass(frozen=True)
class Batch:
    """How messages are collected for a batch handler.

    The handler is called when `max` messages are there, or `wait` seconds after the first one.

    - `max`: The largest number of messages in one call, 1 to 1000.
    - `wait`: Seconds that the first message waits for others.
    """

    max: int = 100
    wait: Seconds = 0.5

    def __post_init__(self) -> None:
        checked_count(self.max, "Batch.max", most=MAX_BATCH)
        checked_seconds(self.wait, "Batch.wait")


@dataclass(frozen=True)
class Wait:
    """A value for `on_busy` of a lock: wait up to `seconds` until the lock is free."""

    seconds: Seconds

    def __post_init__(self) -> None:
        checked_seconds(self.seconds, "Wait.seconds")


@dataclass(frozen=True)
class Keep:
    """The retention of dead letters, finished messages or entries.

    The oldest are removed first, and counted as trimmed.

    - `count`: The largest number of messages; None: any number.
    - `age`: The longest time, in seconds; None: forever.
    - `bytes`: The largest number of bytes of stored messages, with their errors, timelines and results; None: any
      number.
    """

    count: int | None = None
    age: Seconds | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        if self.count is not None:
            checked_count(self.count, "Keep.count", least=0)
        if self.age is not None:
            checked_seconds(self.age, "Keep.age")
        if self.bytes is not None:
            checked_count(self.bytes, "Keep.bytes", least=0)

    @property
    def is_nothing(self) -> bool:
        """Whether this keeps no message at all."""
        return 0 in (self.count, self.bytes) or (self.age is not None and not checked_seconds(self.age, "Keep.age"))


_RATE = re.compile(r"(\d+(?:\.\d+)?)/(s|m|h|d)")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def interval_of(rate: object) -> float:
    """Return the microseconds from one delivery to the next that a rate like "100/s" allows; 0: no rate."""
    if rate is None:
        return 0.0
    match = _RATE.fullmatch(rate) if isinstance(rate, str) else None
    count = float(match[1]) if match else 0.0
    if match is None or not count:
        raise UsageError(f'rate must be like "100/s", "6000/m", "10/h" or "5/d", not {rate!r}')
    interval = _UNITS[match[2]] * 1_000_000 / count
    if interval < 1 or interval > MAX_DELAY * 1_000_000:
        raise UsageError(f"rate must be from one in ten years to a million a second, not {rate!r}")
    return interval


def _check_share(share: Any) -> None:
    if share is None:
        return
    if not isinstance(share, int | float) or not 0 < share < 1:
        raise UsageError(f"retry_share must be a number between 0 and 1, like 0.5, not {share!r}")


@dataclass(frozen=True, kw_only=True)
class QueueOptions:
    """The options of a queue in this process. They are not stored, so processes may use different ones.

    - `type`: Bodies are checked against it when sent and decoded to it when received.
    - `lease`: Seconds that a consumer may hold a message without renewing the lease (visibility timeout). After that,
      the message is redelivered.
    - `max_runtime`: Seconds after which a lease is no longer renewed; None: no limit.
    - `retry`: The retry policy for messages that were sent without one.
    - `crash_limit`: The number of expired leases after which a message is dead, with the reason `poison`.
    - `max_length`: The largest number of live messages: ready, delayed, leased and parked; None: any number.
    - `max_bytes`: The largest number of bytes of live messages; None: any number.
    - `on_full`: The reaction of a send to a full queue: "raise" QueueFull, "block" until there is room, or
      "drop_oldest", which drops the waiting messages that were due first. If all messages are leased, "drop_oldest"
      raises QueueFull.
    - `dedup_for`: The default window of `dedup=`, in seconds.
    - `on_dead`: Whether later messages of the key of a dead message "continue", or "block" until it is redriven or
      purged.
    - `rate`: The highest rate of deliveries from the queue to all consumers, like "100/s" or "6000/m"; None: no limit.
    - `max_in_flight`: The largest number of leased messages of the queue, over all consumers; None: any number.
    - `retry_share`: The share of deliveries that retries get while both retries and new messages are due, like 0.5;
      None: messages are delivered by due time, whether they were delivered before or not.
    - `dead`: The retention of dead letters.
    - `done`: The retention of finished messages and the results of their handlers; None: they are not kept.
    - `max_message_bytes`: The largest size of an encoded body with its headers.
    """

    type: Any = None
    lease: Seconds = 30.0
    max_runtime: Seconds | None = None
    retry: Retry = Retry()
    crash_limit: int = 3
    max_length: int | None = None
    max_bytes: int | None = None
    on_full: OnFull = "raise"
    dedup_for: Seconds = 300.0
    on_dead: OnDead = "continue"
    rate: str | None = None
    max_in_flight: int | None = None
    retry_share: float | None = None
    dead: Keep = Keep(count=10_000, age=30 * 86400)
    done: Keep | None = None
    max_message_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        checked_positive_seconds(self.lease, "lease")
        if self.max_runtime is not None:
            checked_positive_seconds(self.max_runtime, "max_runtime")
        if not isinstance(self.retry, Retry):
            raise UsageError(f"retry must be a duly.Retry, not {self.retry!r}")
        checked_count(self.crash_limit, "crash_limit")
        for name in ("max_length", "max_bytes"):
            if getattr(self, name) is not None:
                checked_count(getattr(self, name), name)
        _checked_choice(self.on_full, "on_full", ("raise", "block", "drop_oldest"))
        _checked_choice(self.on_dead, "on_dead", ("continue", "block"))
        interval_of(self.rate)
        if self.max_in_flight is not None:
            checked_count(self.max_in_flight, "max_in_flight")
        _check_share(self.retry_share)
        checked_positive_seconds(self.dedup_for, "dedup_for")
        for name in ("dead", "done"):
            keep = getattr(self, name)
            if not isinstance(keep, Keep) and not (name == "done" and keep is None):
                raise UsageError(f"{name} must be a duly.Keep, not {keep!r}")
        checked_count(self.max_message_bytes, "max_message_bytes")


class QueueKeywords(TypedDict, total=False):
    """The options of `app.queue` except `type`, for type checkers. QueueOptions documents them.

    `shards` is not built yet: 1 is its only value.
    """

    lease: Seconds
    max_runtime: Seconds | None
    retry: Retry
    crash_limit: int
    max_length: int | None
    max_bytes: int | None
    on_full: OnFull
    dedup_for: Seconds
    on_dead: OnDead
    rate: str | None
    max_in_flight: int | None
    retry_share: float | None
    dead: Keep
    done: Keep | None
    max_message_bytes: int | None
    shards: Literal[1]


@dataclass(frozen=True, kw_only=True)
class TopicOptions:
    """The options of a topic and its groups in this process. They are not stored, so processes may use different ones.

    - `type`: Bodies are checked against it when published and decoded to it when received.
    - `keep`: The retention of entries in the stream. None: an entry is removed when every group has acked it. While
      the topic has no group, no entry is removed.
    - `lease`: Seconds that a consumer may hold a message without renewing the lease (visibility timeout). After that,
      the message is redelivered.
    - `max_runtime`: Seconds after which a lease is no longer renewed; None: no limit.
    - `retry`: The retry policy of each group.
    - `crash_limit`: The number of expired leases after which a message is dead in a group.
    - `dead`: The retention of dead letters in each group.
    - `on_dead`: Whether later messages of the key of a dead message "continue" in its group, or "block" until it is
      redriven.
    - `dedup_for`: The default window of `dedup=`, in seconds.
    - `max_message_bytes`: The largest size of an encoded body with its headers.
    """

    type: Any = None
    keep: Keep | None = Keep(age=7 * 86400)
    lease: Seconds = 30.0
    max_runtime: Seconds | None = None
    retry: Retry = Retry()
    crash_limit: int = 3
    dead: Keep = Keep(count=10_000, age=30 * 86400)
    on_dead: OnDead = "continue"
    dedup_for: Seconds = 300.0
    max_message_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        if self.keep is not None and not isinstance(self.keep, Keep):
            raise UsageError(f"keep must be a duly.Keep or None, not {self.keep!r}")
        if self.keep is not None and self.keep.is_nothing:
            raise UsageError(
                f"keep={self.keep!r} keeps nothing, so groups would miss every entry: give a number, or keep=None, "
                "which removes entries that every group has acked"
            )
        self.of_group()  # checks the rest

    def of_group(self) -> QueueOptions:
        """Return the options of each group of the topic, in the form of queue options."""
        return QueueOptions(
            type=self.type,
            lease=self.lease,
            max_runtime=self.max_runtime,
            retry=self.retry,
            crash_limit=self.crash_limit,
            dead=self.dead,
            on_dead=self.on_dead,
            dedup_for=self.dedup_for,
            max_message_bytes=self.max_message_bytes,
        )


class TopicKeywords(TypedDict, total=False):
    """The options of `app.topic` except `type`, for type checkers. TopicOptions documents them."""

    keep: Keep | None
    lease: Seconds
    max_runtime: Seconds | None
    retry: Retry
    crash_limit: int
    dead: Keep
    on_dead: OnDead
    dedup_for: Seconds
    max_message_bytes: int | None


@dataclass(frozen=True, slots=True)
class Send(Generic[SentT_co]):
    """A body with its options, for `send_many`, `publish_many` and `commit`. The options are those of `queue.send`.

    - `body`: A value that msgspec can encode as JSON, a pydantic model, or bytes, which are stored unchanged.
    - `delay`: Seconds until the message is due, at most ten years; None: due now, or at `at`.
    - `at`: The time when the message is due, by the server's clock: an aware datetime, or epoch seconds.
    - `key`: Messages with the same key are delivered in order, one at a time.
    - `priority`: 0 to 9. Higher priorities are delivered first.
    - `dedup`: A second send with the same value within the window stores nothing and returns the first id.
    - `dedup_for`: The window of `dedup`, in seconds; None: that of the queue.
    - `replace`: With `dedup`: a message that is still waiting gets the new body and due time.
    - `ttl`: Seconds after the due time until the message expires. After that, it is removed as soon as it is waiting,
      even for a retry, and counted as expired, not dead. A consumer that holds it may still finish it. None: never.
    - `headers`: Strings that are stored with the message, apart from its body.
    - `retry`: The retry policy of this message; None: that of the consumer.
    - `id`: Your own id. It is stored only once while the queue has a message with this id. None: Duly makes a ULID.
    - `repeat`: A rule by which the message is delivered again after each ack; None: an ack finishes it.
    - `spread`: The message is due at a random moment within this many seconds after its time, never before. None: at
      its time.
    """

    body: SentT_co
    delay: Seconds | None = None
    at: datetime | float | int | None = None
    key: str | None = None
    priority: int = 0
    dedup: str | None = None
    dedup_for: Seconds | None = None
    replace: bool = False
    ttl: Seconds | None = None
    headers: Mapping[str, str] | None = None
    retry: Retry | None = None
    id: str | None = None
    repeat: Repeat | None = None
    spread: Seconds | None = None


class SendOptions(TypedDict, total=False):
    """The options of `queue.send` and `task.using`, for type checkers. `Send` documents them."""

    delay: Seconds | None
    at: datetime | float | None
    key: str | None
    priority: int
    dedup: str | None
    dedup_for: Seconds | None
    replace: bool
    ttl: Seconds | None
    headers: Mapping[str, str] | None
    retry: Retry | None
    id: str | None
    repeat: Repeat | None
    spread: Seconds | None
    durable: Durable
