"""Retention of a stream: the oldest entries are removed, and those that a group has not read are counted as missed."""

from duly._core.bounds import LOOKS_BY_AGE_US
from duly.memory.state import Keep
from duly.memory.topic_state import TopicState


def retain(topic: TopicState, keep: Keep) -> None:
    """Trim the stream. The age of entries is checked once per second."""
    stream, before = topic.stream, len(topic.stream)
    since = topic.server_us - topic.stats.get("trimmed_at", 0)
    is_by_age = keep.age >= 0 and (since >= LOOKS_BY_AGE_US or since < 0)  # before: the clock was set back
    is_by_count = 0 <= keep.count < before
    if not before or not (is_by_age or is_by_count or keep.bytes >= 0):
        return
    unread = {name: stream.count_behind(group.last) for name, group in stream.named_groups()}
    if is_by_count:
        stream.trim_to(keep.count)
    if is_by_age:
        stream.trim_before((max((topic.server_us - keep.age) // 1000, 0), 0))
        topic.stats["trimmed_at"] = topic.server_us
    while 0 <= keep.bytes < stream.size and len(stream):
        stream.trim_to(len(stream) - 1)
    if len(stream) < before:
        topic.count("trimmed", before - len(stream))
    for name, count in unread.items():
        missed = count - stream.count_behind(stream.groups[name].last)
        if missed:
            topic.count(f"missed:{name.decode()}", missed)
