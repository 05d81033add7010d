"""The keys that scripts are given, each described once: its type, and what is stored there.

A header lists names. Those with a star stand for several keys.
"""

from typing import Final, NamedTuple


class Key(NamedTuple):
    """What is stored under one name."""

    type: str
    content: str


KEYS: Final = {
    "call": Key("string", "number of the last call of a stream of calls, and its reply"),
    "msgs": Key("hash", "id -> record"),
    "waiting": Key("zset", "id -> due, of the one priority that `digits` names"),
    "waiting*": Key("zset", "id -> due: one key per priority that `digits` names"),
    "leased": Key("zset", "id -> deadline of its lease"),
    "leases": Key("hash", "id -> lease: fence, size, flags, priority, key, consumer"),
    "counts": Key("hash", "id -> failures, crashes, defers and the like; only if there was one"),
    "why": Key("hash", "id -> errors, reason, timeline, result"),
    "expires": Key("zset", "id -> when the ttl of a waiting message ends"),
    "dead": Key("zset", "id -> when the message died"),
    "done": Key("zset", "id -> when the message was finished"),
    "dedup": Key("hash", "dedup value -> id"),
    "dedup_ends": Key("zset", "dedup value -> end of its window"),
    "lanes": Key("hash", "key -> the id that its lane belongs to"),
    "parked": Key("zset", "messages that are due and stand behind the id of their lane"),
    "schedules": Key("hash", "name -> row; in the registry: name -> when it was registered, and its queue"),
    "slots": Key("zset", "name of a schedule -> when to look at it"),
    "awaited": Key("zset", "id -> until when a caller waits for its end"),
    "ends": Key("stream", "ends of messages that a caller waited for"),
    "wake": Key("list", "the wake token; the bell of a topic or group is a stream"),
    "meta": Key("hash", "clock, pause, priorities in use, limits, counters"),
    "stream": Key("stream", "the entries of a topic"),
    "workers": Key("hash", "consumer -> what its worker reports"),
    "beats": Key("zset", "consumer -> time of its last beat"),
    "holder": Key("hash", "of a lock: token, until, fence, by"),
    "once": Key("string", "of an effect that happens at most once: the delivery that may cause it"),
    "others*": Key("any", "keys that the call brings, of other queues, of topics or of the user"),
}

OF_THE_TOPIC: Final = ("topic_dead", "topic_why", "topic_msgs", "topic_waiting", "topic_wake", "topic_meta", "stream")
"""The keys of a group's topic. KEYS of every script of a group end with them, so no header names them."""
