"""The meaning of outcomes, for workers and for `with d:` alike."""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

import pytest

from duly import Defer, Outcome, Recycle, Reject, Retry, RetryIn, UsageError
from duly._core.outcome_rules import (
    ACK,
    Decision,
    DeferPolicy,
    after_defer,
    after_failure,
    after_failure_at_any_rate,
    decision_of_error,
    decision_of_return,
    decisions_of_batch,
    described,
    on_one_line,
    storable,
)

# One message


@pytest.mark.parametrize("value", [None, True, 0, "", "text", [], [False], {"a": 1}, object(), ValueError("x")])
def test_a_handler_that_returns_has_done_its_work(value: Any) -> None:
    assert decision_of_return(value) is ACK


def test_false_is_a_retry() -> None:
    assert decision_of_return(False) == Decision("retry", None, "", "the handler returned False")


def test_recycle_is_a_recycle() -> None:
    assert decision_of_return(Recycle()) == Decision("recycle", 0.0)
    assert decision_of_return(Recycle(timedelta(minutes=1))) == Decision("recycle", 60.0)


RETRY_IN = RetryIn(7)
OUTCOMES: list[tuple[Outcome, Decision]] = [
    (Defer(5), Decision("defer", 5.0)),
    (RETRY_IN, Decision("retry", 7.0, "", RETRY_IN)),
    (Reject("no use"), Decision("reject", None, "no use")),
]


@pytest.mark.parametrize(("outcome", "decision"), OUTCOMES, ids=repr)
def test_an_outcome_means_the_same_returned_and_raised(outcome: Outcome, decision: Decision) -> None:
    assert decision_of_error(outcome) == decision
    assert decision_of_return(outcome) == decision
    assert decisions_of_batch([outcome], 1) == [decision]


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit(), Outcome("own")],
    ids=repr,
)
def test_any_other_error_is_a_retry_with_it(error: BaseException) -> None:
    assert decision_of_error(error) == Decision("retry", None, "", error)


@pytest.mark.filterwarnings("error")
def test_a_coroutine_that_was_not_awaited_is_not_a_success() -> None:
    async def work() -> None: ...

    decision = decision_of_return(work())

    assert decision.verb == "retry"
    assert "async def" in str(decision.error)


def test_an_awaitable_is_not_a_success() -> None:
    class Later(Awaitable[None]):
        def __await__(self) -> Any: ...

    assert decision_of_return(Later()).verb == "retry"


# Batches


@pytest.mark.parametrize("value", [None, True, "text", 5, {1: False, 2: False, 3: False}], ids=repr)
def test_a_batch_handler_that_returns_has_done_its_work(value: Any) -> None:
    assert decisions_of_batch(value, 3) == [ACK] * 3


def test_one_outcome_may_be_for_all() -> None:
    assert [decision.verb for decision in decisions_of_batch(False, 2)] == ["retry", "retry"]
    assert decisions_of_batch(Recycle(5), 2) == [Decision("recycle", 5.0)] * 2
    assert decisions_of_batch(Defer(5), 2) == [Decision("defer", 5.0)] * 2


@pytest.mark.parametrize("kind", [list, tuple])
def test_each_message_of_a_batch_may_have_its_outcome(kind: Any) -> None:
    error = ValueError("x")

    decisions = decisions_of_batch(kind([None, True, False, error, Defer(5), Reject("no"), Recycle(), "text"]), 8)

    assert decisions == [
        ACK,
        ACK,
        Decision("retry", error="the handler returned False"),
        Decision("retry", error=error),
        Decision("defer", 5.0),
        Decision("reject", reason="no"),
        Decision("recycle", 0.0),
        ACK,
    ]


@pytest.mark.parametrize("value", [[], [None], (None,) * 4])
def test_outcomes_that_cannot_be_assigned_are_retries(value: Any) -> None:
    decisions = decisions_of_batch(value, 3)

    assert [decision.verb for decision in decisions] == ["retry"] * 3
    assert f"{len(value)} outcomes for 3 messages" in str(decisions[0].error)


# Failures


@pytest.mark.parametrize(
    ("attempt", "delay", "decision"),
    [
        (1, None, ("retry", 10.0)),
        (2, None, ("retry", 20.0)),
        (2, 5.0, ("retry", 5.0)),
        (2, 0.0, ("retry", 0.0)),
        (3, None, ("dead", "failed at attempt 3 of 3")),
        (3, 5.0, ("dead", "failed at attempt 3 of 3")),
        (4, None, ("dead", "failed at attempt 4")),
    ],
)
def test_the_policy_decides_the_outcome_of_a_failure(attempt: int, delay: float | None, decision: Any) -> None:
    assert after_failure(Retry(delays=[10, 20]), attempt, delay) == decision


def test_a_single_attempt_that_fails_is_not_counted_aloud() -> None:
    assert after_failure(Retry(attempts=1), 1) == ("dead", "failed")


