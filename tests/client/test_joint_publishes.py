"""Concurrent publishes of one event loop become one call, as concurrent sends do."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import duly
from duly._core.call import Call


class Counted:
    """An app on a server, and the scripts that it has run."""

    def __init__(self, app: duly.AsyncDuly, monkeypatch: pytest.MonkeyPatch) -> None:
        self.app = app
        self.scripts: list[str] = []
        begin, run_now = app._link.begin, app._link.run_now

        def counted_if_begun(call: Call[Any]) -> Any:
            if (begun := begin(call)) is not None:
                self.scripts.append(call.script.name)
            return begun

        async def counted(call: Call[Any]) -> Any:
            self.scripts.append(call.script.name)
            return await run_now(call)

        monkeypatch.setattr(app._link, "begin", counted_if_begun)
        monkeypatch.setattr(app._link, "run_now", counted)


@pytest.fixture
async def counted(backend: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Counted]:
    async with duly.AsyncDuly(backend) as app:
        yield Counted(app, monkeypatch)


async def test_concurrent_publishes_become_two_calls_and_keep_their_order(counted: Counted, queue_name: str) -> None:
    events = counted.app.topic(queue_name)
    ids = await asyncio.gather(*(events.publish(number, key=f"k{number % 3}") for number in range(100)))
    assert len(set(ids)) == 100
    assert counted.scripts in (["publish"], ["publish", "publish"])
    entries = await events.read(limit=1000)
    assert [(entry.id, entry.body) for entry in entries] == list(zip(ids, range(100), strict=True))
    await events.delete()


async def test_concurrent_delayed_publishes_are_joined_as_well(counted: Counted, queue_name: str) -> None:
    events = counted.app.topic(queue_name)
    ids = await asyncio.gather(*(events.publish(number, delay=600) for number in range(50)))
    assert len(set(ids)) == 50
    assert len(counted.scripts) <= 2
    assert (await events.stats()).delayed == 50
    assert all(await asyncio.gather(*(events.cancel(id_) for id_ in ids)))
    await events.delete()


async def test_publishes_of_one_dedup_value_return_one_id(counted: Counted, queue_name: str) -> None:
    events = counted.app.topic(queue_name)
    ids = await asyncio.gather(*(events.publish(number, dedup="same") for number in range(20)))
    assert len(set(ids)) == 1
    assert [entry.body for entry in await events.read()] == [0]
    await events.delete()


async def test_a_publish_that_is_not_valid_leaves_the_others_alone(counted: Counted, queue_name: str) -> None:
    events = counted.app.topic(queue_name, max_message_bytes=1000)
    bodies = ["a", "x" * 2000, "b"]
    outcomes = await asyncio.gather(*(events.publish(body) for body in bodies), return_exceptions=True)
    assert isinstance(outcomes[1], duly.TooLarge)
    assert [entry.body for entry in await events.read()] == ["a", "b"]
    await events.delete()


async def test_a_cancelled_publish_leaves_the_others_alone(counted: Counted, queue_name: str) -> None:
    events = counted.app.topic(queue_name)
    tasks = [asyncio.create_task(events.publish(number)) for number in range(10)]
    await asyncio.sleep(0)
    tasks[3].cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(outcomes[3], asyncio.CancelledError)
    stored = {entry.id for entry in await events.read()}
    assert {outcome for outcome in outcomes if isinstance(outcome, str)} <= stored
    await events.delete()


async def test_a_failure_is_raised_in_each_waiting_publish(
    counted: Counted, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = counted.app.topic(queue_name)

    async def fail(*_: object) -> Any:
        await asyncio.sleep(0)
        raise duly.Unavailable("the server does not answer")

    monkeypatch.setattr(counted.app._link, "begin", lambda _: None)
    monkeypatch.setattr(counted.app._link, "run_now", fail)
    outcomes = await asyncio.gather(*(events.publish(number) for number in range(5)), return_exceptions=True)
    assert all(isinstance(outcome, duly.Unavailable) for outcome in outcomes)
