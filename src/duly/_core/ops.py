"""Every operation on a queue, as a pure function that makes a `Call`.

One function per script, in the order of docs/protocol.md. Times are in microseconds, as in the protocol.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

from duly import _lua
from duly._core import codec, registry, replies, views
from duly._core import schedules as scheduling
from duly._core.call import Call
from duly._core.effects import Effect
from duly._core.forecast import buckets, step_of
from duly._core.history import ring_of
from duly._core.keys import EVERY_PRIORITY, LockKeys, OnceKeys, QueueKeys, RegistryKeys, ScheduleKeys, TopicKeys
from duly._core.outgoing import Outgoing, microseconds
from duly._core.resp import Arg
from duly._core.results import packed_results
from duly._core.topic_ops import ONLY_PRIORITY, Publication, entry_texts, stream_bounds
from duly.message import Bucket, Message, PendingMessage, Stats, WorkerInfo
from duly.options import Keep, QueueOptions, checked_seconds, interval_of

OnRefusal = Literal["each", "all", "drop"]
Then = Literal["watch", "stay", "behind", "pass", "leave"]
"""The caller's next step after a claim. It decides where the wake token goes; see section 10 of the protocol."""
Suspects = Literal["with", "none", "alone"]
"""Whether a claim may take suspects (messages that one more crash makes dead): like others, never, or one alone."""

_CHECKED: Final = codec.FLAG_TTL | codec.FLAG_DEDUP | codec.FLAG_OWN_ID


class Held(Protocol):
    """The lease of one delivery: which message, and the fence that proves it."""

    @property
    def id(self) -> str: ...
    @property
    def fence(self) -> int: ...
    @property
    def has_key(self) -> bool: ...


class Settle:
    """A lease without its delivery, as from a receipt, which does not show whether the message has a key."""

    __slots__ = ("fence", "has_key", "id")

    def __init__(self, id: str, fence: int, has_key: bool | int = True) -> None:  # noqa: A002, FBT001, FBT002
        self.id = id
        self.fence = fence
        self.has_key = bool(has_key)


class Asking(NamedTuple):
    """The delivery that asks whether it may run an effect."""

    queue: str
    id: str
    sent: int
    fence: int
    deliveries: int
    crashes: int
    redrives: int


def send(
    keys: QueueKeys, messages: Sequence[Outgoing], options: QueueOptions, on_refusal: OnRefusal
) -> Call[replies.SendOutcome]:
    """Store messages. Messages that need no check of the queue use the shorter script."""
    flags, priorities = 0, set[int]()
    args: list[Arg] = []
    for message in messages:
        flags |= message.flags
        priorities.add(message.priority)
        args += (message.id, message.part, message.when)
    decode = replies.sent([message.id for message in messages])
    digits = _digits(priorities)
    is_plain = keys.kind == "queue" and len(digits) == 1 and not flags & _CHECKED
    if is_plain and options.max_length is None and options.max_bytes is None:
        keyed = int(bool(flags & codec.FLAG_KEY))
        return Call(keys.script("send"), keys, [digits, keyed, *args], decode, digits)
    return Call(keys.script("send_checked"), keys, [EVERY_PRIORITY, *_limits(options), on_refusal, *args], decode)


def claim(
    keys: QueueKeys,
    options: QueueOptions,
    *,
    limit: int,
    lease: float,
    consumer: str,
    then: Then,
    suspects: Suspects = "with",
    feed: Sequence[str] = (),
) -> Call[replies.Claimed]:
    """Lease due messages. `feed` is for a group: its start, then its filter, header and value in turn."""
    holder: list[Arg] = [limit, microseconds(lease), options.crash_limit, consumer]
    limits: list[Arg] = [
        f"{interval_of(options.rate):.3f}",
        -1 if options.max_in_flight is None else options.max_in_flight,
        f"{options.retry_share or 0}",
    ]
    args = [EVERY_PRIORITY, *holder, then, suspects, *_bounds(options.dead), options.on_dead, *limits, *feed]
    return Call(keys.script("claim"), keys, args, replies.claimed)


