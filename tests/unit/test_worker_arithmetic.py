"""The parts of a worker that only count and decide: paces, shares, suspects, allowances, and steps of handlers."""

import asyncio
import contextvars
import math
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.worker.coroutine_driver import run_in_context
from duly.worker.handler_pace import MOST_AHEAD, HandlerPace
from duly.worker.isolation import Isolation
from duly.worker.runtime_limit import RuntimeLimit
from duly.worker.shares import Shares
from duly.worker.timers import Timers

# How far ahead to claim


def ahead_after(*claims: tuple[int, float, float]) -> int:
    """Let a pace that begins at 0 learn from claims: finished so far, asked at, answered at."""
    pace, finished, now = HandlerPace(0.0), 0, 0.0
    for claim in claims:
        pace.learn(*claim)
        finished, now = claim[0], claim[2]
    return pace.ahead(finished, now)


def test_nothing_is_claimed_ahead_at_first() -> None:
    assert ahead_after() == 0


def test_nothing_is_claimed_ahead_of_slow_handlers() -> None:
    assert ahead_after((10, 9.999, 10.0)) == 0


def test_a_few_times_the_messages_of_a_round_trip_are_claimed_ahead() -> None:
    """A thousand in a second, a trip of ten milliseconds: ten are finished in each of four trips."""
    assert ahead_after((1000, 0.99, 1.0)) == 40


def test_only_messages_finished_since_the_last_claim_count() -> None:
    assert ahead_after((1000, 0.99, 1.0), (1000, 1.99, 2.0)) == 0
    assert ahead_after((0, 0.99, 1.0), (500, 1.99, 2.0)) == 20


def test_the_number_claimed_ahead_has_a_bound() -> None:
    assert ahead_after((10_000_000, 0.5, 1.0)) == MOST_AHEAD


def test_a_trip_that_hung_does_not_count_in_full() -> None:
    assert ahead_after((100, 0.0, 1.0)) == ahead_after((100, 0.95, 1.0))


def test_claims_that_follow_each_other_at_once_teach_nothing() -> None:
    assert ahead_after((1000, 0.99, 1.0), (1000, 1.0, 1.0001)) == 40
    assert ahead_after((1000, 0.99, 1.0), (1000, 1.0, 1.0001), (2000, 1.99, 2.0)) == 40


def test_handlers_that_have_become_slow_are_noticed_before_the_next_claim() -> None:
    pace = HandlerPace(0.0)
    pace.learn(1000, 0.99, 1.0)
    assert pace.ahead(1000, 1.001) == 40
    assert pace.ahead(1000, 1.1) == 0
    assert pace.ahead(1050, 1.1) == 20
    assert pace.ahead(9999, 1.1) == 40  # more is only learnt from a claim


def test_a_clock_that_stands_divides_by_nothing() -> None:
    assert ahead_after((5, 0.0, 0.0)) >= 0


@given(st.lists(st.tuples(st.integers(0, 10_000), st.floats(0, 10), st.floats(0, 1))))
def test_the_number_claimed_ahead_is_within_its_bounds(steps: list[tuple[int, float, float]]) -> None:
    pace, finished, now = HandlerPace(0.0), 0, 0.0
    for more, pause, trip in steps:
        finished, asked, now = finished + more, now + pause, now + pause + trip
        pace.learn(finished, asked, now)
        assert 0 <= pace.ahead(finished, now) <= MOST_AHEAD


# Whose turn it is


@dataclass(eq=False)
class Queue:
    name: str
    weight: int


HIGH, LOW = Queue("high", 3), Queue("low", 1)


def served(shares: Shares[Queue], candidates: list[Queue], turns: int, count: int = 1) -> Counter[str]:
    """Give each chosen one `count` messages, and count them by name."""
    counts: Counter[str] = Counter()
    become_candidates(shares, candidates)
    for _ in range(turns):
        chosen = chosen_of(shares)
        shares.took(chosen, count)
        counts[chosen.name] += count
    become_candidates(shares, [])
    return counts


def become_candidates(shares: Shares[Queue], candidates: list[Queue]) -> None:
    for each in list(shares):
        shares.remove(each)
    for each in candidates:
        shares.add(each)


def chosen_of(shares: Shares[Queue]) -> Queue:
    chosen = shares.first()
    assert chosen is not None
    return chosen


