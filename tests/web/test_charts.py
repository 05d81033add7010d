"""Charts of the history on the pages, and the history over HTTP."""

from __future__ import annotations

import dataclasses
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from xml.etree import ElementTree as ET

import httpx
import pytest

from duly import AsyncDuly, Bucket, Histogram, HistoryPoint
from duly.web import create_app
from duly.web.pages import charts
from tests.web.conftest import TOKENS, authorization, client_of

START = datetime(2026, 1, 2, 3, 0, tzinfo=UTC)


def point(minute: int, sent: int = 0, depth: int | None = 0, **more: int) -> HistoryPoint:
    counts = dict.fromkeys(("delivered", "acked", "retried", "crashed", "dead", "expired"), 0) | more
    start, empty = START + timedelta(minutes=minute), Histogram.empty()
    end = start + timedelta(minutes=1)
    return HistoryPoint(start, end, sent, **counts, depth=depth, oldest_age=0.0, lateness=empty, handling=empty)


def numbers_in(path: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", path)]


def test_a_line_stays_within_its_axes_and_has_a_gap_for_unknown_values() -> None:
    history = [point(minute, sent=minute * 7, depth=None if minute == 5 else minute) for minute in range(10)]

    drawn = charts.charts_of(history)

    assert [chart.title for chart in drawn][:2] == ["Messages per minute", "Backlog"]
    backlog = drawn[1].lines[0].path
    assert backlog.count("M") == 2
    for chart in drawn:
        for line in chart.lines:
            assert all(0 <= number <= charts.WIDTH for number in numbers_in(line.path))
        assert chart.upwards[0][1] in ("0", "0s")
        assert len(chart.across) <= 7
        assert chart.across[0][1] == "03:00"


def test_the_interval_that_is_not_over_has_no_counts() -> None:
    sent = charts.charts_of([point(0, sent=5), point(1, sent=1)])[0].lines[0]

    assert (sent.name, sent.last) == ("sent", "5")


def test_histories_are_added_up_by_time() -> None:
    summed = charts.total([[point(0, sent=1), point(1, sent=2, depth=3)], [point(1, sent=5, depth=None)], []])

    assert [(each.start.minute, each.sent, each.depth) for each in summed] == [(0, 1, 0), (1, 7, 3)]


def ticks_of(kind: str, largest: float) -> list[str]:
    """Return the ticks of the vertical axis of a chart whose largest value is given."""
    history = [dataclasses.replace(point(minute), depth=int(largest), oldest_age=largest) for minute in range(3)]
    chart = next(each for each in charts.charts_of(history) if each.title == kind)
    return [text for _, text in chart.upwards]


@pytest.mark.parametrize(
    ("largest", "ticks"),
    [
        (0, ["0", "1"]),
        (3, ["0", "1", "2", "3"]),
        (9, ["0", "2", "4", "6", "8", "10"]),
        (3300, ["0", "1,000", "2,000", "3,000", "4,000"]),
        (5000, ["0", "1,000", "2,000", "3,000", "4,000", "5,000"]),
    ],
)
def test_counts_on_an_axis_are_whole_and_easy_to_read(largest: float, ticks: list[str]) -> None:
    assert ticks_of("Backlog", largest) == ticks


@pytest.mark.parametrize(
    ("largest", "ticks"),
    [
        (0.03, ["0s", "10ms", "20ms", "30ms"]),
        (2.5, ["0s", "500ms", "1s", "1.5s", "2s", "2.5s"]),
        (40, ["0s", "10s", "20s", "30s", "40s"]),
        (139, ["0s", "30s", "1m", "1m 30s", "2m", "2m 30s"]),
        (90_000, ["0s", "6h", "12h", "18h", "1d", "1d 6h"]),
    ],
)
def test_durations_on_an_axis_are_easy_to_read(largest: float, ticks: list[str]) -> None:
    assert ticks_of("Age of the oldest message", largest) == ticks


@pytest.mark.parametrize(
    ("minutes", "begins", "ticks"),
    [
        (4, "03:01", ["03:01", "03:02", "03:03", "03:04", "03:05"]),
        (60, "03:07", ["03:10", "03:20", "03:30", "03:40", "03:50", "04:00"]),
        (24 * 60, "03:20", ["04:00", "08:00", "12:00", "16:00", "20:00", "00:00"]),
        (7 * 24 * 60, "03:00", ["01-03", "01-04", "01-05", "01-06", "01-07", "01-08", "01-09"]),
    ],
)
def test_times_on_an_axis_are_round(minutes: int, begins: str, ticks: list[str]) -> None:
    first = START.replace(minute=int(begins[-2:]))
    step = max(minutes // 60, 1)
    starts = [first + timedelta(minutes=each) for each in range(0, minutes, step)]
    history = [dataclasses.replace(point(0), start=each, end=each + timedelta(minutes=step)) for each in starts]

    for chart in charts.charts_of(history):
        assert [text for _, text in chart.across] == ticks
        assert all(54 <= x <= charts.WIDTH - 10 for x, _ in chart.across)


@pytest.fixture
async def client() -> httpx.AsyncClient:
    app = AsyncDuly("memory://")
    await app.queue("orders").send_many(["a", "b"])
    await app.topic("events").publish("x")
    await app.topic("events").group("archive").receive(limit=1, wait=0)
    return client_of(create_app(app, tokens=TOKENS))


@pytest.mark.parametrize("page", ["/", "/queues/orders", "/topics/events/groups/archive"])
@pytest.mark.parametrize("span", ["", "?history=24h", "?history=7d", "?history=nonsense"])
async def test_pages_have_charts_that_need_no_script_and_no_style(
    client: httpx.AsyncClient, page: str, span: str
) -> None:
    text = (await client.get(page + span, headers=authorization("viewer"))).text

    drawn = re.findall(r"<figure class=\"chart\">.*?</figure>", text, re.DOTALL)
    assert len(drawn) == 4
    for figure in drawn:
        ET.fromstring(figure)  # well-formed
        assert "style=" not in figure
        assert "Messages per minute" in drawn[0]


@pytest.mark.parametrize(("span", "drawn"), [("", 5), ("?history=7d", 5)])
async def test_messages_that_become_due_have_a_chart(client: httpx.AsyncClient, span: str, drawn: int) -> None:
    """new-14."""
    token = authorization("operator")
    await client.post("/api/v1/queues/orders/messages", json={"body": 1, "delay": 60, "spread": 60}, headers=token)

    text = (await client.get("/queues/orders" + span, headers=authorization("viewer"))).text

    figures = re.findall(r"<figure class=\"chart\">.*?</figure>", text, re.DOTALL)
    assert len(figures) == drawn
    assert "Messages that become due" in figures[-1]
    ET.fromstring(figures[-1])


def test_bars_stay_within_their_axes() -> None:
    minutes = [START + timedelta(minutes=n) for n in range(11)]
    buckets = [Bucket(*each, n % 4) for n, each in enumerate(pairwise(minutes))]

    (chart,) = charts.forecast_charts(buckets)

    assert (chart.lines[0].name, chart.lines[0].last) == ("in all", "13")
    assert chart.lines[0].path.count("M") == sum(bucket.count > 0 for bucket in buckets)
    assert all(0 <= number <= charts.WIDTH for number in numbers_in(chart.lines[0].path))
    assert charts.forecast_charts([Bucket(*each, 0) for each in pairwise(minutes)]) == []


async def test_the_forecast_over_http(client: httpx.AsyncClient) -> None:
    """new-14."""
    later = [{"body": n, "delay": 60 * n} for n in range(1, 4)]
    await client.post("/api/v1/queues/orders/messages", json=later, headers=authorization("operator"))

    found = (await client.get("/api/v1/queues/orders/forecast?ahead=150", headers=authorization("viewer"))).json()
    wrong = await client.get("/api/v1/queues/orders/forecast?ahead=soon", headers=authorization("viewer"))

    assert (found["name"], sum(each["count"] for each in found["forecast"])) == ("orders", 2)
    assert (wrong.status_code, "ahead must be" in wrong.json()["detail"]) == (422, True)


async def test_the_history_over_http(client: httpx.AsyncClient) -> None:
    answer = await client.get("/api/v1/queues/orders/history?since=10m", headers=authorization("viewer"))
    wrong = await client.get("/api/v1/queues/orders/history?since=1y", headers=authorization("viewer"))

    found = answer.json()
    assert (found["name"], sum(each["sent"] for each in found["history"])) == ("orders", 2)
    assert len(found["bounds"]) + 1 == len(found["history"][0]["lateness"]["counts"])
    assert (wrong.status_code, "history must be" in wrong.json()["detail"]) == (422, True)
