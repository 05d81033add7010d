"""A stream within its bounds: the oldest entries go, and what a group has not read by then is counted as missed."""

from typing import Final

from duly._core.bounds import LOOKS_BY_AGE_US
from duly.memory.state import Keep
from duly.memory.stream import Stream
from duly.memory.topic_state import TopicState

_ROUNDS_BY_SIZE: Final = 5


def retain(topic: TopicState, keep: Keep) -> None:
    """Trim the stream. By age it is looked at once a second."""
    stream, before = topic.stream, len(topic.stream)
    since = topic.server_us - topic.stats.get("trimmed_at", 0)
    is_by_age = keep.age >= 0 and (since >= LOOKS_BY_AGE_US or since < 0)  # before: a clock was put right
    is_by_count = 0 <= keep.count < before
    if not before or not (is_by_age or is_by_count or keep.bytes >= 0):
        return
    unread = {name: stream.count_behind(group.last) for name, group in stream.named_groups()}
    if is_by_count:
        stream.trim_to(keep.count)
    if is_by_age:
        stream.trim_before((max((topic.server_us - keep.age) // 1000, 0), 0))
        topic.stats["trimmed_at"] = topic.server_us
    if keep.bytes >= 0:
        _trim_by_size(stream, keep.bytes)
    if len(stream) < before:
        topic.count("trimmed", before - len(stream))
    for name, count in unread.items():
        missed = count - stream.count_behind(stream.groups[name].last)
        if missed:
            topic.count(f"missed:{name.decode()}", missed)


def _trim_by_size(stream: Stream, most: int) -> None:
    for _ in range(_ROUNDS_BY_SIZE):
        length, used = len(stream), stream.size
        if used <= most or not length:
            return
        # In proportion, but never nothing: an estimate may be off.
        stream.trim_to(min(length * most // used, length - 1))
