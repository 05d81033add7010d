"""Schedules: one message for each run, fired by the consumers of the queue."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duly import AsyncDuly, AsyncQueue, QueueFull, Schedule, Send, UsageError
from duly._core import ops, schedules
from duly._core.keys import ScheduleKeys
from duly.errors import TooLarge
from tests.client._async.given import InBackground, check_accounts, given_blocked, take, take_bodies
from tests.client.place import Place

HOUR = 3600


def next_run(place: Place, every: float) -> datetime:
    """Return the next multiple of an interval by the clock of the queue."""
    return datetime.fromtimestamp(place.now() // every * every + every, UTC)


async def advance_to(place: Place, moment: datetime, more: float = 1.0) -> None:
    """Let time pass for the queue until a little after a point in time."""
    place.advance(moment.timestamp() - place.now() + more)


async def take_runs(queue: AsyncQueue) -> list[datetime]:
    """Receive and ack due messages, and return their runs."""
    deliveries = await take(queue)
    await queue.ack_many(deliveries)
    return [datetime.fromisoformat(delivery.headers["duly-slot"]) for delivery in deliveries]


async def test_a_due_run_is_sent(clock: Place, app: AsyncDuly, queue: AsyncQueue) -> None:
    assert await app.schedule(queue.name, queue, {"a": 1}, every=HOUR)
    run = next_run(clock, HOUR)
    assert await take(queue) == []

    await advance_to(clock, run)
    (delivery,) = await take(queue)

    assert delivery.body == {"a": 1}
    assert delivery.headers == {"duly-schedule": queue.name, "duly-slot": run.isoformat()}
    assert await take(queue) == []
    await delivery.ack()
    await check_accounts(queue)


async def test_nothing_is_sent_before_its_run(clock: Place, app: AsyncDuly, queue: AsyncQueue) -> None:
    """I3"""
    await advance_to(clock, next_run(clock, HOUR))  # so that the next run is an hour away
    await app.schedule(queue.name, queue, "body", every=HOUR)
    run = next_run(clock, HOUR)

    await advance_to(clock, run, -30)

    assert await take(queue) == []
    assert (await queue.stats()).sent == 0


async def test_each_run_is_sent_although_no_consumer_polled_in_between(
    clock: Place, app: AsyncDuly, queue: AsyncQueue
) -> None:
    await app.schedule(queue.name, queue, "body", every=HOUR, catch_up="all")
    first = next_run(clock, HOUR)

    await advance_to(clock, first + timedelta(hours=4))

    assert await take_runs(queue) == [first + timedelta(hours=hours) for hours in range(5)]
    await advance_to(clock, first + timedelta(hours=5))
    assert await take_runs(queue) == [first + timedelta(hours=5)]


async def test_the_last_slot_stands_for_those_that_were_missed(clock: Place, app: AsyncDuly, queue: AsyncQueue) -> None:
    await app.schedule(queue.name, queue, "body", every=HOUR)
    first = next_run(clock, HOUR)

    await advance_to(clock, first + timedelta(hours=4), HOUR / 2)

    assert await take_runs(queue) == [first + timedelta(hours=4)]
    await advance_to(clock, first + timedelta(hours=5))
    assert await take_runs(queue) == [first + timedelta(hours=5)]


async def test_missed_runs_are_skipped_if_that_is_wanted(clock: Place, app: AsyncDuly, queue: AsyncQueue) -> None:
    await app.schedule(queue.name, queue, "body", every=HOUR, catch_up="skip")
    first = next_run(clock, HOUR)

    await advance_to(clock, first + timedelta(hours=4), 90)
    assert await take_runs(queue) == []
    await advance_to(clock, first + timedelta(hours=5), 30)

    assert await take_runs(queue) == [first + timedelta(hours=5)]


async def test_more_runs_than_one_call_sends_are_caught_up(clock: Place, app: AsyncDuly, queue: AsyncQueue) -> None:
    await app.schedule(queue.name, queue, "body", every=60, catch_up="all")
    first = next_run(clock, 60)

    await advance_to(clock, first + timedelta(minutes=249))
    found: list[datetime] = []
    while runs := await take_runs(queue):
        found += runs

    assert found == [first + timedelta(minutes=minutes) for minutes in range(250)]


async def test_a_cron_expression_names_times_of_day_in_a_zone(clock: Place, app: AsyncDuly, queue: AsyncQueue) -> None:
    await app.schedule(queue.name, queue, "body", cron="0 3 * * *", tz="Asia/Shanghai")
    now = datetime.fromtimestamp(clock.now(), UTC)
    run = now.replace(hour=19, minute=0, second=0, microsecond=0)
    run += timedelta(days=1) if run <= now else timedelta()
    assert await take(queue) == []

    await advance_to(clock, run)

    assert await take_runs(queue) == [run]
    (schedule,) = [each for each in await app.schedules() if each.name == queue.name]
    assert (schedule.last_slot, schedule.next_at) == (run, run + timedelta(days=1))


async def test_a_waiting_consumer_gets_the_message_of_a_run_without_other_traffic(
    place: Place, app: AsyncDuly, queue: AsyncQueue
) -> None:
    (consumer,) = await given_blocked(place, queue)
    await app.schedule(queue.name, queue, "body", every=1)

    (delivery,) = await consumer.result()

    late = place.now() - datetime.fromisoformat(delivery.headers["duly-slot"]).timestamp()
    assert 0 <= late < 4


async def test_a_consumer_that_begins_to_wait_gets_the_message_of_a_run(app: AsyncDuly, queue: AsyncQueue) -> None:
    await app.schedule(queue.name, queue, "body", every=1)
    for _ in range(3):
        began = time.monotonic()
        (delivery,) = await queue.receive(wait=20)
        await delivery.ack()
        assert time.monotonic() - began < 4


async def test_many_consumers_get_one_message_a_run(app: AsyncDuly, other_app: AsyncDuly, queue: AsyncQueue) -> None:
    """I4: each run is sent once by any consumer, and none is left out."""
    await app.schedule(queue.name, queue, "body", every=0.1, catch_up="all")
    found: list[str] = []

    async def consume(own: AsyncQueue) -> None:
        while len(found) < 16:
            deliveries = await own.receive(limit=3, wait=0.3)
            found.extend(delivery.headers["duly-slot"] for delivery in deliveries)
            await own.ack_many(deliveries)

    owners = (app, other_app, app, other_app)
    consumers = [InBackground(lambda owner=owner: consume(owner.queue(queue.name))) for owner in owners]  # type: ignore[misc]
    for consumer in consumers:
        await consumer.result(within=30)

    moments = sorted(datetime.fromisoformat(run) for run in found)
    assert moments == [moments[0] + timedelta(seconds=0.1) * number for number in range(len(moments))]
    await check_accounts(queue)


async def test_the_same_again_changes_nothing(clock: Place, app: AsyncDuly, queue: AsyncQueue) -> None:
    """Every process may declare its schedules when it starts, also just after a run."""
    assert await app.schedule(queue.name, queue, {"a": 1}, every=HOUR, catch_up="all")
    run = next_run(clock, HOUR)
    await advance_to(clock, run)

    assert not await app.schedule(queue.name, queue.name, {"a": 1}, every=timedelta(hours=1), catch_up="all")

    assert await take_runs(queue) == [run]


async def test_a_changed_schedule_starts_over(clock: Place, app: AsyncDuly, queue: AsyncQueue) -> None:
    await app.schedule(queue.name, queue, "old", every=HOUR)
    await advance_to(clock, next_run(clock, HOUR))

    assert await app.schedule(queue.name, queue, "new", every=HOUR)

    assert await take(queue) == []
    await advance_to(clock, next_run(clock, HOUR))
    assert await take_bodies(queue) == ["new"]


async def test_a_name_that_moves_to_another_queue_is_gone_from_the_first(
    clock: Place, app: AsyncDuly, queue: AsyncQueue
) -> None:
    other = app.queue(f"{queue.name}-2")
    await app.schedule(queue.name, queue, "body", every=HOUR)

    assert await app.schedule(queue.name, other, "body", every=HOUR)

    assert [each.queue for each in await app.schedules() if each.name == queue.name] == [other.name]
    await advance_to(clock, next_run(clock, HOUR))
    assert (await take_bodies(queue), await take_bodies(other)) == ([], ["body"])


BETWEEN = ["register", "schedule", "schedules"]
"""The calls of a declaration."""


async def _while_declared(
    monkeypatch: pytest.MonkeyPatch, link: Any, call: str, meanwhile: Callable[[], Awaitable[object]]
) -> None:
    """Do something right before a link carries out the first call of a kind."""
    run = link.run

    async def interrupted(made: Any) -> Any:
        if made.script.name == call:
            monkeypatch.undo()
            await meanwhile()
        return await run(made)

    monkeypatch.setattr(link, "run", interrupted)


async def _orphans(app: AsyncDuly, *queues: AsyncQueue) -> list[tuple[str, str]]:
    """Find schedules that are stored with queues and not listed."""
    shown = [(each.name, each.queue) for each in await app.schedules()]
    stored = [(name, queue.name) for queue in queues for name in (await app._link.run(ops.schedules(queue._keys))).rows]
    return [each for each in stored if each not in shown]


@pytest.mark.parametrize("call", BETWEEN)
async def test_a_schedule_that_two_queues_get_at_once_ends_in_one_of_them(
    monkeypatch: pytest.MonkeyPatch, app: AsyncDuly, other_app: AsyncDuly, queue_name: str, call: str
) -> None:
    first, second = app.queue(f"{queue_name}-first"), app.queue(f"{queue_name}-second")
    answers: list[bool] = []

    async def other_declares() -> None:
        answers.append(await other_app.schedule(queue_name, second.name, "body", every=HOUR))

    await _while_declared(monkeypatch, app._link, call, other_declares)
    answer = await app.schedule(queue_name, first, "body", every=HOUR)

    owner = first if call == "register" else second
    assert [each.queue for each in await app.schedules() if each.name == queue_name] == [owner.name]
    assert await _orphans(app, first, second) == []
    assert (answer, answers) == (call == "register", [True])
    assert await app.unschedule(queue_name)
    assert await _orphans(app, first, second) == []


@pytest.mark.parametrize("call", BETWEEN)
async def test_a_schedule_that_is_removed_while_it_is_declared_is_gone_or_can_be_removed(
    monkeypatch: pytest.MonkeyPatch, app: AsyncDuly, other_app: AsyncDuly, queue: AsyncQueue, call: str
) -> None:
    answers: list[bool] = []

    async def other_removes() -> None:
        answers.append(await other_app.unschedule(queue.name))

    await _while_declared(monkeypatch, app._link, call, other_removes)
    answer = await app.schedule(queue.name, queue, "body", every=HOUR)

    assert await _orphans(app, queue) == []
    assert (answer, answers) == (call == "register", [call == "schedules"])
    assert await app.unschedule(queue.name) == (call == "register")


@pytest.mark.parametrize("call", ["unschedule", "unregister"])
async def test_a_schedule_that_is_declared_while_it_is_removed_leaves_nothing_unknown(
    monkeypatch: pytest.MonkeyPatch, app: AsyncDuly, other_app: AsyncDuly, queue: AsyncQueue, call: str
) -> None:
    """Between any two calls of the removal, another app declares the schedule: registry, row, check."""
    await app._link.run(ops.register(ScheduleKeys(app.namespace), queue.name, queue.name))
    plan = schedules.Plan(None, HOUR * 1_000_000, "UTC", "one", bytes(queue._outgoing(Send("body")).part))

    async def other_stores() -> None:
        await app._link.run(ops.schedule(queue._keys, queue.name, schedules.written_plan(plan)))

    await _while_declared(monkeypatch, app._link, call, other_stores)

    assert await app.unschedule(queue.name)
    assert await _orphans(app, queue) == []
    assert not await app.unschedule(queue.name)


async def test_a_paused_schedule_sends_nothing_and_catches_nothing_up(
    clock: Place, app: AsyncDuly, queue: AsyncQueue
) -> None:
    await app.schedule(queue.name, queue, "body", every=HOUR, catch_up="all")
    assert await app.pause_schedule(queue.name)
    await advance_to(clock, next_run(clock, HOUR))
    assert await take(queue) == []

    assert await app.resume_schedule(queue.name)

    assert await take(queue) == []
    run = next_run(clock, HOUR)
    await advance_to(clock, run)
    assert await take_runs(queue) == [run]


async def test_a_removed_schedule_sends_nothing(clock: Place, app: AsyncDuly, queue: AsyncQueue) -> None:
    await app.schedule(queue.name, queue, "body", every=HOUR)

    assert [await app.unschedule(queue.name), await app.unschedule(queue.name)] == [True, False]

    await advance_to(clock, next_run(clock, HOUR))
    assert await take(queue) == []


async def test_an_unknown_schedule_cannot_be_paused_resumed_or_removed(backend: str, queue_name: str) -> None:
    async with AsyncDuly(backend, namespace=queue_name) as app:
        assert not await app.pause_schedule("report")
        assert not await app.resume_schedule("report")
        assert not await app.unschedule("report")
        assert await app.schedules() == []
        assert await app.queues() == []


async def test_schedules_are_listed_by_name(clock: Place, queue_name: str) -> None:
    async with AsyncDuly(clock.url, namespace=queue_name) as app:
        await app.schedule("b", "orders", {"a": 1}, every=HOUR, catch_up="all")
        await app.schedule("c", "orders", b"raw", cron="0 3 * * *", tz="Europe/Berlin")
        await app.schedule("a", "mails", "body", every=0.5)
        await app.pause_schedule("a")

        paused, hourly, daily = await app.schedules()

        assert paused == Schedule("a", "mails", None, 0.5, "UTC", "one", True, None, None, "body")
        next_at = next_run(clock, HOUR)
        assert hourly == Schedule("b", "orders", None, 3600.0, "UTC", "all", False, next_at, None, {"a": 1})
        assert (daily.cron, daily.every, daily.tz, daily.body) == ("0 3 * * *", None, "Europe/Berlin", b"raw")
        assert await app.queues() == ["mails", "orders"]


async def test_a_deleted_queue_takes_its_schedules_with_it(clock: Place, queue_name: str) -> None:
    async with AsyncDuly(clock.url, namespace=queue_name) as app:
        queue = app.queue("orders")
        await app.schedule("report", queue, "body", every=HOUR)

        await queue.delete()

        assert await app.schedules() == []
        # The next run may be seconds away, and a new entry of the registry is kept for a while.
        await advance_to(clock, next_run(clock, HOUR), more=HOUR)
        assert await take(queue) == []
        assert await app.schedules() == []  # and now the registry forgets it as well
        page = await app._link.run(ops.schedules(ScheduleKeys(queue_name)))
        assert page.rows == {}


async def test_a_recent_entry_of_the_registry_is_not_removed(backend: str, queue_name: str) -> None:
    """A process that has written to the registry, and not to the queue yet."""
    async with AsyncDuly(backend, namespace=queue_name) as app:
        await app._link.run(ops.register(ScheduleKeys(queue_name), "report", "orders"))

        assert await app.schedules() == []

        page = await app._link.run(ops.schedules(ScheduleKeys(queue_name)))
        assert list(page.rows) == ["report"]


async def test_namespaces_do_not_see_the_schedules_of_each_other(backend: str, queue_name: str) -> None:
    async with AsyncDuly(backend, namespace="a" + queue_name) as a, AsyncDuly(backend, namespace="b" + queue_name) as b:
        await a.schedule("report", "orders", "body", every=HOUR)

        assert await b.schedules() == []
        assert not await b.unschedule("report")
        assert len(await a.schedules()) == 1


async def test_options_of_the_message_go_with_each_run(clock: Place, app: AsyncDuly, queue: AsyncQueue) -> None:
    body = Send("body", key="k", priority=7, ttl=600, headers={"x": "y"})
    await app.schedule(queue.name, queue, body, every=HOUR)
    run = next_run(clock, HOUR)
    assert await take(queue) == []

    await advance_to(clock, run)
    (delivery,) = await take(queue)

    assert (delivery.key, delivery.priority) == ("k", 7)
    assert delivery.headers == {"x": "y", "duly-schedule": queue.name, "duly-slot": run.isoformat()}
    await delivery.release()
    clock.advance(601)
    assert await take(queue) == []
    assert (await queue.stats()).expired == 1


async def test_bounds_of_a_queue_do_not_hold_schedules_back(clock: Place, app: AsyncDuly, queue_name: str) -> None:
    queue = app.queue(queue_name, max_length=1)
    await queue.send("body")
    await app.schedule(queue_name, queue, "body", every=HOUR)
    assert len(await take(queue)) == 1

    await advance_to(clock, next_run(clock, HOUR), more=60)  # the lease has ended, even if the run was near

    found = [*await take(queue), *await take(queue)]  # a receive that returns messages fires as well
    assert sorted(len(each.headers) for each in found) == [0, 2]


async def test_a_paused_queue_stores_scheduled_messages_and_delivers_them_later(
    clock: Place, app: AsyncDuly, queue: AsyncQueue
) -> None:
    await app.schedule(queue.name, queue, "body", every=HOUR)
    run = next_run(clock, HOUR)
    await queue.pause()
    assert await take(queue) == []
    await advance_to(clock, run)

    assert await take(queue) == []
    assert (await queue.stats()).ready == 1

    await queue.resume()
    assert await take_runs(queue) == [run]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"cron": "* * * * *", "every": 5},
        {"cron": "nonsense"},
        {"cron": "* * * * *", "tz": "Mars/Olympus"},
        {"every": 0},
        {"every": 5, "catch_up": "some"},
    ],
    ids=str,
)
async def test_an_invalid_schedule_is_refused_and_nothing_is_written(
    backend: str, queue_name: str, options: dict[str, Any]
) -> None:
    async with AsyncDuly(backend, namespace=queue_name) as app:
        with pytest.raises(UsageError, match=r"^schedule 'report': "):
            await app.schedule("report", "orders", "body", **options)
        assert await app.schedules() == []
        assert await app.queues() == []


async def test_a_body_that_the_queue_would_not_take_is_refused(app: AsyncDuly, queue_name: str) -> None:
    queue: AsyncQueue[Any] = app.queue(queue_name, type=int, max_message_bytes=100)
    with pytest.raises(UsageError, match=queue_name):
        await app.schedule(queue_name, queue, "body", every=HOUR)
    with pytest.raises(TooLarge):
        await app.schedule(queue_name, queue, b"." * 101, every=HOUR)
    with pytest.raises(UsageError, match="cannot keep delay=5"):
        await app.schedule(queue_name, queue, Send(5, delay=5), every=HOUR)
    assert queue_name not in [each.name for each in await app.schedules()]


async def test_a_task_is_called_at_each_run(clock: Place, app: AsyncDuly, queue_name: str) -> None:
    @app.task(queue=queue_name)
    def sweep(days: int, deep: bool = False) -> None: ...

    assert await app.schedule(queue_name, sweep.queue, sweep.body(7, deep=True), every=HOUR)
    assert not await app.schedule(queue_name, sweep.queue, sweep.body(7, deep=True), every=HOUR)  # the same
    await advance_to(clock, next_run(clock, HOUR))

    (delivery,) = await take(sweep.queue)

    assert delivery.body == {"task": "sweep", "args": [7], "kwargs": {"deep": True}}
    await delivery.ack()


async def test_the_error_for_scheduling_a_task_object_shows_how(app: AsyncDuly, queue_name: str) -> None:
    @app.task(queue=queue_name)
    def sweep() -> None: ...

    given: Any = sweep
    bodies: list[tuple[Any, ...]] = [(), ([],)]
    for body in bodies:
        with pytest.raises(UsageError, match=r"app\.schedule\(name, sweep\.queue, sweep\.body\(\.\.\.\), cron="):
            await app.schedule(queue_name, given, *body, every=HOUR)
    with pytest.raises(UsageError, match="needs the body"):
        await app.schedule(queue_name, sweep.queue, every=HOUR)


@pytest.mark.parametrize(
    "body",
    [[], b"raw", "sweep", {"task": "sweep", "args": ["seven"]}, {"task": "sweep", "more": 1}, {"args": [7]}],
    ids=str,
)
async def test_a_body_that_calls_no_task_of_a_queue_of_tasks_is_refused(
    app: AsyncDuly, queue_name: str, body: Any
) -> None:
    @app.task(queue=queue_name)
    def sweep(days: int) -> None: ...

    with pytest.raises(UsageError, match=r"would become a dead letter.*task\.body\(\.\.\.\)"):
        await app.schedule(queue_name, sweep.queue, body, every=HOUR)

    assert queue_name not in [each.name for each in await app.schedules()]


async def test_a_task_that_only_others_know_can_be_scheduled(app: AsyncDuly, queue_name: str) -> None:
    @app.task(queue=queue_name)
    def sweep() -> None: ...

    assert await app.schedule(queue_name, sweep.queue, {"task": "elsewhere"}, every=HOUR)


async def test_a_queue_of_another_app_is_refused(app: AsyncDuly, other_app: AsyncDuly, queue_name: str) -> None:
    with pytest.raises(UsageError, match="queue of this app"):
        await app.schedule(queue_name, other_app.queue(queue_name), "body", every=HOUR)


async def test_a_schedule_that_cannot_be_read_keeps_no_consumer_from_its_messages(
    clock: Place, app: AsyncDuly, queue: AsyncQueue, caplog: pytest.LogCaptureFixture
) -> None:
    """One of another version, and one with an unknown time zone: logged once, left to others."""
    unknown = schedules.written_plan(schedules.Plan("0 3 * * *", 0, "Mars/Olympus", "one", b""))
    await app._link.run(ops.schedule(queue._keys, "newer", b"\xff?"))
    await app._link.run(ops.schedule(queue._keys, "elsewhere", unknown))
    await app.schedule(queue.name, queue, "body", every=HOUR)
    run = next_run(clock, HOUR)
    with caplog.at_level(logging.ERROR, "duly"):
        for _ in range(3):
            assert await take(queue) == []
        await advance_to(clock, run)
        assert await take_runs(queue) == [run]

    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "'newer'" in said[0] or "'newer'" in said[1]
    assert [each.name for each in await app.schedules() if each.queue == queue.name] == [queue.name]


async def test_a_schedule_that_cannot_be_read_makes_no_consumer_spin(
    app: AsyncDuly, queue: AsyncQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    await app._link.run(ops.schedule(queue._keys, "newer", b"\xff?"))
    await take(queue)
    calls = []
    run_now = app._link.run_now

    async def counting(call: Any) -> Any:
        calls.append(call.script.name)
        return await run_now(call)

    monkeypatch.setattr(app._link, "run_now", counting)

    assert await queue.receive(wait=1, lease=60) == []

    assert len(calls) <= 4


async def test_a_run_that_cannot_be_sent_keeps_no_consumer_from_its_messages(
    clock: Place,
    app: AsyncDuly,
    queue: AsyncQueue,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The server is full: stored messages are delivered, and the run is sent when there is room."""
    await app.schedule(queue.name, queue, "of the schedule", every=HOUR)
    run = next_run(clock, HOUR)
    await take(queue)
    await queue.send("sent")
    await advance_to(clock, run)
    run_now = app._link.run_now

    async def full(call: Any) -> Any:
        if call.script.name == "fire":
            raise QueueFull("the server is full")
        return await run_now(call)

    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR, "duly"):
        patch.setattr(app._link, "run_now", full)
        assert await take_bodies(queue) == ["sent"]
        assert await take_bodies(queue) == []
    assert await take_runs(queue) == [run]
    assert len([record for record in caplog.records if "it is retried" in record.getMessage()]) == 1


# --- async only
async def test_a_receive_that_is_cancelled_while_it_fires_holds_nothing(
    clock: Place, app: AsyncDuly, queue: AsyncQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I1: what the claim took is given back, and the run is sent for once."""
    await app.schedule(queue.name, queue, "of the schedule", every=HOUR)
    run = next_run(clock, HOUR)
    await take(queue)
    await queue.send("sent")
    await advance_to(clock, run)
    is_firing, may_fire = asyncio.Event(), asyncio.Event()
    run_now = app._link.run_now

    async def slowly(call: Any) -> Any:
        if call.script.name == "fire":
            is_firing.set()
            await may_fire.wait()
        return await run_now(call)

    monkeypatch.setattr(app._link, "run_now", slowly)
    receiving = asyncio.create_task(queue.receive(wait=20))
    await is_firing.wait()
    receiving.cancel()
    may_fire.set()
    with pytest.raises(asyncio.CancelledError):
        await receiving

    assert sorted(await take_bodies(queue)) == ["of the schedule", "sent"]
    assert (await queue.stats()).crashed == 0


# --- end
