"""Workers during a redrive: redriven messages are handled in the order of their key."""

from typing import Any

import pytest

import duly
from tests.worker.rig import Bench, eventually


@pytest.mark.parametrize(
    ("at_end", "expected"), [(False, [0, 1, 2, 3, 4, 5]), (True, [1, 2, 3, 4, 5, 0])], ids=["own place", "at end"]
)
async def test_a_blocked_lane_is_worked_off_in_order_after_a_redrive(
    bench: Bench, at_end: bool, expected: list[int]
) -> None:
    """I7."""
    done: dict[str, list[int]] = {"k": [], "other": []}
    is_up = False

    def act(body: list[Any], d: Any) -> None:
        key, number = body
        if key == "k" and number == 0 and not is_up:
            raise ConnectionError("the bank is away")
        done[key].append(number)

    bench.define(act, on_dead="block", retry=duly.Retry(attempts=1))
    await bench.queue.send_many([duly.Send([key, number], key=key) for number in range(6) for key in done])
    async with bench.worker():
        await eventually(lambda: len(done["other"]) == 6)
        await eventually(lambda: _is_dead(bench.queue))
        assert done["k"] == []
        is_up = True
        assert await bench.queue.redrive(where=duly.Where(error="bank", key="k"), at_end=at_end) == 1
        await eventually(lambda: len(done["k"]) == 6)
    assert (done["k"], done["other"]) == (expected, [0, 1, 2, 3, 4, 5])
    await bench.comes_to(sent=12, delivered=13, acked=12, buried=1, redriven=1)


async def _is_dead(queue: duly.AsyncQueue) -> bool:
    return (await queue.stats()).dead == 1


async def test_letters_that_are_moved_are_handled_by_the_workers_of_the_other_queue(
    bench: Bench, queue_name: str
) -> None:
    handled: list[Any] = []

    def refuse(body: Any, d: Any) -> None:
        raise duly.Reject("not here")

    bench.define(refuse)
    bench.define(lambda body, d: handled.append((body, d.attempt)), queue=f"{queue_name}.other")
    await bench.queue.send_many(range(3))
    async with bench.worker():
        await bench.comes_to(sent=3, delivered=3, buried=3, dead=3)
        assert await bench.queue.redrive(to=f"{queue_name}.other") == 3
        await eventually(lambda: len(handled) == 3)
    assert sorted(handled) == [(0, 1), (1, 1), (2, 1)]
    await bench.comes_to(sent=3, delivered=3, buried=3, moved=3)
