"""Groups of topics served by a worker: outcomes are those of queues, separately for each group."""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from typing import Any, Final

import msgspec
import pytest
import redis

import duly
from duly import Batch, Defer, Keep, Recycle, Reject, Retry, RetryIn, Send, UsageError
from duly.worker import janitor
from tests.binaries import Kind
from tests.conftest import StartedServer
from tests.servers import Server
from tests.worker.rig import (
    ALL_FLAVOURS,
    FLAVOURS,
    Bench,
    comes_to,
    counted,
    delay_of,
    eventually,
    given_bench,
    raising,
    returning,
)

AT_ONCE: Final = 4.0
"""Seconds within which a worker wakes: less than the 5 after which it polls."""

WORKERS: Final = 10


class Stage:
    """A topic with handlers of one kind, sync or async. `topic` and `group` are used with `await`."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.name = bench.queue_name
        self.worker = bench.worker
        self.topic = bench.aio.topic(self.name)
        self.group = self.topic.group("archive")

    def define(self, act: Callable[..., Any], *, group: str = "archive", body: Any = None, **options: Any) -> Any:
        """Make `act(body, d)` the handler of a group, and return the topic that it was defined with."""
        names = ("start", "headers", "concurrency", "batch", "timeout")
        handling = {name: options.pop(name) for name in names if name in options}
        topic: Any = self.bench.app.topic(self.name, **options)
        topic.handler(group=group, **handling)(self.bench.coloured(act, body))
        return topic

    async def comes_to(self, group: str = "archive", /, **expected: int) -> None:
        await comes_to(self.topic.group(group), **expected)  # type: ignore[arg-type]

    async def seen(self, id_: str) -> duly.Message:
        message = await self.group.get(id_)
        assert message is not None
        return message


@pytest.fixture(params=FLAVOURS)
async def stage(request: pytest.FixtureRequest, backend: str, queue_name: str) -> AsyncIterator[Stage]:
    async with given_bench(backend, queue_name, request.param) as bench:
        yield Stage(bench)


@pytest.fixture
async def async_stage(backend: str, queue_name: str) -> AsyncIterator[Stage]:
    """For tests that need an `async def`, or that do not depend on the kind of handler."""
    async with given_bench(backend, queue_name, "AsyncDuly, async def") as bench:
        yield Stage(bench)


@pytest.fixture
async def server_stage(server: StartedServer, queue_name: str) -> AsyncIterator[Stage]:
    """For tests with other programs on the same stream, or that count commands of the server."""
    async with given_bench(server("valkey").url, queue_name, "AsyncDuly, async def") as bench:
        yield Stage(bench)


@pytest.fixture
def client(server: StartedServer) -> Iterator[Any]:
    with redis.Redis.from_url(server("valkey").url) as client:
        yield client


# Outcomes


@pytest.mark.parametrize("flavour", ALL_FLAVOURS)
async def test_a_handler_that_returns_has_done_its_work(backend: str, queue_name: str, flavour: str) -> None:
    async with given_bench(backend, queue_name, flavour) as bench:
        stage = Stage(bench)
        seen: list[Any] = []
        stage.define(lambda body, d: seen.append((d.queue, d.id, body, d.headers, d.attempt)))
        id_ = await stage.topic.publish({"n": 1}, headers={"trace": "t"})

        async with stage.worker():
            await stage.comes_to(sent=1, delivered=1, acked=1)

        assert seen == [(f"{queue_name}/archive", id_, {"n": 1}, {"trace": "t"}, 1)]
        assert await stage.group.get(id_) is None
        assert (await stage.group.pending()).total == 0
        assert [entry.id for entry in await stage.topic.read()] == [id_]  # the topic keeps it


async def test_false_is_a_failure(stage: Stage) -> None:
    stage.define(returning(False), retry=Retry(first=60, jitter=0))
    id_ = await stage.topic.publish("body")

    async with stage.worker():
        await stage.comes_to(sent=1, delivered=1, retried=1, delayed=1)

    message = await stage.seen(id_)
    assert (message.attempt, message.failures, delay_of(message)) == (2, 1, 60)
    assert "returned False" in message.errors[0].error


@pytest.mark.parametrize(
    ("act", "counts", "fields"),
    [
        (returning(Recycle(60)), {"recycled": 1, "delayed": 1}, {"failures": 0, "attempt": 1, "deliveries": 0}),
        (raising(Defer(60)), {"deferred": 1, "delayed": 1}, {"defers": 1, "failures": 0, "attempt": 1}),
        (raising(RetryIn(60)), {"retried": 1, "delayed": 1}, {"defers": 0, "failures": 1, "attempt": 2}),
        (raising(Reject("no use")), {"buried": 1, "dead": 1}, {"rejects": 1, "reason": "no use"}),
    ],
    ids=["Recycle", "Defer", "RetryIn", "Reject"],
)
async def test_an_outcome_settles(stage: Stage, act: Any, counts: dict[str, int], fields: dict[str, Any]) -> None:
    stage.define(act)
    began = time.time()
    id_ = await stage.topic.publish("body")

    async with stage.worker():
        await stage.comes_to(sent=1, delivered=1, **counts)

    message = await stage.seen(id_)
    assert {name: getattr(message, name) for name in fields} == fields
    if "delayed" in counts:
        assert message.due_at is not None
        assert began + 59 < message.due_at.timestamp() < time.time() + 61


async def test_an_error_is_a_failure_and_is_kept_with_its_traceback(stage: Stage) -> None:
    def act_that_breaks(body: Any, d: Any) -> None:
        raise ValueError(f"number {d.attempt}")

    stage.define(act_that_breaks, retry=Retry(attempts=3, first=0.01))
    id_ = await stage.topic.publish("body")

    async with stage.worker():
        await stage.comes_to(sent=1, delivered=3, retried=2, buried=1, dead=1)

    message = await stage.seen(id_)
    assert (message.reason, message.body) == ("failed at attempt 3 of 3", "body")
    assert [failure.error for failure in message.errors] == [f"ValueError: number {n}" for n in (1, 2, 3)]
    assert all("act_that_breaks" in failure.traceback for failure in message.errors)


async def test_a_message_with_a_retry_delay_beyond_the_lease_is_redelivered(stage: Stage) -> None:
    attempts: list[int] = []

    def act(body: Any, d: Any) -> bool:
        attempts.append(d.attempt)
        return len(attempts) > 1

    stage.define(act, lease=1, retry=Retry(first=1.2, jitter=0))
    await stage.topic.publish("body")

    async with stage.worker():
        await stage.comes_to(sent=1, delivered=2, retried=1, acked=1)

    assert attempts == [1, 2]


class Order(msgspec.Struct):
    number: int


async def test_a_body_that_does_not_decode_is_dead_and_kept(stage: Stage) -> None:
    handled: list[Any] = []
    stage.define(lambda body, d: handled.append(body), body=Order)
    bad = await stage.topic.publish({"number": "many"})
    await stage.topic.publish({"number": 1})

    async with stage.worker():
        await stage.comes_to(sent=2, delivered=2, acked=1, buried=1, dead=1)

    message = await stage.seen(bad)
    assert (message.reason, message.raw, handled) == ("decode", b'{"number":"many"}', [Order(1)])


async def test_a_handler_that_runs_longer_than_the_lease_keeps_it(stage: Stage) -> None:
    fences: list[int] = []

    def act(body: Any, d: Any) -> None:
        fences.append(d.fence)
        time.sleep(2.2)  # blocks the event loop as well: the renewer has its own thread

    stage.define(act, lease=1.8)
    await stage.topic.publish("body")

    async with stage.worker():
        await stage.comes_to(sent=1, delivered=1, acked=1)

    assert len(fences) == 1


async def test_a_handler_that_runs_longer_than_max_runtime_is_delivered_again(async_stage: Stage) -> None:
    stage, attempts = async_stage, list[int]()

    async def act(body: Any, d: Any) -> None:
        attempts.append(d.crashes)
        if len(attempts) == 1:
            await asyncio.Event().wait()

    stage.define(act, lease=0.4, max_runtime=0.1)
    await stage.topic.publish("body")

    async with stage.worker():
        await stage.comes_to(sent=1, delivered=2, crashed=1, acked=1)

    assert attempts == [0, 1]


async def test_a_handler_that_loses_the_lease_is_cancelled_and_settles_nothing(async_stage: Stage) -> None:
    stage, ends = async_stage, list[bool]()

    async def act(body: Any, d: Any) -> None:
        await stage.group.cancel(d.id, running=True)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append(d.lost)
            raise

    stage.define(act, lease=0.6)
    await stage.topic.publish("body")

    async with stage.worker():
        await eventually(lambda: ends)

    assert ends == [True]
    await stage.comes_to(sent=1, delivered=1, cancelled=1)


async def test_a_def_handler_sees_that_its_lease_is_lost(backend: str, queue_name: str) -> None:
    async with given_bench(backend, queue_name, "Duly, def") as bench:
        stage, ends = Stage(bench), list[bool]()
        sync_group = bench.app.topic(queue_name).group("archive")

        def act(body: Any, d: Any) -> None:
            sync_group.cancel(d.id, running=True)
            deadline = time.monotonic() + 20
            while not d.lost and time.monotonic() < deadline:
                time.sleep(0.01)
            ends.append(d.lost)

        stage.define(act, lease=0.6)
        await stage.topic.publish("body")

        async with stage.worker():
            await eventually(lambda: ends)

        assert ends == [True]
        await stage.comes_to(sent=1, delivered=1, cancelled=1)


async def test_a_handler_that_takes_too_long_has_failed(async_stage: Stage) -> None:
    async def act(body: Any, d: Any) -> None:
        await asyncio.Event().wait()

    async_stage.define(act, timeout=0.05, retry=Retry(first=60))
    id_ = await async_stage.topic.publish("body")

    async with async_stage.worker():
        await async_stage.comes_to(sent=1, delivered=1, retried=1, delayed=1)

    (failure,) = (await async_stage.seen(id_)).errors
    assert failure.error == "TimeoutError: the handler took longer than its timeout of 0.05 s"


async def test_a_batch_handler_gets_lists_and_judges_each(stage: Stage) -> None:
    batches: list[list[int]] = []

    def act(bodies: Any, deliveries: Any) -> list[Any]:
        batches.append(list(bodies))
        return [Reject("odd") if body % 2 else None for body in bodies]

    stage.define(act, batch=Batch(max=4, wait=0.05))
    await stage.topic.publish_many(range(10))

    async with stage.worker():
        await stage.comes_to(sent=10, delivered=10, acked=5, buried=5, dead=5)

    assert sorted(body for batch in batches for body in batch) == list(range(10))
    assert max(map(len, batches)) == 4


async def test_on_dead_hooks_of_group_topic_and_app_run(stage: Stage) -> None:
    received: list[tuple[str, str]] = []
    topic = stage.define(raising(Reject("no use")))
    stage.define(returning(None), group="other")
    topic.group("archive").on_dead(lambda message: received.append(("group", message.queue)))
    topic.group("other").on_dead(lambda message: received.append(("another group", message.queue)))
    topic.on_dead(lambda message: received.append(("topic", message.queue)))
    stage.bench.app.on_dead(lambda message: received.append(("app", message.queue)))
    await stage.topic.publish("body")

    async with stage.worker():
        await eventually(lambda: len(received) == 3)
        await stage.comes_to("other", sent=1, delivered=1, acked=1)

    assert received == [(whose, f"{stage.name}/archive") for whose in ("group", "topic", "app")]


# Several groups


async def test_each_group_gets_everything_while_the_worker_serves_queues(stage: Stage) -> None:
    got: defaultdict[str, list[Any]] = defaultdict(list)

    def act(body: Any, d: Any) -> None:
        got[d.queue].append(body)

    stage.bench.define(act)
    for group in ("archive", "live"):
        stage.define(act, group=group)
    await stage.topic.publish_many(range(50))
    await stage.bench.queue.send_many(range(20))

    async with stage.worker():
        for n in range(50, 70):
            await stage.topic.publish(n)
        for group in ("archive", "live"):
            await stage.comes_to(group, sent=70, delivered=70, acked=70)
        await stage.bench.comes_to(sent=20, delivered=20, acked=20)

    counts = {label: len(bodies) for label, bodies in got.items()}
    assert counts == {f"{stage.name}/archive": 70, f"{stage.name}/live": 70, stage.name: 20}
    assert all(sorted(bodies) == list(range(len(bodies))) for bodies in got.values())


async def test_a_slow_group_delays_no_other(stage: Stage) -> None:
    is_open = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def until_open() -> None:
        await is_open.wait()

    def act_slowly(body: Any, d: Any) -> Any:
        if stage.bench.is_async:
            return until_open()
        return asyncio.run_coroutine_threadsafe(until_open(), loop).result()

    stage.define(act_slowly, group="slow", concurrency=2)
    stage.define(returning(None), group="quick", concurrency=2)
    await stage.topic.publish_many(range(100))

    async with stage.worker():
        await stage.comes_to("quick", sent=100, delivered=100, acked=100)
        assert (await stage.topic.group("slow").stats()).acked == 0
        is_open.set()
        await stage.comes_to("slow", sent=100, delivered=100, acked=100)


async def test_a_message_read_by_one_worker_is_not_read_by_another(stage: Stage) -> None:
    ids: list[str] = []
    stage.define(lambda body, d: ids.append(d.id), concurrency=4)

    async with stage.worker(), stage.worker(), stage.worker():
        published = [await stage.topic.publish(n) for n in range(100)]
        published += await stage.topic.publish_many(range(200))
        await stage.comes_to(sent=300, delivered=300, acked=300)

    assert Counter(ids) == Counter(published)


async def test_one_handler_at_a_time_keeps_the_order_of_the_stream(stage: Stage) -> None:
    handled: list[Any] = []
    stage.define(lambda body, d: handled.append(body), concurrency=1)
    await stage.topic.publish_many(range(100))

    async with stage.worker():
        for n in range(100, 150):
            await stage.topic.publish(n)
        await stage.comes_to(sent=150, delivered=150, acked=150)

    assert handled == list(range(150))


async def test_entries_of_one_key_keep_their_order_over_many_slots_and_workers(async_stage: Stage) -> None:
    stage, handled = async_stage, defaultdict[str, list[int]](list)
    running: Counter[str] = Counter()

    async def act(body: Any, d: Any) -> bool:
        assert running[d.key] == 0
        running[d.key] += 1
        await asyncio.sleep(body % 7 / 1000)
        running[d.key] -= 1
        if body % 20 == 5 and d.attempt == 1:
            return False
        handled[d.key].append(body)
        return True

    stage.define(act, concurrency=20, retry=Retry(first=0.01))
    keys = [f"key {n}" for n in range(5)]
    async with stage.worker(), stage.worker():
        for first in range(0, 60, 20):
            await stage.topic.publish_many([Send(n, key=key) for n in range(first, first + 20) for key in keys])
        await stage.comes_to(sent=300, delivered=315, retried=15, acked=300)

    assert handled == {key: list(range(60)) for key in keys}


async def test_a_filter_lets_only_its_entries_in(stage: Stage) -> None:
    regions: list[str] = []
    stage.define(lambda body, d: regions.append(d.headers["region"]), headers={"region": ["eu", "us"]})
    await stage.topic.publish_many([Send(n, headers={"region": ("eu", "asia", "us")[n % 3]}) for n in range(30)])
    await stage.topic.publish("no header")

    async with stage.worker():
        await eventually(lambda: len(regions) == 20)
        await stage.topic.publish("late", headers={"region": "us"})
        await eventually(lambda: len(regions) == 21)

    assert Counter(regions) == {"eu": 10, "us": 11}
    stats = await stage.group.stats()
    assert (stats.acked, stats.ready, stats.leased) == (21, 0, 0)


async def test_a_group_starts_where_its_handler_is_set_to(stage: Stage) -> None:
    first, second = await stage.topic.publish_many(["first", "second"])
    got: defaultdict[str, list[str]] = defaultdict(list)
    starts = {"all": "beginning", "rest": first, "coming": "new"}

    def act(body: Any, d: Any) -> None:
        got[d.queue.partition("/")[2]].append(d.id)

    for group, start in starts.items():
        stage.define(act, group=group, start=start, concurrency=1)

    async with stage.worker():
        await eventually(lambda: len(got["all"]) == 2)
        await eventually(lambda: _exists(stage, "coming"))
        third = await stage.topic.publish("third")
        await eventually(lambda: sum(map(len, got.values())) == 6)

    assert got == {"all": [first, second, third], "rest": [second, third], "coming": [third]}


async def _exists(stage: Stage, group: str) -> bool:
    return group in [info.name for info in await stage.topic.groups()]


# Waiting


def _has(handled: list[Any], count: int) -> bool:
    return len(handled) == count


async def test_an_idle_worker_receives_each_entry_at_once(stage: Stage) -> None:
    """The worker polls after 5 seconds. Without wake-ups these waits would add up to ten times that."""
    handled: list[Any] = []
    for group in ("archive", "live"):
        stage.define(lambda body, d: handled.append(body), group=group)

    async with stage.worker():
        await stage.comes_to("live")
        for n in range(10):
            await stage.topic.publish(n)
            await eventually(partial(_has, handled, 2 * n + 2), timeout=AT_ONCE)
            await asyncio.sleep(n / 50)


async def test_a_plain_xadd_wakes_an_idle_worker(server_stage: Stage, client: Any) -> None:
    handled: list[Any] = []
    server_stage.define(lambda body, d: handled.append(body))

    async with server_stage.worker():
        await eventually(lambda: _exists(server_stage, "archive"))
        for n in range(5):
            client.xadd(server_stage.topic.stream, {"n": n})
            client.xadd(server_stage.topic.stream, {"body": n})
            await eventually(partial(_has, handled, 2 * n + 2), timeout=AT_ONCE)

    assert handled == [each for n in range(5) for each in ({"n": str(n)}, n)]


async def test_a_plain_xadd_whose_body_is_not_json_is_dead(server_stage: Stage, client: Any) -> None:
    server_stage.define(returning(None))
    id_ = client.xadd(server_stage.topic.stream, {"body": "{"}).decode()

    async with server_stage.worker():
        await server_stage.comes_to(sent=1, delivered=1, buried=1, dead=1)

    message = await server_stage.seen(id_)
    assert (message.reason, message.raw) == ("decode", b"{")


async def test_entries_of_a_plain_consumer_are_taken_over_after_a_lease(server_stage: Stage, client: Any) -> None:
    stage, handled = server_stage, list[tuple[Any, int]]()
    stage.define(lambda body, d: handled.append((body, d.crashes)), lease=3)
    await stage.group.create()
    await stage.topic.publish_many(["acked", "left"])
    reading = {"groupname": "archive", "consumername": "plain", "streams": {stage.topic.stream: ">"}}
    ((_, ((acked, _), (left, _))),) = client.xreadgroup(**reading)

    async with stage.worker():
        await stage.topic.publish("own")
        await eventually(lambda: handled)
        client.xack(stage.topic.stream, "archive", acked)
        await eventually(lambda: len(handled) == 2)

    assert handled == [("own", 0), ("left", 1)]
    assert client.xinfo_consumers(stage.topic.stream, "archive") == []
    assert client.xpending(stage.topic.stream, "archive")["pending"] == 0
    assert left


async def test_a_delayed_publish_is_handled_when_it_is_due(stage: Stage) -> None:
    handled: dict[str, float] = {}
    stage.define(lambda body, d: handled.__setitem__(body, time.monotonic()))

    async with stage.worker():
        await stage.topic.publish("now")
        await eventually(lambda: "now" in handled)
        published = time.monotonic()
        await stage.topic.publish("later", delay=0.6)
        await stage.topic.publish("earlier", delay=0.3)
        await eventually(lambda: len(handled) == 3)

    assert 0.3 <= handled["earlier"] - published < 0.3 + AT_ONCE
    assert 0.6 <= handled["later"] - published < 0.6 + AT_ONCE


async def test_a_resumed_group_is_served_at_once(stage: Stage) -> None:
    handled: list[Any] = []
    stage.define(lambda body, d: handled.append(body))

    async with stage.worker():
        await stage.topic.publish("before")
        await eventually(lambda: handled)
        await stage.group.pause()
        await stage.topic.publish("in between")
        await asyncio.sleep(0.3)
        assert handled == ["before"]
        await stage.group.resume()
        await eventually(lambda: len(handled) == 2, timeout=AT_ONCE)


async def test_a_paused_group_does_not_keep_another_from_hearing(stage: Stage) -> None:
    got: defaultdict[str, list[Any]] = defaultdict(list)
    for group in ("archive", "live"):
        stage.define(lambda body, d: got[d.queue.partition("/")[2]].append(body), group=group, concurrency=1)

    async with stage.worker():
        await stage.topic.publish(0)
        await eventually(lambda: len(got) == 2)
        await stage.group.pause()
        for n in range(1, 6):
            await stage.topic.publish(n)
            await eventually(partial(_has, got["live"], n + 1), timeout=AT_ONCE)
        assert got["archive"] == [0]
        await stage.group.resume()
        await eventually(partial(_has, got["archive"], 6), timeout=AT_ONCE)

    assert got["archive"] == got["live"] == list(range(6))


async def test_a_group_that_was_moved_back_gets_its_entries_again_at_once(stage: Stage) -> None:
    handled: list[Any] = []
    stage.define(lambda body, d: handled.append(body), concurrency=1)
    await stage.topic.publish_many(range(5))

    async with stage.worker():
        await stage.comes_to(sent=5, delivered=5, acked=5)
        await stage.group.seek("beginning")
        await eventually(lambda: len(handled) == 10, timeout=AT_ONCE)

    assert handled == [*range(5), *range(5)]


async def test_a_redriven_message_is_handled_at_once(stage: Stage) -> None:
    attempts: list[int] = []

    def act(body: Any, d: Any) -> None:
        attempts.append(d.attempt)
        if len(attempts) == 1:
            raise Reject("not yet")

    stage.define(act)
    await stage.topic.publish("body")

    async with stage.worker():
        await eventually(lambda: _is_dead(stage))
        assert await stage.group.redrive() == 1
        await eventually(lambda: len(attempts) == 2, timeout=AT_ONCE)


async def _is_dead(stage: Stage) -> bool:
    return (await stage.group.stats()).dead == 1


# Names and weights


def test_groups_are_named_with_their_topic() -> None:
    with duly.Duly("memory://") as app:
        events = app.topic("events")
        app.queue("orders").handler(print)
        for group in ("archive", "live"):
            events.handler(group=group)(print)

        assert _served(duly.Worker(app)) == {"orders": 1, "events/archive": 1, "events/live": 1}
        assert _served(duly.Worker(app, queues="events/live:3,orders")) == {"events/live": 3, "orders": 1}
        assert _served(duly.Worker(app, queues="events")) == {"events/archive": 1, "events/live": 1}
        assert _served(duly.Worker(app, queues={"events": 2})) == {"events/archive": 2, "events/live": 2}
        for queues in ("events,events/live:5", "events/live:5,events"):
            assert _served(duly.Worker(app, queues=queues)) == {"events/archive": 1, "events/live": 5}


def test_a_queue_that_is_called_like_a_topic_is_meant_by_its_name() -> None:
    with duly.Duly("memory://") as app:
        app.queue("events").handler(print)
        app.topic("events").handler(group="archive")(print)

        assert _served(duly.Worker(app, queues="events")) == {"events": 1}
        assert _served(duly.Worker(app, queues="events/archive")) == {"events/archive": 1}


@pytest.mark.parametrize(
    ("queues", "message"),
    [
        ("events/nothing", "no handler for events/nothing: there are handlers for events/archive"),
        ("event", "no handler for queue event: there are handlers for events/archive"),
        ("events/", "'events/' names no group.*: '' is not a group name"),
        ("events/a/b", "'events/a/b' names no group.*: 'a/b' is not a group name"),
        ("/archive", "'/archive' names no group.*: '' is not a topic name"),
        ("events/archive:0", "the weight of queue 'events/archive'"),
        ("events/archive,events/archive", "named twice"),
    ],
)
def test_a_group_that_is_not_there_is_refused(queues: str, message: str) -> None:
    with duly.Duly("memory://") as app:
        app.topic("events").handler(group="archive")(print)
        with pytest.raises(UsageError, match=message):
            duly.Worker(app, queues=queues)


async def test_groups_that_others_serve_are_made_before_entries_are_freed(stage: Stage) -> None:
    """Otherwise entries that one group has acked would be gone before the worker of the other starts."""
    handled: list[Any] = []
    stage.define(returning(None), group="live", keep=None)
    stage.define(lambda body, d: handled.append(body), group="archive", keep=None)
    stage.define(returning(None), group="late", keep=None, start="new")
    await stage.topic.publish_many(range(20))

    async with stage.worker(queues=f"{stage.name}/live"):
        await stage.comes_to("live", sent=20, delivered=20, acked=20)

    assert await _has_groups(stage.topic, ["archive", "late", "live"])
    assert (await stage.topic.group("late").stats()).unread == 0
    async with stage.worker(queues=f"{stage.name}/archive"):
        await stage.comes_to("archive", sent=20, delivered=20, acked=20)
    assert sorted(handled) == list(range(20))


async def test_a_group_that_cannot_be_made_yet_is_made_as_soon_as_it_can(
    server_stage: Stage, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(janitor, "_TIDY_EVERY", 0.05)
    monkeypatch.setattr(janitor, "_HEARTBEAT_EVERY", 0.05)
    stage, done = server_stage, list[Any]()
    stage.bench.define(lambda body, d: done.append(body))
    stage.define(returning(None))
    client.set(stage.topic.stream, "of another type")

    async with stage.worker(queues={stage.name: 1}):
        await stage.bench.queue.send("body")
        await eventually(lambda: done == ["body"])  # the other groups are served during that time
        client.delete(stage.topic.stream)

        await eventually(partial(_has_groups, stage.topic, ["archive"]))


@pytest.mark.fault
async def test_a_worker_makes_groups_when_the_server_answers_at_last(kind: Kind, queue_name: str) -> None:
    with Server(kind) as server:
        async with duly.AsyncDuly(server.url) as app:
            for group in ("archive", "live"):
                app.topic(queue_name, keep=None).handler(group=group)(_nothing)
            server.stop()
            async with duly.Worker(app, queues=f"{queue_name}/live") as worker:
                await eventually(lambda: worker._async_app._link.is_down)
                server.start()

                await eventually(partial(_has_groups, app.topic(queue_name), ["archive", "live"]))


async def _has_groups(topic: Any, names: list[str]) -> bool:
    return [info.name for info in await topic.groups()] == names


def _served(worker: duly.Worker) -> dict[str, int]:
    return {registered.queue.label: weight for registered, weight in worker._setup.chosen}


async def test_weights_divide_a_pool_between_a_group_and_a_queue(async_stage: Stage) -> None:
    stage, order = async_stage, list[str]()

    async def act(body: Any, d: Any) -> None:
        order.append(d.queue)
        await asyncio.sleep(0.001)

    stage.bench.define(act)
    stage.define(act)
    await stage.topic.publish_many(range(400))
    await stage.bench.queue.send_many(range(400))

    async with stage.worker(queues={f"{stage.name}/archive": 3, stage.name: 1}, concurrency=4):
        await stage.comes_to(sent=400, delivered=400, acked=400)

    both = Counter(order[:400])
    assert 2 <= both[f"{stage.name}/archive"] / both[stage.name] <= 4, both


# Cost


@contextmanager
def counting(client: Any) -> Iterator[dict[str, int]]:
    """Count the commands that the server executes during the block."""
    names = ("evalsha", "xreadgroup", "xread", "blpop")
    before, found = client.info("commandstats"), dict[str, int]()
    yield found
    after = client.info("commandstats")
    for name in names:
        calls = [stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for stats in (before, after)]
        found[name] = calls[1] - calls[0]


def waits_of(client: Any) -> int:
    return int(client.info("commandstats").get("cmdstat_xread", {"calls": 0})["calls"])


@pytest.fixture
def own_client(kind: Kind) -> Iterator[Any]:
    with Server(kind) as server, redis.Redis.from_url(server.url) as client:
        client.url = server.url
        yield client


@pytest.mark.slow
@pytest.mark.quiet
async def test_an_idle_worker_of_many_groups_asks_little(own_client: Any) -> None:
    """With leases of 6 s it polls once per second: a claim for each group, and one blocking call for all of them."""
    async with duly.AsyncDuly(own_client.url) as app:
        for n in range(10):
            app.topic(f"topic{n % 3}", lease=6).handler(group=f"group{n}")(_nothing)
        async with duly.Worker(app):
            await eventually(lambda: own_client.info("clients")["blocked_clients"] == 1)
            await asyncio.sleep(1.5)
            began, waits = time.monotonic(), waits_of(own_client)
            with counting(own_client) as found:
                await eventually(lambda: waits_of(own_client) >= waits + 4)
            seconds = time.monotonic() - began
            connections = len(own_client.client_list())

    assert found["xread"] <= seconds + 3, (found, seconds)
    assert 25 <= found["evalsha"] <= 10 * (seconds + 1) + 20, (found, seconds)  # and each may have been tidied
    assert found["blpop"] == 0, found
    assert connections <= 8, connections


@pytest.mark.slow
@pytest.mark.quiet
async def test_an_entry_costs_a_claim_for_the_groups_of_its_topic_only(own_client: Any) -> None:
    handled: list[int] = []
    async with duly.AsyncDuly(own_client.url) as app:
        for n in range(10):
            app.topic(f"topic{n}").handler(group="archive")(_nothing)
        app.topic("busy").handler(group="archive")(_noting(handled))
        async with duly.Worker(app):
            await eventually(lambda: own_client.info("clients")["blocked_clients"] == 1)
            with counting(own_client) as found:
                for n in range(50):
                    await app.topic("busy").publish(n)
                    await eventually(partial(_has, handled, n + 1))

    assert 50 <= found["xreadgroup"] <= 50 + 50, found  # the other groups polled, and bells woke them


def _noting(handled: list[int]) -> Callable[[int], Any]:
    async def note(body: int) -> None:
        handled.append(body)

    return note


@pytest.mark.slow
@pytest.mark.quiet
async def test_a_paused_group_with_a_backlog_costs_no_more_than_an_idle_one(own_client: Any) -> None:
    async with duly.AsyncDuly(own_client.url) as app:
        topic = app.topic("events", lease=6)
        topic.handler(group="archive")(_nothing)
        await topic.group("archive").create()
        await topic.group("archive").pause()
        await topic.publish_many(range(1000))
        async with duly.Worker(app):
            await eventually(lambda: own_client.info("clients")["blocked_clients"] == 1)
            with counting(own_client) as found:
                await topic.publish("more")
                await asyncio.sleep(3)

    assert found["evalsha"] <= 12, found
    assert found["xread"] <= 8, found


@pytest.mark.slow
@pytest.mark.quiet
async def test_many_idle_workers_of_a_group_do_not_cost_a_claim_each_for_every_entry(own_client: Any) -> None:
    """An entry wakes all of them. Those that find nothing rest, or ten processes would make ten claims per entry."""
    handled: list[int] = []
    async with duly.AsyncDuly(own_client.url) as app, AsyncExitStack() as stack:
        topic = app.topic("events")
        topic.handler(group="archive")(_noting(handled))
        for _ in range(WORKERS):
            await stack.enter_async_context(duly.Worker(app))
        await eventually(lambda: own_client.info("clients")["blocked_clients"] == WORKERS)
        began, published = time.monotonic(), 0
        with counting(own_client) as found:
            while time.monotonic() < began + 3:
                await topic.publish(published)
                published += 1
                await asyncio.sleep(0.002)
            await eventually(lambda: len(handled) == published)
            elapsed = time.monotonic() - began

    assert sorted(handled) == list(range(published))
    in_vain = found["xreadgroup"] - published  # one in each claim; without rests it would be up to nine times as many
    assert in_vain < 50 * WORKERS * elapsed, f"{found}, {published} published in {elapsed:.1f} s"


async def _nothing(body: Any) -> None:
    pass


# Stopping


async def test_entries_that_were_not_started_keep_their_order(async_stage: Stage) -> None:
    stage, begun, is_open = async_stage, list[int](), asyncio.Event()

    async def act(body: int, d: Any) -> None:
        begun.append(body)
        if body >= 200:
            await is_open.wait()

    stage.define(act, concurrency=2, lease=60)
    await stage.topic.publish_many(range(200))
    async with stage.worker() as worker:
        await stage.comes_to(sent=200, delivered=200, acked=200)  # quick ones first, so that it claims ahead
        await stage.topic.publish_many(range(200, 260))
        await eventually(lambda: len(begun) == 202)
        worker.stop()
        await eventually(lambda: _holds(stage, 2))
        is_open.set()

    assert not worker.was_cut_off
    stats = await counted(stage.group)  # type: ignore[arg-type]
    assert (stats["acked"], stats["ready"]) == (202, 58), stats
    again = await stage.group.receive(limit=100, wait=0)
    assert [delivery.body for delivery in again] == list(range(202, 260))
    assert {(delivery.attempt, delivery.crashes) for delivery in again} == {(1, 0)}


async def _holds(stage: Stage, count: int) -> bool:
    return (await stage.group.stats()).leased == count


async def test_a_worker_that_stops_leaves_no_name_behind_in_memory_either(async_stage: Stage) -> None:
    async_stage.define(returning(None))
    await async_stage.topic.publish("body")

    async with async_stage.worker():
        await async_stage.comes_to(sent=1, delivered=1, acked=1)
        assert [info.consumers for info in await async_stage.topic.groups()] == [1]

    assert [info.consumers for info in await async_stage.topic.groups()] == [0]


async def test_a_worker_that_stops_leaves_no_name_behind(server_stage: Stage, client: Any) -> None:
    stage = server_stage
    for group in ("archive", "live"):
        stage.define(returning(None), group=group)
    await stage.topic.publish_many(range(10))

    async with stage.worker():
        for group in ("archive", "live"):
            await stage.comes_to(group, sent=10, delivered=10, acked=10)
            assert len(client.xinfo_consumers(stage.topic.stream, group)) == 1

    assert [client.xinfo_consumers(stage.topic.stream, group) for group in ("archive", "live")] == [[], []]


async def test_a_worker_that_had_to_leave_something_leaves_its_name_with_it(server_stage: Stage, client: Any) -> None:
    """Removing a consumer removes its pending entries. Entries that another program has read must stay."""
    stage = server_stage
    stage.define(returning(None))
    await stage.topic.publish("own")
    async with stage.worker() as worker:
        await stage.comes_to(sent=1, delivered=1, acked=1)
        consumer = worker._async_app._link.consumer
        await stage.group.pause()  # it must not get the next entry
        await stage.topic.publish("held")
        reading = {"groupname": "archive", "consumername": consumer, "streams": {stage.topic.stream: ">"}}
        client.xreadgroup(**reading)

    (left,) = client.xinfo_consumers(stage.topic.stream, "archive")
    assert (left["name"].decode(), left["pending"]) == (consumer, 1)


async def test_with_nothing_kept_the_stream_is_empty_when_all_groups_are_through(stage: Stage) -> None:
    for group in ("archive", "live"):
        stage.define(returning(None), group=group, keep=None)
    freeing = stage.bench.aio.topic(stage.name, keep=None)
    for group in ("archive", "live"):
        await freeing.group(group).create()

    async with stage.worker():
        await freeing.publish_many(range(300))
        for group in ("archive", "live"):
            await stage.comes_to(group, sent=300, delivered=300, acked=300)

    assert (await stage.topic.stats()).length == 0


async def test_the_janitor_trims_a_topic(server_stage: Stage, monkeypatch: pytest.MonkeyPatch, client: Any) -> None:
    monkeypatch.setattr("duly.worker.janitor._TIDY_EVERY", 0.05)
    monkeypatch.setattr("duly.worker.janitor._HEARTBEAT_EVERY", 0.05)
    server_stage.define(returning(None), keep=Keep(count=10))
    for n in range(50):
        client.xadd(server_stage.topic.stream, {"n": n})

    async with server_stage.worker():
        await eventually(lambda: client.xlen(server_stage.topic.stream) == 10)
        await eventually(lambda: _exists(server_stage, "archive"))