def ack(keys: QueueKeys, options: QueueOptions, settles: Sequence[Held]) -> Call[list[int]]:
    """Finish messages. Those without a key, of a queue without retention, use the shorter script."""
    if options.done is not None or any(settle.has_key for settle in settles):
        return finish(keys, options, [(settle, "") for settle in settles])
    args: list[Arg] = []
    for settle in settles:
        args += (settle.id, settle.fence)
    return Call(keys.script("ack"), keys, args, replies.lost_positions)


def finish(keys: QueueKeys, options: QueueOptions, settles: Sequence[tuple[Held, str]]) -> Call[list[int]]:
    """Finish messages, each with its packed result (section 6 of the protocol); empty: no result."""
    results = "" if options.done is None else packed_results([result for _, result in settles])
    args: list[Arg] = [EVERY_PRIORITY, *_done_bounds(options), results]
    for settle, _ in settles:
        args += (settle.id, settle.fence)
    return Call(keys.script("finish"), keys, args, replies.lost_positions)


class Target(NamedTuple):
    """A queue that a commit sends to, and the messages."""

    keys: QueueKeys
    options: QueueOptions
    messages: list[Outgoing]


class Publishes(NamedTuple):
    """A topic that a commit publishes to, and the entries."""

    keys: TopicKeys
    keep: Keep | None
    entries: list[Publication]


def commit(
    keys: QueueKeys,
    options: QueueOptions,
    settle: Held,
    targets: Sequence[Target] = (),
    topics: Sequence[Publishes] = (),
    effects: Sequence[Effect] = (),
    *,
    result: str = "",
    result_in: float = 0,
) -> Call[replies.CommitOutcome]:
    """Finish a message, send others, publish entries and change keys of the user, all or nothing.

    `result_in`: the result is not known yet, and `keep_results` may store it within this number of seconds.
    """
    sends, publishes = _lua.script("send_checked"), _lua.script("publish", "topic")
    user_keys = {key: number for number, key in enumerate(dict.fromkeys(effect.key for effect in effects), 1)}
    extra_keys = [key for target in targets for key in target.keys.of_script(sends, EVERY_PRIORITY)]
    extra_keys += [key for topic in topics for key in topic.keys.of_script(publishes, ONLY_PRIORITY)]
    args: list[Arg] = [*_done_bounds(options), EVERY_PRIORITY, settle.id, settle.fence, result, microseconds(result_in)]
    args += (len(targets), len(topics), len(effects))
    for target in targets:
        on_refusal: OnRefusal = "drop" if target.options.on_full == "drop_oldest" else "all"
        args += (int(target.keys.prefix == keys.prefix), *_limits(target.options), on_refusal, len(target.messages))
        for message in target.messages:
            args += message.row
    for topic in topics:
        texts = entry_texts(topic.entries)
        args += (*stream_bounds(topic.keep), len(texts), *texts)
    for effect in effects:
        args += (user_keys[effect.key], effect.name, len(effect.args), *effect.args)
    decode = replies.committed([message.id for target in targets for message in target.messages])
    return Call(keys.script("commit"), keys, args, decode, extra_keys=[*extra_keys, *user_keys])


def keep_results(keys: QueueKeys, rows: Sequence[tuple[Held, str]]) -> Call[list[int]]:
    """Store the results of handlers that had committed before. The reply: the positions whose message is gone."""
    return of_rows("keep_result", keys, rows)


def of_rows(script: str, keys: QueueKeys, rows: Sequence[tuple[Any, ...]]) -> Call[list[int]]:
    """Make the call of a script that takes only rows: a lease, then the values for it."""
    args: list[Arg] = []
    for settle, *rest in rows:
        args += (settle.id, settle.fence, *rest)
    return Call(keys.script(script), keys, args, replies.lost_positions)


def retry(keys: QueueKeys, settles: Sequence[tuple[Held, float, str, str]]) -> Call[list[int]]:
    """Count a failure, and redeliver after a delay."""
    rows = [(settle, (microseconds(delay), error, traceback)) for settle, delay, error, traceback in settles]
    return _giving_back("retry", keys, rows)


