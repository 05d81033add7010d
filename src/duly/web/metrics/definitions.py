"""The table of all metrics. Each row reads its samples from a scrape."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Literal

import duly
from duly._port import NUMBERS, STATES
from duly.message import Counted, Histogram, Schedule, Stats
from duly.web.metrics.scrape import MAX_ITEMS, Scrape

Sample = tuple[tuple[str, ...], float]
"""The values of the labels, and the sample."""
HistogramSample = tuple[tuple[str, ...], Histogram]


@dataclass(frozen=True)
class Metric:
    """One row of the table."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    labels: tuple[str, ...]
    description: str
    samples: Callable[[Scrape], Iterable[Sample | HistogramSample]]


def _gauge(
    name: str, labels: tuple[str, ...], description: str, samples: Callable[[Scrape], Iterable[Sample]]
) -> Metric:
    return Metric(f"duly_{name}", "gauge", labels, description, samples)


def _counter(
    name: str, labels: tuple[str, ...], description: str, samples: Callable[[Scrape], Iterable[Sample]]
) -> Metric:
    return Metric(f"duly_{name}_total", "counter", labels, description, samples)


def _histogram(name: str, description: str, of: Callable[[Stats], Histogram]) -> Metric:
    """Make a histogram of each queue and group for which workers have reported times."""

    def samples(scrape: Scrape) -> Iterable[HistogramSample]:
        return (((name,), found) for name, stats in scrape.queues.items() if (found := of(stats)).count)

    return Metric(f"duly_{name}", "histogram", ("queue",), description, samples)


def _one(number: Callable[[Scrape], float | None]) -> Callable[[Scrape], Iterable[Sample]]:
    """Read a single number. None: it is unknown."""
    return lambda scrape: [] if (value := number(scrape)) is None else [((), value)]


def _of_queues(number: Callable[[Stats], float | None]) -> Callable[[Scrape], Iterable[Sample]]:
    return lambda scrape: (
        ((name,), value) for name, stats in scrape.queues.items() if (value := number(stats)) is not None
    )


