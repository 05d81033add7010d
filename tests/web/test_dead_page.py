"""The page of dead letters: groups, filters, and the forms that redrive and delete. No browser, no scripts."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any, Final
from urllib.parse import quote, unquote

import httpx
import pytest

import duly
from duly.web import create_app, scanning
from duly.web.pages import dead
from duly.web.pages.error_groups import grouped, pattern_of
from duly.web.pages.filters import Filter
from duly.web.scanning import Budget, scan
from tests.web.conftest import TokenClient, client_of

PAGE: Final = "/queues/orders/dead"
ORIGIN: Final = {"Origin": "http://localhost"}


async def die(queue: duly.AsyncQueue, *errors: str, **options: Any) -> list[str]:
    """Store one dead letter for each error, in this order."""
    ids = []
    for error in errors:
        ids.append(str(await queue.send({"error": error}, priority=9, **options)))
        (delivery,) = await queue.receive(1, wait=0)
        await delivery.retry(delay=0, error=error)
        (delivery,) = await queue.receive(1, wait=0)
        await delivery.reject("given up")
    return ids


def listed(page: httpx.Response) -> list[str]:
    """Return the ids in the table of letters."""
    return re.findall(r'href="/queues/orders/messages/([^"]+)"', page.text)


def boxes(page: httpx.Response) -> list[str]:
    """Return the values of the check boxes."""
    return re.findall(r'name="letter" value="([^"]+)"', page.text)


def hidden(page: httpx.Response) -> dict[str, list[str]]:
    """Return the hidden fields of the form that confirms."""
    form = page.text.partition('class="confirm"')[2].partition("</form>")[0]
    fields: dict[str, list[str]] = {}
    for name, value in re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', form):
        fields.setdefault(name, []).append(unescape(value))
    return fields


async def post(client: httpx.AsyncClient, path: str, fields: dict[str, Any]) -> httpx.Response:
    return await client.post(path, data=fields, headers=ORIGIN)


async def test_dead_letters_are_listed_from_the_newest_with_their_errors(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    ids = await die(site_app.queue("orders"), "alpha", "beta", "gamma")

    page = await client.get(PAGE)

    assert listed(page) == ids[::-1]
    assert page.text.index("gamma") < page.text.index("beta") < page.text.index("alpha")


async def test_dead_letters_are_grouped_by_error_with_counts(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    ids = await die(site_app.queue("orders"), "no stock for 17", "HTTP 503", "no stock for 4711", "HTTP 404")
    page = await client.get(PAGE)

    assert re.findall(r'<td class="number" data-label="Dead letters">(\d+)</td>', page.text) == ["2", "1", "1"]
    (link,) = re.findall(r'href="([^"]+)">no stock for \*<', page.text)
    assert listed(await client.get(unescape(link))) == [ids[2], ids[0]]


async def test_letters_are_filtered_by_error_key_header_and_reason(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    orders = site_app.queue("orders")
    (first,) = await die(orders, "timeout", key="a", headers={"tenant": "blue"})
    (second,) = await die(orders, "refused", headers={"tenant": "red"})

    assert listed(await client.get(f"{PAGE}?error=time")) == [first]
    assert listed(await client.get(f"{PAGE}?key=a")) == [first]
    assert listed(await client.get(f"{PAGE}?header=tenant%3Dred")) == [second]
    assert listed(await client.get(f"{PAGE}?reason=given")) == [second, first]
    assert listed(await client.get(f"{PAGE}?error=time&header=tenant%3Dred")) == []
    wrong = await client.get(f"{PAGE}?header=tenant")
    assert wrong.status_code == 422
    assert "write NAME=VALUE" in wrong.text


async def times_of(queue: duly.AsyncQueue) -> list[str]:
    """Return when the letters died, as a URL writes it."""
    return [quote(each.finished_at.isoformat()) for each in await queue.list("dead") if each.finished_at]


async def test_letters_are_filtered_by_their_time_of_death(
    server_app: duly.AsyncDuly, server_client: httpx.AsyncClient
) -> None:
    orders = server_app.queue("orders")
    ids = await die(orders, "one", "two", "three")
    times = await times_of(orders)

    async def found(query: str) -> list[str]:
        return listed(await server_client.get(f"{PAGE}?{query}"))

    assert await found(f"since={times[1]}") == [ids[2], ids[1]]
    assert await found(f"until={times[2]}") == [ids[1], ids[0]]
    assert await found(f"since={times[1]}&until={times[2]}") == [ids[1]]
    assert await found(f"since={times[0]}&error=three") == [ids[2]]
    assert await found("since=1h") == ids[::-1]
    assert await found("until=1h") == []


async def test_only_letters_within_the_times_are_read(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search among many letters ends, and reaches those of yesterday at once."""
    orders = site_app.queue("orders")
    ids = await die(orders, *"abcdef")
    times = await times_of(orders)
    monkeypatch.setattr(scanning, "MAX_SCANNED", 2)

    page = await client.get(f"{PAGE}?since={times[1]}&until={times[3]}")

    assert listed(page) == [ids[2], ids[1]]
    assert "The search stopped" not in page.text


