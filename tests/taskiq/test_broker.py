"""Broker, schedules and results in the process of the test, in the pattern of the tests of taskiq-redis."""

import asyncio
import datetime as dt
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from taskiq import (
    AckableMessage,
    BrokerMessage,
    Context,
    ScheduledTask,
    SimpleRetryMiddleware,
    TaskiqDepends,
    TaskiqResult,
    TaskiqScheduler,
)
from taskiq.depends.progress_tracker import TaskProgress, TaskState
from taskiq.exceptions import ResultGetError
from taskiq.receiver import Receiver

import duly
from duly.taskiq import DulyBroker, DulyResultBackend, DulyScheduleSource
from tests.waiting import wait_until


@pytest.fixture
async def app(url: str) -> AsyncIterator[duly.AsyncDuly]:
    async with duly.AsyncDuly(url, namespace=f"taskiq-{uuid.uuid4().hex[:12]}") as app:
        yield app


def message_of(body: bytes, **labels: Any) -> BrokerMessage:
    return BrokerMessage(task_id=uuid.uuid4().hex, task_name="work", message=body, labels=labels)


def schedule_of(**when: Any) -> ScheduledTask:
    return ScheduledTask(task_name="work", labels={}, args=[1], kwargs={"b": 2}, **when)


async def taken(broker: DulyBroker) -> AckableMessage:
    async for message in broker.listen():
        return message
    raise AssertionError("no message")


async def test_one_of_two_workers_gets_a_message_and_acks_it(app: duly.AsyncDuly) -> None:
    broker = DulyBroker(app)
    workers = [asyncio.create_task(taken(broker)) for _ in range(2)]
    await broker.kick(message_of(b"my_msg"))

    done, waiting = await asyncio.wait(workers, timeout=30, return_when=asyncio.FIRST_COMPLETED)

    (message,) = [task.result() for task in done]
    assert message.data == b"my_msg"
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    await message.ack()  # type: ignore[misc]
    stats = await broker.queue.stats()
    assert (stats.acked, stats.leased, stats.ready) == (1, 0, 0)


async def test_a_message_that_was_not_acked_is_redelivered(app: duly.AsyncDuly) -> None:
    broker = DulyBroker(app, lease=1)
    await broker.kick(message_of(b"again"))
    async with duly.AsyncDuly(app, namespace=app.namespace) as other:
        first = await taken(DulyBroker(other, lease=1))
        assert first.data == b"again"
    del first

    assert (await asyncio.wait_for(taken(broker), 30)).data == b"again"


async def test_delay_and_priority_are_kept_by_the_server(app: duly.AsyncDuly) -> None:
    broker = DulyBroker(app)
    sent = time.monotonic()
    await broker.kick(message_of(b"later", delay="0.7"))
    await broker.kick(message_of(b"low"))
    await broker.kick(message_of(b"high", priority=9))

    found = [(await asyncio.wait_for(taken(broker), 30)).data for _ in range(3)]

    assert found == [b"high", b"low", b"later"]
    assert time.monotonic() - sent >= 0.7


async def test_a_label_names_another_queue(app: duly.AsyncDuly) -> None:
    broker, other = DulyBroker(app), DulyBroker(app, queue_name="slow/one")
    await broker.kick(message_of(b"there", queue_name="slow/one"))

    assert (await asyncio.wait_for(taken(other), 30)).data == b"there"


async def test_fetched_messages_return_when_the_worker_stops(app: duly.AsyncDuly) -> None:
    broker = DulyBroker(app, fetch=5)
    for body in (b"a", b"b", b"c"):
        await broker.kick(message_of(body))
    listening = broker.listen()
    await anext(listening)

    await listening.aclose()

    stats = await broker.queue.stats()
    assert (stats.ready, stats.leased) == (2, 1)


async def test_a_waiting_task_is_cancelled(app: duly.AsyncDuly) -> None:
    broker = DulyBroker(app)
    message = message_of(b"later", delay=3600)
    await broker.kick(message)

    assert await broker.cancel(message.task_id) is True
    assert await broker.cancel(message.task_id) is False


async def test_a_broker_or_results_in_memory_are_refused() -> None:
    with pytest.raises(duly.UsageError, match="embedded://"):
        DulyBroker("memory://")
    async with duly.AsyncDuly("memory://") as app:
        with pytest.raises(duly.UsageError, match="embedded://"):
            await DulyResultBackend[Any](app).is_result_ready("t")


async def test_schedules_are_added_and_deleted(app: duly.AsyncDuly) -> None:
    source = DulyScheduleSource(app)
    kept, gone = schedule_of(cron="* * * * *"), schedule_of(interval=5)
    await source.add_schedule(kept)
    await source.add_schedule(gone)
    await source.delete_schedule(gone.schedule_id)

    assert await source.get_schedules() == [kept]


@pytest.mark.parametrize(
    "when",
    [
        {"cron": "*/5 * * * *", "cron_offset": "Asia/Shanghai"},
        {"cron": "0 3 * * *", "cron_offset": dt.timedelta(hours=8)},
        {"interval": 5},
        {"interval": dt.timedelta(minutes=1)},
        {"time": dt.datetime(2001, 1, 1, 12, 30, 15, tzinfo=dt.UTC)},
    ],
    ids=repr,
)
async def test_a_schedule_returns_as_it_was_added(app: duly.AsyncDuly, when: dict[str, Any]) -> None:
    schedule = schedule_of(**when)
    await DulyScheduleSource(app).add_schedule(schedule)

    assert await DulyScheduleSource(app).get_schedules() == [schedule]


