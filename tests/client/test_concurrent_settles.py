"""Settles that cross each other or a cancellation. In asyncio only: a thread is not cancelled."""

import asyncio

import pytest

from duly import AsyncDuly, Retry


async def test_the_same_settle_from_two_tasks_is_a_success_for_both(backend: str, queue_name: str) -> None:
    async with AsyncDuly(backend) as app:
        queue = app.queue(queue_name)
        await queue.send("body")
        (delivery,) = await queue.receive()

        await asyncio.gather(delivery.ack(), delivery.ack())

        assert not delivery.lost
        assert (await queue.stats()).acked == 1


async def test_a_settle_after_a_cancelled_one_is_a_success(backend: str, queue_name: str) -> None:
    async with AsyncDuly(backend) as app:
        queue = app.queue(queue_name)
        await queue.send("body")
        (delivery,) = await queue.receive()
        settling = asyncio.create_task(delivery.ack())
        await asyncio.sleep(0)
        settling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await settling

        await delivery.ack()

        assert (await queue.stats()).acked == 1


async def test_a_retry_policy_that_fails_does_not_leave_the_message_leased(backend: str, queue_name: str) -> None:
    async with AsyncDuly(backend) as app:
        queue = app.queue(queue_name, retry=Retry(delay=lambda _: 1 / 0))
        await queue.send("body")
        (delivery,) = await queue.receive()

        with pytest.raises(ConnectionError):
            async with delivery:
                raise ConnectionError

        assert (await queue.stats()).delayed == 1


async def test_a_delivery_given_twice_is_acked_once_and_not_lost(backend: str, queue_name: str) -> None:
    async with AsyncDuly(backend) as app:
        queue = app.queue(queue_name)
        await queue.send("body")
        (delivery,) = await queue.receive()

        assert await queue.ack_many([delivery, delivery]) == []


async def test_closing_an_app_passes_the_watch_of_its_receives_on(backend: str, queue_name: str) -> None:
    store = f"memory://{queue_name}" if backend == "memory://" else backend
    async with AsyncDuly(store) as staying:
        leaving = AsyncDuly(store)
        queue = staying.queue(queue_name)
        first = asyncio.create_task(leaving.queue(queue_name).receive(wait=20))
        await asyncio.sleep(0.2)
        second = asyncio.create_task(queue.receive(wait=20))
        await asyncio.sleep(0.2)
        await queue.send("soon", delay=2)
        await asyncio.sleep(0.1)

        first.cancel()
        await leaving.aclose()

        async with asyncio.timeout(4):  # the safety net of the one that stays would take 5
            assert [delivery.body for delivery in await second] == ["soon"]
