"""Concurrent calls: after an error no further call starts or stays behind."""

import asyncio

import pytest

from duly.web.bounded_gather import bounded_gather


async def test_results_are_in_order() -> None:
    async def late(number: int) -> int:
        for _ in range(30 - number):
            await asyncio.sleep(0)
        return number * 2

    assert await bounded_gather(range(30), late) == list(range(0, 60, 2))
    assert await bounded_gather([], late) == []


async def test_after_an_error_no_call_starts_and_running_calls_end_first() -> None:
    begun, ended, may_end = list[int](), list[int](), asyncio.Event()

    async def request(number: int) -> None:
        begun.append(number)
        if number == 3:
            raise ValueError(number)
        await may_end.wait()
        ended.append(number)

    asking = asyncio.create_task(bounded_gather(range(100), request))
    for _ in range(20):  # enough turns of the loop for an early error to be raised
        await asyncio.sleep(0)
    assert not asking.done()
    may_end.set()
    with pytest.raises(ValueError, match="3"):
        await asking
    assert len(begun) == 10
    assert ended == [number for number in begun if number != 3]
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(begun) == 10
