"""The ledger of the demo finds broken promises: each check passes a good history and fails a bad one."""

from pathlib import Path
from typing import Any

import pytest

from duly import Audit, AuditFault, Stats
from duly.demo.history import Acked, Acking, AnyEvent, Delivered, Held, History, Sent, Tally, read
from duly.demo.ledger import Ledger, disagreements, make_ledger
from duly.demo.producer import delay_of

SECOND = 1_000_000
NOW = 1_800_000_000 * SECOND
LEASE = 2.0


def sent(message: str = "a", delay: float = 0.0) -> Sent:
    return Sent(process="producer-1", queue="orders", id=message, delay=delay)


def delivered(
    at: float, message: str = "a", process: str = "orders-1", due: float = 0.0, attempt: int = 1
) -> Delivered:
    return Delivered(
        process=process,
        queue="orders",
        id=message,
        fence=round(NOW + at * SECOND),
        attempt=attempt,
        sent_at=NOW,
        due_at=round(NOW + due * SECOND),
    )


def acking(at: float, message: str = "a", process: str = "orders-1") -> Acking:
    return Acking(process=process, queue="orders", id=message, fence=round(NOW + at * SECOND))


def acked(at: float, message: str = "a", process: str = "orders-1", lost: bool = False) -> Acked:
    return Acked(process=process, queue="orders", id=message, fence=round(NOW + at * SECOND), lost=lost)


def held(at: float, message: str = "a", process: str = "orders-2") -> Held:
    return Held(process=process, queue="orders", id=message, fence=round(NOW + at * SECOND))


def ledger_of(*events: AnyEvent) -> Ledger:
    return make_ledger("orders", events, LEASE)


def audit_of(faults: tuple[AuditFault, ...] = (), **figures: int) -> Audit:
    zeros: dict[str, Any] = dict.fromkeys(Stats.__dataclass_fields__, 0)
    return Audit("orders", Stats(**{**zeros, **figures}), checked=0, faults=faults, repaired=False)


def test_a_message_that_was_sent_delivered_and_acked_is_not_a_problem() -> None:
    ledger = ledger_of(sent(), delivered(0.001), acking(0.001), acked(0.001))

    assert (ledger.sent, ledger.delivered, ledger.acked) == (1, 1, 1)
    assert ledger.problems() == []
    assert ledger.lateness == {"p50": 0.001, "p99": 0.001, "max": 0.001}


def test_a_message_that_was_never_delivered_is_lost() -> None:
    ledger = ledger_of(sent("a"), sent("b"), delivered(0.001, "b"), acking(0.001, "b"), acked(0.001, "b"))

    assert ledger.lost == ("a",)
    assert ledger.problems() == ["orders: 1 lost, the first is a"]


def test_a_message_that_was_delivered_but_never_acked_is_lost() -> None:
    assert ledger_of(sent(), delivered(0.001)).lost == ("a",)


def test_a_delivery_before_the_due_time_is_early() -> None:
    ledger = ledger_of(sent(delay=1), delivered(0.999, due=1.0), acking(0.999), acked(0.999))

    assert ledger.early == ("a",)
    assert ledger.problems() == ["orders: 1 early, the first is a"]


def test_a_delivery_before_the_requested_delay_is_early_even_if_the_server_has_an_earlier_due_time() -> None:
    ledger = ledger_of(sent(delay=1), delivered(0.999, due=0.5), acking(0.999), acked(0.999))

    assert ledger.early == ("a",)


def test_a_delivery_at_its_due_time_is_not_early() -> None:
    assert ledger_of(sent(delay=1), delivered(1.0, due=1.0), acking(1.0), acked(1.0)).problems() == []


def test_the_redelivery_after_a_kill_has_that_reason() -> None:
    ledger = ledger_of(
        sent(), delivered(0, process="orders-2"), held(0), delivered(2.1, attempt=2), acking(2.1), acked(2.1)
    )

    assert [one.reason for one in ledger.redelivered] == [
        "orders-2 was killed while it held the message, and its lease ran out"
    ]
    assert ledger.redelivered[0].after == pytest.approx(2.1)
    assert ledger.problems() == []


