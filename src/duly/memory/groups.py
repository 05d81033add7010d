"""Operations of a group that a queue does not have, or has in another form: creation, seek, stats, deletion."""

from itertools import islice
from typing import Any, Final

from duly.memory import inspection, management
from duly.memory.calls import Kept
from duly.memory.stream import BEGINNING, Id, Stream, read_id, written_id
from duly.memory.topic_state import GroupState

_OLDEST: Final = 5
"""The position behind the number of ready messages in the answer to stats."""


def create(group: GroupState, behind: bytes) -> bool:
    """Create the group in the stream; False: it existed."""
    is_new = group.topic.stream.add_group(group.name, written_id(_within(group.topic.stream, behind)))
    group.topic.stats[f"group:{group.name.decode()}"] = 1
    return is_new


def _within(stream: Stream, behind: bytes) -> Id:
    """Read the position of a group. It is never behind ids that no entry has yet, since smaller ids may follow."""
    return min(stream.position(behind), stream.last)


def seek_group(group: GroupState, args: list[bytes]) -> Kept:
    """Move a group to another position of the stream; create it if it does not exist."""
    to, only_makes = args[0], args[1] == b"1"
    if not create(group, to):
        if only_makes:
            return Kept(0)
        group.topic.stream.groups[group.name].last = _within(group.topic.stream, to)
        group.free()  # the entries that were skipped may have been kept only for this group
    return Kept(1)


def stats(group: GroupState, args: list[bytes]) -> list[Any]:
    """Show sizes and counters, with the numbers of unread and missed entries."""
    now, ready, *rest = inspection.stats(group, args)
    first, oldest = group.first_unread(), rest[_OLDEST]
    if first is not None:
        rest[_OLDEST] = first[0] * 1000 if oldest < 0 else min(oldest, first[0] * 1000)
    unread, missed = group.count_unread(), group.topic.stats.get(f"missed:{group.name.decode()}", 0)
    return [now, ready + unread, *rest, b"unread", str(unread).encode(), b"missed", str(missed).encode()]


def foreign_pending(group: GroupState, args: list[bytes]) -> list[Any]:
    """Show a page of the entries that are pending without a lease."""
    begin, limit = args[0], int(args[1])
    if group.consumers is None:
        return [b""]
    is_included = not begin.startswith(b"(")
    first = BEGINNING if begin == b"-" else read_id(begin.removeprefix(b"("))
    rows = list(islice(group.consumers.pending_from(first, is_included=is_included), limit))
    reply: list[Any] = [written_id(rows[-1][0]) if len(rows) == limit else b""]
    for id_, row in rows:
        message = group.messages.get(written_id(id_))
        if message is None or message.lease is None:
            reply += (written_id(id_), row.consumer, max(group.server_ms - row.delivered_ms, 0), row.deliveries)
    return reply


def leave_group(group: GroupState, args: list[bytes]) -> int:
    """Remove a consumer that has nothing pending from the group's members."""
    if group.consumers is None:
        return 0
    group.consumers.forget_idle(args[0])
    return int(args[0] not in group.consumers.consumers)


def delete(group: GroupState, args: list[bytes]) -> Kept:
    """Remove the group and its store. Entries that only this group had not acked are freed."""
    kept = management.delete(group, args)
    group.topic.stream.groups.pop(group.name, None)
    for counter in ("group", "missed"):
        group.topic.stats.pop(f"{counter}:{group.name.decode()}", None)
    if group.frees:
        group.topic.free_acked()
    return kept