def test_messages_are_divided_by_weight() -> None:
    assert served(Shares(), [HIGH, LOW], 400) == {"high": 300, "low": 100}


def test_equal_weights_take_turns() -> None:
    a, b, c = (Queue(name, 1) for name in "abc")
    assert served(Shares(), [a, b, c], 9) == {"a": 3, "b": 3, "c": 3}


def test_messages_count_not_turns() -> None:
    """One gives a hundred in each turn, the other one."""
    shares: Shares[Queue] = Shares()
    counts: Counter[str] = Counter()
    a, b = Queue("a", 1), Queue("b", 1)
    become_candidates(shares, [a, b])
    for _ in range(1000):
        chosen = chosen_of(shares)
        took = 100 if chosen is a else 1
        shares.took(chosen, took)
        counts[chosen.name] += took
    assert abs(counts["a"] - counts["b"]) <= 100


def test_a_queue_that_was_asked_for_nothing_keeps_its_turn_without_starving_others() -> None:
    shares: Shares[Queue] = Shares()
    for each in (HIGH, LOW):
        become_candidates(shares, [each])
        assert shares.first() is each
    assert served(shares, [HIGH, LOW], 4) == {"high": 3, "low": 1}


@pytest.mark.parametrize("alone", [10, 10_000])
def test_a_queue_that_joins_later_has_no_credit(alone: int) -> None:
    shares: Shares[Queue] = Shares()
    served(shares, [HIGH], alone)
    counts = served(shares, [HIGH, LOW], 400)
    assert abs(counts["high"] - 300) <= 3


def test_a_queue_that_was_away_for_a_while_has_no_credit() -> None:
    shares: Shares[Queue] = Shares()
    served(shares, [HIGH, LOW], 40)
    served(shares, [LOW], 1000)
    counts = served(shares, [HIGH, LOW], 400)
    assert abs(counts["high"] - 300) <= 3


def test_a_queue_that_was_served_alone_pays_back_its_last_claim_only() -> None:
    """That one is in hand when the other joins."""
    shares: Shares[Queue] = Shares()
    served(shares, [LOW], 50, count=1000)
    assert served(shares, [HIGH, LOW], 3000) == {"high": 3000}
    counts = served(shares, [HIGH, LOW], 400)
    assert abs(counts["high"] - 300) <= 3


@given(st.dictionaries(st.text(min_size=1), st.integers(1, 1000), min_size=1, max_size=6), st.integers(0, 200))
def test_no_queue_starves(weights: dict[str, int], alone: int) -> None:
    queues = [Queue(name, weight) for name, weight in weights.items()]
    shares: Shares[Queue] = Shares()
    served(shares, queues[:1], alone)
    counts = served(shares, queues, 2 * sum(weights.values()))
    assert all(counts[queue.name] >= 1 for queue in queues)


def test_free_room_is_divided_by_weight() -> None:
    shares: Shares[Queue] = Shares()
    become_candidates(shares, [HIGH, LOW])
    assert shares.part_of(HIGH, 100) == 75
    assert shares.part_of(LOW, 100) == 25
    shares.remove(HIGH)
    assert shares.part_of(LOW, 100) == 100


def test_a_share_is_never_nothing() -> None:
    shares: Shares[Queue] = Shares()
    become_candidates(shares, [HIGH, LOW])
    assert shares.part_of(LOW, 1) == 1


def test_of_equals_the_one_that_waits_longest_is_asked() -> None:
    shares: Shares[Queue] = Shares()
    a, b = Queue("a", 1), Queue("b", 1)
    become_candidates(shares, [b, a])
    assert shares.first() is b
    shares.remove(b)
    shares.add(b)  # it was asked, and had nothing
    assert shares.first() is a


def test_a_queue_that_is_not_a_candidate_is_not_asked() -> None:
    shares: Shares[Queue] = Shares()
    become_candidates(shares, [HIGH, LOW])
    shares.remove(HIGH)
    assert (shares.first(), HIGH in shares, LOW in shares) == (LOW, False, True)
    shares.remove(LOW)
    assert shares.first() is None


# When to poll


def test_due_timers_are_found_once_in_the_order_of_time() -> None:
    timers: Timers[str] = Timers()
    for name, moment in [("b", 2.0), ("c", 3.0), ("a", 1.0)]:
        timers.set(name, moment)
    assert timers.next_at() == 1.0
    assert (timers.due(2.0), timers.due(2.0), timers.next_at()) == (["a", "b"], [], 3.0)


