"""The accounts of the demonstration find what is wrong: each check passes a good history and fails a bad one."""

from pathlib import Path
from typing import Any

import pytest

from duly import Audit, AuditFault, Stats
from duly.demo.history import Acked, Acking, AnyEvent, Delivered, Held, History, Sent, Tally, read
from duly.demo.ledger import Accounts, disagreements, draw_up
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


def drawn_up(*events: AnyEvent) -> Accounts:
    return draw_up("orders", events, LEASE)


def audit_of(faults: tuple[AuditFault, ...] = (), **figures: int) -> Audit:
    zeros: dict[str, Any] = dict.fromkeys(Stats.__dataclass_fields__, 0)
    return Audit("orders", Stats(**{**zeros, **figures}), checked=0, faults=faults, repaired=False)


def test_a_message_that_was_sent_delivered_and_acked_is_no_problem() -> None:
    accounts = drawn_up(sent(), delivered(0.001), acking(0.001), acked(0.001))

    assert (accounts.sent, accounts.delivered, accounts.acked) == (1, 1, 1)
    assert accounts.problems() == []
    assert accounts.lateness == {"p50": 0.001, "p99": 0.001, "max": 0.001}


def test_a_message_that_never_came_is_lost() -> None:
    accounts = drawn_up(sent("a"), sent("b"), delivered(0.001, "b"), acking(0.001, "b"), acked(0.001, "b"))

    assert accounts.lost == ("a",)
    assert accounts.problems() == ["orders: 1 lost, the first is a"]


def test_a_message_that_came_but_was_never_finished_is_lost() -> None:
    assert drawn_up(sent(), delivered(0.001)).lost == ("a",)


def test_a_delivery_before_the_due_time_that_the_server_gave_is_early() -> None:
    accounts = drawn_up(sent(delay=1), delivered(0.999, due=1.0), acking(0.999), acked(0.999))

    assert accounts.early == ("a",)
    assert accounts.problems() == ["orders: 1 early, the first is a"]


def test_a_delivery_before_the_delay_that_was_asked_for_is_early_whatever_the_server_says() -> None:
    accounts = drawn_up(sent(delay=1), delivered(0.999, due=0.5), acking(0.999), acked(0.999))

    assert accounts.early == ("a",)


def test_a_delivery_at_its_due_time_is_not_early() -> None:
    assert drawn_up(sent(delay=1), delivered(1.0, due=1.0), acking(1.0), acked(1.0)).problems() == []


def test_a_message_whose_holder_was_killed_comes_again_with_that_reason() -> None:
    accounts = drawn_up(
        sent(), delivered(0, process="orders-2"), held(0), delivered(2.1, attempt=2), acking(2.1), acked(2.1)
    )

    assert [one.reason for one in accounts.redelivered] == [
        "orders-2 was killed while it held the message, and its lease ran out"
    ]
    assert accounts.redelivered[0].after == pytest.approx(2.1)
    assert accounts.problems() == []


def test_a_lease_that_the_killed_had_no_time_to_write_down_counts_as_a_delivery() -> None:
    accounts = drawn_up(sent(), held(0), delivered(2.1, attempt=2), acking(2.1), acked(2.1))

    assert accounts.delivered == 2
    assert len(accounts.redelivered) == 1
    assert accounts.problems() == []


def test_a_message_whose_holder_was_too_slow_comes_again_with_that_reason() -> None:
    accounts = drawn_up(
        sent(), delivered(0), acking(0), acked(0, lost=True), delivered(2.1, process="orders-3"),
        acking(2.1, process="orders-3"), acked(2.1, process="orders-3"),
    )  # fmt: skip

    assert [one.reason for one in accounts.redelivered] == ["orders-1 was slower than its lease"]
    assert accounts.stale_acks == 1
    assert accounts.problems() == []


def test_a_second_delivery_without_a_cause_is_a_problem() -> None:
    accounts = drawn_up(sent(), delivered(0), delivered(2.1, process="orders-3"), acking(2.1), acked(2.1))

    assert accounts.redelivered == ()
    assert accounts.problems() == ["orders: a was delivered to orders-3 again without a cause"]


def test_a_second_delivery_while_the_lease_of_the_killed_was_alive_is_a_problem() -> None:
    accounts = drawn_up(sent(), held(0), delivered(1.9), acking(1.9), acked(1.9))

    assert len(accounts.unexplained) == 1


def test_a_second_delivery_after_an_ack_is_a_problem() -> None:
    accounts = drawn_up(sent(), delivered(0), acking(0), acked(0), delivered(5, process="orders-3"))

    assert len(accounts.unexplained) == 1


def test_two_holders_of_one_lease_are_a_problem() -> None:
    accounts = drawn_up(sent(), delivered(0), delivered(0, process="orders-3"), acking(0), acked(0))

    assert len(accounts.unexplained) == 1


def test_a_message_that_nobody_sent_is_a_problem() -> None:
    accounts = drawn_up(delivered(0), acking(0), acked(0))

    assert accounts.problems() == ["orders: a was delivered but never sent"]


def test_an_unanswered_ack_of_the_killed_was_made_unless_the_message_was_still_held() -> None:
    made = drawn_up(sent(), delivered(0, process="orders-2"), acking(0, process="orders-2"), held(0, "other"))
    not_made = drawn_up(sent(), delivered(0, process="orders-2"), acking(0, process="orders-2"), held(0))

    assert (made.acked, made.lost) == (1, ())
    assert (not_made.acked, not_made.lost) == (0, ("a",))


def test_counters_of_the_server_that_differ_are_a_problem() -> None:
    accounts = drawn_up(sent(), delivered(0), acking(0), acked(0))

    assert disagreements(accounts, audit_of(sent=1, delivered=1, acked=1)) == []
    assert disagreements(accounts, audit_of(sent=2, delivered=1, acked=2)) == [
        "orders: sent is 1 by the histories, 2 by the server",
        "orders: acked is 1 by the histories, 2 by the server",
    ]
    assert len(disagreements(accounts, audit_of((AuditFault("a", "is nowhere"),), sent=1, delivered=1, acked=1))) == 1


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
