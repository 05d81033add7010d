"""Receipts restore deliveries in any process. All other texts are rejected."""

import base64
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import duly
from duly.errors import UsageError
from duly.web.opaque import decode_receipt, encode_receipt

_VERBS = ("ack", "retry", "defer", "reject", "release", "recycle", "extend", "progress")
_MORE: dict[str, dict[str, Any]] = {
    "defer": {"delay": 1},
    "reject": {"reason": "no"},
    "extend": {"seconds": 60},
    "progress": {"fraction": 0.4},
}


async def _a_receipt(app: duly.AsyncDuly, **options: Any) -> str:
    orders = app.queue("orders")
    await orders.send({"order": 1}, **options)
    (delivery,) = await orders.receive(1, wait=0)
    return encode_receipt(delivery)


async def test_a_receipt_is_valid_in_another_process(site_app: duly.AsyncDuly) -> None:
    receipt = await _a_receipt(site_app, key="user-42", priority=7)
    async with duly.AsyncDuly(site_app) as other:
        orders = other.queue("orders")
        delivery = decode_receipt(orders, receipt)
        assert (delivery.key, delivery.priority) == ("user-42", 7)
        await delivery.ack()
        assert (await orders.stats()).acked == 1


async def test_a_receipt_holds_no_payload(site_app: duly.AsyncDuly) -> None:
    receipt = await _a_receipt(site_app, headers={"trace": "SECRET-HEADER"})
    content = base64.urlsafe_b64decode(receipt + "=" * (-len(receipt) % 4))
    assert b"SECRET-HEADER" not in content
    assert b'"order"' not in content


async def test_truncated_and_changed_texts_are_rejected(site_app: duly.AsyncDuly) -> None:
    receipt, orders = await _a_receipt(site_app), site_app.queue("orders")
    for at in range(len(receipt)):
        with pytest.raises(UsageError, match="not a receipt"):
            decode_receipt(orders, receipt[:at])
    for at in range(len(receipt) - 1):  # some bits of the last character are unused
        with pytest.raises(UsageError, match="not a receipt"):
            decode_receipt(orders, f"{receipt[:at]}{'B' if receipt[at] == 'A' else 'A'}{receipt[at + 1 :]}")


async def test_a_receipt_of_another_queue_names_both(site_app: duly.AsyncDuly) -> None:
    receipt = await _a_receipt(site_app)
    with pytest.raises(UsageError, match=r"belongs to 'orders', not to 'mail'"):
        decode_receipt(site_app.queue("mail"), receipt)


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
@example("")
@example("=")
@example("é" * 50)
@example("AAAA\n")
@settings(max_examples=100, deadline=None, database=None)
def test_no_other_text_is_a_receipt(text: str) -> None:
    with pytest.raises(UsageError):
        decode_receipt(duly.AsyncDuly("memory://").queue("orders"), text)


@pytest.mark.parametrize("verb", _VERBS)
@given(text=st.text(max_size=100) | st.binary(max_size=100).map(lambda raw: base64.b64encode(raw).decode()))
@settings(max_examples=15, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_settling_with_another_text_is_422(client: httpx.AsyncClient, verb: str, text: str) -> None:
    body = {"receipt": text.encode(errors="replace").decode(), **_MORE.get(verb, {})}
    response = await client.post(f"/api/v1/queues/orders/{verb}", json=body)
    assert response.status_code == 422, response.text


@pytest.mark.parametrize("priority", [7, 250])
async def test_a_forged_priority_is_rejected_in_memory(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, priority: int
) -> None:
    await _check_that_a_forged_priority_is_refused(site_app, client, priority)


@pytest.mark.parametrize("priority", [7, 250])
async def test_a_forged_priority_is_rejected_by_a_server(
    server_app: duly.AsyncDuly, server_client: httpx.AsyncClient, priority: int
) -> None:
    await _check_that_a_forged_priority_is_refused(server_app, server_client, priority)


async def _check_that_a_forged_priority_is_refused(
    app: duly.AsyncDuly, client: httpx.AsyncClient, priority: int
) -> None:
    """The digest of a receipt is not secret: an operator can forge one."""
    orders = app.queue("orders")
    await orders.send({"order": 1})
    (delivery,) = await orders.receive(1, wait=0)
    own = encode_receipt(delivery)
    delivery._record = delivery._record[:18] + bytes((priority,)) + delivery._record[19:]
    forged = encode_receipt(delivery)

    response = await client.post("/api/v1/queues/orders/recycle", json={"receipt": forged, "body": {"order": 2}})
    assert response.status_code == 502, response.text
    assert "its new part" in response.text
    assert (await orders.stats()).leased == 1
    assert (await orders.audit()).ok

    response = await client.post("/api/v1/queues/orders/recycle", json={"receipt": own, "body": {"order": 2}})
    assert response.json()["settled"] == [delivery.id]
    assert [each.body for each in await orders.receive(1, wait=0)] == [{"order": 2}]