async def test_a_preview_and_a_group_keep_the_times(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    orders = site_app.queue("orders")
    ids = await die(orders, "timeout", "timeout", "timeout")
    times = [unquote(each) for each in await times_of(orders)]

    page = await client.get(PAGE, params={"since": times[1]})
    (link,) = re.findall(r'href="([^"]+)">timeout<', page.text)
    in_group = listed(await client.get(unescape(link)))
    preview = await post(client, f"{PAGE}/preview", {"do": "redrive-all", "until": times[2]})
    await post(client, f"{PAGE}/change", hidden(preview))

    assert in_group == [ids[2], ids[1]]
    assert "Redrive 2 dead letters" in preview.text
    assert [each.id for each in await orders.list("dead")] == [ids[2]]


async def test_links_lead_to_the_letters_of_the_last_hour_and_day(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    ids = await die(site_app.queue("orders"), "no", key="a")
    page = await client.get(f"{PAGE}?key=a&until=1h")
    links = [unescape(each) for each in re.findall(r'href="([^"]+)">Last (?:hour|day)<', page.text)]

    assert links == [f"{PAGE}?since=1h&key=a", f"{PAGE}?since=1d&key=a"]
    assert [listed(await client.get(link)) for link in links] == [ids, ids]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("", ""),
        ("2026-12-01 09:00", "2026-12-01 09:00:00"),
        ("2026-12-01T09:00:00.5+08:00", "2026-12-01 01:00:00.500000"),
        ("2026-12-01", "2026-12-01 00:00:00"),
        ("1796083200", "2026-12-01 00:00:00"),
    ],
)
def test_a_time_without_a_zone_is_in_utc(text: str, read: str) -> None:
    filter_ = Filter.of({"since": text}, sees_payloads=False)

    assert filter_.since == read
    assert Filter.of(filter_.given, sees_payloads=False) == filter_


def test_a_duration_is_a_time_that_long_ago() -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    since = Filter.of({"since": "1h30m"}, sees_payloads=False).where().since

    assert isinstance(since, datetime)
    assert before <= since + timedelta(minutes=90) <= datetime.now(UTC)


@pytest.mark.parametrize("text", ["soon", "-2h", "99999999999d", "0001-01-01T00:00+14:00", "2026-13-01", "12"])
async def test_a_wrong_time_is_reported(client: httpx.AsyncClient, site_app: duly.AsyncDuly, text: str) -> None:
    await die(site_app.queue("orders"), "no")

    answer = await client.get(PAGE, params={"since": text})

    assert answer.status_code == 422
    assert "is not a time: write 2h, or 2026-12-01 09:00 in UTC" in answer.text


