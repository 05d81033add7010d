"""The clock of memory://: it goes, stands, moves, and wakes who waits."""

import time
from datetime import timedelta

import pytest

import duly.testing
from duly.errors import UsageError
from duly.memory.clock import Clock, clock

SECOND = 1_000_000


@pytest.fixture
def frozen() -> Clock:
    made = Clock()
    made.freeze()
    return made


def test_a_clock_shows_real_time() -> None:
    before = time.time_ns() // 1000
    now = Clock().now_us()

    assert before <= now <= time.time_ns() // 1000


@pytest.mark.parametrize(("duration", "us"), [(2, 2 * SECOND), (0.5, 500_000), (timedelta(hours=1), 3600 * SECOND)])
def test_advance_moves_a_frozen_clock_by_just_that(frozen: Clock, duration: float | timedelta, us: int) -> None:
    before = frozen.now_us()

    frozen.advance(duration)

    assert frozen.now_us() == before + us


def test_advance_moves_a_running_clock() -> None:
    running = Clock()
    before = time.time_ns() // 1000

    running.advance(3600)

    assert running.now_us() >= before + 3600 * SECOND


def test_an_unfrozen_clock_continues_from_its_time() -> None:
    running = Clock()
    running.freeze()
    running.set_us(5 * SECOND)
    running.unfreeze()

    assert 5 * SECOND <= running.now_us() < 60 * SECOND
    assert not running.is_frozen


def test_a_clock_goes_back_only_when_frozen(frozen: Clock) -> None:
    frozen.set_us(1)

    assert frozen.now_us() == 1
    with pytest.raises(UsageError, match="freeze"):
        Clock().set_us(1)


def test_reset_returns_to_real_time(frozen: Clock) -> None:
    frozen.set_us(1)

    frozen.reset()

    assert frozen.now_us() > SECOND


@pytest.mark.parametrize("duration", [-1, float("nan"), float("inf"), "1", None])
def test_advance_refuses_a_value_that_is_not_a_duration(frozen: Clock, duration: float) -> None:
    with pytest.raises(UsageError, match="advance"):
        frozen.advance(duration)


def test_watchers_are_called_for_every_move(frozen: Clock) -> None:
    told: list[int] = []

    def watcher() -> None:
        told.append(frozen.moves)

    frozen.watch(watcher)
    frozen.advance(1)
    frozen.set_us(1)
    frozen.unwatch(watcher)
    frozen.advance(1)

    assert told == [1, 2]


def test_a_frozen_clock_creeps_forward_without_notice(frozen: Clock) -> None:
    told: list[int] = []
    frozen.watch(lambda: told.append(1))
    now = frozen.now_us()

    frozen.creep_to(now + 3)
    frozen.creep_to(now)

    assert (frozen.now_us(), frozen.moves, told) == (now + 3, 0, [])


def test_a_running_clock_does_not_creep() -> None:
    running = Clock()

    running.creep_to(running.now_us() + 3600 * SECOND)

    assert running.now_us() < time.time_ns() // 1000 + SECOND


def test_users_get_the_clock_of_all_memory_apps() -> None:
    assert duly.testing.clock is clock
    assert duly.testing.Clock is Clock
