"""The attempts at a message, from its timeline."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

import duly
from duly.message import Event, Message
from duly.web.pages.attempts import WIDTH, attempts_of

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def event(seconds: float, what: str, took: float | None = None, detail: str = "") -> Event:
    return Event(at(seconds), what, "w", detail, took)


def message(*events: Event, state: Any = "dead", failures: int = 0, **more: Any) -> Message:
    due = more.pop("due_at", BEGIN)
    return Message("1", "q", state, 1, b"1", {}, None, 0, BEGIN, due, failures, 0, 0, 0, timeline=events, **more)


def test_each_delivery_is_a_row_with_its_waiting_running_and_back_off() -> None:
    rows = attempts_of(
        message(
            event(0, "sent"),
            event(2, "claimed"),
            event(3, "retry", 1, "first"),
            event(7, "claimed"),
            event(7.25, "fail", 0.25, "second"),
            failures=2,
        ),
        at(100),
    )

    assert [(each.number, each.outcome, each.detail) for each in rows] == [(1, "retry", "first"), (2, "fail", "second")]
    assert [(each.waiting, each.running, each.back_off) for each in rows] == [(2, 1, 4), (None, 0.25, None)]


def test_the_present_is_the_last_row() -> None:
    events = (event(0, "sent"), event(2, "claimed"), event(3, "retry", 1))

    (retried,) = attempts_of(message(*events, state="delayed", failures=1, due_at=at(13)), at(5))
    *_, running = attempts_of(message(*events, event(9, "claimed"), state="leased", failures=1), at(10.5))
    (waiting,) = attempts_of(message(event(0, "sent"), state="ready"), at(4))
    redriven = attempts_of(message(*events, event(6, "redrive"), state="ready"), at(8))

    assert retried.back_off == 10
    assert (running.number, running.outcome, running.running) == (2, "running", 1.5)
    assert (waiting.number, waiting.outcome, waiting.waiting) == (None, "waiting", 4)
    assert [(each.number, each.outcome) for each in redriven] == [(1, "retry"), (None, "waiting")]
    assert redriven[-1].waiting == 2


def test_releases_have_no_number_and_a_redrive_starts_from_one() -> None:
    rows = attempts_of(
        message(
            event(0, "sent"),
            event(1, "claimed"),
            event(2, "release", 1),
            event(3, "claimed"),
            event(4, "fail", 1),
            event(5, "redrive"),
            event(6, "claimed"),
            event(7, "fail", 1),
            failures=1,
        ),
        at(100),
    )

    assert [(each.number, each.outcome) for each in rows] == [(None, "release"), (1, "fail"), (1, "fail")]


def test_a_timeline_that_begins_late_has_the_right_numbers() -> None:
    events = [each for n in range(20) for each in (event(10 * n, "claimed"), event(10 * n + 1, "retry", 1))]

    rows = attempts_of(message(event(0, "sent"), *events, state="ready", failures=30), at(1000))

    assert [each.number for each in rows] == list(range(11, 31))


def test_bars_fit_and_the_shortest_part_is_visible() -> None:
    rows = attempts_of(
        message(event(0, "sent"), event(0, "claimed"), event(0.001, "retry", 0.001), event(86_400, "claimed")), at(1)
    )

    for row in rows:
        assert all(each.width >= 2 for each in row.bars)
        assert sum(each.width for each in row.bars) <= WIDTH


async def test_the_page_has_a_row_with_bars_for_each_attempt(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    orders = site_app.queue("orders")
    id_ = await orders.send(1)
    for number in range(2):
        (delivery,) = await orders.receive(1, wait=0)
        await delivery.retry(delay=0, error=f"error {number}")

    page = await client.get(f"/queues/orders/messages/{id_}")

    assert page.text.count('<svg class="bars"') == 2
    assert "1 retry" in page.text
    assert "2 retry" in page.text
    assert '<path class="running"' in page.text


async def test_tiles_of_states_are_links_to_their_lists(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    await site_app.queue("orders").send(1)

    page = (await client.get("/queues/orders")).text

    assert '<a href="/queues/orders?state=ready#messages">1</a>' in page
    assert '<a href="/queues/orders/dead">0</a>' in page