async def test_a_schedule_with_a_cron_expression_stays_after_it_was_sent(app: duly.AsyncDuly) -> None:
    source, schedule = DulyScheduleSource(app), schedule_of(cron="* * * * *")
    await source.add_schedule(schedule)

    await source.pre_send(schedule)
    await source.post_send(schedule)

    assert await source.get_schedules() == [schedule]


async def test_schedules_are_read_by_many_at_once(app: duly.AsyncDuly) -> None:
    source, added = DulyScheduleSource(app), [schedule_of(cron="* * * * *") for _ in range(20)]
    await asyncio.gather(*(source.add_schedule(schedule) for schedule in added))

    for found in await asyncio.gather(*(source.get_schedules() for _ in range(10))):
        assert sorted(each.schedule_id for each in found) == sorted(each.schedule_id for each in added)


async def test_messages_that_are_sent_at_once_are_delivered_once_each(app: duly.AsyncDuly) -> None:
    broker = DulyBroker(app, fetch=10)
    wanted = [str(number).encode() for number in range(50)]
    await asyncio.gather(*(broker.kick(message_of(body)) for body in wanted))
    found: list[bytes] = []

    async def work() -> None:
        async for message in broker.listen():
            found.append(message.data)
            await message.ack()  # type: ignore[misc]

    workers = [asyncio.create_task(work()) for _ in range(3)]
    await asyncio.to_thread(wait_until, lambda: len(found) >= len(wanted), "all are delivered", lambda: found)
    for worker in workers:
        worker.cancel()
    await asyncio.wait(workers)

    assert sorted(found) == sorted(wanted)


async def test_a_cron_slot_and_a_time_are_sent_once_by_several_schedulers(app: duly.AsyncDuly) -> None:
    broker, source = DulyBroker(app), DulyScheduleSource(app)
    once = schedule_of(time=dt.datetime(2000, 1, 1, tzinfo=dt.UTC))
    await source.add_schedule(once)
    for _ in range(2):
        await TaskiqScheduler(broker, [DulyScheduleSource(app)]).on_ready(source, once.model_copy(deep=True))

    assert (await broker.queue.stats()).sent == 1
    assert await source.get_schedules() == []


async def test_a_retry_and_a_requeue_of_a_scheduled_task_are_sent(app: duly.AsyncDuly) -> None:
    broker, source = DulyBroker(app), DulyScheduleSource(app)
    broker.add_middlewares(SimpleRetryMiddleware(default_retry_count=3))
    runs = 0

    @broker.task(task_name="work", retry_on_error=True)
    async def work(number: int, b: int, context: Context = TaskiqDepends()) -> None:  # noqa: B008
        nonlocal runs
        runs += 1
        if runs == 1:
            raise ValueError("once")
        await context.requeue()

    scheduled = schedule_of(cron="* * * * *")
    scheduled.labels.update(work.labels)
    await TaskiqScheduler(broker, [source]).on_ready(source, scheduled)
    receiver = Receiver(broker, max_async_tasks=1)
    for _ in range(3):
        await asyncio.wait_for(receiver.callback(await asyncio.wait_for(taken(broker), 10)), 30)

    assert runs == 3


async def test_results_and_progress_are_stored(app: duly.AsyncDuly) -> None:
    backend: DulyResultBackend[Any] = DulyResultBackend(app)
    result = TaskiqResult(is_err=True, log="log", return_value=None, execution_time=0.1, error=ValueError("no"))
    assert await backend.is_result_ready("t") is False
    with pytest.raises(ResultGetError):
        await backend.get_result("t")

    await backend.set_result("t", result)
    await backend.set_progress("t", TaskProgress(state=TaskState.STARTED, meta={"done": 1}))

    assert await backend.is_result_ready("t") is True
    found = await backend.get_result("t")
    assert (repr(found.error), found.log) == (repr(ValueError("no")), None)
    assert (await backend.get_result("t", with_logs=True)).log == "log"
    progress = await backend.get_progress("t")
    assert progress is not None
    assert progress.meta == {"done": 1}


async def test_a_result_can_be_read_again_and_by_many_at_once(app: duly.AsyncDuly) -> None:
    backend: DulyResultBackend[int] = DulyResultBackend(app)
    await backend.set_result("t", TaskiqResult(is_err=False, return_value=11, execution_time=112.2))

    found = await asyncio.gather(*(backend.get_result("t") for _ in range(10)))

    assert {(each.return_value, each.execution_time, each.is_err) for each in found} == {(11, 112.2, False)}


async def test_a_result_expires(app: duly.AsyncDuly) -> None:
    backend: DulyResultBackend[int] = DulyResultBackend(app, keep=0.2)
    await backend.set_result("t", TaskiqResult(is_err=False, return_value=1, execution_time=0))
    await asyncio.sleep(0.5)

    with pytest.raises(ResultGetError):
        await backend.get_result("t")


async def test_a_result_that_is_not_json_is_refused(app: duly.AsyncDuly) -> None:
    backend: DulyResultBackend[Any] = DulyResultBackend(app)

    with pytest.raises(ValueError, match="object"):
        await backend.set_result("t", TaskiqResult(is_err=False, return_value=object(), execution_time=0))

    assert await backend.is_result_ready("t") is False