def test_a_policy_that_fails_is_replaced() -> None:
    policy = Retry(delay=lambda attempt: 1 / 0)

    with pytest.raises(UsageError, match="ZeroDivisionError"):
        after_failure(policy, 1)
    (verb, delay), flaw = after_failure_at_any_rate("orders", policy, 1)

    assert verb == "retry"
    assert isinstance(delay, float)
    assert 0.9 <= delay <= 1.1
    assert "'orders'" in flaw
    assert after_failure_at_any_rate("orders", policy, 1, 7.0) == (("retry", 7.0), "")
    assert after_failure_at_any_rate("orders", policy, 5) == (("dead", "failed at attempt 5 of 5"), "")


# Defers


@pytest.mark.parametrize(
    ("defer", "delays"),
    [
        (Defer(5), [5, 5, 5, 5]),
        (Defer(7200), [7200, 7200, 7200, 7200]),  # a bound is for what the factor makes of it
        (Defer(10, factor=2), [10, 20, 40, 80]),
        (Defer(10, factor=2, max=30), [10, 20, 30, 30]),
        (Defer(64, factor=0.5), [64, 32, 16, 8]),
        (Defer(10, factor=0), [10, 0, 0, 0]),
        (Defer(0, factor=2), [0, 0, 0, 0]),
        (Defer(timedelta(minutes=1), factor=2, max=timedelta(seconds=90)), [60, 90, 90, 90]),
    ],
)
def test_the_delay_of_a_defer_grows_with_the_defers_before_it(defer: Defer, delays: list[float]) -> None:
    decision = decision_of_error(defer)
    assert decision.delay is not None

    assert [after_defer(decision.delay, decision.policy, n) for n in range(4)] == [("defer", each) for each in delays]


def test_a_delay_that_no_number_can_hold_is_the_longest() -> None:
    assert after_defer(1.0, DeferPolicy(factor=1e300), 1_000) == ("defer", 3600.0)
    assert after_defer(0.0, DeferPolicy(factor=1e300), 1_000) == ("defer", 0.0)


def test_a_message_that_was_deferred_up_to_the_limit_is_dead() -> None:
    policy = DeferPolicy(limit=2)

    assert [after_defer(5.0, policy, n)[0] for n in range(4)] == ["defer", "defer", "reject", "reject"]
    assert after_defer(5.0, policy, 2) == ("reject", "deferred 2 times")
    assert after_defer(5.0, DeferPolicy(limit=1), 1) == ("reject", "deferred once")
    assert after_defer(5.0, policy._replace(reason="lock 'a' was busy"), 3)[1] == "deferred 3 times: lock 'a' was busy"


def test_a_defer_has_a_reason() -> None:
    shared = Defer(5, factor=2, max=60, limit=3)

    decision = decision_of_error(shared.because("lock 'a' was busy"))

    assert decision == Decision("defer", 5.0, policy=DeferPolicy(2, 60.0, 3, "lock 'a' was busy"))
    assert shared.reason == ""


@pytest.mark.parametrize("flaw", [{"factor": "2"}, {"max": -1}, {"limit": 0}, {"delay": None}], ids=repr)
def test_a_defer_that_cannot_be_read_is_a_failure(flaw: dict[str, Any]) -> None:
    defer = Defer(5)
    defer.__dict__.update(flaw)

    decision = decision_of_error(defer)

    assert decision == Decision("retry", error=defer, flaw=decision.flaw)
    assert "Defer" in decision.flaw


def test_a_defer_that_did_not_call_its_base_is_read() -> None:
    class Own(Defer):
        def __init__(self) -> None:
            self.delay = 7.0

    assert decision_of_error(Own()) == Decision("defer", 7.0)


# Stored errors


def test_an_error_is_described_with_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        _ = 1 / 0

    text, trace = described(caught.value)

    assert text == "ZeroDivisionError: division by zero"
    assert "test_an_error_is_described" in trace


def test_other_errors_are_described_without() -> None:
    assert described(None) == ("", "")
    assert described("no such order") == ("no such order", "")
    assert described("") == ("failed", "")


def test_an_error_that_cannot_be_shown_is_named() -> None:
    class Shy(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert described(Shy()) == ("Shy", "")


def test_the_stored_error_is_bounded_and_can_be_stored() -> None:
    text, trace = described(ValueError("\ud800" + "x" * 100_000))

    assert text.startswith("ValueError: \\ud800xxx")
    assert len(text) < 1_100
    assert len(trace) < 10_100
    assert storable("\ud800" * 2_000).encode() == b"\\ud800" * 1_000


def test_a_foreign_text_is_one_line_of_a_log() -> None:
    assert on_one_line("no\r\nCRITICAL: forged \x1b[31m\u202e\u2028") == (
        "no\\r\\nCRITICAL: forged \\x1b[31m\\u202e\\u2028"
    )
    assert on_one_line("订单 42: 'paid' \\o/ 🙂") == "订单 42: 'paid' \\o/ 🙂"
