"""When to make a claim so that it arrives at a due time: what a worker learns about the clock of the server."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.worker.clock_translator import ClockTranslator

AHEAD = 1_700_000_000.0
"""Seconds by which the clock of the server is ahead of the monotonic clock."""


def server_time(moment: float) -> int:
    return round((AHEAD + moment) * 1e6)


def learn(clock: ClockTranslator, asked_at: float, there: float, back: float, *, stepped: float = 0.0) -> None:
    """Let a clock learn from a call, with the seconds that it takes to the server and back."""
    clock.learn(asked_at, asked_at + there + back, server_time(asked_at + there + stepped))


def arrives(clock: ClockTranslator, due: float, there: float) -> float:
    """Return how long after a due time a call arrives."""
    return clock.call_at(server_time(due)) + there - due


def test_a_call_arrives_when_the_message_is_due() -> None:
    clock = ClockTranslator()
    learn(clock, 10.0, 0.0003, 0.0002)
    assert arrives(clock, 12.0, 0.0003) == pytest.approx(0, abs=2e-6)


def test_a_fast_answer_counts_more_than_a_slow_one_that_follows_soon() -> None:
    clock = ClockTranslator()
    learn(clock, 10.0, 0.0003, 0.0002)
    learn(clock, 10.1, 0.02, 0.0002)
    learn(clock, 10.2, 0.0003, 0.02)
    assert arrives(clock, 12.0, 0.0003) == pytest.approx(0, abs=2e-6)


def test_a_slow_answer_counts_when_the_fast_ones_are_old_and_may_be_wrong_by_half() -> None:
    clock = ClockTranslator()
    learn(clock, 10.0, 0.0003, 0.0002)
    learn(clock, 20.0, 0.02, 0.0002)
    assert -0.0101 <= arrives(clock, 30.0, 0.0003) <= 0.0101


@pytest.mark.parametrize("step", [-3600.0, -0.1, 0.1, 3600.0])
def test_a_step_of_the_servers_clock_is_noticed_with_the_next_answer(step: float) -> None:
    clock = ClockTranslator()
    learn(clock, 10.0, 0.0003, 0.0002)
    learn(clock, 10.1, 0.0004, 0.0003, stepped=step)
    assert clock.call_at(server_time(12.0 + step)) + 0.0004 - 12.0 == pytest.approx(0, abs=2e-4)


def test_a_clock_that_drifts_is_followed() -> None:
    clock = ClockTranslator()
    for second in range(100):
        drift = 0.0005 * second
        learn(clock, float(second), 0.0003, 0.0002, stepped=drift)
    late = clock.call_at(server_time(100.0 + 0.05)) + 0.0003 - 100.0
    assert late == pytest.approx(0, abs=0.002)


def test_before_the_first_answer_any_point_in_time_is_possible() -> None:
    assert ClockTranslator().not_before(server_time(10.0)) == float("-inf")


def test_a_time_that_the_server_showed_is_not_placed_too_early_by_more_than_a_way() -> None:
    clock = ClockTranslator()
    learn(clock, 10.0, 0.0003, 0.0002)
    assert 12.0 - 0.0003 - 2e-6 <= clock.not_before(server_time(12.0)) <= 12.0


@pytest.mark.parametrize("ppm", [50, 500])
def test_answers_whose_calls_were_made_long_ago_follow_a_fast_clock(ppm: int) -> None:
    """An idle worker has only such answers. A frozen one must not take an old lease for a new one."""
    clock = ClockTranslator()
    learn(clock, 0.0, 0.0003, 0.0002)
    for second in range(5, 3605, 5):
        drift = second * ppm / 1e6
        clock.learn_from_answer(second + 0.0002, server_time(second + drift))
    moment = 3605.0
    shown = server_time(moment + moment * ppm / 1e6)
    assert clock.not_before(shown) == pytest.approx(moment, abs=0.004)


@given(
    st.lists(
        st.tuples(st.floats(0.001, 2.0), st.floats(0.0001, 0.05), st.floats(0.0001, 0.05)), min_size=1, max_size=20
    )
)
def test_a_call_is_never_wrong_by_more_than_a_round_trip(trips: list[tuple[float, float, float]]) -> None:
    clock, now, slowest = ClockTranslator(), 10.0, 0.0
    for pause, there, back in trips:
        now += pause
        learn(clock, now, there, back)
        now += there + back
        slowest = max(slowest, there + back)
    due = now + 1.0
    fastest_way = min(there for _, there, _ in trips)
    assert -slowest <= arrives(clock, due, fastest_way) <= slowest