def _of_queues_by(**fields: str) -> Callable[[Scrape], Iterable[Sample]]:
    """Read several fields of Stats, each with its own value of the second label."""
    return lambda scrape: (
        ((name, label), value)
        for name, stats in scrape.queues.items()
        for label, of in fields.items()
        if (value := getattr(stats, of)) is not None
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
"""Counters of Stats that never decrease."""

METRICS: Final[tuple[Metric, ...]] = (
    _gauge(
        "up",
        (),
        "1 if the server answers. 0 if it does not; no other metric is exported then.",
        _one(attrgetter("is_up")),
    ),
    _gauge(
        "scrape_timed_out",
        (),
        "1 if the scrape exceeded its 8 s budget; no other metric is exported then.",
        _one(attrgetter("is_timed_out")),
    ),
    _gauge("scrape_seconds", (), "Duration of the scrape.", _one(attrgetter("seconds"))),
    _gauge(
        "build_info",
        ("version", "python"),
        "Always 1; the labels have the versions.",
        lambda _: [((duly.__version__, platform.python_version()), 1)],
    ),
    _gauge(
        "queues_left_out",
        (),
        "Queues, topics and groups that exceed the limit of one scrape.",
        _one(attrgetter("left_out")),
    ),
    _gauge(
        "unreadable",
        ("kind", "name"),
        "1 for each queue or topic that cannot be read: its keys are damaged, or a permission is missing.",
        lambda scrape: ((each, 1) for each in scrape.unreadable),
    ),
    _gauge(
        "node_away",
        ("node",),
        "1 for each node of a cluster that does not answer; the metrics of its queues and topics are missing.",
        lambda scrape: (((each,), 1) for each in scrape.away),
    ),
    _gauge("messages", ("queue", "state"), "Messages by state.", _of_queues_by(**{each: each for each in STATES})),
    _gauge(
        "stored_bytes",
        ("queue", "state"),
        "Stored bytes of live, dead and done messages.",
        _of_queues_by(live="bytes", dead="dead_bytes", done="done_bytes"),
    ),
    _gauge(
        "stored_why_bytes",
        ("queue", "state"),
        "Stored bytes of errors, timelines and results of dead and done messages; absent if they are unknown.",
        _of_queues_by(dead="dead_why_bytes", done="done_why_bytes"),
    ),
    _gauge(
        "oldest_age_seconds",
        _QUEUE,
        "How long the oldest ready message has been due; 0 if none is ready.",
        _of_queues(attrgetter("oldest_age")),
    ),
    _gauge(
        "lateness_seconds",
        _QUEUE,
        "How late the most overdue message of the last claim was.",
        _of_queues(attrgetter("lateness")),
    ),
    _histogram(
        "delivery_lateness_seconds",
        "Time from the due time of a message to its delivery to a worker.",
        attrgetter("lateness_times"),
    ),
    _histogram(
        "handling_seconds",
        "Time that handlers of workers took.",
        attrgetter("handling_times"),
    ),
    _gauge(
        "next_due_seconds",
        _QUEUE,
        "Time until the next delayed message is due; absent if there is none.",
        _of_queues(attrgetter("next_due_in")),
    ),
    _gauge("paused", _QUEUE, "1 if the queue is paused.", _of_queues(lambda stats: stats.paused is not None)),
    _gauge("queue_workers", _QUEUE, "Workers of the queue with a heartbeat in the last 15 s.", _workers_of_queues),
    *(_counter(name, _QUEUE, description, _of_queues(attrgetter(name))) for name, description in _COUNTER_HELP.items()),
    _gauge(
        "corrected",
        _QUEUE,
        NUMBERS["corrected"].says,
        _of_queues(attrgetter("corrected")),
    ),
    _gauge("topic_length", _TOPIC, "Entries in the stream.", _of_topics("length")),
    _gauge("topic_bytes", _TOPIC, "Memory that the stream uses on the server.", _of_topics("bytes")),
    _gauge("topic_delayed", _TOPIC, "Delayed entries that are not in the stream yet.", _of_topics("delayed")),
    _gauge("topic_groups", _TOPIC, "Groups, including those of other programs.", _of_topics("groups")),
    _counter("topic_published", _TOPIC, "Entries that Duly added to the stream.", _of_topics("published")),
    _counter(
        "topic_duplicates",
        _TOPIC,
        "Entries that were not stored because of their dedup value.",
        _of_topics("duplicates"),
    ),
    _counter("topic_trimmed", _TOPIC, "Entries that were removed because of keep=Keep(...).", _of_topics("trimmed")),
    _gauge("group_unread", _GROUP, "Entries that were not delivered to the group yet.", _of_groups("unread")),
    _gauge("group_pending", _GROUP, "Entries in the stream's pending list of the group.", _of_groups("pending")),
    _gauge("group_consumers", _GROUP, "Consumers of the group in the stream.", _of_groups("consumers")),
    _counter("group_missed", _GROUP, "Entries that were removed before the group read them.", _of_groups("missed")),
    _counter("group_filtered", _GROUP, "Entries that the group skipped because of its header filter.", _filtered),
    _gauge(
        "workers", (), "Workers with a heartbeat in the last 15 s.", _one(lambda scrape: _count(scrape.live_workers))
    ),
    _gauge(
        "worker_concurrency",
        _WORKER,
        "Maximum number of handlers that the worker runs at the same time.",
        _of_workers("concurrency"),
    ),
    _gauge("worker_in_flight", _WORKER, "Running handlers, as of its last heartbeat.", _of_workers("in_flight")),
    _counter(
        "worker_handled",
        _WORKER,
        "Messages that it handled since it started, as of its last heartbeat.",
        _of_workers("handled"),
    ),
    _counter(
        "worker_rolled_back_calls",
        _WORKER,
        "Calls that a server confirmed to it and then lost, by a fail-over or a restart.",
        _of_workers("rolled_back"),
    ),
    _gauge("worker_last_beat_seconds", _WORKER, "Time since its last heartbeat.", _of_workers("last_beat")),
    _gauge(
        "worker_last_poll_seconds",
        _WORKER,
        "Time since it last asked for messages; absent if it never did.",
        _of_workers("last_poll"),
    ),
    _gauge("schedules", (), "Schedules, including paused ones.", _one(lambda scrape: _count(scrape.schedules))),
    _gauge(
        "schedule_next_run_timestamp_seconds",
        _SCHEDULE,
        "The next run, in seconds since 1970; absent if it is paused or has none.",
        _of_schedules(_next_run),
    ),
    _gauge("schedule_paused", _SCHEDULE, "1 if the schedule is paused.", _of_schedules(attrgetter("paused"))),
)
