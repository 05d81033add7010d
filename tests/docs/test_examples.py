"""The examples from practice hold what they promise: driven with the virtual clock, to the microsecond."""

import importlib.util
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import duly
from duly.testing import Clock, awork_off, work_off

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
MINUTE, HOUR, DAY = 60, 3600, 24 * 3600
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def clock(duly_clock: Clock) -> Clock:
    duly_clock.freeze()
    return duly_clock


@pytest.fixture
def example(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Import an example, by its number: its app and handlers are as new."""
    monkeypatch.setenv("DULY_URL", "memory://")
    [path] = (ROOT / "examples").glob(f"{request.param}_*.py")
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    if isinstance(module.app, duly.Duly):
        module.app.close()


def of(number: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("example", [number], indirect=True)


def due_us(queue: duly.Queue, id_: str) -> int:
    message = queue.get(id_)
    assert message is not None
    assert message.due_at is not None
    return (message.due_at - EPOCH) // timedelta(microseconds=1)


# Unpaid orders


@of("26")
def test_an_unpaid_order_is_closed_after_half_an_hour_and_not_a_microsecond_earlier(example: Any, clock: Clock) -> None:
    placed_at = clock.now_us()
    example.place(1)
    closing_at = due_us(example.closing, "close-1")
    assert 0 <= closing_at - placed_at - 30 * MINUTE * 1_000_000 < 1000

    clock.set_us(closing_at - 1)
    work_off(example.app)
    assert example.orders == {1: "open"}

    clock.set_us(closing_at)
    work_off(example.app)
    assert example.orders == {1: "closed"}


@of("26")
def test_a_paid_order_is_never_closed(example: Any, clock: Clock) -> None:
    example.place(1)
    clock.set_us(due_us(example.closing, "close-1") - 1)  # at the last moment
    assert example.pay(1)

    assert work_off(example.app, advance=30 * DAY) == []
    assert example.orders == {1: "paid"}


@of("26")
def test_a_payment_while_the_order_is_being_closed_is_kept(example: Any, clock: Clock) -> None:
    """The message is out already, so it cannot be kept from its handler."""
    example.place(1)
    clock.advance(30 * MINUTE)
    [d] = example.closing.receive(wait=0)
    assert example.pay(1)
    example.close(d.body)

    assert example.orders == {1: "paid"}


@of("26")
def test_a_closed_order_cannot_be_paid(example: Any) -> None:
    example.place(1)
    work_off(example.app, advance=30 * MINUTE)

    assert not example.pay(1)
    assert example.orders == {1: "closed"}


# Reminders


@of("20")
def test_reminders_come_at_growing_intervals_until_it_is_paid(example: Any, clock: Clock) -> None:
    start = clock.now_us() / 1_000_000
    example.await_payment(1)

    handled = work_off(example.app, advance=20 * MINUTE)
    assert example.minutes(handled, start) == [(1, 1), (1, 3), (1, 7), (1, 15)]
    assert example.sent == [(1, 1), (1, 2), (1, 3), (1, 4)]

    example.paid(1)
    assert work_off(example.app, advance=7 * DAY) == []


@of("20")
def test_a_reminder_that_gives_up_does_so(example: Any, clock: Clock) -> None:
    start = clock.now_us() / 1_000_000
    example.await_payment(3, example.THREE_TIMES)

    assert example.minutes(work_off(example.app, advance=DAY), start) == [(3, 1), (3, 3), (3, 7)]
    assert example.reminders.stats().live == 0


@of("20")
def test_an_order_has_one_message_however_often_it_is_asked_for(example: Any) -> None:
    example.await_payment(1)
    example.await_payment(1)

    assert example.reminders.stats().live == 1


# Text messages


@of("27")
def test_a_text_goes_out_two_minutes_after_the_sign_up_and_not_before(example: Any, clock: Clock) -> None:
    id_ = example.sign_up("138-1")
    assert example.sign_up("138-1") == id_

    clock.set_us(due_us(example.messages, id_) - 1)
    assert work_off(example.app) == []
    clock.advance(0.000001)
    work_off(example.app, advance=DAY)

    assert [phone for phone, _ in example.texted] == ["138-1"]


@of("27")
def test_a_gateway_that_is_down_costs_no_text(example: Any, clock: Clock) -> None:
    start = clock.now_us()
    example.sign_up("138-1")
    example.gateway["is_up"] = False
    failed = work_off(example.app, advance=2 * MINUTE + 15)
    example.gateway["is_up"] = True
    work_off(example.app, advance=DAY)

    assert [(each.attempt, each.outcome) for each in failed] == [(1, "retry"), (2, "retry")]
    [(phone, at)] = example.texted
    assert phone == "138-1"
    assert round(at - start / 1_000_000) == 2 * MINUTE + 10 + 60


# Accounts in a circle


@of("28")
def test_a_killed_consumer_loses_no_account_and_copies_none(example: Any, clock: Clock) -> None:
    circle = example.circle_of(example.app)
    circle.send_many([{"account": account} for account in example.ACCOUNTS])
    for _ in example.ACCOUNTS:
        example.check_what_is_due(circle, is_killed=True)
    assert circle.stats().leased == len(example.ACCOUNTS)

    clock.advance(example.LEASE)
    for _ in example.ACCOUNTS:
        example.check_what_is_due(circle)

    assert (circle.stats().delayed, circle.stats().live) == (len(example.ACCOUNTS),) * 2
    assert sorted(message.body["account"] for message in circle.list("delayed")) == example.ACCOUNTS


@of("28")
def test_a_late_consumer_cannot_send_a_second_copy(example: Any, clock: Clock) -> None:
    circle = example.circle_of(example.app)
    circle.send({"account": "wechat-1"})
    [slow] = circle.receive(wait=0)
    clock.advance(example.LEASE)
    example.check_what_is_due(circle)

    with pytest.raises(duly.LeaseLost):
        slow.recycle(delay=example.PAUSE)
    assert circle.stats().live == 1


@of("28")
def test_an_account_is_checked_again_after_the_pause(example: Any, clock: Clock) -> None:
    circle = example.circle_of(example.app)
    circle.send({"account": "wechat-1"})
    for _ in range(5):
        example.check_what_is_due(circle)
        clock.advance(example.PAUSE)

    assert len(example.checks["wechat-1"]) == 5


# Stock in order


@of("22")
async def test_the_stock_of_an_item_is_changed_in_order_despite_failures(example: Any) -> None:
    await example.change_stock()

    await awork_off(example.app, advance=HOUR)

    for item in example.ITEMS:
        assert example.history[example.ordered.name, item] == list(example.VALUES)
        assert sorted(example.history[example.unordered.name, item]) == sorted(example.VALUES)
    assert (await example.ordered.stats()).retried > 0
    assert (await example.ordered.stats()).live == 0


# A lock that is taken


@of("16")
async def test_an_order_that_finds_the_lock_taken_is_redelivered_and_spends_no_attempt(example: Any) -> None:
    async with example.app.lock("stock:book", ttl=600):
        await example.orders.send({"item": "book"})
        await example.orders.send({"item": "lamp"})
        first = await awork_off(example.app)
    second = await awork_off(example.app, advance=1)

    assert [(each.body["item"], each.outcome) for each in first] == [("book", "defer"), ("lamp", "ack")]
    assert [(each.body["item"], each.outcome, each.attempt) for each in second] == [("book", "ack", 1)]


@of("16")
async def test_the_delays_grow_and_a_lock_that_is_never_freed_ends_its_own_order(example: Any) -> None:
    async with example.app.lock("stock:book", ttl=600):
        id_ = await example.orders.send({"item": "book"})
        handled = await awork_off(example.app, advance=60)

    times = [each.at.timestamp() for each in handled]
    gaps = [round(later - sooner, 3) for sooner, later in pairwise(times)]
    assert gaps == [round(0.05 * 1.5**n, 3) for n in range(8)]
    assert [each.outcome for each in handled] == ["defer"] * 8 + ["dead"]
    message = await example.orders.get(id_)
    assert message.reason == "deferred 8 times: lock 'stock:book' was busy"


# Web apps


@of("29")
def test_a_flask_app_sends_now_and_for_later(example: Any) -> None:
    browser = example.web.test_client()
    answer = browser.post("/orders", json={"id": 1, "user": "ann"})
    assert answer.status_code == 202

    work_off(example.app)
    assert example.mailed == ["ann: thank you"]
    assert work_off(example.app, advance=2 * DAY - 1) == []
    work_off(example.app, advance=1)
    assert example.mailed == ["ann: thank you", "ann: did it arrive?"]


@of("29")
def test_a_flask_app_cancels_its_message(example: Any) -> None:
    browser = example.web.test_client()
    ids = browser.post("/orders", json={"id": 1, "user": "ann"}).get_json()

    assert browser.delete(f"/questions/{ids['question']}").get_json() == {"cancelled": True}
    assert browser.delete(f"/questions/{ids['question']}").get_json() == {"cancelled": False}
    work_off(example.app, advance=3 * DAY)
    assert example.mailed == ["ann: thank you"]


@of("29")
def test_a_flask_app_refuses_an_invalid_message(example: Any) -> None:
    answer = example.web.test_client().post("/orders", json={"id": 1, "user": "a" * (1 << 20)})

    assert answer.status_code == 422
    assert "example-flask-mails" in answer.get_json()["error"]
    assert example.mails.stats().sent == 0


@of("14")
async def test_a_fastapi_app_sends(example: Any) -> None:
    status, body = await asked(example.web, "/mails", {"to": "ann", "text": "hello"})
    assert status == 202

    [handled] = await awork_off(example.app, advance=1)

    assert (handled.id, handled.outcome) == (body["id"], "ack")
    assert example.is_sent.is_set()


@of("14")
async def test_a_fastapi_app_refuses_an_invalid_mail(example: Any) -> None:
    status, _ = await asked(example.web, "/mails", {"to": "ann"})

    assert status == 422
    assert (await example.mails.stats()).sent == 0


async def asked(web: Any, path: str, body: object) -> tuple[int, Any]:
    """Post to an ASGI app, as a server would."""
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
        "headers": [(b"content-type", b"application/json")], "client": ("test", 1), "server": ("test", 80),
    }  # fmt: skip
    said: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        said.append(message)

    await web(scope, receive, send)
    return said[0]["status"], json.loads(b"".join(message.get("body", b"") for message in said))


# The list


def test_the_readme_lists_all_examples_and_no_others() -> None:
    rows = re.findall(
        r"^\| \[(\w+)\]\((\w+\.py)\)(?: 🕐)? \| (.+) \|$", (ROOT / "examples/README.md").read_text(), re.MULTILINE
    )

    assert sorted(file for _, file, _ in rows) == [path.name for path in EXAMPLES]
    assert all(file == f"{name}.py" for name, file, _ in rows)
    assert len({shown for _, _, shown in rows}) == len(rows)


def test_the_clock_in_the_readme_marks_those_that_move_it() -> None:
    marked = set(re.findall(r"\((\w+\.py)\) 🕐", (ROOT / "examples/README.md").read_text()))

    assert marked == {path.name for path in EXAMPLES if "from duly.testing import" in path.read_text()}


def test_a_number_is_given_once() -> None:
    numbers = [int(path.name[:2]) for path in EXAMPLES]

    assert len(set(numbers)) == len(numbers) >= 29
