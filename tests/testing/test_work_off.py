"""`work_off` runs handlers in a test as a worker would, one after another, and returns the outcome of each message."""

import asyncio
import inspect
import sqlite3
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import duly
from duly.testing import Clock, Handled, awork_off, clock, empty, user_keys, work_off

WorkOff = Callable[..., Awaitable[list[Handled]]]
MINUTE = 60
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def reset_clock(duly_clock: Clock) -> Clock:
    return duly_clock


@pytest.fixture
def app(backend: str) -> Iterator[duly.Duly]:
    with duly.Duly(backend) as app:
        yield app


@pytest.fixture(params=["work_off", "awork_off"])
def works_off(request: pytest.FixtureRequest) -> Callable[..., list[Handled]]:
    """Return the function of either colour, for tests without an event loop."""
    if request.param == "work_off":
        return work_off
    return lambda *args, **options: asyncio.run(awork_off(*args, **options))


def outcomes(handled: list[Handled]) -> list[tuple[Any, str]]:
    return [(each.body, each.outcome) for each in handled]


def seconds(handled: list[Handled], since: datetime) -> list[int]:
    return [round((each.at - since).total_seconds()) for each in handled]


def test_due_messages_are_handled_in_order_and_others_stay(
    app: duly.Duly, queue_name: str, works_off: Callable[..., list[Handled]]
) -> None:
    orders = app.queue(queue_name)
    seen: list[int] = []

    @orders.handler
    def on_order(body: int) -> None:
        seen.append(body)

    orders.send_many([*range(20), duly.Send(99, delay=600)])

    handled = works_off(app)

    assert seen == list(range(20))
    assert outcomes(handled) == [(n, "ack") for n in range(20)]
    assert {(each.queue, each.attempt, each.error) for each in handled} == {(queue_name, 1, None)}
    assert (orders.stats().delayed, orders.stats().acked) == (1, 20)
    assert works_off(app) == []


def test_messages_that_handlers_send_are_handled_as_well(
    app: duly.Duly, queue_name: str, works_off: Callable[..., list[Handled]]
) -> None:
    orders, mails = app.queue(queue_name), app.queue(queue_name + "-mails")
    orders.handler(lambda body: mails.send(f"mail of {body}"))
    sent: list[str] = []

    @mails.handler
    async def on_mail(text: str) -> None:
        await asyncio.sleep(0)
        sent.append(text)

    orders.send_many([1, 2])

    assert len(works_off(app)) == 4
    assert sent == ["mail of 1", "mail of 2"]


@pytest.mark.parametrize(
    ("settle", "outcome"),
    [
        pytest.param(lambda d: d.ack(), "ack", id="ack"),
        pytest.param(lambda d: d.retry(delay=60), "retry", id="retry"),
        pytest.param(lambda d: d.defer(60), "defer", id="defer"),
        pytest.param(lambda d: d.recycle(60), "recycle", id="recycle"),
        pytest.param(lambda d: d.reject("no"), "dead", id="reject"),
        pytest.param(lambda d: d.commit(), "commit", id="commit"),
    ],
)
def test_a_settle_inside_a_handler_is_the_outcome(
    app: duly.Duly, queue_name: str, settle: Callable[[duly.Delivery], Any], outcome: str
) -> None:
    def on_order(body: str, d: duly.Delivery) -> None:
        settle(d)

    orders = app.queue(queue_name, retry=duly.Retry(attempts=3, first=60))
    orders.handler(on_order)
    orders.send("body")

    [handled] = work_off(app)

    assert handled.outcome == outcome
    assert f'"{outcome}"' in inspect.getsource(Handled)
    for page in ("docs/testing.md", "docs/zh/testing.md"):
        row = next(line for line in (ROOT / page).read_text().splitlines() if line.startswith("| `outcome` |"))
        assert f'`"{outcome}"`' in row


