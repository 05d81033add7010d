"""The heartbeat of a worker, written and read."""

import json
from datetime import UTC, datetime

import pytest

from duly._core import ops
from duly._core.keys import RegistryKeys, queue_of_key
from duly._core.registry import Info, read_workers, written_info
from duly.errors import InvalidName
from duly.message import WorkerInfo
from duly.options import checked_name

NOW = 1_790_000_000_000_000
SECOND = 1_000_000
STARTED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
INFO = Info(
    host="box",
    pid=7,
    queues=("orders", "mail"),
    concurrency=10,
    in_flight=3,
    handled=1234,
    started_at=STARTED,
    last_poll=0.5,
    version="1.2.3",
)


def _fields() -> dict[str, object]:
    fields: dict[str, object] = json.loads(written_info(INFO))
    return fields


def test_a_written_heartbeat_is_read_with_its_silence() -> None:
    reply = [NOW, b"box:7:abc", NOW - 2 * SECOND, written_info(INFO)]

    assert read_workers(reply) == [
        WorkerInfo(
            id="box:7:abc",
            host="box",
            pid=7,
            queues=("orders", "mail"),
            concurrency=10,
            in_flight=3,
            handled=1234,
            started_at=STARTED,
            last_poll=2.5,
            last_beat=2.0,
            version="1.2.3",
        )
    ]


def test_a_worker_that_never_asked_has_no_last_poll() -> None:
    fields = _fields() | {"last_poll": None}

    (worker,) = read_workers([NOW, b"a", NOW, json.dumps(fields).encode()])

    assert worker.last_poll is None


def test_a_heartbeat_from_the_future_counts_as_no_silence() -> None:
    (worker,) = read_workers([NOW, b"a", NOW + SECOND, written_info(INFO)])

    assert (worker.last_beat, worker.last_poll) == (0.0, 0.5)


def test_fields_of_a_later_version_are_ignored() -> None:
    fields = _fields() | {"mood": "fine", "nested": {"a": [1]}}

    (worker,) = read_workers([NOW, b"a", NOW, json.dumps(fields).encode()])

    assert worker.host == "box"


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"not json",
        b"\xff",
        b"[]",
        b"{}",
        json.dumps(_fields() | {"pid": "seven"}).encode(),
        json.dumps(_fields() | {"started_at": "2026-01-02T03:04:05"}).encode(),
        json.dumps(_fields() | {"started_at": "2026-13-02T03:04:05Z"}).encode(),
    ],
)
def test_an_unreadable_worker_is_left_out(stored: bytes) -> None:
    good = written_info(INFO)

    workers = read_workers([NOW, b"a", NOW, good, b"b", NOW, stored, b"c", NOW, good])

    assert [worker.id for worker in workers] == ["a", "c"]


def test_a_name_that_is_not_text_is_left_out() -> None:
    assert read_workers([NOW, b"\xff", NOW, written_info(INFO)]) == []


def test_the_registry_has_a_name_that_no_queue_can_have() -> None:
    keys = RegistryKeys("duly")

    assert keys.prefix == b"duly:{~workers}:"
    with pytest.raises(InvalidName):
        checked_name(keys.name)
    with pytest.raises(InvalidName):
        checked_name(queue_of_key("duly", keys.key("meta")))


def test_a_call_names_its_subject() -> None:
    assert ops.workers(RegistryKeys("duly")).title == "workers on the registry of workers"


def test_a_heartbeat_of_an_older_version_has_lost_no_calls() -> None:
    fields = _fields() | {"rolled_back": 7}
    (worker,) = read_workers([NOW, b"a", NOW, json.dumps(fields).encode()])
    assert worker.rolled_back == 7

    del fields["rolled_back"]
    (worker,) = read_workers([NOW, b"a", NOW, json.dumps(fields).encode()])
    assert worker.rolled_back == 0
