"""A monitor as the user of a role: a consumer may recover named queues and groups, and an admin all of them."""

import asyncio

import pytest

import duly
from duly.worker.monitor import Monitor
from tests.acl.conftest import NewUser
from tests.waiting import wait_until


async def test_a_consumer_recovers_the_queues_and_groups_that_are_named(new_user: NewUser, queue_name: str) -> None:
    async with duly.AsyncDuly(new_user("consumer")) as app:
        queue, group = app.queue(queue_name), app.topic(queue_name).group("archive")
        await group.seek("beginning")
        await queue.send("a")
        await app.topic(queue_name).publish("b")
        for each in (queue, group):
            assert len(await each.receive(1, wait=5, lease=0.05)) == 1
        monitor = Monitor(app, [queue_name, f"{queue_name}/archive"], period=0.02)
        running = asyncio.create_task(monitor.run())
        await asyncio.to_thread(wait_until, lambda: len(monitor.vitals().queues) == 2)
        monitor.stop()
        await running


async def test_a_user_without_the_permission_ends_the_monitor(new_user: NewUser, queue_name: str) -> None:
    async with duly.AsyncDuly(new_user("observer")) as app:
        with pytest.raises(duly.ServerError):
            await Monitor(app, [queue_name]).run()