def test_only_the_last_time_that_was_set_counts() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 1.0)
    timers.set("a", 5.0)
    timers.set("b", 6.0)
    assert (timers.due(4.0), timers.next_at()) == ([], 5.0)
    timers.set("a", 2.0)
    assert (timers.due(5.5), timers.next_at()) == (["a"], 6.0)


def test_a_cancelled_timer_is_never_due() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 1.0)
    timers.cancel("a")
    timers.cancel("b")
    assert (timers.next_at(), timers.due(9.0)) == (None, [])


# When a suspect may run


def test_a_worker_that_holds_nothing_may_take_a_suspect() -> None:
    assert Isolation().allows(0, held=0) == "alone"


def test_a_worker_that_holds_a_message_may_take_no_suspect() -> None:
    assert Isolation().allows(0, held=1) == "none"


def test_while_a_suspect_runs_nothing_is_claimed() -> None:
    isolation = Isolation()
    isolation.took(0, 30, is_suspect=True, has_passed_over=False)
    assert isolation.is_alone
    assert isolation.allows(0, held=1) is None
    assert isolation.allows(1e9, held=1) is None
    assert isolation.changes_at() is None


def test_after_a_suspect_all_is_open_again() -> None:
    isolation = Isolation()
    isolation.took(0, 30, is_suspect=True, has_passed_over=False)
    assert isolation.allows(1, held=0) == "alone"
    isolation.took(0, 30, is_suspect=False, has_passed_over=False)
    assert not isolation.is_alone
    assert isolation.allows(1, held=5) == "none"


def test_one_suspect_may_follow_another() -> None:
    isolation = Isolation()
    isolation.took(0, 30, is_suspect=True, has_passed_over=False)
    isolation.took(0, 30, is_suspect=True, has_passed_over=False)
    assert isolation.allows(0, held=1) is None


def test_a_suspect_that_was_seen_stops_claims_until_nothing_is_held() -> None:
    isolation = Isolation()
    isolation.passed_over(now=100, lease=30)
    assert isolation.allows(100, held=3) is None
    assert isolation.allows(129, held=1) is None
    assert isolation.changes_at() == 130
    assert isolation.allows(129, held=0) == "alone"


def test_handlers_that_take_too_long_are_not_waited_for() -> None:
    isolation = Isolation()
    isolation.passed_over(now=100, lease=30)
    assert isolation.allows(130, held=1) == "none"
    assert isolation.changes_at() is None
    isolation.passed_over(now=131, lease=30)
    assert isolation.allows(131, held=1) == "none"


def test_after_a_rest_it_tries_again_and_for_longer() -> None:
    isolation = Isolation()
    isolation.passed_over(now=100, lease=30)
    isolation.allows(130, held=1)
    isolation.passed_over(now=160, lease=30)
    assert isolation.changes_at() == 160 + 60
    assert isolation.allows(219, held=1) is None
    assert isolation.allows(220, held=1) == "none"


def test_isolation_waits_for_a_bounded_time_and_work_continues_half_of_the_time() -> None:
    isolation = Isolation()
    now, waited, worked = 0.0, 0.0, 0.0
    for _ in range(20):
        isolation.passed_over(now, lease=1)
        end = isolation.changes_at()
        assert end is not None
        assert end - now <= 16
        waited, now = waited + end - now, end
        assert isolation.allows(now, held=1) == "none"
        begin = now
        while isolation.changes_at() is None:
            now += 0.5
            isolation.passed_over(now, lease=1)
        worked += now - begin
    assert waited <= worked


def test_patience_is_as_at_first_once_something_was_taken() -> None:
    isolation = Isolation()
    isolation.passed_over(now=0, lease=30)
    isolation.allows(30, held=1)
    isolation.passed_over(now=60, lease=30)
    isolation.took(0, 30, is_suspect=False, has_passed_over=False)
    isolation.passed_over(now=100, lease=30)
    assert isolation.changes_at() == 130


