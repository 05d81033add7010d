"""forecast: how many messages become due in each interval."""

from itertools import pairwise

import pytest

from duly._core import ops
from duly._core.call import Call
from duly._core.keys import EVERY_PRIORITY
from duly.message import Bucket
from duly.options import MAX_DELAY
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Queue

MINUTE = 60.0


def forecast(queue: Queue, ahead: float) -> list[Bucket]:
    call = ops.forecast(queue.keys, ahead)
    return call.decode(queue.call(call))


def counts(queue: Queue, ahead: float) -> list[int]:
    return [bucket.count for bucket in forecast(queue, ahead)]


def microseconds(bucket: Bucket) -> tuple[int, int]:
    return round(bucket.start.timestamp() * SECOND), round(bucket.end.timestamp() * SECOND)


def test_each_message_is_in_the_interval_in_which_it_becomes_due(queue: Queue) -> None:
    for n, delay in enumerate((0, 3, 3, 7, 59, 61)):
        queue.send(f"m{n}", delay=delay)

    found = forecast(queue, MINUTE)

    assert sum(bucket.count for bucket in found) == 4
    by_second = {round(bucket.start.timestamp() - NOW / SECOND): bucket.count for bucket in found if bucket.count}
    assert by_second == {3: 2, 7: 1, 59: 1}


def test_intervals_cover_the_time_ahead_without_gaps(queue: Queue, clock: ServerClock) -> None:
    clock.freeze(NOW + 400_000)
    queue.send("a", delay=1)
    found = [microseconds(bucket) for bucket in forecast(queue, MINUTE)]

    assert found[0][0] == NOW + 400_001
    assert found[-1][1] == NOW + 400_001 + 60 * SECOND
    assert len(found) == 61
    assert all(earlier[1] == later[0] for earlier, later in pairwise(found))
    assert all(end % SECOND == 0 for _, end in found[:-1])


def test_a_message_that_is_due_at_an_edge_is_counted_once(queue: Queue) -> None:
    for second in range(1, 11):
        queue.send(f"at {second}", at=NOW / SECOND + second)

    found = counts(queue, 10)

    assert sum(found) == 10
    assert max(found) == 1


def test_messages_of_all_priorities_count_and_due_ones_do_not(queue: Queue, clock: ServerClock) -> None:
    queue.send("due", priority=4)
    queue.send("a", delay=5, priority=9)
    queue.send("b", delay=5)
    queue.send("retried")
    clock.freeze(NOW + SECOND)
    queue.claim(limit=2)

    assert sum(counts(queue, MINUTE)) == 2


def test_a_forecast_writes_nothing(queue: Queue) -> None:
    queue.send("a", delay=5)
    before = queue.dump()

    counts(queue, 3600)

    assert queue.dump() == before


@pytest.mark.parametrize("ahead", [1, 59.5, 60, 61, 3600, 86_400, 7 * 86_400, 365 * 86_400, MAX_DELAY])
def test_any_time_ahead_has_at_most_61_intervals(queue: Queue, ahead: float) -> None:
    assert 1 <= len(counts(queue, ahead)) <= 61


def test_too_many_intervals_are_refused(queue: Queue) -> None:
    call: Call[object] = Call(queue.keys.script("forecast"), queue.keys, [EVERY_PRIORITY, 3600 * SECOND, SECOND], list)
    with pytest.raises(Exception, match="at most 100 intervals"):
        queue.call(call)
