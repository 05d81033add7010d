"""Options that there are not, and what there is instead: who comes from queues, or from elsewhere, tries them."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Final

from duly.errors import UsageError
from duly.options import QueueOptions, TopicOptions

_OF_TOPIC: Final = "it is an option of the topic, for all of its groups: app.topic(name, {}=...)"
_BY_TOPIC: Final = "the topic says it, for all of its groups: app.topic(name, {})"
_OF_GROUP: Final = "it is an option of a group: events.group(name, {0}=...) or @events.handler(group=..., {0}=...)"
_OF_ENTRY: Final = "it belongs to one entry: publish_many([duly.Send(body, {}=...)])"
_OF_PUBLISH: Final = "it belongs to one entry: events.publish(body, {}=...)"
_OF_GROUP_HANDLER: Final = "it is an option of a handler: @events.handler(group=..., {}=...)"
_OF_GROUP_RECEIVE: Final = "it is an option of each receive: events.group(name).receive({}=...)"
_OF_APP: Final = "it is an option of the app: duly.Duly({}=...)"
_KEPT_BY_COUNT: Final = "keep=duly.Keep(count=...) bounds it, without refusing what is published"
_KEPT_ANYWAY: Final = "the topic keeps entries by keep=duly.Keep(...), whether they were handled or not"
_ATTEMPTS: Final = "use retry=duly.Retry(attempts=...), which counts the first attempt, too"
_DELAYS: Final = "use retry=duly.Retry(first=..., factor=...), in seconds"
_LEASE: Final = "use lease=, in seconds: what a silent consumer holds comes back after it"
_TAKEN_AHEAD: Final = "a worker takes what its handlers can begin soon: bound them with {}(concurrency=...)"
_BY_CONCURRENCY: Final = "bound the handlers with concurrency=, or have a handler send to a queue that has {}="

_CALLED_ATTEMPTS: Final = ("max_retries", "retries", "attempts", "max_attempts", "max_tries")
_CALLED_DELAYS: Final = ("backoff", "retry_backoff", "retry_delay", "retry_jitter")
_CALLED_LEASE: Final = ("visibility_timeout", "visibility", "ack_timeout", "ack_wait", "acks_late")
_CALLED_RESULTS: Final = ("keep_result", "result_ttl", "result_expires")
_CALLED_DEAD: Final = ("dlq", "dead_letter", "dead_letter_queue")
_CALLED_LENGTH: Final = ("max_size", "maxsize", "maxlen", "max_len")
"""What others call attempts, delays, the lease, kept results, dead letters and a bound."""

_OPTIONS_OF_APP: Final = {name: _OF_APP.format(name) for name in ("namespace", "allow_eviction", "patience")}

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
    **{name: INSTEAD_OF_SEND[name] for name in ("priority", "ttl", "id", "repeat", "replace")},
    **{name: _OF_PUBLISH.format(name) for name in ("delay", "at", "key", "dedup", "durable")},
    **{name: _OF_GROUP_HANDLER.format(name) for name in ("concurrency", "batch", "timeout")},
    **{name: _OF_GROUP_RECEIVE.format(name) for name in ("limit", "wait", "renew")},
    **_OPTIONS_OF_APP,
    **dict.fromkeys(_CALLED_ATTEMPTS, _ATTEMPTS),
    **dict.fromkeys(_CALLED_DELAYS, _DELAYS),
    **dict.fromkeys(_CALLED_LEASE, _LEASE),
    **dict.fromkeys(
        _CALLED_DEAD, "dead letters stay with their group: dead=duly.Keep(...) says how many, and how long"
    ),
    **dict.fromkeys(("done", *_CALLED_RESULTS), _KEPT_ANYWAY),
    **dict.fromkeys(("max_length", *_CALLED_LENGTH), _KEPT_BY_COUNT),
    "prefetch": _TAKEN_AHEAD.format("@events.handler"),
    "rate_limit": _BY_CONCURRENCY.format("rate"),
    "max_bytes": "keep=duly.Keep(bytes=...) bounds it, without refusing what is published",
    "on_full": "it is never full: keep=duly.Keep(...) lets the oldest entries go",
    "rate": _BY_CONCURRENCY.format("rate"),
    "max_in_flight": _BY_CONCURRENCY.format("max_in_flight"),
    "shards": "share the work among the members of a group",
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
_DEAD: Final = "dead letters stay with their queue: dead=duly.Keep(count=..., age=...) says how many, and for how long"

INSTEAD_OF_QUEUE: Final[Mapping[str, str]] = {
    **{
        name: _OF_MESSAGE.format(name)
        for name in ("delay", "at", "key", "priority", "ttl", "headers", "id", "dedup", "replace", "repeat", "durable")
    },
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
"""For what messages, handlers and apps have, and for what other queues call by another name."""

INSTEAD_OF_USING: Final[Mapping[str, str]] = {
    **{
        name: f"it is an option of the task: @app.task({name}=...)"
        for name in ("queue", "name", "timeout", "concurrency")
    },
    **{
        name: f"it is an option of the queue: app.queue(name, {name}=...)"
        for name in ("lease", "max_runtime", "crash_limit", "done", "dead", "rate", "max_in_flight", "on_full")
    },
    **dict.fromkeys(("max_retries", "retries", "attempts", "max_attempts"), _ATTEMPTS),
    "countdown": "use delay=, or task.later(seconds, ...)",
    "eta": "use at=, or task.at(when, ...)",
    "expires": "use ttl=, seconds from the due time",
    "task_id": "use id=",
}
"""For what belongs to tasks and their queues, and for what Celery calls by another name."""

OF_HANDLER: Final = ("concurrency", "batch", "timeout")


_NOT_BUILT: Final[Mapping[type, Mapping[str, Any]]] = {QueueOptions: {"shards": 1}}
"""Options that are not built yet, with the value that asks for nothing."""
_NOUNS: Final[Mapping[type, tuple[str, Mapping[str, str]]]] = {
    QueueOptions: ("a queue", INSTEAD_OF_QUEUE),
    TopicOptions: ("a topic", INSTEAD_OF_TOPIC),
}


def checked(title: str, kind: type[QueueOptions | TopicOptions], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that there are. Raise, if there are others among those that were given."""
    what, instead = _NOUNS[kind]
    known, not_built = [each.name for each in fields(kind)], _NOT_BUILT.get(kind, {})
    refuse(title, what, [name for name in given if name not in known and name not in not_built], known, instead)
    for name, nothing in not_built.items():
        if given.get(name, nothing) != nothing:
            raise UsageError(f"{title}: {name}={given[name]!r} is not built yet")
    return {name: value for name, value in given.items() if name in known}


def refuse(title: str, what: str, given: Iterable[str], known: Iterable[str], instead: Mapping[str, str]) -> None:
    """Raise, if options were given that there are not: name them, and what to do."""
    known = list(known)
    flaws = [f"{what} has no option {name}=: {_hint(name, known, instead)}" for name in given]
    if flaws:
        raise UsageError(f"{title}: {'; '.join(flaws)}")


def _hint(name: str, known: list[str], instead: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    there_are = f"there are {', '.join(known)}"
    return instead.get(name) or (f"did you mean {near[0]}=? Else {there_are}" if near else there_are)
