"""`/metrics` exports the values of the library in Prometheus format, as its page describes them."""

from __future__ import annotations

import asyncio
import dataclasses
import platform
import re
import socket
import time
import uuid
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis.asyncio
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

import duly
from duly import AsyncDuly
from duly._async.primitives import LEAVING_TIMEOUT
from duly._core import ops
from duly._core.states import STATES
from duly._core.topic_ops import GroupRow
from duly.message import GroupInfo, Histogram, Stats, TopicStats, WorkerInfo
from duly.web import create_app, metrics
from duly.web.metrics import definitions
from duly.web.metrics import scrape as scraping
from duly.web.metrics.definitions import METRICS
from duly.web.metrics.scrape import Scrape
from tests.conftest import StartedServer
from tests.web.conftest import TOKENS, authorization, beat, client_of

ROOT = Path(__file__).parents[2]
PAGES = ("docs/metrics.md", "docs/zh/metrics.md")
OPENMETRICS = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"}

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples_of(families: Iterable[Any]) -> Samples:
    """Return the samples by name and labels. A repeated sample is an error."""
    rows = [((each.name, frozenset(each.labels.items())), each.value) for family in families for each in family.samples]
    found = dict(rows)
    assert len(found) == len(rows)
    return found


class Scraped:
    """The samples of a scrape."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples

    def __call__(self, name: str, **labels: str) -> float | None:
        return self.samples.get((name, frozenset(labels.items())))

    def labels(self, name: str, label: str) -> list[str]:
        return sorted(dict(labels)[label] for each, labels in self.samples if each == name)


async def run_scrape(app: AsyncDuly) -> Scraped:
    async with client_of(create_app(app)) as client:
        return parsed(await client.get("/metrics"))


def parsed(response: httpx.Response) -> Scraped:
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return Scraped(samples_of(read_text(response.text)))


def told_openly(response: httpx.Response) -> Scraped:
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    return Scraped(samples_of(openmetrics.text_string_to_metric_families(response.text)))  # type: ignore[no-untyped-call]


@pytest.fixture(params=["memory", "valkey"])
async def app(request: pytest.FixtureRequest, server: StartedServer) -> AsyncIterator[AsyncDuly]:
    url = "memory://" if request.param == "memory" else server("valkey").url
    async with AsyncDuly(url, namespace=f"metrics-{uuid.uuid4().hex}") as opened:
        yield opened


@pytest.fixture
async def raw(server: StartedServer) -> AsyncIterator[Any]:
    """Yield a client that writes to the server of `server_app` without Duly."""
    client: Any = redis.asyncio.Redis.from_url(server("valkey").url)
    yield client
    await client.aclose()


# Values of the library


async def test_the_metrics_of_a_queue_equal_its_stats(app: AsyncDuly) -> None:
    orders = app.queue("orders", done=duly.Keep(count=10))
    await orders.send_many(["acked", "dead", "leased", "ready", "ready"])
    await orders.send("later", delay=3600)
    await orders.send("later", id="twice", delay=7200)
    await orders.send("later", id="twice", delay=7200)
    acked, dead, _ = await orders.receive(limit=3, wait=0)
    await acked.ack()
    await dead.reject("no")
    await orders.pause()

    before = await orders.stats()
    samples = await run_scrape(app)
    after = await orders.stats()

    for state in ("ready", "delayed", "leased", "parked", "dead", "done"):
        assert samples("duly_messages", queue="orders", state=state) == getattr(before, state), state
    for state, name in {"live": "bytes", "dead": "dead_bytes", "done": "done_bytes"}.items():
        assert samples("duly_stored_bytes", queue="orders", state=state) == getattr(before, name), state
    assert before.dead_why_bytes
    for state, name in {"dead": "dead_why_bytes", "done": "done_why_bytes"}.items():
        assert samples("duly_stored_why_bytes", queue="orders", state=state) == getattr(before, name), state
    for name in definitions._COUNTER_HELP:
        assert samples(f"duly_{name}_total", queue="orders") == getattr(before, name), name
    assert (before.ready, before.dead, before.duplicates, before.bytes > 0) == (2, 1, 1, True)
    assert samples("duly_corrected", queue="orders") == 0
    assert samples("duly_paused", queue="orders") == 1
    assert samples("duly_lateness_seconds", queue="orders") == before.lateness
    assert before.oldest_age <= (samples("duly_oldest_age_seconds", queue="orders") or -1) <= after.oldest_age
    assert before.next_due_in is not None
    assert after.next_due_in is not None
    assert after.next_due_in <= (samples("duly_next_due_seconds", queue="orders") or -1) <= before.next_due_in
    assert samples("duly_up") == 1
    assert samples("duly_build_info", version=duly.__version__, python=platform.python_version()) == 1
    assert (samples("duly_scrape_seconds") or 0) > 0
    assert samples("duly_queues_left_out") == 0


async def test_absent_values_are_not_exported(app: AsyncDuly) -> None:
    await app.queue("orders").send("now")

    samples = await run_scrape(app)

    assert samples("duly_messages", queue="orders", state="ready") == 1
    assert samples("duly_next_due_seconds", queue="orders") is None
    assert samples("duly_paused", queue="orders") == 0
    assert (samples("duly_workers"), samples("duly_schedules")) == (0, 0)
    assert samples("duly_queue_workers", queue="orders") == 0
    assert samples.labels("duly_unreadable", "name") == []


async def test_the_metrics_of_a_topic_and_its_groups_equal_their_stats(app: AsyncDuly) -> None:
    events = app.topic("events")
    archive = events.group("archive", headers={"kind": "paid"})
    await archive.create()
    await events.publish("one", headers={"kind": "paid"}, dedup="x")
    await events.publish("one", headers={"kind": "paid"}, dedup="x")
    await events.publish("two")
    await events.publish("three", headers={"kind": "paid"})
    await events.publish("later", delay=3600)
    await archive.receive(limit=1, wait=0)
    await archive.receive(limit=1, wait=0)
    await events.publish("four")

    samples = await run_scrape(app)
    topic, (info,), stats = await events.stats(), await events.groups(), await archive.stats()

    for name in ("length", "bytes", "delayed", "groups"):
        assert samples(f"duly_topic_{name}", topic="events") == getattr(topic, name), name
    for name in ("published", "duplicates", "trimmed"):
        assert samples(f"duly_topic_{name}_total", topic="events") == getattr(topic, name), name
    for name in ("unread", "pending", "consumers"):
        assert samples(f"duly_group_{name}", topic="events", group="archive") == getattr(info, name), name
    assert samples("duly_group_missed_total", topic="events", group="archive") == info.missed
    assert samples("duly_group_filtered_total", topic="events", group="archive") == stats.filtered
    for state in ("ready", "delayed", "parked", "dead"):
        assert samples("duly_messages", queue="events/archive", state=state) == getattr(info, state), state
    assert samples("duly_delivered_total", queue="events/archive") == stats.delivered == 2
    assert (topic.length, topic.duplicates, topic.delayed, info.unread, stats.filtered) == (4, 1, 1, 1, 1)


async def test_workers_are_exported(app: AsyncDuly) -> None:
    await app.queue("orders").send("x")
    await app.topic("events").group("archive").create()
    await beat(app, "h:1", "orders", "events/archive")
    await beat(app, "h:2", "orders")

    samples = await run_scrape(app)
    latest = {each.id: each for each in await app.workers()}

    assert samples("duly_workers") == 2
    assert samples("duly_queue_workers", queue="orders") == 2
    assert samples("duly_queue_workers", queue="events/archive") == 1
    assert samples("duly_worker_concurrency", worker="h:1") == 16
    assert samples("duly_worker_in_flight", worker="h:1") == 3
    assert samples("duly_worker_handled_total", worker="h:1") == 99
    assert 0 <= (samples("duly_worker_last_beat_seconds", worker="h:1") or 0) <= latest["h:1"].last_beat
    assert 0.5 <= (samples("duly_worker_last_poll_seconds", worker="h:1") or 0) <= (latest["h:1"].last_poll or 0)


def worker(name: str, last_beat: float, last_poll: float | None) -> WorkerInfo:
    return WorkerInfo(name, "h", 1, ("orders",), 1, 0, 0, datetime.now(UTC), last_poll, last_beat, "1")


def test_a_worker_without_a_heartbeat_for_15_seconds_is_not_counted() -> None:
    workers = [worker("a", 15.0, None), worker("b", 15.1, 15.1)]
    samples = of_scrape(Scrape(is_up=True, queues={"orders": numbered(Stats)}, workers=workers))

    assert samples("duly_workers") == 1
    assert samples("duly_queue_workers", queue="orders") == 1
    assert samples.labels("duly_worker_last_beat_seconds", "worker") == ["a", "b"]
    assert samples.labels("duly_worker_last_poll_seconds", "worker") == ["b"]


async def test_schedules_are_exported(app: AsyncDuly) -> None:
    await app.schedule("nightly", "sweep", "x", cron="0 3 * * *")
    await app.schedule("often", "sweep", "x", every=60)
    await app.pause_schedule("often")

    nightly = (await app.schedules())[0]
    samples = await run_scrape(app)

    assert samples("duly_schedules") == 2
    assert samples("duly_schedule_paused", schedule="nightly", queue="sweep") == 0
    assert samples("duly_schedule_paused", schedule="often", queue="sweep") == 1
    assert nightly.next_at is not None
    # If the clock has passed 3 o'clock in between, it is the next day.
    shown = samples("duly_schedule_next_run_timestamp_seconds", schedule="nightly", queue="sweep")
    assert shown in (nightly.next_at.timestamp(), nightly.next_at.timestamp() + 86400)
    assert samples("duly_schedule_next_run_timestamp_seconds", schedule="often", queue="sweep") is None


# Completeness

NOT_AS_A_NUMBER = {
    "Stats.paused": "the name is for people; duly_paused has the state",
    "Stats.unread": "duly_group_unread has it, of groups of other programs as well",
    "Stats.missed": "duly_group_missed_total has it, of groups of other programs as well",
    "Stats.lateness_times": "a histogram",
    "Stats.handling_times": "a histogram",
    "Stats.history": "a scrape shows one moment",
    "TopicStats.first_id": "an id",
    "TopicStats.last_id": "an id",
    "GroupInfo.name": "a label",
    "GroupInfo.last_id": "an id",
    "GroupInfo.ready": "duly_messages has it, of the queue topic/group",
    "GroupInfo.delayed": "duly_messages has it, of the queue topic/group",
    "GroupInfo.parked": "duly_messages has it, of the queue topic/group",
    "GroupInfo.dead": "duly_messages has it, of the queue topic/group",
}


def numbered(kind: Any, first: int = 1000) -> Any:
    """Create an object with a different number in every field, and without times."""
    fields = [each.name for each in dataclasses.fields(kind)]
    numbers: dict[str, Any] = dict(zip(fields, range(first, first + len(fields)), strict=True))
    if kind is Stats:
        numbers |= {"lateness_times": Histogram.empty(), "handling_times": Histogram.empty(), "history": ()}
    return kind(**numbers)


def of_scrape(scrape: Scrape) -> Scraped:
    return Scraped(samples_of(read_text(generate_latest(metrics._Families(scrape)).decode())))


def missing_fields(scrape: Scrape, *shown: Any) -> list[str]:
    numbers = set(of_scrape(scrape).samples.values())
    return [
        f"{type(each).__name__}.{name}"
        for each in shown
        for name, number in vars(each).items()
        if number not in numbers
    ]


def test_every_field_is_exported_or_listed_with_the_reason() -> None:
    stats, topic, info = numbered(Stats), numbered(TopicStats, 2000), numbered(GroupInfo, 3000)
    row = GroupRow("archive", info.pending, info.consumers, "0-0", info.unread, info.missed)
    scrape = Scrape(
        is_up=True, queues={"events/archive": stats}, topics={"events": topic}, groups={("events", "archive"): row}
    )

    assert missing_fields(scrape, stats, topic, info) == list(NOT_AS_A_NUMBER)


async def test_times_of_workers_are_histograms(app: AsyncDuly) -> None:
    """new-3."""
    orders = app.queue("orders")
    await orders.send("x")
    await app.queue("quiet").send("x")
    await app._link.run(ops.measure(orders._keys, "2500,1,2", "90,4"))

    samples = await run_scrape(app)

    lateness = "duly_delivery_lateness_seconds"
    assert samples(f"{lateness}_bucket", queue="orders", le="0.001") == 1
    assert samples(f"{lateness}_bucket", queue="orders", le="0.005") == 3
    assert samples(f"{lateness}_bucket", queue="orders", le="+Inf") == 3
    assert (samples(f"{lateness}_count", queue="orders"), samples(f"{lateness}_sum", queue="orders")) == (3, 0.0025)
    assert samples("duly_handling_seconds_count", queue="orders") == 4
    assert samples("duly_handling_seconds_count", queue="quiet") is None


def test_metric_names_follow_the_conventions() -> None:
    names = [each.name for each in METRICS]

    assert len(set(names)) == len(names)
    assert [name for name in names if not re.fullmatch(r"duly_[a-z]+(_[a-z]+)*", name)] == []
    assert [each.name for each in METRICS if (each.kind == "counter") != each.name.endswith("_total")] == []
    assert [each.name for each in METRICS if not each.description.endswith(".") or "|" in each.description] == []


async def test_only_metrics_of_the_table_are_exported(site_app: AsyncDuly) -> None:
    await site_app.queue("orders").send("x")

    async with client_of(create_app(site_app)) as client:
        text = (await client.get("/metrics")).text

    assert {(each.name, each.type) for each in read_text(text)} == {
        (each.name.removesuffix("_total"), each.kind) for each in METRICS
    }


# Formats and labels


async def test_openmetrics_is_returned_if_accepted(site_app: AsyncDuly) -> None:
    await site_app.queue("orders").send("x")

    async with client_of(create_app(site_app)) as client:
        response = await client.get("/metrics", headers=OPENMETRICS)
        plain = parsed(await client.get("/metrics", headers={"Accept": "text/html, text/plain;version=x, */*"}))

    assert response.text.endswith("# EOF\n")
    samples = told_openly(response)
    assert samples("duly_sent_total", queue="orders") == plain("duly_sent_total", queue="orders") == 1
    assert set(samples.samples) == set(plain.samples)


@pytest.mark.parametrize("version", ["abc", "1.x", "", "99.0.0"])
async def test_an_unknown_version_of_openmetrics_is_answered(client: httpx.AsyncClient, version: str) -> None:
    response = await client.get("/metrics", headers={"Accept": f"application/openmetrics-text;version={version}"})

    assert response.status_code == 200
    assert "version=1.0.0" in response.headers["content-type"]


FOREIGN = {
    "quotes": b'a"b',
    "a line": b'x"} 1\nduly_up 0\n',
    "backslashes": b"\\n\\",
    "braces": b'{},="',
    "Chinese": "组".encode(),
    "NUL": b"a\x00b",
    "CR": b"a\rb",
    "separator": "a\u2028b".encode(),
}


async def test_a_group_of_another_program_may_have_any_name(server_app: AsyncDuly, raw: Any) -> None:
    events = server_app.topic("events")
    await events.publish("x")
    for name in [*FOREIGN.values(), b"\xff\xfe", b"l" * 100_000 + b"1", b"l" * 100_000 + b"2"]:
        await raw.xgroup_create(events.stream, name, id="0")

    async with client_of(create_app(server_app)) as client:
        plain = parsed(await client.get("/metrics"))
        opened = told_openly(await client.get("/metrics", headers=OPENMETRICS))

    expected = sorted([*(name.decode() for name in FOREIGN.values()), r"\xff\xfe", "l" * 255 + "…"])
    for samples in (plain, opened):
        assert samples.labels("duly_group_unread", "group") == expected
        assert samples("duly_group_unread", topic="events", group='a"b') == 1
        assert samples("duly_up") == 1
        assert samples("duly_topic_groups", topic="events") == len(FOREIGN) + 3
        assert samples.labels("duly_messages", "queue") == []


# Permissions


async def test_a_token_is_required(site_app: AsyncDuly) -> None:
    async with client_of(create_app(site_app, tokens=TOKENS)) as client:
        rejected = await client.get("/metrics")
        wrong = await client.get("/metrics", headers={"Authorization": "Bearer not-a-token-of-it"})
        viewer = await client.get("/metrics", headers=authorization("viewer"))

    assert (rejected.status_code, rejected.headers["www-authenticate"]) == (401, "Bearer")
    assert "duly_" not in rejected.text
    assert (wrong.status_code, wrong.text) == (401, "this token is not known to this dashboard\n")
    assert parsed(viewer)("duly_up") == 1


async def test_open_metrics_require_no_token(site_app: AsyncDuly) -> None:
    async with client_of(create_app(site_app, tokens=TOKENS, open_metrics=True)) as client:
        assert parsed(await client.get("/metrics"))("duly_up") == 1


# Errors affect nothing else


TOLD_ALWAYS = {"duly_up", "duly_scrape_seconds", "duly_scrape_timed_out", "duly_build_info"}


def assert_away(samples: Scraped) -> None:
    assert samples("duly_up") == 0
    assert samples("duly_scrape_timed_out") == 0
    assert {name for name, _ in samples.samples} == TOLD_ALWAYS


async def test_an_unavailable_server_is_down() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # a port without a listener
        async with AsyncDuly(f"redis://127.0.0.1:{unused.getsockname()[1]}", patience=0.1) as app:
            assert_away(await run_scrape(app))


async def test_a_server_that_does_not_answer_is_down_before_calls_time_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scraping, "_SCRAPE_TIMEOUT", 60.0)  # the first call detects it
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with AsyncDuly(f"redis://127.0.0.1:{silent.getsockname()[1]}", patience=60) as app:
            began = time.monotonic()
            assert_away(await run_scrape(app))
            assert time.monotonic() - began < 20

    assert scraping._CALL_TIMEOUT + LEAVING_TIMEOUT < 3


async def test_a_server_that_rejects_commands_is_down(caplog: pytest.LogCaptureFixture, server: StartedServer) -> None:
    async with AsyncDuly(f"redis://nobody:wrong@127.0.0.1:{server('valkey').port}") as app:
        assert_away(await run_scrape(app))

    assert "refused the connection" in caplog.text
    assert "wrong@" not in caplog.text


async def test_a_server_that_fails_during_a_scrape_is_down(
    site_app: AsyncDuly, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        await site_app.queue(name).send("x")

    async def gone(queue: Any) -> Any:
        if queue.name == "b":
            raise duly.Unavailable("gone")
        return numbered(Stats)

    monkeypatch.setattr(duly.AsyncQueue, "stats", gone)

    assert_away(await run_scrape(site_app))


async def test_an_unreadable_queue_does_not_affect_others(server_app: AsyncDuly, raw: Any) -> None:
    for name in ("broken", "whole"):
        await server_app.queue(name).send("x")
        await server_app.topic(name).publish("x")
    whole = server_app.topic("whole")
    for name in ("broken", "whole"):
        await whole.group(name).create()
    space = server_app.namespace
    for key in (f"{space}:{{broken}}:meta", f"{space}:{{@broken}}:meta", f"{space}:{{@whole}}:group:broken:meta"):
        field = "published" if "@broken" in key else "sent"
        await raw.hset(key, field, "a nonsense")

    samples = await run_scrape(server_app)

    unreadable = {tuple(sorted(labels)) for name, labels in samples.samples if name == "duly_unreadable"}
    assert unreadable == {
        (("kind", kind), ("name", name))
        for kind, name in (("queue", "broken"), ("topic", "broken"), ("queue", "whole/broken"))
    }
    assert samples("duly_up") == 1
    assert samples.labels("duly_sent_total", "queue") == ["whole", "whole/whole"]
    assert samples.labels("duly_topic_length", "topic") == ["whole"]
    assert samples.labels("duly_group_unread", "group") == ["broken", "whole"]


async def test_a_group_whose_stream_was_removed_is_exported(server_app: AsyncDuly, raw: Any) -> None:
    events = server_app.topic("events")
    await events.group("archive").create()
    await raw.delete(events.stream)

    samples = await run_scrape(server_app)

    assert samples("duly_group_unread", topic="events", group="archive") == 0
    assert samples("duly_messages", queue="events/archive", state="ready") == 0


# Limits


async def test_objects_above_the_limit_are_counted(site_app: AsyncDuly, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        await site_app.queue(name).send("x")
    for topic in ("t", "u", "v", "w"):
        await site_app.topic(topic).group("g").create()
    monkeypatch.setattr(scraping, "MAX_ITEMS", 3)

    samples = await run_scrape(site_app)

    assert samples.labels("duly_sent_total", "queue") == ["a", "b", "t/g"]
    assert samples.labels("duly_topic_length", "topic") == ["t", "u", "v"]
    assert samples("duly_queues_left_out") == 3, "topic w, and groups u/g and v/g"


def test_a_scrape_has_at_most_1000_queues_and_groups_and_20_calls_at_once() -> None:
    assert (scraping.MAX_ITEMS, scraping.MAX_CONCURRENT) == (1000, 20)


async def test_concurrent_calls_of_a_scrape_are_limited(site_app: AsyncDuly, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(60):
        await site_app.queue(f"q{number}").send("x")
    under_way = most = 0

    async def slowly(_: Any) -> Stats:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        found: Stats = numbered(Stats)
        return found

    monkeypatch.setattr(duly.AsyncQueue, "stats", slowly)
    samples = await run_scrape(site_app)

    assert most == 20
    assert len(samples.labels("duly_sent_total", "queue")) == 60


async def test_a_scrape_that_times_out_does_not_report_the_server_as_down(
    site_app: AsyncDuly, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site_app.queue("orders").send("x")

    async def endless(_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(duly.AsyncQueue, "stats", endless)
    monkeypatch.setattr(scraping, "_SCRAPE_TIMEOUT", 0.05)

    samples = await run_scrape(site_app)

    assert (samples("duly_up"), samples("duly_scrape_timed_out")) == (1, 1)
    assert {name for name, _ in samples.samples} == TOLD_ALWAYS


async def test_concurrent_scrapes_are_shared(site_app: AsyncDuly, monkeypatch: pytest.MonkeyPatch) -> None:
    await site_app.queue("orders").send("x")
    looks, look = list[str](), duly.AsyncQueue.stats

    async def counted(queue: Any) -> Any:
        looks.append(queue.name)
        return await look(queue)

    monkeypatch.setattr(duly.AsyncQueue, "stats", counted)
    async with client_of(create_app(site_app, open_metrics=True)) as client:
        responses = await asyncio.gather(*(client.get("/metrics", headers=each) for each in [{}, OPENMETRICS] * 6))

    assert looks == ["orders"]
    assert [parsed(each)("duly_up") for each in responses[::2]] == [1] * 6
    assert [told_openly(each)("duly_up") for each in responses[1::2]] == [1] * 6


async def test_concurrent_scrapes_return_the_same_values(site_app: AsyncDuly) -> None:
    for number in range(30):
        await site_app.queue(f"q{number}").send("x")
        await site_app.topic(f"t{number}").publish("x")

    async with client_of(create_app(site_app)) as client:
        responses = await asyncio.gather(*(client.get("/metrics") for _ in range(5)))

    first, *others = (parsed(each).samples for each in responses)
    of_time = ("duly_scrape_seconds", "duly_oldest_age_seconds")
    for other in others:
        assert set(other) == set(first)
        assert [key for key in first if first[key] != other[key] and key[0] not in of_time] == []


# Documentation

ROW = re.compile(r"^\| `(duly_\w+)` \| (\w+) \| (.*?) ?\| (\S.*) \|$", re.MULTILINE)


def table_of(page: str) -> list[tuple[str, str, tuple[str, ...], str]]:
    rows = ROW.findall((ROOT / page).read_text())
    return [(name, kind, tuple(re.findall(r"`(\w+)`", labels)), says) for name, kind, labels, says in rows]


@pytest.mark.parametrize("page", PAGES)
def test_the_table_of_the_page_has_the_metrics_of_the_code(page: str) -> None:
    assert [row[:3] for row in table_of(page)] == [(each.name, each.kind, each.labels) for each in METRICS]


def test_the_page_describes_metrics_like_the_scrape() -> None:
    assert [says.replace("`", "") for *_, says in table_of(PAGES[0])] == [each.description for each in METRICS]


def yaml_of(page: str) -> list[Any]:
    yaml = pytest.importorskip("yaml")
    return [
        yaml.safe_load(block)
        for block in re.findall(r"^```yaml\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    ]


@pytest.mark.parametrize("page", PAGES)
def test_the_configuration_on_the_page_uses_a_token_file(page: str) -> None:
    (job,) = yaml_of(page)[0]["scrape_configs"]

    assert job["authorization"] == {"credentials_file": "/etc/prometheus/duly-token"}
    assert job.get("metrics_path", "/metrics") == "/metrics"
    assert job["static_configs"][0]["targets"]


def alerts_of(page: str) -> list[Any]:
    (group,) = yaml_of(page)[1]["groups"]
    rules: list[Any] = group["rules"]
    return rules


@pytest.mark.parametrize("page", PAGES)
def test_the_alerts_on_the_page_use_existing_metrics(page: str) -> None:
    known = {each.name for each in METRICS}
    rules = alerts_of(page)

    assert [each["alert"] for each in rules] == [
        "DulyDown", "DulyNoWorkers", "DulyOldestAge", "DulyDeadLetters", "DulyLate", "DulyMemory",
    ]  # fmt: skip
    for rule in rules:
        named = set(re.findall(r"\bduly_\w+", str(rule["expr"])))
        assert named, rule
        assert named <= known, rule
        assert rule["annotations"]["summary"]


def test_both_pages_have_the_same_rules() -> None:
    ours, theirs = ([(each["expr"], each.get("for")) for each in alerts_of(page)] for page in PAGES)

    assert ours == theirs


@pytest.mark.parametrize("page", PAGES)
def test_states_in_alerts_exist(page: str) -> None:
    named = [state for rule in alerts_of(page) for state in re.findall(r'state="(\w+)"', rule["expr"])]

    assert named
    assert set(named) <= set(STATES)