def test_a_suspect_that_others_come_before_is_not_waited_for_again_at_once() -> None:
    """By their priority: the worker would run empty for it, over and over."""
    isolation = Isolation()
    isolation.passed_over(now=100, lease=30)
    isolation.took(110, 30, is_suspect=False, has_passed_over=True)
    assert isolation.allows(111, held=1) == "none"
    isolation.passed_over(now=169, lease=30)
    assert isolation.allows(169, held=1) == "none"
    isolation.passed_over(now=170, lease=30)
    assert isolation.allows(170, held=1) is None


def test_a_suspect_that_is_seen_again_in_the_meantime_changes_nothing() -> None:
    isolation = Isolation()
    isolation.passed_over(now=100, lease=30)
    isolation.passed_over(now=120, lease=30)
    assert isolation.changes_at() == 130
    isolation.took(0, 30, is_suspect=True, has_passed_over=False)
    isolation.passed_over(now=125, lease=30)
    assert isolation.is_alone


# How long handlers may run


def allowance(max_runtime: float | None, lease: float = 30, **started: float) -> Any:
    runtime: Any = SimpleNamespace(max_runtime=max_runtime, lease=lease, started=dict(started))
    return RuntimeLimit(runtime)


def test_without_a_cap_everything_is_renewed() -> None:
    allowed = allowance(None, a=0)
    assert allowed.split(["a", "b"], 1e9) == (["a", "b"], [])
    assert allowed.next_end == math.inf


def test_a_message_that_has_not_begun_is_renewed() -> None:
    assert allowance(60).split(["a"], 1e9) == (["a"], [])


def test_within_the_cap_it_is_renewed_and_past_it_the_lease_runs_out() -> None:
    allowed = allowance(60, a=0)
    assert allowed.split(["a"], 59) == (["a"], [])
    assert allowed.split(["a"], 65) == ([], [])
    assert allowed.next_end == 59 + 30
    assert allowed.split(["a"], 88) == ([], [])
    assert allowed.split(["a"], 89) == ([], ["a"])
    assert allowed.next_end == math.inf


def test_each_has_its_own_end() -> None:
    allowed = allowance(60, a=0, b=20)
    allowed.split(["a", "b"], 55)
    assert allowed.split(["a", "b"], 65) == (["b"], [])
    assert allowed.split(["a", "b"], 82) == ([], [])
    assert allowed.next_end == 55 + 30
    assert allowed.split(["a", "b"], 85) == ([], ["a"])
    assert allowed.split(["b"], 95) == ([], ["b"])


def test_a_message_that_was_never_renewed_ends_a_lease_after_its_start() -> None:
    """It began after the last check, and its cap is shorter than the time between two checks."""
    allowed = allowance(1, a=100)
    allowed.split([], 99)
    assert allowed.split(["a"], 109) == ([], [])
    assert allowed.next_end == 130


def test_a_message_that_was_settled_in_the_meantime_is_forgotten() -> None:
    allowed = allowance(1, a=0)
    allowed.split(["a"], 5)
    assert allowed.next_end == 30
    allowed.split([], 6)
    assert allowed.next_end == math.inf


# Steps of handlers

VALUE = contextvars.ContextVar("VALUE", default="outside")


@dataclass
class Steps:
    """Drives an awaitable by hand, as an event loop would, and notes when it pauses for the first time."""

    coroutine: Coroutine[Any, Any, Any]
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    pauses: int = 0

    def __post_init__(self) -> None:
        self.generator: Any = run_in_context(self.coroutine, self.context, self._note)

    def _note(self) -> None:
        self.pauses += 1

    def ends_with(self, step: Callable[[], Any]) -> Any:
        """Return the value that a step ends it with."""
        with pytest.raises(StopIteration) as end:
            step()
        return end.value.value


class Pause:
    """Gives something up to the event loop, and returns what it answers."""

    def __init__(self, given: Any = None) -> None:
        self._given = given

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield self._given)


def test_a_coroutine_that_never_pauses_ends_in_one_step() -> None:
    async def handler() -> str:
        return "done"

    steps = Steps(handler())

    assert steps.ends_with(lambda: next(steps.generator)) == "done"
    assert steps.pauses == 0


def test_values_go_in_and_out() -> None:
    async def handler() -> list[Any]:
        return [await Pause("first"), await Pause("second")]

    steps = Steps(handler())

    assert next(steps.generator) == "first"
    assert steps.generator.send(1) == "second"
    assert steps.ends_with(lambda: steps.generator.send(2)) == [1, 2]


