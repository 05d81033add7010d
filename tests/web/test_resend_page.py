"""The page that edits a message and sends it again. No browser, no scripts."""

from __future__ import annotations

import re
from html import unescape
from typing import Any, Final

import httpx
import pytest

import duly
from duly.errors import Unavailable
from duly.web.pages import resend
from duly.web.pages.text import editable_json
from tests.web.conftest import TokenClient

ORIGIN: Final = {"Origin": "http://localhost"}


async def dead(app: duly.AsyncDuly, body: Any, **options: Any) -> str:
    queue = app.queue("orders")
    id_ = await queue.send(body, **options)
    (delivery,) = await queue.receive(1, wait=0)
    await delivery.reject("no")
    return f"/queues/orders/resend/{id_}"


def fields_of(page: httpx.Response) -> dict[str, str]:
    """Return what a browser sends, if nothing is edited."""
    form = page.text.partition('<form method="post" class="confirm edit">')[2].partition("</form>")[0]
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form))
    fields |= dict(re.findall(r'<textarea name="(\w+)"[^>]*>\n(.*?)</textarea>', form, re.DOTALL))
    if "checked" in form:
        fields["remove"] = "1"
    return {name: unescape(value) for name, value in fields.items()}


async def submit(client: httpx.AsyncClient, page: str, fields: dict[str, str], **headers: str) -> httpx.Response:
    return await client.post(page, data=fields, headers=headers or ORIGIN)


async def test_an_edited_message_is_sent_and_the_dead_letter_removed(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    page = await dead(site_app, {"n": 1}, key="k", priority=3, headers={"tenant": "blue"})
    fields = fields_of(await client.get(page))

    response = await submit(client, page, {**fields, "body": '{"n": 2}', "headers": '{"tenant": "red"}', "delay": "60"})

    orders = site_app.queue("orders")
    (new,) = await orders.list("delayed")
    assert (new.body, dict(new.headers), new.key, new.priority) == ({"n": 2}, {"tenant": "red"}, "k", 3)
    assert (await orders.stats()).dead == 0
    assert response.headers["location"] == f"/queues/orders/dead?resent={new.id}&old=removed"
    assert "was sent. The old one was removed." in (await client.get(response.headers["location"])).text


async def test_the_dead_letter_is_kept_if_that_is_chosen(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    page = await dead(site_app, "text")
    fields = fields_of(await client.get(page))
    del fields["remove"]

    response = await submit(client, page, fields)

    stats = await site_app.queue("orders").stats()
    assert (stats.ready, stats.dead) == (1, 1)
    assert "The old one was kept." in (await client.get(response.headers["location"])).text


@pytest.mark.parametrize(
    "body", [{"n": 2**70, "f": 1.5}, "a\u200bb\x7f\u0085😀\n", "</textarea><b>", None, [1, [2]], b"\x00\xff", "\ud7ff"]
)
async def test_a_message_that_is_not_edited_keeps_its_body_and_headers(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, body: Any
) -> None:
    headers = {"a": "line\nline", "b": "\u200b<"}
    page = await dead(site_app, body, headers=headers)

    response = await submit(client, page, fields_of(await client.get(page)))

    assert response.status_code == 303
    (new,) = await site_app.queue("orders").list("ready")
    assert (new.body, dict(new.headers)) == (body, headers)


async def test_a_form_that_is_sent_twice_stores_one_message(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    page = await dead(site_app, 1, key="k")
    fields = fields_of(await client.get(page))

    first, second = await submit(client, page, fields), await submit(client, page, fields)

    assert first.headers["location"].replace("=removed", "=changed") == second.headers["location"]
    assert (await site_app.queue("orders").stats()).ready == 1


async def test_a_form_that_is_edited_and_sent_again_stores_another_message(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    """Browsers go back to a form as it was, with its hidden fields."""
    page = await dead(site_app, 1, key="k")
    fields = fields_of(await client.get(page))

    for body in ("2", "3"):
        await submit(client, page, {**fields, "body": body})

    queue = site_app.queue("orders")
    assert [each.body for state in ("ready", "parked") for each in await queue.list(state)] == [2, 3]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"body": "{"}, "body cannot be decoded"),
        ({"headers": "[]"}, "the headers must be a JSON object of texts"),
        ({"headers": '{"a": 1}'}, "the headers must be a JSON object of texts"),
        ({"delay": "soon"}, "the delay must be a number of seconds"),
        ({"delay": "-1"}, "the delay must be a number of seconds"),
        ({"delay": "inf"}, "the delay must be a number of seconds"),
    ],
)
async def test_a_mistake_is_shown_with_the_typed_texts(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, change: dict[str, str], problem: str
) -> None:
    page = await dead(site_app, 1)
    typed = {**fields_of(await client.get(page)), "body": '"typed"', **change}

    response = await submit(client, page, typed)

    assert response.status_code == 422
    assert "Nothing was sent: " + problem in unescape(response.text)
    kept = fields_of(response)
    assert (kept["body"], kept["headers"]) == (typed["body"], typed["headers"])
    stats = await site_app.queue("orders").stats()
    assert (stats.ready, stats.dead) == (0, 1)


