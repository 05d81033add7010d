"""The ledger of confirmed calls: how many of them a record on the server does not cover."""

import struct

import pytest

from duly._core.call import CallStream, read_sequence
from duly._core.keys import QueueKeys
from duly._core.rollback import Confirmed, Incarnation, Ledger, Lost, warning

KEYS = QueueKeys("duly", "orders")
OLD, NEW = Incarnation("redis-1:6379", "a"), Incarnation("redis-2:6379", "b")


def record(number: int) -> bytes:
    return struct.pack("<d", number) + b"\x01"


def confirmed(*calls: tuple[bytes, int, float]) -> Confirmed:
    """Confirm calls: stream, number and time of each."""
    found = Confirmed(KEYS, OLD)
    for name, number, now in calls:
        found.add(CallStream(name, number), OLD, now)
    return found


@pytest.mark.parametrize(
    ("known", "lost"),
    [(10, 0), (9, 1), (7, 3), (0, 10), (12, 0)],
    ids=["all known", "the last is lost", "three are lost", "all are lost", "an unconfirmed call is known"],
)
def test_calls_after_the_number_of_the_record_are_lost(known: int, lost: int) -> None:
    found = confirmed(*((b"s", number, 100 + number / 100) for number in range(1, 11)))

    result = found.lost({b"s": record(known)}, 101)
    assert (0 if result is None else result.calls) == lost


def test_a_stream_without_a_record_has_lost_all() -> None:
    assert read_sequence(None) == 0
    result = confirmed((b"s", 4, 100), (b"s", 5, 100)).lost({b"s": None}, 101)
    assert result == Lost("queue 'orders'", 2, 1.0, 1.0)


def test_numbers_that_other_queues_used_are_not_counted() -> None:
    found = confirmed((b"s", 1, 100), (b"s", 5, 100), (b"s", 9, 100))

    result = found.lost({b"s": record(4)}, 100)
    assert result is not None
    assert result.calls == 2


def test_streams_are_counted_apart() -> None:
    found = confirmed((b"a", 3, 100), (b"b", 7, 100), (b"a", 4, 100))

    result = found.lost({b"a": record(3), b"b": record(6)}, 100)
    assert result is not None
    assert result.calls == 2
    assert found.streams(100) == [b"a", b"b"]


def test_calls_are_forgotten_after_a_minute() -> None:
    found = confirmed((b"a", 3, 100), (b"b", 7, 150))

    assert found.streams(165) == [b"b"]
    assert found.lost({b"a": None}, 165) is None


def test_the_times_are_those_of_the_lost_calls_to_about_a_second() -> None:
    found = confirmed(*((b"s", number, 100 + number / 10) for number in range(100)))

    result = found.lost({b"s": record(79)}, 120)
    assert result is not None
    assert result.calls == 20
    assert result.newest == pytest.approx(10.1)
    assert 12.0 <= result.oldest <= 13.1


def test_a_call_that_another_server_confirms_during_a_comparison_is_not_lost() -> None:
    """While a slot moves, the new server carries out calls before, and while, its records are read."""
    found = confirmed((b"s", 3, 100))
    found.add(CallStream(b"s", 4), NEW, 101)

    assert found.lost({b"s": record(3)}, 101) is None


def test_after_a_comparison_the_count_begins_again() -> None:
    found = confirmed((b"s", 3, 100))
    found.begin_again(NEW)

    assert found.by is NEW
    assert found.lost({b"s": None}, 100) is None


def test_the_ledger_lists_the_queues_of_one_server_that_were_used_last_first() -> None:
    ledger = Ledger()
    for name, by, now in (("a", OLD, 10.0), ("b", OLD, 90.0), ("c", NEW, 90.0), ("d", OLD, 95.0)):
        found = ledger.opened(QueueKeys("duly", name), by, now)
        assert found is not None
        found.add(CallStream(b"s", 1), by, now)

    assert [each.keys.name for each in ledger.of_server(OLD, 100.0)] == ["d", "b"]


def test_the_ledger_is_bounded_and_forgets_idle_queues() -> None:
    ledger = Ledger()
    for number in range(1024):
        found = ledger.opened(QueueKeys("duly", f"q{number}"), OLD, 100.0)
        assert found is not None
        found.add(CallStream(b"s", 1), OLD, 100.0)

    assert ledger.opened(KEYS, OLD, 101.0) is None
    assert ledger.opened(KEYS, OLD, 200.0) is not None
    assert len(ledger.by_queue) == 1


def test_the_warning_names_both_servers_and_the_queues() -> None:
    lost = [Lost("queue 'orders'", 640, 33.04, 31.16), Lost("queue 'mails'", 3, 32.0, 32.0)]

    assert warning(NEW, OLD, lost) == (
        "redis-2:6379 does not know 643 calls that redis-1:6379 had confirmed to this process: "
        "640 on queue 'orders', 31.2 s to 33.0 s ago; 3 on queue 'mails', 32.0 s to 32.0 s ago"
    )
    assert warning(Incarnation("redis-1:6379", "c"), OLD, lost[1:]) == (
        "redis-1:6379 was restarted and does not know 3 calls that it had confirmed: "
        "3 on queue 'mails', 32.0 s to 32.0 s ago"
    )