@pytest.mark.parametrize(
    ("does", "outcome"),
    [
        pytest.param(lambda: None, "ack", id="returns"),
        pytest.param(lambda: False, "retry", id="returns False"),
        pytest.param(lambda: 1 / 0, "retry", id="raises"),
        pytest.param(lambda: duly.Recycle(60), "recycle", id="Recycle"),
        pytest.param(lambda: duly.Defer(60), "defer", id="Defer"),
        pytest.param(lambda: duly.RetryIn(60), "retry", id="RetryIn"),
        pytest.param(lambda: duly.Reject("no"), "dead", id="Reject"),
        pytest.param(lambda: sys.exit(3), "retry", id="exits"),
    ],
)
@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
def test_an_outcome_is_that_of_a_worker(
    app: duly.Duly, queue_name: str, does: Callable[[], Any], outcome: str, is_async: bool
) -> None:
    orders = app.queue(queue_name, retry=duly.Retry(attempts=3, first=60))

    def on_order(body: str) -> Any:
        return does()

    async def on_order_async(body: str) -> Any:
        return does()

    orders.handler(on_order_async if is_async else on_order)
    id_ = orders.send("body")

    [handled] = work_off(app)

    message = orders.get(id_)
    assert (handled.id, handled.outcome) == (id_, outcome)
    assert (message is None) == (outcome == "ack")
    assert message is None or message.state == ("dead" if outcome == "dead" else "delayed")
    assert orders.audit()


def test_the_error_of_a_handler_is_given_and_kept(app: duly.Duly, queue_name: str) -> None:
    orders = app.queue(queue_name, retry=duly.Retry(attempts=1))

    @orders.handler
    def on_order(body: str) -> None:
        raise ValueError(f"no {body}")

    id_ = orders.send("tea")

    [handled] = work_off(app)

    assert (handled.outcome, repr(handled.error)) == ("dead", "ValueError('no tea')")
    message = orders.get(id_)
    assert message is not None
    assert message.errors[-1].error == "ValueError: no tea"
    assert "in on_order" in (message.errors[-1].traceback or "")


def fails(body: str, d: duly.Delivery) -> Any:
    match body:
        case "returns False":
            return False
        case "raises Reject":
            raise duly.Reject("hopeless")
        case "returns Reject":
            return duly.Reject("hopeless")
        case "raises RetryIn":
            raise duly.RetryIn(60)
        case "returns RetryIn":
            return duly.RetryIn(60)
        case "is deferred once more":
            return duly.Defer(0, limit=1)
        case "raises the Defer":
            raise duly.Defer(0, limit=1)
    return None


def fails_by_hand(body: str, d: duly.Delivery) -> None:
    match body:
        case "rejects":
            d.reject("hopeless")
        case "retries":
            d.retry(60)
        case "retries for an error":
            d.retry(60, error="no stock")
        case "rejects and raises":
            d.reject("hopeless")
            raise ValueError("no stock")
        case "rejects and raises Defer":
            d.reject("hopeless")
            raise duly.Defer(60)
        case "retries for an error, then for none":
            d.retry(0, error="no stock" if d.attempt == 1 else None)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("returns False", "HandlerFailed('the handler returned False')"),
        ("raises Reject", "Reject('hopeless')"),
        ("returns Reject", "Reject('hopeless')"),
        ("raises RetryIn", "RetryIn('retry in 60 s')"),
        ("returns RetryIn", "RetryIn('retry in 60 s')"),
        ("is deferred once more", "HandlerFailed('it was deferred too often')"),
        ("raises the Defer", "HandlerFailed('it was deferred too often')"),
        (17, "CodecError('the body does not decode to str: Expected `str`, got `int`')"),
    ],
)
def test_a_failed_message_has_an_error_for_every_kind_of_failure(
    backend: str, queue_name: str, body: object, error: str
) -> None:
    with duly.Duly(backend) as app:
        orders = app.queue(queue_name)
        orders.handler(fails)
        orders.send(body)

        *before, handled = work_off(app)

        assert handled.outcome in ("retry", "dead")
        assert repr(handled.error) == error
        assert [(each.outcome, each.error) for each in before] == [("defer", None)] * len(before)


