"""The options that workers publish with their heartbeats."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duly import Keep, Retry
from duly._core.published import Published, differing, of_queue, published, usable, with_differences
from duly._core.registry import Info, read_info, written_info
from duly.options import QueueOptions, TopicOptions


def info(options: dict[str, dict[str, Any]], *queues: str) -> Info:
    return Info(
        host="h", pid=1, queues=queues, concurrency=1, in_flight=0, handled=0, started_at=datetime.now(UTC),
        last_poll=None, version="", options=options,
    )  # fmt: skip


def backoff(attempt: int) -> float:
    return float(attempt)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (QueueOptions(), {}),
        (QueueOptions(type=int), {}),
        (QueueOptions(lease=timedelta(seconds=5), rate="50/s"), {"lease": 5.0, "rate": "50/s"}),
        (QueueOptions(retry=Retry(attempts=3)), {"retry": "Retry(attempts=3)"}),
        (QueueOptions(retry=Retry(delay=backoff)), {"retry": "Retry(delay=backoff)"}),
        (QueueOptions(retry=Retry(never=(ValueError,))), {"retry": "Retry(never=[ValueError])"}),
        (QueueOptions(done=Keep(count=5)), {"done": "Keep(count=5)"}),
        (TopicOptions(keep=None), {"keep": None}),
    ],
)
def test_options_that_differ_from_the_defaults_are_published(options: Any, expected: Any) -> None:
    assert published({"orders": options}) == ({"orders": expected} if expected else {})


def test_a_heartbeat_stays_small() -> None:
    many = {f"queue-{number}": QueueOptions(rate="50/s") for number in range(5000)}
    found = published(many)
    assert 100 < len(found) < 1000
    assert len(written_info(info({name: dict(each) for name, each in found.items()}))) < 20_000


def test_a_heartbeat_of_an_older_version_has_none() -> None:
    text = written_info(info({})).replace(b',"options":{}', b"")
    assert b"options" not in text
    found = read_info(text)
    assert found is not None
    assert found.options == {}
    assert read_info(b"{") is None


def test_workers_that_agree_have_one_view() -> None:
    same = {"orders": {"rate": "50/s"}}
    assert of_queue([info(same, "orders"), info(same, "orders"), info({}, "mail")], "orders") == [{"rate": "50/s"}]
    assert of_queue([info({}, "orders")], "orders") == [{}]
    assert of_queue([info(same, "orders")], "mail") == []


def test_workers_that_differ_are_named_with_the_options() -> None:
    workers = [
        info({"orders": {"rate": "50/s", "lease": 5.0}, "mail": {"lease": 9.0}}, "orders", "mail"),
        info({"orders": {"rate": "40/s", "lease": 5.0}, "mail": {"lease": 9.0}}, "orders", "mail"),
        info({}, "mail"),
    ]
    assert differing(workers) == {"orders": ["rate"], "mail": ["lease"]}
    assert differing(workers[:1]) == {}


def test_only_values_are_usable() -> None:
    view: Published = {"rate": "50/s", "lease": 5.0, "retry": "Retry(attempts=3)", "keep": None}
    assert usable([view]) == {"rate": "50/s", "lease": 5.0}


SLOW: Published = {"rate": "1/h", "max_in_flight": 5}
FAST: Published = {"rate": "2/h", "max_in_flight": 5}


def test_only_options_on_which_workers_agree_are_usable() -> None:
    assert usable([SLOW]) == SLOW
    assert usable([SLOW, FAST]) == {"max_in_flight": 5}
    assert usable([SLOW, {}]) == usable([{}, SLOW]) == usable([]) == {}


def test_an_explanation_names_the_options_on_which_workers_differ() -> None:
    assert with_differences("It is ready.", [SLOW]) == with_differences("It is ready.", []) == "It is ready."
    assert with_differences("It is ready.", [SLOW, FAST]) == (
        "It is ready. Its workers have different options, which this leaves out: rate."
    )


def test_options_are_usable_as_a_heartbeat_carries_them() -> None:
    given = QueueOptions(max_in_flight=3, crash_limit=2, rate="50/s", lease=timedelta(seconds=5), max_length=100)
    sent = info({name: dict(each) for name, each in published({"orders": given}).items()}, "orders")

    received = read_info(written_info(sent))

    assert received is not None
    [view] = of_queue([received], "orders")
    assert QueueOptions(**usable([view])) == replace(given, lease=5.0)


def test_options_that_this_version_rejects_are_not_used() -> None:
    assert usable([{"max_in_flight": 2.5, "rate": "50/s"}]) == {}
