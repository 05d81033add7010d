"""Options that topics do not have, and what there is instead: who comes from queues tries them."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

from duly.errors import UsageError

_OF_TOPIC: Final = "it is an option of the topic, for all of its groups: app.topic(name, {}=...)"
_OF_GROUP: Final = "it is an option of a group: events.group(name, {0}=...) or @events.handler(group=..., {0}=...)"
_OF_ENTRY: Final = "it belongs to one entry: publish_many([duly.Send(body, {}=...)])"
_BY_CONCURRENCY: Final = "bound the handlers with concurrency=, or have a handler send to a queue that has {}="

INSTEAD_OF_SEND: Final[Mapping[str, str]] = {
    "priority": "entries stay in the order of the stream; give what is urgent a topic of its own",
    "ttl": "entries go by the topic's keep=duly.Keep(age=...)",
    "id": "the server gives the ids; dedup= has an entry stored once",
    "retry": _OF_TOPIC.format("retry"),
    "repeat": "publish again from a handler, or schedule a queue whose handler publishes",
    "replace": "an entry stays as it is; one that is delayed can be cancelled and published anew",
}
"""For what messages of queues may have, and entries, which are for all groups, have not."""

INSTEAD_OF_PUBLISH: Final[Mapping[str, str]] = {
    **INSTEAD_OF_SEND,
    **{name: _OF_TOPIC.format(name) for name in ("type", "keep", "lease", "crash_limit", "max_message_bytes")},
    "wait": "a publish waits for nothing",
    "group": "an entry is for all groups; tell them apart by headers=, and have groups choose by theirs",
}

INSTEAD_OF_PUBLISH_MANY: Final[Mapping[str, str]] = {
    **INSTEAD_OF_PUBLISH,
    **{name: _OF_ENTRY.format(name) for name in ("delay", "at", "key", "headers", "dedup", "dedup_for")},
}

INSTEAD_OF_TOPIC: Final[Mapping[str, str]] = {
    "max_length": "keep=duly.Keep(count=...) bounds it, without refusing what is published",
    "max_bytes": "keep=duly.Keep(bytes=...) bounds it, without refusing what is published",
    "on_full": "it is never full: keep=duly.Keep(...) lets the oldest entries go",
    "rate": _BY_CONCURRENCY.format("rate"),
    "max_in_flight": _BY_CONCURRENCY.format("max_in_flight"),
    "done": "the topic keeps entries by keep=duly.Keep(...), whether they were handled or not",
    "shards": "share the work among the members of a group",
    "start": _OF_GROUP.format("start"),
    "headers": _OF_GROUP.format("headers"),
    "concurrency": "it is an option of a handler: @events.handler(group=..., concurrency=...)",
}

INSTEAD_OF_GROUP: Final[Mapping[str, str]] = {
    **INSTEAD_OF_TOPIC,
    **{
        name: _OF_TOPIC.format(name)
        for name in (
            "type", "keep", "lease", "max_runtime", "retry", "crash_limit", "dead", "on_dead", "dedup_for",
            "max_message_bytes",
        )
    },
}  # fmt: skip

OF_HANDLER: Final = ("concurrency", "batch", "timeout")


def refuse(title: str, what: str, given: Iterable[str], known: Iterable[str], instead: Mapping[str, str]) -> None:
    """Raise, if options were given that there are not: name the first, and what to do."""
    for name in given:
        known = list(known)
        near = difflib.get_close_matches(name, known, 1)
        hint = instead.get(name) or (f"did you mean {near[0]}=?" if near else f"there are {', '.join(known)}")
        raise UsageError(f"{title}: {what} has no option {name}=: {hint}")