BY_HAND = "the handler settled the message itself, by d."


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("rejects", f"HandlerFailed('{BY_HAND}reject(): hopeless')"),
        ("rejects and raises", "ValueError('no stock')"),
        ("rejects and raises Defer", f"HandlerFailed('{BY_HAND}reject(): hopeless')"),
        ("retries", f"HandlerFailed('{BY_HAND}retry()')"),
        ("retries for an error", f"HandlerFailed('{BY_HAND}retry(): no stock')"),
        ("retries for an error, then for none", f"HandlerFailed('{BY_HAND}retry()')"),
    ],
)
def test_a_message_that_a_handler_lets_fail_has_its_reason(
    app: duly.Duly, queue_name: str, body: str, error: str
) -> None:
    orders = app.queue(queue_name, retry=duly.Retry(attempts=2))
    orders.handler(fails_by_hand)
    orders.send(body)

    *_, handled = work_off(app)

    assert handled.outcome in ("retry", "dead")
    assert repr(handled.error) == error


def test_an_unknown_task_has_an_error(app: duly.Duly, queue_name: str) -> None:
    app.task(queue=queue_name, name="known")(lambda: None)
    app.queue(queue_name).send({"task": "unknown"})

    [handled] = work_off(app)

    assert isinstance(handled.error, duly.CodecError)
    assert "no task 'unknown' here, only 'known'" in str(handled.error)


def test_each_message_of_a_batch_has_its_own_error(app: duly.Duly, queue_name: str) -> None:
    orders = app.queue(queue_name)

    @orders.handler(batch=duly.Batch(max=3))
    def on_orders(bodies: list[int]) -> None:
        raise ValueError("no stock")

    orders.send_many([1, "two", 3])

    errors = [type(each.error) for each in work_off(app)]

    assert errors == [ValueError, duly.CodecError, ValueError]


@pytest.mark.parametrize("settled", [[0], [0, 1], [0, 1, 2]], ids=["one", "two", "all"])
def test_an_error_of_a_batch_handler_belongs_to_the_messages_that_it_had_not_settled(
    app: duly.Duly, queue_name: str, settled: list[int]
) -> None:
    orders = app.queue(queue_name)

    @orders.handler(batch=duly.Batch(max=4))
    def on_orders(bodies: list[int], ds: list[duly.Delivery]) -> None:
        for position in settled:
            ds[position].ack()
        raise ValueError("no stock")

    orders.send_many([1, 2, 3, "four"])  # the handler does not see the last one

    *seen, unseen = [(each.outcome, type(each.error)) for each in work_off(app)]

    of_acked = type(None) if len(settled) < 3 else ValueError  # an error is never lost
    assert seen == [("ack", of_acked) if n in settled else ("retry", ValueError) for n in range(3)]
    assert unseen == ("dead", duly.CodecError)


def test_an_error_after_an_ack_is_reported_unless_it_is_an_outcome(app: duly.Duly, queue_name: str) -> None:
    orders = app.queue(queue_name)

    @orders.handler
    def on_order(body: str, d: duly.Delivery) -> None:
        d.ack()
        raise ValueError("no stock") if body == "fails" else duly.Defer(60)

    orders.send_many(["fails", "defers"])

    assert [(each.outcome, repr(each.error)) for each in work_off(app)] == [
        ("ack", "ValueError('no stock')"),
        ("ack", "None"),
    ]


def test_a_body_that_does_not_decode_is_dead(app: duly.Duly, queue_name: str) -> None:
    orders = app.queue(queue_name)

    @orders.handler
    def on_order(order: dict[str, int]) -> None:
        raise AssertionError("it is never called")

    orders.send("text")
    orders.send(b"\xff")

    assert outcomes(work_off(app)) == [("text", "dead"), (b"\xff", "dead")]
    assert {message.reason for message in orders.list("dead")} == {"decode"}


def test_a_message_that_the_handler_settles_is_reported_as_settled(app: duly.Duly, queue_name: str) -> None:
    orders = app.queue(queue_name)

    @orders.handler
    def on_order(body: str, d: duly.Delivery) -> None:
        d.reject("by hand") if body == "bad" else d.defer(60)

    orders.send_many(["bad", "later"])

    assert outcomes(work_off(app)) == [("bad", "dead"), ("later", "defer")]


