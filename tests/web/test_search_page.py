"""The search by id over all queues and groups, and the filters of the lists of a queue."""

from __future__ import annotations

import re
from html import unescape

import httpx
import pytest

import duly
from duly.web import scanning
from duly.web.names import Names
from duly.web.searching import search
from tests.web.conftest import TokenClient


def listed(page: httpx.Response) -> list[str]:
    return re.findall(r'href="/queues/orders/messages/([^"]+)"', page.text)


async def test_a_message_is_found_by_its_id_in_any_queue(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    await site_app.queue("invoices").send(1, id="other")
    await site_app.queue("orders").send(1, id="a/b c")

    response = await client.get("/search", params={"id": " a/b c "})

    assert (response.status_code, response.headers["location"]) == (303, "/queues/orders/messages/a%2Fb%20c")
    assert (await client.get(response.headers["location"])).status_code == 200


async def test_an_entry_is_found_in_every_group(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    for name in ("archive", "mail"):
        await site_app.topic("events").group(name).create()
    id_ = await site_app.topic("events").publish(1)

    page = await client.get("/search", params={"id": str(id_)})

    assert f"/topics/events/groups/archive/messages/{id_}" in page.text
    assert f"/topics/events/groups/mail/messages/{id_}" in page.text


async def test_the_same_id_in_several_queues_is_listed(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    for name in ("orders", "invoices"):
        await site_app.queue(name).send(1, id="twice")

    page = await client.get("/search?id=twice")

    assert page.status_code == 200
    assert {"/queues/orders/messages/twice", "/queues/invoices/messages/twice"} <= set(
        re.findall(r'href="([^"]+)"', page.text)
    )


@pytest.mark.parametrize("id_", ["unknown", ".", "<b>", "é" * 100])
async def test_an_id_that_is_not_found_is_reported(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, id_: str
) -> None:
    await site_app.queue("orders").send(1)

    page = await client.get("/search", params={"id": id_})

    assert page.status_code == 200
    assert "None of the 1 queues and topics has a message with this id" in page.text


async def test_an_id_that_no_message_can_have_is_refused(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    await site_app.queue("orders").send(1)

    assert (await client.get("/search", params={"id": "x" * 5000})).status_code == 422
    assert (await client.get("/search?id=")).headers["location"] == "/"


async def test_a_search_over_many_queues_is_cut_and_goes_on(site_app: duly.AsyncDuly) -> None:
    for number in range(5):
        await site_app.queue(f"q{number}").send(1, id="here" if number == 4 else f"x{number}")
    names = Names(site_app)

    first = await search(names, "here", most=2)
    second = await search(names, "here", first.next, most=2)
    third = await search(names, "here", second.next, most=2)

    assert [(each.searched, len(each.hits)) for each in (first, second, third)] == [(2, 0), (2, 0), (1, 1)]
    assert third.next is None


async def test_the_search_is_on_every_page_and_open_to_viewers(
    site_app: duly.AsyncDuly, token_client: TokenClient
) -> None:
    await site_app.queue("orders").send("secret", id="one")

    page = await token_client("viewer").get("/queues/orders")
    found = await token_client("viewer").get("/search?id=one")

    assert 'action="/search"' in page.text
    assert found.status_code == 303


async def test_the_api_finds_a_message_in_any_queue(site_app: duly.AsyncDuly, token_client: TokenClient) -> None:
    await site_app.queue("orders").send("secret", id="one")

    operator = (await token_client("operator").get("/api/v1/search/one")).json()
    viewer = await token_client("viewer").get("/api/v1/search/one")

    assert [(each["queue"], each["body"]) for each in operator["messages"]] == [("orders", "secret")]
    assert operator["next"] is None
    assert "secret" not in viewer.text


# Within a queue


async def test_messages_of_a_state_are_filtered(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    orders = site_app.queue("orders")
    first = await orders.send(1, key="blue", headers={"tenant": "a"})
    second = await orders.send(2, headers={"tenant": "b"})
    await orders.send(3)
    (delivery,) = await orders.receive(1, wait=0)
    await delivery.retry(delay=0, error="timeout of the bank")

    page = "/queues/orders?state=ready"
    assert listed(await client.get(f"{page}&key=blue")) == [first]
    assert listed(await client.get(f"{page}&header=tenant%3Db")) == [second]
    assert listed(await client.get(f"{page}&error=timeout")) == [first]
    nothing = await client.get(f"{page}&error=other")
    assert "None of the 3 ready messages that were read matches." in nothing.text
    assert (await client.get(f"{page}&header=x")).status_code == 422


async def test_a_filtered_list_is_cut_and_goes_on(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = site_app.queue("orders")
    await orders.send_many(range(5))
    last = await orders.send(5, key="wanted")
    monkeypatch.setattr(scanning, "MAX_SCANNED", 2)

    address, found, cuts = "/queues/orders?state=ready&key=wanted", list[str](), 0
    while address:
        page = await client.get(address)
        found += listed(page)
        cuts += "The search stopped after 2 messages" in page.text
        address = unescape(next(iter(re.findall(r'href="([^"]+)" id="next-page"', page.text)), ""))

    assert found == [last]
    assert cuts == 2


async def test_viewers_filter_by_key_alone(site_app: duly.AsyncDuly, token_client: TokenClient) -> None:
    orders = site_app.queue("orders")
    await orders.send(1, key="a", headers={"tenant": "blue"})
    await orders.send(2, key="b")

    viewer = token_client("viewer")

    assert len(listed(await viewer.get("/queues/orders?state=ready&key=a"))) == 1
    assert len(listed(await viewer.get("/queues/orders?state=ready&header=tenant%3Dblue"))) == 2
