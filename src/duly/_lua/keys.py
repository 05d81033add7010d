"""The keys of scripts, each described once: its type and its content.

Headers list these names. A name with a star stands for several keys.
"""

from typing import Final, NamedTuple


class Key(NamedTuple):
    """The type and the content of a key."""

    type: str
    content: str


KEYS: Final = {
    "call": Key("string", "number of the last call of a stream of calls, and its reply"),
    "msgs": Key("hash", "id -> record"),
    "waiting": Key("zset", "id -> due time; of the one priority in `digits`"),
    "waiting*": Key("zset", "id -> due time; one key per priority in `digits`"),
    "leased": Key("zset", "id -> deadline of its lease"),
    "leases": Key("hash", "id -> lease: fence, size, flags, priority, key, consumer"),
    "counts": Key("hash", "id -> failures, crashes, defers, releases, due, cycles, redrives; absent before the first"),
    "why": Key("hash", "id -> history: reason, errors, timeline, result"),
    "expires": Key("zset", "id -> when the ttl of a waiting message ends"),
    "dead": Key("zset", "id -> when the message died"),
    "done": Key("zset", "id -> when the message was finished"),
    "dedup": Key("hash", "dedup value -> id"),
    "dedup_ends": Key("zset", "dedup value -> end of its window"),
    "lanes": Key("hash", "key -> id of the message that owns the lane"),
    "parked": Key("zset", "due messages that wait for the owner of their lane"),
    "schedules": Key("hash", "name -> row; in the registry: name -> when it was registered, and its queue"),
    "slots": Key("zset", "name of a schedule -> time of its next run"),
    "awaited": Key("zset", "id -> until when a caller waits for its end"),
    "ends": Key("stream", "ends of messages that callers waited for"),
    "wake": Key("list", "the wake token; the bell of a topic or group is a stream"),
    "meta": Key("hash", "clock, pause, priorities in use, limits, counters"),
    "history": Key("hash", "rings of points, one per minute; sums of lateness and of handling times"),
    "stream": Key("stream", "the entries of a topic"),
    "workers": Key("hash", "consumer -> report of its worker"),
    "beats": Key("zset", "consumer -> time of its last heartbeat"),
    "holder": Key("hash", "holder of a lock: token, until, fence, by"),
    "once": Key("string", "the delivery that may cause an effect that happens at most once"),
    "others*": Key("any", "keys of other queues, of topics or of the user, which the call adds"),
}

OF_THE_TOPIC: Final = ("topic_dead", "topic_why", "topic_msgs", "topic_waiting", "topic_wake", "topic_meta", "stream")
"""The keys of a group's topic. KEYS of every script of a group end with them, so headers do not list them."""