def test_on_dead_hooks_have_run_before_it_returns(app: duly.Duly, queue_name: str) -> None:
    orders = app.queue(queue_name)
    orders.handler(lambda body: duly.Reject("no"))
    told: list[str] = []
    orders.on_dead(lambda message: told.append(message.id))
    ids = orders.send_many(["a", "b"])

    work_off(app)

    assert told == ids


def test_hooks_of_the_app_run_around_it(app: duly.Duly, queue_name: str) -> None:
    steps: list[str] = []
    app.queue(queue_name).handler(lambda body: steps.append("handler"))
    app.on_start(lambda: steps.append("start"))
    app.on_stop(lambda: steps.append("stop"))
    app.before(lambda d: steps.append("before"))
    app.after(lambda d, outcome: steps.append(outcome))
    app.queue(queue_name).send("body")

    work_off(app)

    assert steps == ["start", "before", "handler", "ack", "stop"]


def test_a_batch_handler_gets_all_that_is_there(app: duly.Duly, queue_name: str) -> None:
    orders = app.queue(queue_name)
    sizes: list[int] = []

    @orders.handler(batch=duly.Batch(max=4, wait=3600))
    def on_orders(bodies: list[int]) -> list[Any]:
        sizes.append(len(bodies))
        return [duly.Reject("odd") if body % 2 else None for body in bodies]

    orders.send_many(range(10))

    handled = work_off(app)

    assert sizes == [4, 4, 2]
    assert [each.outcome for each in handled] == ["ack", "dead"] * 5


def test_tasks_of_either_colour_run(app: duly.Duly, queue_name: str) -> None:
    done: list[str] = []

    @app.task(queue=queue_name)
    def plain(text: str) -> None:
        done.append(text)

    @app.task(queue=queue_name)
    async def coloured(text: str) -> None:
        done.append(text)

    plain.send("a")
    coloured.send("b")
    app.queue(queue_name).send({"task": "unknown"})

    assert [each.outcome for each in work_off(app)] == ["ack", "ack", "dead"]
    assert done == ["a", "b"]


def test_every_group_of_a_topic_gets_an_event(app: duly.Duly, queue_name: str) -> None:
    events = app.topic(queue_name)
    seen: list[str] = []
    events.handler(group="archive")(lambda body: seen.append(f"archive {body}"))
    events.handler(group="mail")(lambda body: duly.Reject("no"))
    events.publish("event")

    handled = work_off(app)

    assert {(each.queue, each.outcome) for each in handled} == {
        (f"{queue_name}/archive", "ack"),
        (f"{queue_name}/mail", "dead"),
    }
    assert seen == ["archive event"]
    assert events.group("archive").pending().total == 0


def test_only_the_queues_that_are_named_are_worked_off(app: duly.Duly, queue_name: str) -> None:
    first, second = app.queue(queue_name), app.queue(queue_name + "-second")
    for queue in (first, second):
        queue.handler(lambda body: None)
        queue.send("body")

    assert [each.queue for each in work_off(app, second.name)] == [second.name]
    assert first.stats().ready == 1


def test_a_limit_leaves_the_rest(app: duly.Duly, queue_name: str) -> None:
    orders = app.queue(queue_name)
    orders.handler(lambda body: None)
    orders.send_many(range(5))

    assert [each.body for each in work_off(app, limit=2)] == [0, 1]
    assert orders.stats().ready == 3


def test_handlers_that_are_def_run_in_the_thread_of_the_test_without_an_event_loop(
    app: duly.Duly, queue_name: str
) -> None:
    orders = app.queue(queue_name)
    database = sqlite3.connect(":memory:")  # refuses other threads
    database.execute("CREATE TABLE orders (id)")

    @orders.handler
    def on_order(body: int) -> None:
        database.execute("INSERT INTO orders VALUES (?)", [body])
        asyncio.run(asyncio.sleep(0))
        assert threading.current_thread() is threading.main_thread()

    orders.send(7)

    assert [each.error for each in work_off(app)] == [None]
    assert database.execute("SELECT id FROM orders").fetchall() == [(7,)]
    database.close()