async def test_a_search_that_is_cut_is_reported_and_continues(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await die(site_app.queue("orders"), "wanted", "other", "other", "other", "other")
    monkeypatch.setattr(scanning, "MAX_SCANNED", 2)

    address, found, cuts = f"{PAGE}?error=wanted", list[str](), 0
    while address:
        page = await client.get(address)
        found += listed(page)
        cuts += "The search stopped after 2 messages" in page.text
        address = next(iter(re.findall(r'href="([^"]+)" id="next-page"', page.text)), "").replace("&amp;", "&")

    assert found == ids[:1]
    assert cuts == 2


async def test_all_letters_are_on_exactly_one_page(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead, "ROWS", 2)
    ids = await die(site_app.queue("orders"), *"abcde")
    address, found = PAGE, list[str]()
    while address:
        page = await client.get(address)
        found += listed(page)
        address = next(iter(re.findall(r'href="([^"]+)" id="next-page"', page.text)), "")

    assert found == ids[::-1]


async def test_the_old_address_leads_to_the_page(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    await die(site_app.queue("orders"), "no")

    response = await client.get("/queues/orders?state=dead")

    assert (response.status_code, response.headers["location"]) == (303, PAGE)


@pytest.mark.parametrize("action", ["redrive", "delete"])
async def test_selected_letters_are_changed_after_a_preview(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, action: str, caplog: pytest.LogCaptureFixture
) -> None:
    orders = site_app.queue("orders")
    ids = await die(orders, "one", "two", "three")
    chosen = boxes(await client.get(PAGE))[:2]  # three and two

    preview = await post(client, f"{PAGE}/preview", {"do": action, "letter": chosen})
    assert f"{action.capitalize()} 2 dead letters" in preview.text
    assert (await orders.stats()).dead == 3
    with caplog.at_level(logging.INFO, "duly.web.changes"):
        done = await post(client, f"{PAGE}/change", hidden(preview))

    verb = "redriven" if action == "redrive" else "deleted"
    assert (done.status_code, done.headers["location"]) == (303, f"{PAGE}?{verb}=2")
    assert [each.id for each in await orders.list("dead")] == ids[:1]
    assert (await orders.stats()).ready == (2 if action == "redrive" else 0)
    assert [each.name for each in caplog.records if each.levelno == logging.INFO] == ["duly.web.changes"]
    page = await client.get(done.headers["location"])
    assert f"2 dead letters were {verb}." in page.text


async def test_a_selected_letter_that_died_again_is_left_alone(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    """Id and time of death name a letter: the page has shown another death."""
    orders = site_app.queue("orders")
    await die(orders, "one")
    chosen = boxes(await client.get(PAGE))
    preview = await post(client, f"{PAGE}/preview", {"do": "delete", "letter": chosen})
    await orders.redrive()
    (delivery,) = await orders.receive(1, wait=0)
    await delivery.reject("again")

    done = await post(client, f"{PAGE}/change", hidden(preview))
    late = await post(client, f"{PAGE}/preview", {"do": "delete", "letter": chosen})

    assert done.headers["location"] == f"{PAGE}?deleted=0"
    assert (await orders.stats()).dead == 1
    assert "1 of the selected messages is no longer dead" in late.text
    assert hidden(late) == {}


async def test_all_matching_letters_are_redriven_but_none_that_died_after_the_preview(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    orders = site_app.queue("orders")
    ids = await die(orders, "timeout", "refused", "timeout")
    preview = await post(client, f"{PAGE}/preview", {"do": "redrive-all", "error": "timeout"})
    assert "Redrive 2 dead letters" in preview.text
    (late,) = await die(orders, "timeout")

    done = await post(client, f"{PAGE}/change", hidden(preview))

    assert done.headers["location"] == f"{PAGE}?redriven=2&error=timeout"
    assert {each.id for each in await orders.list("dead")} == {ids[1], late}


async def test_deleting_all_that_match_requires_the_typed_name(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    orders = site_app.queue("orders")
    await die(orders, "timeout", "refused")
    fields = hidden(await post(client, f"{PAGE}/preview", {"do": "delete-all", "error": "timeout"}))

    refused = await post(client, f"{PAGE}/change", {**fields, "confirm": "order"})
    assert refused.status_code == 422
    assert (await orders.stats()).dead == 2
    done = await post(client, f"{PAGE}/change", {**fields, "confirm": "orders"})

    assert done.headers["location"] == f"{PAGE}?deleted=1&error=timeout"
    assert [each.errors[-1].error for each in await orders.list("dead")] == ["refused"]


async def test_letters_of_a_group_are_redriven(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    group = site_app.topic("events").group("archive")
    await group.create()
    await site_app.topic("events").publish(1)
    (delivery,) = await group.receive(1, wait=0)
    await delivery.reject("no")
    page = "/topics/events/groups/archive/dead"

    preview = await post(client, f"{page}/preview", {"do": "redrive", "letter": boxes(await client.get(page))})
    await post(client, f"{page}/change", hidden(preview))

    assert (await group.stats()).dead == 0


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"do": ""}, 400),
        ({"do": "explode"}, 400),
        ({"do": "redrive"}, 422),
        ({"do": "redrive", "letter": "some-id"}, 422),
        ({"do": "redrive", "letter": "next~forged"}, 422),
        ({"do": "redrive-all", "header": "nothing", "end": "1"}, 422),
    ],
)
@pytest.mark.parametrize("path", ["preview", "change"])
async def test_a_form_that_names_no_letters_is_refused(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, fields: dict[str, str], status: int, path: str
) -> None:
    orders = site_app.queue("orders")
    await die(orders, "no")

    assert (await post(client, f"{PAGE}/{path}", fields)).status_code == status
    assert (await orders.stats()).dead == 1


@pytest.mark.parametrize("end", [None, "", "²", "9" * 18, "-1", "1e9"])
@pytest.mark.parametrize("action", ["redrive-all", "delete-all"])
async def test_all_letters_are_changed_only_up_to_the_end_of_a_preview(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, action: str, end: str | None
) -> None:
    orders = site_app.queue("orders")
    await die(orders, "no")
    fields = {"do": action, "confirm": "orders"} if end is None else {"do": action, "confirm": "orders", "end": end}

    response = await post(client, f"{PAGE}/change", fields)

    assert response.status_code == 400
    assert "the form names no preview" in response.text
    assert (await orders.stats()).dead == 1


# Permissions


@pytest.mark.parametrize(
    ("role", "action", "status"),
    [
        ("viewer", "redrive-all", 403),
        ("operator", "redrive-all", 303),
        ("operator", "delete-all", 403),
        ("admin", "delete-all", 303),
    ],
)
async def test_each_action_needs_its_role(
    site_app: duly.AsyncDuly, token_client: TokenClient, role: Any, action: str, status: int
) -> None:
    orders = site_app.queue("orders")
    await die(orders, "no")
    fields = {"do": action, "confirm": "orders"}

    preview = await post(token_client(role), f"{PAGE}/preview", fields)
    fields["end"] = str(9**16)
    change = await post(token_client(role), f"{PAGE}/change", fields)

    assert (preview.status_code, change.status_code) == (200 if status == 303 else 403, status)
    assert (await orders.stats()).dead == (0 if status == 303 else 1)


@pytest.mark.parametrize("headers", [{}, {"Origin": "http://elsewhere.example"}, {"Sec-Fetch-Site": "cross-site"}])
async def test_a_form_of_another_site_is_refused(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    """Even without tokens: a browser names the page that a form comes from."""
    orders = site_app.queue("orders")
    await die(orders, "no")

    response = await client.post(f"{PAGE}/change", data={"do": "redrive-all"}, headers=headers)

    assert response.status_code == 403
    assert (await orders.stats()).dead == 1


async def test_a_read_only_dashboard_refuses_forms_and_shows_none(site_app: duly.AsyncDuly) -> None:
    orders = site_app.queue("orders")
    await die(orders, "no")
    async with client_of(create_app(site_app, read_only=True)) as client:
        page = await client.get(PAGE)
        response = await post(client, f"{PAGE}/change", {"do": "redrive-all"})

    assert response.status_code == 403
    assert "Redrive" not in page.text
    assert boxes(page) == []
    assert (await orders.stats()).dead == 1


async def test_an_unknown_client_is_redirected_to_the_login(site_app: duly.AsyncDuly) -> None:
    async with client_of(create_app(site_app, tokens="a-token-of-somebody")) as client:
        response = await post(client, f"{PAGE}/change", {"do": "redrive-all"})

    assert (response.status_code, response.headers["location"]) == (303, "/login")


async def test_viewers_cannot_find_out_an_error_by_filtering(
    site_app: duly.AsyncDuly, token_client: TokenClient
) -> None:
    await die(site_app.queue("orders"), "secret of a customer")  # the page may repeat what the viewer asked for

    for query in ("error=secret", "error=wrong", "header=a%3Db", "reason=x"):
        page = await token_client("viewer").get(f"{PAGE}?{query}")
        assert len(listed(page)) == 1
        assert "of a customer" not in page.text


# Patterns of errors


@pytest.mark.parametrize(
    ("error", "pattern"),
    [
        ("ValueError: no stock for 4711", "ValueError: no stock for *"),
        ("order 3f2a-77: not found", "order *: not found"),
        ("HTTP 503 after 12.5 s", "HTTP 503 after * s"),
        ("HTTP/1.1 503: busy", "HTTP/* 503: busy"),
        ("404 Not Found", "404 Not Found"),
        ("SMTPError: 451 try later", "SMTPError: * try later"),
        ("the bank answered with 502", "the bank answered with 502"),
        ("no stock for item 503", "no stock for item *"),
        ("line one\nline two", "line one*line two"),
        ("1 2 3", "*"),
        (" padded ", "*padded*"),
        ("库存不足。", "库存不足。"),
        ("x" * 1000, "x" * 200 + "*"),
        ("", ""),
    ],
)
def test_a_pattern_leaves_out_numbers_and_matches_its_error(error: str, pattern: str) -> None:
    assert pattern_of(error) == pattern
    failure = duly.message.Failure(None, 1, "", error, "")  # type: ignore[arg-type]
    letter: Any = duly.Message("1", "q", "dead", 1, b"1", {}, None, 0, None, None, 1, 0, 0, 0, errors=(failure,))
    assert not error or duly.Where(error=pattern).matches(letter)


async def test_letters_without_an_error_are_grouped_by_reason(site_app: duly.AsyncDuly) -> None:
    orders = site_app.queue("orders")
    await orders.send(1)
    (delivery,) = await orders.receive(1, wait=0)
    await delivery.reject("not wanted")
    letters = await orders.list("dead")

    (group,) = grouped(letters)

    assert (group.field, group.count, letters[0].reason) == ("reason", 1, group.pattern)


# Scans


async def test_a_scan_stops_at_its_limit_and_continues_where_it_stopped(site_app: duly.AsyncDuly) -> None:
    queue = site_app.queue("orders")
    ids = await queue.send_many(range(10))

    first = await scan(queue, "ready", lambda each: each.body % 2 == 0, budget=Budget(most=4))
    second = await scan(queue, "ready", lambda each: each.body % 2 == 0, after=first.last, wanted=2)
    rest = await scan(queue, "ready", lambda each: each.body % 2 == 0, after=second.last)

    assert [each.id for each in first.matches] == [ids[0], ids[2]]
    assert (first.scanned, first.is_complete) == (4, False)
    assert [each.id for each in second.matches] == [ids[4], ids[6]]
    assert [each.id for each in rest.matches] == [ids[8]]
    assert rest.is_complete