async def test_a_dead_letter_that_cannot_be_removed_stays_and_is_reported(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> int:
        raise Unavailable("gone")

    page = await dead(site_app, 1)
    fields = fields_of(await client.get(page))
    monkeypatch.setattr(resend, "purge_letters", fail)

    response = await submit(client, page, fields)

    stats = await site_app.queue("orders").stats()
    assert (stats.ready, stats.dead) == (1, 1)
    assert response.headers["location"].endswith("&old=changed")


async def test_a_letter_that_was_redriven_since_is_not_removed(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    page = await dead(site_app, 1)
    fields = fields_of(await client.get(page))
    orders = site_app.queue("orders")
    await orders.redrive()

    response = await submit(client, page, fields)

    assert response.headers["location"].endswith("&old=changed")
    assert (await orders.stats()).ready == 2


async def test_a_form_for_another_message_is_refused(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    first, second = await dead(site_app, 1), await dead(site_app, 2)
    fields = fields_of(await client.get(first))

    assert (await submit(client, second, fields)).status_code == 400
    assert (await submit(client, first, {**fields, "old": "an-id"})).status_code == 400
    assert (await submit(client, first, {**fields, "state": "ready"})).status_code == 422
    assert (await site_app.queue("orders").stats()).ready == 0


async def test_a_waiting_message_is_not_resent(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    id_ = await site_app.queue("orders").send(1)

    assert (await client.get(f"/queues/orders/resend/{id_}")).status_code == 409


async def test_a_done_message_is_sent_again(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    orders = site_app.queue("orders", done=duly.Keep(count=5))
    id_ = await orders.send(1)
    (delivery,) = await orders.receive(1, wait=0)
    await delivery.ack()
    page = f"/queues/orders/resend/{id_}"

    await submit(client, page, fields_of(await client.get(page)))

    stats = await orders.stats()
    assert (stats.ready, stats.done) == (1, 1)


async def test_a_large_body_is_not_edited_in_a_browser(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    page = await dead(site_app, "x" * 300_000)

    response = await client.get(page)

    assert response.status_code == 409
    assert "has more than 200,000 bytes" in response.text


async def test_only_operators_resend_and_only_from_a_page(site_app: duly.AsyncDuly, token_client: TokenClient) -> None:
    page = await dead(site_app, 1)
    operator, viewer = token_client("operator"), token_client("viewer")
    fields = fields_of(await operator.get(page))

    assert (await viewer.get(page)).status_code == 403
    assert (await submit(viewer, page, fields)).status_code == 403
    assert (await operator.post(page, data=fields)).status_code == 403
    assert (await submit(operator, page, fields, Origin="http://elsewhere.example")).status_code == 403
    assert (await site_app.queue("orders").stats()).ready == 0
    assert (await submit(operator, page, fields)).status_code == 303


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b'{"a":1}', '{\n  "a": 1\n}'),
        (b'{"a":1.10}', '{"a":1.10}'),
        (b"[1e400]", "[1e400]"),
        ('"\u200b"'.encode(), '"\\u200b"'),
        (b'{"a":\n1}', '{"a":\n1}'),
    ],
)
def test_json_is_indented_only_if_its_meaning_stays(raw: bytes, shown: str) -> None:
    assert editable_json(raw) == shown