async def test_in_an_event_loop_the_async_one_is_asked_for(app: duly.Duly, queue_name: str) -> None:
    app.queue(queue_name).handler(lambda body: None)
    await app.aio.queue(queue_name).send("body")

    with pytest.raises(duly.UsageError, match="await awork_off"):
        work_off(app)
    assert len(await awork_off(app)) == 1
    await app.aio.aclose()


@pytest.mark.parametrize("ends", [KeyboardInterrupt, pytest.fail.Exception], ids=["Ctrl-C", "pytest.fail"])
@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
def test_an_exception_that_ends_a_test_is_not_a_failure_of_the_handler(
    app: duly.Duly, queue_name: str, ends: type[BaseException], is_async: bool
) -> None:
    def on_order(body: str) -> None:
        raise ends

    async def on_order_async(body: str) -> None:
        raise ends

    app.queue(queue_name).handler(on_order_async if is_async else on_order)
    app.queue(queue_name).send("body")

    with pytest.raises(ends):
        work_off(app)
    assert app.queue(queue_name).stats().leased == 0


def test_without_a_handler_there_is_nothing_to_work_off() -> None:
    with pytest.raises(duly.UsageError, match="define a handler"):
        work_off(duly.Duly("memory://"))


# Time


def test_time_that_passes_stops_at_every_due_time(works_off: Callable[..., list[Handled]]) -> None:
    app = duly.Duly("memory://")
    reminders = app.queue("reminders")
    reminders.handler(lambda body: None)
    clock.freeze()
    start = datetime.fromtimestamp(clock.now_us() / 1_000_000, UTC)
    reminders.send("late", delay=5 * MINUTE)
    reminders.send("growing", repeat=duly.Repeat(first=60, factor=2))

    handled = works_off(app, advance=3600)

    assert seconds(handled, start) == [60, 180, 300, 420, 900, 1860]
    assert round(clock.now_us() / 1_000_000 - start.timestamp()) == 3600
    assert clock.is_frozen


