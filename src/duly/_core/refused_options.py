"""Unsupported options and their replacements, such as names from other libraries."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Final

from duly.errors import UsageError
from duly.options import QueueOptions, TopicOptions

_OF_TOPIC: Final = "it is an option of the topic, for all of its groups: app.topic(name, {}=...)"
_BY_TOPIC: Final = "set it on the topic, for all of its groups: app.topic(name, {})"
_OF_GROUP: Final = "it is an option of a group: events.group(name, {0}=...) or @events.handler(group=..., {0}=...)"
_OF_ENTRY: Final = "it belongs to one entry: publish_many([duly.Send(body, {}=...)])"
_OF_PUBLISH: Final = "it belongs to one entry: events.publish(body, {}=...)"
_OF_GROUP_HANDLER: Final = "it is an option of a handler: @events.handler(group=..., {}=...)"
_OF_GROUP_RECEIVE: Final = "it is an option of each receive: events.group(name).receive({}=...)"
_OF_APP: Final = "it is an option of the app: duly.Duly({}=...)"
_KEPT_BY_COUNT: Final = "keep=duly.Keep(count=...) bounds it, without refusing a publish"
_KEPT_ANYWAY: Final = "the topic keeps entries by keep=duly.Keep(...), whether they were handled or not"
_ATTEMPTS: Final = "use retry=duly.Retry(attempts=...), which includes the first attempt"
_DELAYS: Final = "use retry=duly.Retry(first=..., factor=...), in seconds"
_LEASE: Final = "use lease=, in seconds: without a renewal, messages of a consumer are redelivered after it"
_TAKEN_AHEAD: Final = "a worker fetches what its handlers can start soon: bound them with {}(concurrency=...)"
_BY_CONCURRENCY: Final = "bound the handlers with concurrency=, or let a handler send to a queue that has {}="

_CALLED_ATTEMPTS: Final = ("max_retries", "retries", "attempts", "max_attempts", "max_tries")
_CALLED_DELAYS: Final = ("backoff", "retry_backoff", "retry_delay", "retry_jitter")
_CALLED_LEASE: Final = ("visibility_timeout", "visibility", "ack_timeout", "ack_wait", "acks_late")
_CALLED_RESULTS: Final = ("keep_result", "result_ttl", "result_expires")
_CALLED_DEAD: Final = ("dlq", "dead_letter", "dead_letter_queue")
_CALLED_LENGTH: Final = ("max_size", "maxsize", "maxlen", "max_len")
"""Names in other libraries for attempts, delays, the lease, kept results, dead letters and a bound."""

_OPTIONS_OF_APP: Final = {name: _OF_APP.format(name) for name in ("namespace", "allow_eviction", "patience")}

INSTEAD_OF_SEND: Final[Mapping[str, str]] = {
    "priority": "entries stay in the order of the stream; use a separate topic for urgent entries",
    "ttl": "the topic's keep=duly.Keep(age=...) removes old entries",
    "id": "the server assigns the ids; with dedup= an entry is stored once",
    "retry": _OF_TOPIC.format("retry"),
    "repeat": "publish again from a handler, or schedule a queue whose handler publishes",
    "replace": "an entry cannot be changed; cancel a delayed one and publish it again",
    "spread": "give each entry a random delay=",
}
"""For options of messages of queues. Entries, which are for all groups, do not have them."""

INSTEAD_OF_PUBLISH: Final[Mapping[str, str]] = {
    **INSTEAD_OF_SEND,
    **{name: _OF_TOPIC.format(name) for name in ("type", "keep", "lease", "crash_limit", "max_message_bytes")},
    "wait": "a publish never waits",
    "group": "an entry is for all groups; set headers=, and let groups filter by their headers=",
}

INSTEAD_OF_PUBLISH_MANY: Final[Mapping[str, str]] = {
    **INSTEAD_OF_PUBLISH,
    **{name: _OF_ENTRY.format(name) for name in ("delay", "at", "key", "headers", "dedup", "dedup_for")},
}

INSTEAD_OF_TOPIC: Final[Mapping[str, str]] = {
    **{name: INSTEAD_OF_SEND[name] for name in ("priority", "ttl", "id", "repeat", "replace")},
    **{name: _OF_PUBLISH.format(name) for name in ("delay", "at", "key", "dedup", "durable")},
    **{name: _OF_GROUP_HANDLER.format(name) for name in ("concurrency", "batch", "timeout")},
    **{name: _OF_GROUP_RECEIVE.format(name) for name in ("limit", "wait", "renew")},
    **_OPTIONS_OF_APP,
    **dict.fromkeys(_CALLED_ATTEMPTS, _ATTEMPTS),
    **dict.fromkeys(_CALLED_DELAYS, _DELAYS),
    **dict.fromkeys(_CALLED_LEASE, _LEASE),
    **dict.fromkeys(
        _CALLED_DEAD, "dead letters stay with their group: dead=duly.Keep(...) bounds their number and age"
    ),
    **dict.fromkeys(("done", *_CALLED_RESULTS), _KEPT_ANYWAY),
    **dict.fromkeys(("max_length", *_CALLED_LENGTH), _KEPT_BY_COUNT),
    "prefetch": _TAKEN_AHEAD.format("@events.handler"),
    "rate_limit": _BY_CONCURRENCY.format("rate"),
    "max_bytes": "keep=duly.Keep(bytes=...) bounds it, without refusing a publish",
    "on_full": "it is never full: keep=duly.Keep(...) removes the oldest entries",
    "rate": _BY_CONCURRENCY.format("rate"),
    "max_in_flight": _BY_CONCURRENCY.format("max_in_flight"),
    "retry_share": "a group delivers its due retries before it reads further entries",
    "shards": "share the work among the consumers of a group",
    "start": _OF_GROUP.format("start"),
    "headers": _OF_GROUP.format("headers"),
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
    **dict.fromkeys(_CALLED_ATTEMPTS, _BY_TOPIC.format("retry=duly.Retry(attempts=...)")),
    **dict.fromkeys(_CALLED_DELAYS, _BY_TOPIC.format("retry=duly.Retry(first=..., factor=...)")),
    **dict.fromkeys(_CALLED_LEASE, _BY_TOPIC.format("lease=...")),
    **dict.fromkeys(_CALLED_DEAD, _BY_TOPIC.format("dead=duly.Keep(...)")),
}  # fmt: skip

_OF_MESSAGE: Final = "it belongs to one message: queue.send(body, {}=...)"
_OF_QUEUE_HANDLER: Final = "it is an option of the handler: @queue.handler({}=...)"
_OF_RECEIVE: Final = "it is an option of each receive: queue.receive({}=...)"
_DONE: Final = "use done=duly.Keep(count=..., age=...), which keeps finished messages with their results"
_DEAD: Final = "dead letters stay with their queue: dead=duly.Keep(count=..., age=...) bounds their number and age"

INSTEAD_OF_QUEUE: Final[Mapping[str, str]] = {
    **{
        name: _OF_MESSAGE.format(name)
        for name in ("delay", "at", "spread", "key", "priority", "ttl", "headers", "id", "dedup", "replace", "repeat")
    },
    "durable": _OF_MESSAGE.format("durable"),
    **{name: _OF_QUEUE_HANDLER.format(name) for name in ("concurrency", "batch", "timeout")},
    **{name: _OF_RECEIVE.format(name) for name in ("limit", "wait", "renew")},
    **_OPTIONS_OF_APP,
    **dict.fromkeys(_CALLED_ATTEMPTS, _ATTEMPTS),
    **dict.fromkeys(_CALLED_DELAYS, _DELAYS),
    **dict.fromkeys(_CALLED_LEASE, _LEASE),
    **dict.fromkeys(("keep", *_CALLED_RESULTS), _DONE),
    **dict.fromkeys(_CALLED_DEAD, _DEAD),
    **dict.fromkeys(_CALLED_LENGTH, "use max_length="),
    "rate_limit": 'use rate=, like "100/s"',
    "prefetch": _TAKEN_AHEAD.format("@queue.handler"),
}
"""For options of messages, handlers and apps, and for names in other libraries."""

INSTEAD_OF_USING: Final[Mapping[str, str]] = {
    **{
        name: f"it is an option of the task: @app.task({name}=...)"
        for name in ("queue", "name", "timeout", "concurrency")
    },
    **{
        name: f"it is an option of the queue: app.queue(name, {name}=...)"
        for name in (
            "lease",
            "max_runtime",
            "crash_limit",
            "done",
            "dead",
            "rate",
            "max_in_flight",
            "on_full",
            "retry_share",
        )
    },
    **dict.fromkeys(("max_retries", "retries", "attempts", "max_attempts"), _ATTEMPTS),
    "countdown": "use delay=, or task.later(seconds, ...)",
    "eta": "use at=, or task.at(when, ...)",
    "expires": "use ttl=, seconds from the due time",
    "task_id": "use id=",
}
"""For options of tasks and their queues, and for names in Celery."""

OF_HANDLER: Final = ("concurrency", "batch", "timeout")


_NOT_BUILT: Final[Mapping[type, Mapping[str, Any]]] = {QueueOptions: {"shards": 1}}
"""Options that are not built yet, with the value that has no effect."""
_NOUNS: Final[Mapping[type, tuple[str, Mapping[str, str]]]] = {
    QueueOptions: ("a queue", INSTEAD_OF_QUEUE),
    TopicOptions: ("a topic", INSTEAD_OF_TOPIC),
}


def checked(title: str, kind: type[QueueOptions | TopicOptions], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given options. Raise if one of them does not exist."""
    what, instead = _NOUNS[kind]
    known, not_built = [each.name for each in fields(kind)], _NOT_BUILT.get(kind, {})
    refuse(title, what, [name for name in given if name not in known and name not in not_built], known, instead)
    for name, nothing in not_built.items():
        if given.get(name, nothing) != nothing:
            raise UsageError(f"{title}: {name}={given[name]!r} is not built yet")
    return {name: value for name, value in given.items() if name in known}


def refuse(title: str, what: str, given: Iterable[str], known: Iterable[str], instead: Mapping[str, str]) -> None:
    """Raise if options were given that do not exist. The error names them and their replacements."""
    known = list(known)
    flaws = [f"{what} has no option {name}=: {_hint(name, known, instead)}" for name in given]
    if flaws:
        raise UsageError(f"{title}: {'; '.join(flaws)}")


def _hint(name: str, known: list[str], instead: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    there_are = f"there are {', '.join(known)}"
    return instead.get(name) or (f"did you mean {near[0]}=? Else {there_are}" if near else there_are)
