"""Operations on a topic: publish, read_topic, topic_stats, tidy_topic, delete_topic."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from duly._core.bounds import BYTES_PER_CALL, GONE_MS, WINDOWS_PER_CALL
from duly._core.publishing import BODY
from duly.memory.calls import Kept
from duly.memory.retention import retain
from duly.memory.state import Keep
from duly.memory.stream import Entry, written_id
from duly.memory.topic_state import TopicState


class _Publication(NamedTuple):
    """A message that is to become an entry."""

    dedup: bytes
    window: int
    fields: list[bytes]


def _publications(is_plain: bool, args: list[bytes]) -> Iterator[_Publication]:  # noqa: FBT001
    if is_plain:
        yield from (_Publication(b"", 0, [BODY, body]) for body in args)
        return
    at = 0
    while at < len(args):
        dedup, window, texts = args[at], int(args[at + 1]), int(args[at + 2])
        yield _Publication(dedup, window, args[at + 3 : at + 3 + texts])
        at += 3 + texts


def publish(topic: TopicState, args: list[bytes]) -> Kept:
    """Add entries to the stream, once per dedup value, and keep it within its bounds."""
    topic.let_in()  # before these: the stream is in the order of time
    now, is_plain, ids, windows, published = topic.tick(), args[3] == b"1", list[bytes](), 0, 0
    for dedup, window, fields in _publications(is_plain, args[4:]):
        id_ = topic.dedup.first(dedup, now) if dedup else None
        if id_ is None:
            id_ = written_id(topic.stream.add(fields, topic.server_ms))
            published += 1
            if dedup:
                topic.dedup.open(dedup, id_, now, window, topic.server_ms)
                windows += 1
        ids.append(id_)
    topic.count("published", published)
    if len(ids) > published:
        topic.count("duplicates", len(ids) - published)
    if windows:
        topic.clock = now
        topic.dedup.sweep(now, windows + WINDOWS_PER_CALL)
    retain(topic, Keep(*map(int, args[:3])))
    return Kept(ids)


def read_topic(topic: TopicState, args: list[bytes]) -> list[Any]:
    """Show entries without a group."""
    begin, limit = args[0], int(args[1])
    next_us, stream = topic.let_in(), topic.stream
    last = b"0-0" if stream.last_entry is None else written_id(stream.last_entry)
    reply: list[Any] = [-1 if next_us is None else next_us, [last, b"0-0"]]
    size = 0
    for entry in _entries_from(topic, begin, limit):
        size += sum(map(len, entry.fields))
        if size > BYTES_PER_CALL and len(reply) > 2:
            break
        reply += (written_id(entry.id), list(entry.fields))
    return reply


def _entries_from(topic: TopicState, begin: bytes, count: int) -> list[Entry]:
    stream = topic.stream
    if begin == b"$":
        return []
    if begin.startswith(b"("):
        return stream.behind(stream.position(begin[1:]), count)
    return stream.from_(stream.position(b"0" if begin == b"-" else begin), count)


def topic_stats(topic: TopicState, _args: list[bytes]) -> list[Any]:
    """Show sizes, counters and groups, at one moment."""
    stream = topic.stream
    groups: list[Any] = []
    for name, group in stream.named_groups():
        missed = topic.stats.get(f"missed:{name.decode()}", 0)
        unread = stream.count_behind(group.last)
        groups += (name, len(group), len(group.consumers), written_id(group.last), unread, missed)
    edges = [b"" if id_ is None else written_id(id_) for id_ in (stream.first_entry, stream.last_entry)]
    counters = [text.encode() for name, value in _meta(topic).items() for text in (name, str(value))]
    return [topic.tick(), len(stream), stream.size, len(topic.waiting[0]), *edges, groups, *counters]


def _meta(topic: TopicState) -> dict[str, int]:
    """Name the fields that a server has in `meta`."""
    fields = {"clock": topic.clock or 0, "keyed": int(topic.is_keyed)}
    return {name: value for name, value in fields.items() if value} | topic.stats


def tidy_topic(topic: TopicState, args: list[bytes]) -> int:
    """Do the overdue cleanup, up to a limit; 1: there may be more."""
    now, next_us = topic.tick(), topic.let_in()
    retain(topic, Keep(*map(int, args[:3])))
    if args[3] == b"1":
        topic.free_acked()
    for group in topic.stream.groups.values():
        for name, consumer in list(group.consumers.items()):
            if topic.server_ms - consumer.seen_ms > GONE_MS:
                group.forget_idle(name)
    closed = topic.dedup.sweep(now, WINDOWS_PER_CALL)
    return int(next_us == 0 or closed == WINDOWS_PER_CALL)


def delete_topic(topic: TopicState, _args: list[bytes]) -> Kept:
    """Remove the stream, and the delayed entries; 1: there was something."""
    was_there = bool(topic.stream.is_there or topic.messages or topic.dedup or topic.is_known)
    topic.clear()
    return Kept(int(was_there))