def test_nothing_is_handled_a_microsecond_early() -> None:
    app = duly.Duly("memory://")
    closing = app.queue("closing")
    closing.handler(lambda body: None)
    id_ = closing.send("order", delay=30 * MINUTE)
    message = closing.get(id_)
    assert message is not None
    assert message.due_at is not None
    due_us = (message.due_at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    clock.freeze()

    clock.set_us(due_us - 1)
    assert work_off(app) == []
    clock.set_us(due_us)
    [handled] = work_off(app)

    assert handled.at - message.due_at < timedelta(milliseconds=1)


def test_retries_are_made_when_they_are_due() -> None:
    app = duly.Duly("memory://")
    calls = app.queue("calls", retry=duly.Retry(delays=[120, 600]))

    @calls.handler
    def on_call(body: str, d: duly.Delivery) -> None:
        raise ConnectionError("no answer")

    clock.freeze()
    start = datetime.fromtimestamp(clock.now_us() / 1_000_000, UTC)
    calls.send("call")

    handled = work_off(app, advance=3600)

    assert seconds(handled, start) == [0, 120, 720]
    assert [(each.attempt, each.outcome) for each in handled] == [(1, "retry"), (2, "retry"), (3, "dead")]


def test_a_schedule_fires_at_its_slots() -> None:
    app = duly.Duly("memory://")
    reports = app.queue("reports")
    reports.handler(lambda body: None)
    clock.freeze()
    app.schedule("report", reports, "report", every=600)

    handled = work_off(app, advance=3600)

    assert len(handled) == 6
    assert {round(each.at.timestamp()) % 600 for each in handled} == {0}


def test_a_delayed_event_reaches_its_group_when_it_is_due() -> None:
    app = duly.Duly("memory://")
    events = app.topic("events")
    events.handler(group="archive")(lambda body: None)
    events.publish("event", delay=90)

    assert work_off(app, advance=60) == []
    assert outcomes(work_off(app, advance=30)) == [("event", "ack")]


def test_a_clock_that_ran_runs_on_from_where_it_got_to() -> None:
    app = duly.Duly("memory://")
    app.queue("orders").handler(lambda body: None)
    before = clock.now_us()

    work_off(app, advance=3600)

    assert not clock.is_frozen
    assert 3_600_000_000 <= clock.now_us() - before < 3_660_000_000


def test_the_clock_of_a_server_cannot_be_moved(duly_server: duly.Duly) -> None:
    duly_server.queue("orders").handler(lambda body: None)

    with pytest.raises(duly.UsageError, match="clock of a server"):
        work_off(duly_server, advance=60)


def test_a_handler_that_never_lets_go_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duly.testing.worker_steps._MOST", 100)
    app = duly.Duly("memory://")
    app.queue("circle").handler(lambda body: duly.Recycle(0))
    app.queue("circle").send("body")

    with pytest.raises(duly.UsageError, match="without a delay"):
        work_off(app)


# Emptying


def test_an_app_that_was_emptied_has_its_handlers_and_nothing_else() -> None:
    app = duly.AsyncDuly("memory://")
    orders, events = app.queue("orders"), app.topic("events")
    orders.handler(lambda body: None)
    events.handler(group="archive")(lambda body: None)

    async def fill() -> None:
        await orders.send_many([duly.Send("a"), duly.Send("b", delay=60)])
        await orders.send("c", dedup="c")
        await events.publish("event")
        await app.schedule("report", orders, "report", every=60)

    asyncio.run(fill())
    empty(app)

    assert work_off(app, advance=600) == []
    asyncio.run(fill())
    assert sorted(each.body for each in work_off(app)) == ["a", "c", "event"]


def test_locks_effects_workers_and_user_keys_are_emptied_as_well() -> None:
    def stamp(body: str, d: duly.Delivery) -> None:
        seen.append(duly.once(d, "stamp", ttl=3600))
        d.commit(redis=[("INCR", "stamped")])

    seen: list[bool] = []
    with duly.Duly("memory://") as app, duly.Duly(app, namespace="other") as other:
        app.queue("orders").handler(stamp)
        held, kept = app.lock("stock", ttl=3600), other.lock("stock", ttl=3600)
        for _ in range(2):
            app.queue("orders").send("x")
            work_off(app)
            assert user_keys(app).get("stamped") == b"1"
            held.__enter__()  # a test that fails in the middle frees nothing

            empty(app)

            assert user_keys(app).get("stamped") is None
            assert app.workers() == []
        assert seen == [True, True]
        with kept:
            empty(app)
            with pytest.raises(duly.LockBusy), other.lock("stock"):
                pass


def test_a_waiting_caller_gets_a_lock_that_is_emptied() -> None:
    with duly.Duly("memory://") as app, ThreadPoolExecutor(1) as pool:
        app.lock("stock", ttl=3600).__enter__()

        def wait() -> str:
            with app.lock("stock", on_busy=duly.Wait(60)):
                return "had it"

        waiting = pool.submit(wait)
        engine: Any = app._link
        while not any(queue.waiters for queue in engine.engine._queues.values()):
            assert not waiting.done()
        empty(app)

        assert waiting.result(30) == "had it"


def test_a_server_is_not_emptied(duly_server: duly.Duly) -> None:
    with pytest.raises(duly.UsageError, match="belong to other programs"):
        empty(duly_server)


def test_a_broken_settler_ends_work_off_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(_: object) -> None:
        raise RuntimeError("the settler is broken")

    with duly.Duly("memory://") as app:
        orders = app.queue("orders")

        @orders.handler
        def handle(body: int) -> None: ...

        orders.send(1)
        monkeypatch.setattr("duly.worker.settler.Settler.run", broken)

        with pytest.raises(RuntimeError, match="the settler is broken"):
            work_off(app)
