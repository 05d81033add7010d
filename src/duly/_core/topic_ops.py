"""Every operation on a topic, or on a group as part of one, as a pure function that makes a `Call`.

What a group does with messages that it has is in `duly._core.ops`: it has a queue's store. Units are microseconds.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from duly._core import replies
from duly._core.call import Arg, Call
from duly._core.keys import EVERY_PRIORITY, GroupKeys, TopicKeys
from duly._core.outgoing import microseconds
from duly.options import Keep, checked_seconds

ONLY_PRIORITY: Final = "0"
"""What waits for its time has one priority."""

_UNKEPT: Final = (-1, -1, -1)


class Publication(NamedTuple):
    """What becomes one entry."""

    fields: Sequence[bytes | str]
    """Field, value, in turn."""
    dedup: str = ""
    dedup_for: int = 0
    """Microseconds."""


def publish(keys: TopicKeys, entries: Sequence[Publication], keep: Keep | None) -> Call[list[str]]:
    """Add entries to the stream."""
    args: list[Arg] = [*stream_bounds(keep)]
    if all(len(entry.fields) == 2 and entry.fields[0] == "body" and not entry.dedup for entry in entries):
        args += (1, *(entry.fields[1] for entry in entries))
    else:
        args += (0, *entry_texts(entries))
    return Call(keys.script("publish"), keys, args, entry_ids, ONLY_PRIORITY)


def entry_texts(entries: Sequence[Publication]) -> list[Arg]:
    """Spell entries out as scripts read them."""
    texts: list[Arg] = []
    for entry in entries:
        texts += (entry.dedup, entry.dedup_for, len(entry.fields), *entry.fields)
    return texts


def read(keys: TopicKeys, begin: str, limit: int) -> Call["Reading"]:
    """Look at entries from `begin` on: `-`, `(` and an id, an id, or `$`."""
    return Call(keys.script("read_topic"), keys, [begin, limit], reading, ONLY_PRIORITY)


def seek(keys: GroupKeys, to: str, *, makes: bool) -> Call[bool]:
    """Have a group read on behind an id; `makes`: only if there was none. False: there was."""
    return Call(keys.script("seek_group"), keys, [to, int(makes)], replies.is_one)


def stats(keys: TopicKeys) -> Call["TopicSight"]:
    """Look at sizes, counters and groups."""
    return Call(keys.script("topic_stats"), keys, [ONLY_PRIORITY], topic_sight, ONLY_PRIORITY)


def tidy(keys: TopicKeys, keep: Keep | None) -> Call[bool]:
    """Do what is overdue, a bounded part of it. True: there may be more."""
    args: list[Arg] = [*stream_bounds(keep), int(keep is None)]
    return Call(keys.script("tidy_topic"), keys, args, replies.is_one, ONLY_PRIORITY)


def foreign_pending(keys: GroupKeys, begin: str, limit: int) -> Call["ForeignPage"]:
    """Look at a page of what consumers of other programs hold."""
    return Call(keys.script("foreign_pending"), keys, [begin, limit], foreign_page)


def leave_group(keys: GroupKeys, consumer: str) -> Call[bool]:
    """Take a consumer off the list of members. False: it has entries pending, or there is no group."""
    return Call(keys.script("leave_group"), keys, [consumer], replies.is_one)


def delete(keys: TopicKeys) -> Call[int]:
    """Remove the stream, and what waits to enter it."""
    return Call(keys.script("delete_topic"), keys, [], replies.number, EVERY_PRIORITY)


class Reading(NamedTuple):
    """Entries that were looked at."""

    next_in: float | None
    """Seconds until the next one enters that waits for its time; None: none does."""
    position: tuple[bytes, ...]
    """Behind what to wait for more."""
    entries: list[tuple[str, list[bytes]]]
    """Id, and field, value in turn."""


class GroupRow(NamedTuple):
    """What the stream knows of a group."""

    name: str
    pending: int
    consumers: int
    last_id: str
    unread: int
    missed: int


class TopicSight(NamedTuple):
    """A topic at one moment."""

    now: int
    length: int
    bytes: int
    delayed: int
    first_id: str
    last_id: str
    groups: list[GroupRow]
    fields: dict[str, str]
    """Counters, and `group:NAME` for each group that was ever used here."""

    def counter(self, name: str) -> int:
        """Read one of the counters."""
        return replies.counter(name, self.fields.get(name, "0").encode())


class ForeignRow(NamedTuple):
    """An entry that a consumer of another program holds."""

    id: str
    consumer: str
    idle: float
    deliveries: int


class ForeignPage(NamedTuple):
    """Some of them."""

    last: str
    """Where the page ended; empty: it was the last."""
    rows: list[ForeignRow]


def entry_ids(reply: list[bytes]) -> list[str]:
    """Read the answer to publish."""
    return [id_.decode() for id_ in reply]


def reading(reply: list[Any]) -> Reading:
    """Read the answer to read_topic."""
    next_us, position, *rest = reply
    entries = [(id_.decode(), fields) for id_, fields in zip(rest[0::2], rest[1::2], strict=True)]
    return Reading(None if next_us < 0 else next_us / 1_000_000, tuple(position), entries)


def topic_sight(reply: list[Any]) -> TopicSight:
    """Read the answer to topic_stats."""
    now, length, size, delayed, first, last, groups, *rest = reply
    rows = [
        GroupRow(_text(name), pending, consumers, last_id.decode(), unread, missed)
        for name, pending, consumers, last_id, unread, missed in (
            groups[at : at + 6] for at in range(0, len(groups), 6)
        )
    ]
    fields = {_text(name): _text(value) for name, value in zip(rest[0::2], rest[1::2], strict=True)}
    return TopicSight(now, length, size, delayed, first.decode(), last.decode(), rows, fields)


def group_names(sight: TopicSight) -> list[str]:
    """Name the groups that the stream knows, and those that were made here."""
    made = {name.partition(":")[2] for name in sight.fields if name.startswith("group:")}
    return sorted(made | {row.name for row in sight.groups})


def lost_groups(sight: TopicSight) -> list[GroupRow]:
    """Name the groups that were made here and that the stream does not know: somebody removed or overwrote it."""
    lost = set(group_names(sight)) - {row.name for row in sight.groups}
    return [GroupRow(name, 0, 0, "0-0", 0, sight.counter(f"missed:{name}")) for name in sorted(lost)]


def foreign_page(reply: list[Any]) -> ForeignPage:
    """Read the answer to foreign_pending."""
    last, *rest = reply
    rows = [
        ForeignRow(id_.decode(), _text(consumer), idle / 1000, deliveries)
        for id_, consumer, idle, deliveries in (rest[at : at + 4] for at in range(0, len(rest), 4))
    ]
    return ForeignPage(last.decode(), rows)


def _text(name: bytes) -> str:
    """Show the name that another program gave to a group or a consumer: it may be any bytes."""
    return name.decode(errors="backslashreplace")


def stream_bounds(keep: Keep | None) -> tuple[int, int, int]:
    if keep is None:
        return _UNKEPT
    age = -1 if keep.age is None else microseconds(checked_seconds(keep.age, "Keep.age"))
    return -1 if keep.count is None else keep.count, age, -1 if keep.bytes is None else keep.bytes
