"""Brokers and results of Dramatiq and taskiq with Sentinel, on a cluster, and on the embedded server."""

import asyncio
from pathlib import Path
from typing import Any

import dramatiq
import pytest
from dramatiq.results import Results
from taskiq import BrokerMessage, ScheduledTask, TaskiqResult

import duly
from duly.dramatiq import DulyBackend, DulyBroker
from duly.taskiq import DulyBroker as TaskiqBroker
from duly.taskiq import DulyResultBackend, DulyScheduleSource
from tests.scale.cluster import ClusterRig
from tests.scale.sentinels import SentinelRig

pytestmark = pytest.mark.slow


def check(url: str) -> None:
    """Run actors of several queues, and consume a message of taskiq."""
    with duly.Duly(url, patience=60) as app:
        check_dramatiq(app)
    asyncio.run(check_taskiq(url))


def upper(text: str) -> str:
    return text.upper()


def check_dramatiq(app: duly.Duly) -> None:
    broker = DulyBroker(app)
    broker.add_middleware(Results(backend=DulyBackend(app)))
    actors = [
        dramatiq.actor(actor_name=name, queue_name=name, broker=broker, store_results=True)(upper)
        for name in ("alpha", "beta", "gamma")
    ]
    worker = dramatiq.Worker(broker, worker_timeout=100, worker_threads=2)
    worker.start()
    try:
        sent = [actor.send_with_options(args=(actor.queue_name,), delay=50) for actor in actors]
        found = [message.get_result(backend=DulyBackend(app), block=True, timeout=60_000) for message in sent]
    finally:
        worker.stop()
    assert found == ["ALPHA", "BETA", "GAMMA"]


async def check_taskiq(url: str) -> None:
    async with duly.AsyncDuly(url, patience=60) as app:
        broker, source = TaskiqBroker(app), DulyScheduleSource(app)
        backend: DulyResultBackend[Any] = DulyResultBackend(app)
        await broker.kick(BrokerMessage(task_id="t", task_name="work", message=b"body", labels={"delay": 0.05}))
        listening = broker.listen()
        message = await asyncio.wait_for(anext(listening), 60)
        await listening.aclose()
        await message.ack()  # type: ignore[misc]
        await backend.set_result("t", TaskiqResult(is_err=False, return_value=message.data.decode(), execution_time=0))
        schedule = ScheduledTask(task_name="work", labels={}, args=[], kwargs={}, cron="* * * * *")
        await source.add_schedule(schedule)

        assert (await backend.get_result("t")).return_value == "body"
        assert await source.get_schedules() == [schedule]
        await source.delete_schedule(schedule.schedule_id)


def test_the_embedded_server_works(tmp_path: Path) -> None:
    check(f"embedded://{tmp_path / 'data'}")


@pytest.mark.long
def test_a_cluster_works() -> None:
    with ClusterRig(replicas=0) as rig:
        check(rig.url)


@pytest.mark.long
@pytest.mark.fault
def test_workers_follow_a_fail_over_of_sentinels() -> None:
    with SentinelRig() as rig:
        check(rig.url)
        rig.primary.kill9()
        check(rig.url)