def defer(keys: QueueKeys, settles: Sequence[tuple[Held, float, str]]) -> Call[list[int]]:
    """Redeliver after a delay; an empty reason means none."""
    return _giving_back("defer", keys, [(settle, (microseconds(delay), reason)) for settle, delay, reason in settles])


def release(keys: QueueKeys, settles: Sequence[Held]) -> Call[list[int]]:
    """Return messages to their place in the queue."""
    return _giving_back("release", keys, [(settle, ()) for settle in settles])


def recycle(keys: QueueKeys, settles: Sequence[tuple[Held, float, codec.Part]]) -> Call[list[int]]:
    """Finish messages and store them again as new; an empty part keeps the body."""
    rows = [(settle, (microseconds(delay), part)) for settle, delay, part in settles]
    return _giving_back("recycle", keys, rows)


def reject(
    keys: QueueKeys, options: QueueOptions, settles: Sequence[tuple[Held, str, str, str]], *, failed: bool = False
) -> Call[list[int]]:
    """Make messages dead, with reason, error and traceback. `failed`: the last attempt failed, so count a failure."""
    args: list[Arg] = [EVERY_PRIORITY, *_bounds(options.dead), int(failed), options.on_dead]
    for settle, reason, error, traceback in settles:
        args += (settle.id, settle.fence, reason, error, traceback)
    return Call(keys.script("reject"), keys, args, replies.lost_positions)


def extend(keys: QueueKeys, settles: Sequence[tuple[Held, float]], *, renews: bool = False) -> Call[list[int]]:
    """Let leases end after the given times from now. `renews`: never shorten a lease."""
    args: list[Arg] = [int(renews)]
    for settle, lease in settles:
        args += (settle.id, settle.fence, microseconds(lease))
    return Call(keys.script("extend"), keys, args, replies.lost_positions)


def cancel(keys: QueueKeys, id_: str, *, running: bool = False) -> Call[bool]:
    """Remove a message that waits or is dead; with `running`, a leased one as well."""
    return Call(keys.script("cancel"), keys, [EVERY_PRIORITY, id_, int(running)], replies.is_one)


def reschedule(keys: QueueKeys, id_: str, when: str) -> Call[bool]:
    """Give a waiting message another due time."""
    return Call(keys.script("reschedule"), keys, [EVERY_PRIORITY, id_, when], replies.is_one)


def redrive(
    keys: QueueKeys, limit: int, letters: Sequence[tuple[str, int, codec.Part]] = (), *, at_end: bool = False
) -> Call[tuple[int, int]]:
    """Redrive dead letters: the oldest, or those named by id, time of death, and a new part if edited."""
    args: list[Arg] = [EVERY_PRIORITY, limit, int(at_end)]
    for letter in letters:
        args += letter
    return Call(keys.script("redrive"), keys, args, replies.pair)


def letters(
    keys: QueueKeys, viewer: views.Viewer, limit: int, after: Message | str | None, *, newest: bool = False
) -> Call[views.LetterPage]:
    """Return a page of dead letters, with their records."""
    args = [EVERY_PRIORITY, "dead", limit, *_position(after), _order(newest=newest)]
    return Call(keys.script("list"), keys, args, viewer.letters).part_of("redrive")


def move(
    keys: QueueKeys, to: QueueKeys, options: QueueOptions, letters: Sequence[tuple[str, int, codec.Part]]
) -> Call[replies.Moved]:
    """Move dead letters to another queue as new messages, within its bounds. They are named as for redrive."""
    args: list[Arg] = [EVERY_PRIORITY, *_limits(options), f"from {keys.name}"]
    for letter in letters:
        args += letter
    others = to.of_script(_lua.script("send_checked"), EVERY_PRIORITY)
    return Call(keys.script("move"), keys, args, replies.moved, extra_keys=others)


def wake(keys: QueueKeys) -> Call[bool]:
    """Pass a wake token on."""
    return Call(keys.script(keys.waker), keys, [], replies.is_one)


def take_tokens(home: QueueKeys, wakes: Sequence[bytes], limit: int) -> Call[list[int]]:
    """Take up to `limit` wake tokens and return the positions of their keys. `home` stores the call record."""
    return Call(home.script("take_tokens"), home, [limit], replies.positions, extra_keys=wakes)


