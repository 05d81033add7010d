"""What can be told, as a table: each row takes from a scrape what it tells."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Literal

import duly
from duly._port import NUMBERS, STATES
from duly.message import Counted, Schedule, Stats
from duly.web.metrics.scrape import MAX_ITEMS, Scrape

Sample = tuple[tuple[str, ...], float]
"""The values of the labels, and the number."""


@dataclass(frozen=True)
class Metric:
    """One row of the table."""

    name: str
    kind: Literal["gauge", "counter"]
    labels: tuple[str, ...]
    description: str
    samples: Callable[[Scrape], Iterable[Sample]]


def _gauge(
    name: str, labels: tuple[str, ...], description: str, samples: Callable[[Scrape], Iterable[Sample]]
) -> Metric:
    return Metric(f"duly_{name}", "gauge", labels, description, samples)


def _counter(
    name: str, labels: tuple[str, ...], description: str, samples: Callable[[Scrape], Iterable[Sample]]
) -> Metric:
    return Metric(f"duly_{name}_total", "counter", labels, description, samples)


def _one(number: Callable[[Scrape], float | None]) -> Callable[[Scrape], Iterable[Sample]]:
    """Tell one number; None: it is not known."""
    return lambda scrape: [] if (value := number(scrape)) is None else [((), value)]


def _of_queues(number: Callable[[Stats], float | None]) -> Callable[[Scrape], Iterable[Sample]]:
    return lambda scrape: (
        ((name,), value) for name, stats in scrape.queues.items() if (value := number(stats)) is not None
    )


def _of_queues_by(**fields: str) -> Callable[[Scrape], Iterable[Sample]]:
    """Tell several fields of Stats, each under the value that a second label has for it."""
    return lambda scrape: (
        ((name, label), getattr(stats, of)) for name, stats in scrape.queues.items() for label, of in fields.items()
    )


def _of_topics(name: str) -> Callable[[Scrape], Iterable[Sample]]:
    return lambda scrape: (((topic,), getattr(stats, name)) for topic, stats in scrape.topics.items())


def _of_groups(name: str) -> Callable[[Scrape], Iterable[Sample]]:
    return lambda scrape: ((key, getattr(row, name)) for key, row in scrape.groups.items())


def _filtered(scrape: Scrape) -> Iterable[Sample]:
    for topic, group in scrape.groups:
        if (stats := scrape.queues.get(f"{topic}/{group}")) is not None:
            yield (topic, group), stats.filtered


def _of_workers(name: str) -> Callable[[Scrape], Iterable[Sample]]:
    return lambda scrape: (
        ((each.id,), value) for each in scrape.workers or () if (value := getattr(each, name)) is not None
    )


def _workers_of_queues(scrape: Scrape) -> Iterable[Sample]:
    if (live_workers := scrape.live_workers) is None:
        return
    served = Counter(name for each in live_workers for name in set(each.queues))
    for name in scrape.queues:
        yield (name,), served[name]


def _of_schedules(number: Callable[[Schedule], float | None]) -> Callable[[Scrape], Iterable[Sample]]:
    return lambda scrape: (
        ((each.name, each.queue), value)
        for each in (scrape.schedules or ())[:MAX_ITEMS]
        if (value := number(each)) is not None
    )


def _next_run(schedule: Schedule) -> float | None:
    return None if schedule.next_at is None else schedule.next_at.timestamp()


def _count(value: Sequence[Any] | None) -> int | None:
    return None if value is None else len(value)


_QUEUE: Final = ("queue",)
_TOPIC: Final = ("topic",)
_GROUP: Final = ("topic", "group")
_WORKER: Final = ("worker",)
_SCHEDULE: Final = ("schedule", "queue")

_COUNTER_HELP: Final = {name: field.says for name, field in NUMBERS.items() if isinstance(field, Counted)}
"""Counters of Stats that never go down."""

METRICS: Final[tuple[Metric, ...]] = (
    _gauge(
        "up",
        (),
        "1: the server answers. 0: it is away, and nothing else is told.",
        _one(attrgetter("is_up")),
    ),
    _gauge(
        "scrape_timed_out",
        (),
        "1: there was more to ask for than 8 s are enough for, and nothing else is told.",
        _one(attrgetter("is_timed_out")),
    ),
    _gauge("scrape_seconds", (), "How long the looking took.", _one(attrgetter("seconds"))),
    _gauge(
        "build_info",
        ("version", "python"),
        "Always 1; the labels say what runs.",
        lambda _: [((duly.__version__, platform.python_version()), 1)],
    ),
    _gauge(
        "queues_left_out",
        (),
        "Queues, topics and groups that were too many for one scrape.",
        _one(attrgetter("left_out")),
    ),
    _gauge(
        "unreadable",
        ("kind", "name"),
        "1 for each queue or topic that could not be counted: somebody changed its keys, or a right is missing.",
        lambda scrape: ((each, 1) for each in scrape.unreadable),
    ),
    _gauge("messages", ("queue", "state"), "Messages by state.", _of_queues_by(**{each: each for each in STATES})),
    _gauge(
        "stored_bytes",
        ("queue", "state"),
        "Stored bytes of what is live, dead and done.",
        _of_queues_by(live="bytes", dead="dead_bytes", done="done_bytes"),
    ),
    _gauge(
        "oldest_age_seconds",
        _QUEUE,
        "How long the ready message that waits longest has been due; 0 when none is ready.",
        _of_queues(attrgetter("oldest_age")),
    ),
    _gauge(
        "lateness_seconds",
        _QUEUE,
        "How late the most overdue message of the last claim was.",
        _of_queues(attrgetter("lateness")),
    ),
    _gauge(
        "next_due_seconds",
        _QUEUE,
        "Time to the next delayed message; absent without one.",
        _of_queues(attrgetter("next_due_in")),
    ),
    _gauge("paused", _QUEUE, "1 when the queue is paused.", _of_queues(lambda stats: stats.paused is not None)),
    _gauge(
        "queue_workers", _QUEUE, "Workers that serve the queue and were heard of in the last 15 s.", _workers_of_queues
    ),
    *(_counter(name, _QUEUE, description, _of_queues(attrgetter(name))) for name, description in _COUNTER_HELP.items()),
    _gauge(
        "corrected",
        _QUEUE,
        NUMBERS["corrected"].says,
        _of_queues(attrgetter("corrected")),
    ),
    _gauge("topic_length", _TOPIC, "Entries in the stream.", _of_topics("length")),
    _gauge("topic_bytes", _TOPIC, "What the stream takes of the server's memory.", _of_topics("bytes")),
    _gauge("topic_delayed", _TOPIC, "Publishes that have not entered the stream yet.", _of_topics("delayed")),
    _gauge("topic_groups", _TOPIC, "Groups, those of other programs included.", _of_topics("groups")),
    _counter("topic_published", _TOPIC, "Entries that were added to the stream through Duly.", _of_topics("published")),
    _counter(
        "topic_duplicates",
        _TOPIC,
        "Publishes that stored nothing, because of their dedup value.",
        _of_topics("duplicates"),
    ),
    _counter("topic_trimmed", _TOPIC, "Entries that went because of keep=Keep(...).", _of_topics("trimmed")),
    _gauge("group_unread", _GROUP, "Entries that no member has been given yet.", _of_groups("unread")),
    _gauge("group_pending", _GROUP, "Entries that members hold, by the stream's own list.", _of_groups("pending")),
    _gauge("group_consumers", _GROUP, "Consumers that the stream knows of the group.", _of_groups("consumers")),
    _counter("group_missed", _GROUP, "Entries that went before the group had read them.", _of_groups("missed")),
    _counter("group_filtered", _GROUP, "Entries that the group passed over, because of its headers.", _filtered),
    _gauge(
        "workers", (), "Workers that were heard of in the last 15 s.", _one(lambda scrape: _count(scrape.live_workers))
    ),
    _gauge(
        "worker_concurrency", _WORKER, "Handlers that the worker runs at once, at most.", _of_workers("concurrency")
    ),
    _gauge("worker_in_flight", _WORKER, "Handlers that run, as of its last beat.", _of_workers("in_flight")),
    _counter(
        "worker_handled",
        _WORKER,
        "Messages that it worked off since it started, as of its last beat.",
        _of_workers("handled"),
    ),
    _gauge("worker_last_beat_seconds", _WORKER, "Time since it last showed that it lives.", _of_workers("last_beat")),
    _gauge(
        "worker_last_poll_seconds",
        _WORKER,
        "Time since it last asked for messages; absent when it never did.",
        _of_workers("last_poll"),
    ),
    _gauge("schedules", (), "Schedules, paused ones included.", _one(lambda scrape: _count(scrape.schedules))),
    _gauge(
        "schedule_next_run_timestamp_seconds",
        _SCHEDULE,
        "The next slot, in seconds since 1970; absent when it is paused or has none.",
        _of_schedules(_next_run),
    ),
    _gauge("schedule_paused", _SCHEDULE, "1 when the schedule is paused.", _of_schedules(attrgetter("paused"))),
)