def test_an_unrecorded_lease_of_the_killed_process_counts_as_a_delivery() -> None:
    ledger = ledger_of(sent(), held(0), delivered(2.1, attempt=2), acking(2.1), acked(2.1))

    assert ledger.delivered == 2
    assert len(ledger.redelivered) == 1
    assert ledger.problems() == []


def test_the_redelivery_after_a_slow_consumer_has_that_reason() -> None:
    ledger = ledger_of(
        sent(), delivered(0), acking(0), acked(0, lost=True), delivered(2.1, process="orders-3"),
        acking(2.1, process="orders-3"), acked(2.1, process="orders-3"),
    )  # fmt: skip

    assert [one.reason for one in ledger.redelivered] == ["orders-1 was slower than its lease"]
    assert ledger.stale_acks == 1
    assert ledger.problems() == []


def test_a_second_delivery_without_a_cause_is_a_problem() -> None:
    ledger = ledger_of(sent(), delivered(0), delivered(2.1, process="orders-3"), acking(2.1), acked(2.1))

    assert ledger.redelivered == ()
    assert ledger.problems() == ["orders: a was delivered to orders-3 again without a cause"]


def test_a_second_delivery_during_the_lease_of_the_killed_process_is_a_problem() -> None:
    ledger = ledger_of(sent(), held(0), delivered(1.9), acking(1.9), acked(1.9))

    assert len(ledger.unexplained) == 1


def test_a_second_delivery_after_an_ack_is_a_problem() -> None:
    ledger = ledger_of(sent(), delivered(0), acking(0), acked(0), delivered(5, process="orders-3"))

    assert len(ledger.unexplained) == 1


def test_two_holders_of_one_lease_are_a_problem() -> None:
    ledger = ledger_of(sent(), delivered(0), delivered(0, process="orders-3"), acking(0), acked(0))

    assert len(ledger.unexplained) == 1


def test_a_message_that_was_not_sent_is_a_problem() -> None:
    ledger = ledger_of(delivered(0), acking(0), acked(0))

    assert ledger.problems() == ["orders: a was delivered but never sent"]


def test_an_unanswered_ack_of_the_killed_process_counts_unless_the_message_was_still_held() -> None:
    made = ledger_of(sent(), delivered(0, process="orders-2"), acking(0, process="orders-2"), held(0, "other"))
    not_made = ledger_of(sent(), delivered(0, process="orders-2"), acking(0, process="orders-2"), held(0))

    assert (made.acked, made.lost) == (1, ())
    assert (not_made.acked, not_made.lost) == (0, ("a",))


def test_counters_of_the_server_that_differ_are_a_problem() -> None:
    ledger = ledger_of(sent(), delivered(0), acking(0), acked(0))

    assert disagreements(ledger, audit_of(sent=1, delivered=1, acked=1)) == []
    assert disagreements(ledger, audit_of(sent=2, delivered=1, acked=2)) == [
        "orders: sent is 1 by the histories, 2 by the server",
        "orders: acked is 1 by the histories, 2 by the server",
    ]
    assert len(disagreements(ledger, audit_of((AuditFault("a", "is nowhere"),), sent=1, delivered=1, acked=1))) == 1


def test_a_history_is_read_as_it_was_written_without_a_torn_last_line(tmp_path: Path) -> None:
    path = tmp_path / "orders-1.jsonl"
    events: list[AnyEvent] = [sent(delay=0.5), delivered(0.5, due=0.5), acking(0.5), acked(0.5, lost=True), held(0.5)]
    history, tally = History(path), Tally(path)
    history.write(events)
    history.close()
    with path.open("ab") as file:
        file.write(b'{"event":"acked","process"')

    tally.update()

    assert read([path]) == events
    assert tally.count == {"sent": 1, "delivered": 1, "acked": 2}


def test_delays_lie_between_the_soonest_and_the_end_of_the_run() -> None:
    delays = [delay_of(number, 8.0) for number in range(250)]

    assert min(delays) >= 0.3
    assert max(delays) <= 8.0
    assert max(delays) - min(delays) > 7