def occupied(queues: Sequence[QueueKeys]) -> Call[list[int]]:
    """Return the positions of the queues that have live messages."""
    others = [key for keys in queues for key in keys.of_life]
    return Call(
        queues[0].script("occupied"), queues[0], [len(others) // len(queues)], replies.positions, extra_keys=others
    )


def tidy(keys: QueueKeys, options: QueueOptions) -> Call[bool]:
    """Do a bounded part of the overdue maintenance. True: there may be more."""
    args: list[Arg] = [EVERY_PRIORITY, *_bounds(options.dead), *_done_bounds(options)]
    return Call(keys.script("tidy"), keys, args, replies.is_one)


def measure(keys: QueueKeys, lateness: str, handling: str) -> Call[bool]:
    """Add times that a worker has collected to the history. False: the queue has none."""
    return Call(keys.script("measure"), keys, [EVERY_PRIORITY, lateness, handling], replies.is_one)


def pause(keys: QueueKeys, by: str) -> Call[bool]:
    """Stop delivery."""
    return Call(keys.script("pause"), keys, [by], replies.is_one)


def resume(keys: QueueKeys) -> Call[bool]:
    """Continue delivery."""
    return Call(keys.script("resume"), keys, [], replies.is_one)


def purge(keys: QueueKeys, state: str, limit: int) -> Call[tuple[int, int]]:
    """Remove the messages of a state."""
    return Call(keys.script("purge"), keys, [EVERY_PRIORITY, state, limit], replies.pair)


def purge_letters(keys: QueueKeys, letters: Sequence[tuple[str, int]]) -> Call[tuple[int, int]]:
    """Remove dead letters that a page listed, by id and time of death. Letters that were redriven since then stay."""
    named: list[Arg] = [each for letter in letters for each in letter]
    return Call(keys.script("purge"), keys, [EVERY_PRIORITY, "dead", len(letters), *named], replies.pair)


def delete(keys: QueueKeys) -> Call[int]:
    """Remove the queue."""
    return Call(keys.script("delete"), keys, [], replies.number)


def get(keys: QueueKeys, viewer: views.Viewer, id_: str) -> Call[Message | None]:
    """Return one message."""
    return Call(keys.script("get"), keys, [EVERY_PRIORITY, id_], viewer.message(id_))


def explain(keys: QueueKeys, viewer: views.Viewer, id_: str) -> Call[views.MessageDetails | None]:
    """Return one message and its surroundings."""
    return Call(keys.script("get"), keys, [EVERY_PRIORITY, id_], viewer.details(id_)).part_of("explain")


def await_end(keys: QueueKeys, viewer: views.Viewer, id_: str, wait: float) -> Call[views.End]:
    """Return how a message ended. For a live one, subscribe to its end for `wait` seconds. 0: do not subscribe."""
    return Call(keys.script("await_end"), keys, [EVERY_PRIORITY, id_, microseconds(wait)], viewer.end(id_))


def list_(
    keys: QueueKeys,
    viewer: views.Viewer,
    state: str,
    limit: int,
    after: Message | str | None,
    *,
    newest: bool = False,
) -> Call[tuple[list[Message], bool]]:
    """Return a page of a state. `newest`: the newest first, for dead and done."""
    args = [EVERY_PRIORITY, state, limit, *_position(after), _order(newest=newest)]
    return Call(keys.script("list"), keys, args, viewer.page(state))


def _position(after: Message | str | None) -> list[Arg]:
    """Return the id, the two numbers of the cursor and the key, as far as they are known."""
    if isinstance(after, Message):
        return [after.id, *after.cursor, after.key or ""]
    return [after or "", "", "", ""]


def _order(*, newest: bool) -> str:
    return "newest" if newest else ""


def stats(keys: QueueKeys, history: float | None = None) -> Call[Stats]:
    """Return sizes and counters; and, if asked for, the history of the last seconds."""
    if history is None:
        return Call(keys.script("stats"), keys, [EVERY_PRIORITY, ""], views.stats)
    ring = ring_of(history)
    return Call(keys.script("stats"), keys, [EVERY_PRIORITY, ring.name], views.stats_since(history))


def forecast(keys: QueueKeys, ahead: float) -> Call[list[Bucket]]:
    """Count the messages that become due in each interval of the next seconds."""
    ahead_us, step_us = microseconds(ahead), step_of(ahead) * 1_000_000
    return Call(keys.script("forecast"), keys, [EVERY_PRIORITY, ahead_us, step_us], buckets(ahead_us, step_us))


def accounts(keys: QueueKeys) -> Call[views.Accounts]:
    """Return the numbers that an audit compares."""
    decode = views.accounts_of_topic if keys.kind == "topic" else views.accounts
    return Call(keys.script("stats"), keys, [EVERY_PRIORITY, ""], decode).part_of("audit")


def fed(keys: QueueKeys) -> Call[str | None]:
    """Return the largest id of an entry that a group has ever read, if it is known."""
    return Call(keys.script("stats"), keys, [EVERY_PRIORITY, ""], views.fed)


def pending(keys: QueueKeys, offset: int, limit: int) -> Call[list[PendingMessage]]:
    """Return a page of leases."""
    return Call(keys.script("pending"), keys, [offset, limit], views.pending_rows)


def audit_step(keys: QueueKeys, source: str, cursor: str, *, repair: bool) -> Call[replies.AuditStep]:
    """Check one step of one key."""
    call = Call(keys.script("audit"), keys, [EVERY_PRIORITY, int(repair), source, cursor], replies.audit_step)
    return call.part_of("repair") if repair else call


def correct(keys: QueueKeys, corrections: Mapping[str, int | str], repairs: int = 0) -> Call[bool]:
    """Add differences to counters, and set the bytes of rows (`lib/row_bytes.lua`).

    False: there have been more repairs than `repairs`, or rows were added or removed, so the audit is outdated.
    """
    args: list[Arg] = [repairs]
    for name, difference in corrections.items():
        args += (name, difference)
    return Call(keys.script("correct"), keys, args, replies.is_one)


def beat(keys: RegistryKeys, consumer: str, info: bytes, forget_after: float) -> Call[bool]:
    """Send a worker's heartbeat, and forget others without one for `forget_after` seconds."""
    return Call(keys.script("beat"), keys, [consumer, info, microseconds(forget_after)], replies.is_one)


def depart(keys: RegistryKeys, consumer: str) -> Call[bool]:
    """Remove a worker from the registry. False: it was not there."""
    return Call(keys.script("depart"), keys, [consumer], replies.is_one)


def workers(keys: RegistryKeys) -> Call[list[WorkerInfo]]:
    """Return the workers, the newest heartbeat first."""
    return Call(keys.script("workers"), keys, [], registry.read_workers)


def lock(keys: LockKeys, lock_token: str, ttl: float, by: str, kept: float) -> Call[replies.LockState]:
    """Take a lock if it is free, or return its holder. `kept`: seconds for which the call can be repeated."""
    return Call(keys.script("lock"), keys, [lock_token, microseconds(ttl), by, _milliseconds(kept)], replies.lock_state)


def unlock(keys: LockKeys, lock_token: str, kept: float) -> Call[bool]:
    """Free a lock. False: it was lost."""
    return Call(keys.script("unlock"), keys, [lock_token, _milliseconds(kept)], replies.is_one)


def prolong(keys: LockKeys, lock_token: str, ttl: float, kept: float) -> Call[bool]:
    """Let a lock end `ttl` seconds from now. False: it was lost."""
    return Call(keys.script("prolong"), keys, [lock_token, microseconds(ttl), _milliseconds(kept)], replies.is_one)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def once(keys: OnceKeys, asking: Asking, ttl: float) -> Call[bool]:
    """Ask whether a delivery may run an effect that happens at most once."""
    args: list[Arg] = [asking.queue, asking.id, asking.sent, asking.fence, asking.deliveries, asking.crashes]
    args.append(asking.redrives)
    return Call(keys.script("once"), keys, [*args, microseconds(ttl)], replies.is_one)


def schedule(keys: QueueKeys, name: str, plan: bytes) -> Call[bool]:
    """Store a schedule. False: it was there."""
    return Call(keys.script("schedule"), keys, [name, plan], replies.is_one)


def unschedule(keys: QueueKeys, name: str) -> Call[bool]:
    """Remove a schedule. False: it was not there."""
    return Call(keys.script("unschedule"), keys, [name], replies.is_one)


def pause_schedule(keys: QueueKeys, name: str) -> Call[bool]:
    """Pause a schedule. False: it is not there."""
    return Call(keys.script("pause_schedule"), keys, [name], replies.is_one)


def resume_schedule(keys: QueueKeys, name: str) -> Call[bool]:
    """Resume a schedule. False: it is not there."""
    return Call(keys.script("resume_schedule"), keys, [name], replies.is_one)


def schedules(keys: QueueKeys, *, cursor: str = "0", name: str = "") -> Call[scheduling.Page]:
    """Return a page of the schedules of a queue or of the registry, or one of them."""
    return Call(keys.script("schedules"), keys, [cursor, name], scheduling.page)


def fire(keys: QueueKeys, name: str, row: bytes, choice: scheduling.Choice, messages: Sequence[Outgoing]) -> Call[bool]:
    """Send the messages of due runs. False: another consumer has sent them, or the schedule has changed."""
    last = choice.runs[-1] if choice.runs else scheduling.read_row(row).last
    args: list[Arg] = [EVERY_PRIORITY, name, scheduling.head_of(row), choice.after, last, choice.next_at]
    for message in messages:
        args += message.row
    return Call(keys.script("fire"), keys, args, replies.is_one)


def register(keys: ScheduleKeys, name: str, queue: str) -> Call[scheduling.Entry | None]:
    """Store to which queue a schedule belongs, and return the entry from before."""
    return Call(keys.script("register"), keys, [name, queue], scheduling.read_entry)


def unregister(keys: ScheduleKeys, name: str, entry: bytes) -> Call[bool]:
    """Remove a schedule from the registry. False: its entry has changed."""
    return Call(keys.script("unregister"), keys, [name, entry], replies.is_one)


AUDITED: Final = (
    "meta", "msgs", "leased", "leases", "counts", "why", "expires", "dead", "done",
    *(f"waiting{digit}" for digit in EVERY_PRIORITY), "lanes", "parked", "dedup", "dedup_ends", "schedules", "slots",
)  # fmt: skip
"""The keys that an audit checks, in order, once all can be read. Lanes come after places, on which they depend."""

AUDITED_OF_TOPIC: Final = (
    "meta", "msgs", "why", "dead", *(f"waiting{digit}" for digit in EVERY_PRIORITY), "dedup", "dedup_ends",
)  # fmt: skip
"""The same for delayed publishes: a topic has no other keys."""


def _digits(priorities: Collection[int]) -> str:
    return "".join(map(str, sorted(priorities, reverse=True)))


def _giving_back(verb: str, keys: QueueKeys, rows: Sequence[tuple[Held, tuple[Any, ...]]]) -> Call[list[int]]:
    args: list[Arg] = [EVERY_PRIORITY]
    for settle, rest in rows:
        args += (settle.id, settle.fence, *rest)
    return Call(keys.script(verb), keys, args, replies.lost_positions)


def _limits(options: QueueOptions) -> tuple[int, int]:
    """Return how many messages and bytes the queue may hold."""
    longest, largest = options.max_length, options.max_bytes
    return -1 if longest is None else longest, -1 if largest is None else largest


def _done_bounds(options: QueueOptions) -> tuple[int, int, int, int]:
    """Return whether finished messages are kept, and the bounds of their retention."""
    return (0, -1, -1, -1) if options.done is None else (1, *_bounds(options.done))


def _bounds(keep: Keep) -> tuple[int, int, int]:
    age = -1 if keep.age is None else microseconds(checked_seconds(keep.age, "Keep.age"))
    return -1 if keep.count is None else keep.count, age, -1 if keep.bytes is None else keep.bytes