def test_the_first_pause_is_reported_once() -> None:
    async def handler() -> None:
        for _ in range(3):
            await Pause()

    steps = Steps(handler())

    assert steps.pauses == 0
    next(steps.generator)
    assert steps.pauses == 1
    next(steps.generator)
    next(steps.generator)
    assert steps.ends_with(lambda: next(steps.generator)) is None
    assert steps.pauses == 1


def test_errors_go_in_and_can_be_caught() -> None:
    async def handler() -> Any:
        try:
            await Pause()
        except ValueError as error:
            return error, await Pause("after it")
        return None

    steps = Steps(handler())
    thrown = ValueError("thrown")
    next(steps.generator)

    assert steps.generator.throw(thrown) == "after it"
    assert steps.ends_with(lambda: steps.generator.send("answer")) == (thrown, "answer")


@pytest.mark.parametrize("error", [ValueError("v"), asyncio.CancelledError(), KeyboardInterrupt(), SystemExit(1)])
def test_errors_come_out(error: BaseException) -> None:
    async def at_once() -> None:
        raise error

    async def later() -> None:
        await Pause()
        raise error

    with pytest.raises(type(error)) as found:
        next(Steps(at_once()).generator)
    assert found.value is error

    steps = Steps(later())
    next(steps.generator)
    with pytest.raises(type(error)) as found:
        next(steps.generator)
    assert found.value is error


def test_an_error_that_is_not_caught_is_raised() -> None:
    async def handler() -> None:
        await Pause()

    steps = Steps(handler())
    next(steps.generator)
    thrown = asyncio.CancelledError()

    with pytest.raises(asyncio.CancelledError) as found:
        steps.generator.throw(thrown)
    assert found.value is thrown


def test_stop_iteration_of_a_handler_is_an_error_and_no_value() -> None:
    async def handler() -> None:
        raise StopIteration("value")

    with pytest.raises(RuntimeError, match="StopIteration"):
        next(Steps(handler()).generator)


def test_closing_closes_the_coroutine() -> None:
    ends: list[str] = []

    async def handler() -> None:
        try:
            await Pause()
        finally:
            ends.append(VALUE.get())

    context = contextvars.copy_context()
    context.run(VALUE.set, "inside")
    steps = Steps(handler(), context)
    next(steps.generator)
    steps.generator.close()

    assert ends == ["inside"]
    with pytest.raises(RuntimeError):
        steps.coroutine.send(None)


def test_the_context_is_visible_to_all_steps_and_to_no_other_code() -> None:
    seen: list[str] = []

    async def handler() -> None:
        VALUE.set("inside")
        await Pause()
        seen.append(VALUE.get())
        try:
            await Pause()
        except ValueError:
            seen.append(VALUE.get())
        await Pause()

    steps = Steps(handler())
    next(steps.generator)
    assert VALUE.get() == "outside"
    next(steps.generator)
    steps.generator.throw(ValueError())
    assert seen == ["inside", "inside"]
    assert VALUE.get() == "outside"
    assert steps.context[VALUE] == "inside"
    steps.generator.close()


def test_the_callback_of_a_pause_does_not_run_in_the_context() -> None:
    seen: list[str] = []

    async def handler() -> None:
        VALUE.set("inside")
        await Pause()

    coroutine = handler()
    generator: Any = run_in_context(coroutine, contextvars.copy_context(), lambda: seen.append(VALUE.get()))
    next(generator)
    generator.close()

    assert seen == ["outside"]


async def test_several_coroutines_can_run_in_their_contexts_at_once() -> None:
    async def handler(number: int) -> int:
        VALUE.set(str(number))
        await asyncio.sleep(0.001)
        assert VALUE.get() == str(number)
        return number

    async def slot(number: int) -> int:
        returned: int = await run_in_context(handler(number), contextvars.copy_context(), lambda: None)
        return returned

    assert await asyncio.gather(*(slot(number) for number in range(10))) == list(range(10))
    assert VALUE.get() == "outside"


async def test_a_cancellation_reaches_the_coroutine() -> None:
    ends: list[str] = []

    async def handler() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    async def slot() -> None:
        await run_in_context(handler(), contextvars.copy_context(), lambda: None)

    task = asyncio.ensure_future(slot())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ends == ["cancelled"]
