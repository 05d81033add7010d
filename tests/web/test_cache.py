"""Cached results: concurrent callers share a fetch, and abandoned fetches are cancelled."""

import asyncio
import gc
from typing import Any

import pytest

from duly.web.cache import Cached, CachedByKey
from duly.web.pagination import page_of


class Source:
    """A fetch that returns when the test lets it."""

    def __init__(self) -> None:
        self.begun = self.given_up = 0
        self.now = 100.0
        self.error: Exception | None = None
        self.may_end = asyncio.Event()

    async def look(self) -> int:
        self.begun += 1
        number = self.begun
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        if self.error is not None:
            raise self.error
        return number


async def test_concurrent_callers_and_those_within_a_second_share_a_fetch() -> None:
    source = Source()
    shared = Cached(source.look, clock=lambda: source.now)
    asking = [asyncio.create_task(shared.get()) for _ in range(5)]
    await asyncio.sleep(0)
    source.may_end.set()
    assert await asyncio.gather(*asking) == [1] * 5
    source.now += 0.9
    assert await shared.get() == 1
    source.now += 0.2
    assert await shared.get() == 2


async def test_a_slow_result_is_cached_longer() -> None:
    now = 100.0

    async def look() -> float:
        nonlocal now
        now += 2
        return now

    shared = Cached(look, cost_factor=20, clock=lambda: now)
    first = await shared.get()
    now += 39.9
    assert await shared.get() == first
    now += 0.2
    assert await shared.get() != first


async def test_an_error_is_raised_to_all_waiting_callers_and_not_cached() -> None:
    source = Source()
    source.error = ValueError("away")
    shared = Cached(source.look, clock=lambda: source.now)
    asking = [asyncio.create_task(shared.get()) for _ in range(3)]
    await asyncio.sleep(0)
    source.may_end.set()
    assert {str(each) for each in await asyncio.gather(*asking, return_exceptions=True)} == {"away"}
    assert source.begun == 1
    source.error = None
    assert await shared.get() == 2


async def test_a_cancelled_caller_does_not_affect_others_and_the_last_cancels_the_fetch() -> None:
    source = Source()
    shared = Cached(source.look, clock=lambda: source.now)
    first, second = (asyncio.create_task(shared.get()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait({first})
    assert not second.done()
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait({second})
    third = asyncio.create_task(shared.get())
    source.may_end.set()
    assert await third == 2
    assert source.given_up == 1


async def test_the_error_of_an_abandoned_fetch_is_not_logged() -> None:
    complaints, ended = list[Any](), asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    async def look() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
            raise ValueError("the connection broke")

    asking = asyncio.create_task(Cached(look).get())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait({asking})
    await ended.wait()
    await asyncio.sleep(0)
    del asking
    gc.collect()  # asyncio logs the error of a collected task
    assert complaints == []


async def test_results_are_cached_by_key_and_expired_ones_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duly.web.cache._MAX_ENTRIES", 3)
    looks = list[str]()

    async def look(name: str) -> str:
        looks.append(name)
        return name.upper()

    shared = CachedByKey(look, ttl=-1.0)
    assert [await shared.get(name) for name in "abcda"] == list("ABCDA")
    assert looks == list("abcda")
    assert len(shared._entries) <= 3


@pytest.mark.parametrize(
    ("after", "begin", "names", "next_", "has_previous"),
    [
        (None, None, "ab", "b", False),
        ("b", None, "de", "e", True),
        ("c", None, "de", "e", True),
        ("e", None, "f", None, True),
        ("f", None, "", None, True),
        ("", None, "ab", "b", False),
        (None, "d", "de", "e", True),
        (None, "c", "de", "e", True),
        (None, "a", "ab", "b", False),
    ],
)
def test_a_page_starts_after_a_name_or_at_it(
    after: str | None, begin: str | None, names: str, next_: str | None, has_previous: bool
) -> None:
    page = page_of(list("abdef"), str, 2, after, begin)
    assert ("".join(page.items), page.next, page.has_previous) == (names, next_, has_previous)
