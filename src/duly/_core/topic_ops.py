"""Every operation on a topic, or on a group as part of one, as a pure function that makes a `Call`.

A group stores its messages like a queue, so its other operations are in `duly._core.ops`. Times are microseconds.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from duly._core import replies, views
from duly._core.call import Call
from duly._core.keys import EVERY_PRIORITY, GroupKeys, TopicKeys
from duly._core.outgoing import microseconds
from duly._core.resp import Arg
from duly.options import Keep, checked_seconds

ONLY_PRIORITY: Final = "0"
"""Delayed publishes have one priority."""

_UNKEPT: Final = (-1, -1, -1)


class Publication(NamedTuple):
    """A publish that becomes one entry."""

    fields: Sequence[bytes | str]
    """Fields and values in turn."""
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
    """Encode entries as scripts read them."""
    texts: list[Arg] = []
    for entry in entries:
        texts += (entry.dedup, entry.dedup_for, len(entry.fields), *entry.fields)
    return texts


def read(keys: TopicKeys, begin: str, limit: int) -> Call["Reading"]:
    """Read entries from `begin` on: `-`, `(` and an id, an id, or `$`."""
    return Call(keys.script("read_topic"), keys, [begin, limit], reading, ONLY_PRIORITY)


def seek(keys: GroupKeys, to: str, *, makes: bool) -> Call[bool]:
    """Let a group continue after an id. `makes`: create the group, and return False if it exists."""
    return Call(keys.script("seek_group"), keys, [to, int(makes)], replies.is_one)


def stats(keys: TopicKeys) -> Call["TopicOverview"]:
    """Return sizes, counters and groups."""
    return Call(keys.script("topic_stats"), keys, [ONLY_PRIORITY], topic_overview, ONLY_PRIORITY)


def tidy(keys: TopicKeys, keep: Keep | None) -> Call[bool]:
    """Do a bounded part of the overdue maintenance. True: there may be more."""
    args: list[Arg] = [*stream_bounds(keep), int(keep is None)]
    return Call(keys.script("tidy_topic"), keys, args, replies.is_one, ONLY_PRIORITY)


def foreign_pending(keys: GroupKeys, begin: str, limit: int) -> Call["ForeignPage"]:
    """Return a page of the entries that consumers of other programs hold."""
    return Call(keys.script("foreign_pending"), keys, [begin, limit], foreign_page)


def leave_group(keys: GroupKeys, consumer: str) -> Call[bool]:
    """Remove a consumer from the group's members. False: it has pending entries, or there is no group."""
    return Call(keys.script("leave_group"), keys, [consumer], replies.is_one)


def delete(keys: TopicKeys) -> Call[int]:
    """Remove the stream and the delayed publishes."""
    return Call(keys.script("delete_topic"), keys, [], replies.number, EVERY_PRIORITY)


class Reading(NamedTuple):
    """Entries that were read."""

    next_in: float | None
    """Seconds until the next delayed publish enters the stream; None: there is none."""
    position: tuple[bytes, ...]
    """The ids after which to wait for more."""
    entries: list[tuple[str, list[bytes]]]
    """Ids, each with its fields and values in turn."""


class GroupRow(NamedTuple):
    """A group, as the stream lists it."""

    name: str
    pending: int
    consumers: int
    last_id: str
    unread: int
    missed: int


class TopicOverview(NamedTuple):
    """A topic at one moment."""

    now: int
    length: int
    bytes: int
    delayed: int
    first_id: str
    last_id: str
    groups: list[GroupRow]
    fields: dict[str, str]
    """Counters, and `group:NAME` for each group that Duly has created."""

    def counter(self, name: str) -> int:
        """Read one of the counters."""
        return views.counter(name, self.fields.get(name, "0").encode())


class ForeignRow(NamedTuple):
    """An entry that a consumer of another program holds."""

    id: str
    consumer: str
    idle: float
    deliveries: int


class ForeignPage(NamedTuple):
    """A page of such entries."""

    last: str
    """The end of the page; empty: it was the last page."""
    rows: list[ForeignRow]


def entry_ids(reply: list[bytes]) -> list[str]:
    """Decode the reply to publish."""
    return [id_.decode() for id_ in reply]


def reading(reply: list[Any]) -> Reading:
    """Decode the reply to read_topic."""
    next_us, position, *rest = reply
    entries = [(id_.decode(), fields) for id_, fields in zip(rest[0::2], rest[1::2], strict=True)]
    return Reading(None if next_us < 0 else next_us / 1_000_000, tuple(position), entries)


def topic_overview(reply: list[Any]) -> TopicOverview:
    """Decode the reply to topic_stats."""
    now, length, size, delayed, first, last, groups, *rest = reply
    rows = [
        GroupRow(_text(name), pending, consumers, last_id.decode(), unread, missed)
        for name, pending, consumers, last_id, unread, missed in (
            groups[at : at + 6] for at in range(0, len(groups), 6)
        )
    ]
    fields = {_text(name): _text(value) for name, value in zip(rest[0::2], rest[1::2], strict=True)}
    return TopicOverview(now, length, size, delayed, first.decode(), last.decode(), rows, fields)


def group_names(overview: TopicOverview) -> list[str]:
    """List the groups that the stream has, and those that Duly has created."""
    made = {name.partition(":")[2] for name in overview.fields if name.startswith("group:")}
    return sorted(made | {row.name for row in overview.groups})


def lost_groups(overview: TopicOverview) -> list[GroupRow]:
    """List the groups that Duly has created and the stream lacks: another program removed or replaced the stream."""
    lost = set(group_names(overview)) - {row.name for row in overview.groups}
    return [GroupRow(name, 0, 0, "0-0", 0, overview.counter(f"missed:{name}")) for name in sorted(lost)]


def foreign_page(reply: list[Any]) -> ForeignPage:
    """Decode the reply to foreign_pending."""
    last, *rest = reply
    rows = [
        ForeignRow(id_.decode(), _text(consumer), idle / 1000, deliveries)
        for id_, consumer, idle, deliveries in (rest[at : at + 4] for at in range(0, len(rest), 4))
    ]
    return ForeignPage(last.decode(), rows)


def _text(name: bytes) -> str:
    """Decode the name of a group or a consumer. Another program may have given it any bytes."""
    return name.decode(errors="backslashreplace")


def stream_bounds(keep: Keep | None) -> tuple[int, int, int]:
    if keep is None:
        return _UNKEPT
    age = -1 if keep.age is None else microseconds(checked_seconds(keep.age, "Keep.age"))
    return -1 if keep.count is None else keep.count, age, -1 if keep.bytes is None else keep.bytes
