"""Consuming over HTTP: receiving, and settling with receipts."""

import base64
from typing import Any

import httpx
import msgspec
import pytest
import redis.asyncio as redis

import duly
from duly._async.memory import AsyncMemoryLink
from duly._core import codec
from duly._core.outgoing import Encoder
from duly.errors import ServerError, Unavailable
from duly.web import create_app
from duly.web.api import settlement
from tests.conftest import StartedServer
from tests.web.conftest import TokenClient, client_of, poll_limit_of

QUEUE = "/api/v1/queues/orders"


async def _received(client: httpx.AsyncClient, inbox: str = QUEUE, **given: Any) -> list[dict[str, Any]]:
    response = await client.post(f"{inbox}/receive", json={"wait": 0, **given})
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["messages"]
    return found


async def _one(client: httpx.AsyncClient, inbox: str = QUEUE) -> dict[str, Any]:
    (message,) = await _received(client, inbox, limit=1)
    return message


async def _settle(client: httpx.AsyncClient, verb: str, *receipts: str, inbox: str = QUEUE, **more: Any) -> Any:
    given = {"receipt": receipts[0]} if len(receipts) == 1 else {"receipts": receipts}
    return await client.post(f"{inbox}/{verb}", json={**given, **more})


async def test_a_delivery_has_all_that_a_consumer_needs(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    id_ = await site_app.queue("orders").send({"order": 1}, key="k", priority=3, headers={"trace": "t"})
    message = await _one(client)
    assert set(message) == {
        "id", "queue", "body", "headers", "key", "priority", "attempt", "deliveries", "sent_at", "due_at", "fence",
        "receipt",
    }  # fmt: skip
    assert (message["id"], message["queue"], message["body"]) == (id_, "orders", {"order": 1})
    assert (message["key"], message["priority"], message["headers"]) == ("k", 3, {"trace": "t"})
    assert (message["attempt"], message["deliveries"]) == (1, 1)
    assert message["sent_at"].endswith("Z")
    assert message["fence"] > 0


async def test_a_receive_from_a_missing_queue_is_empty(client: httpx.AsyncClient) -> None:
    assert await _received(client) == []


async def test_a_receive_returns_ten_messages_by_default(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    await site_app.queue("orders").send_many(range(12))
    response = await client.post(f"{QUEUE}/receive")
    assert [each["body"] for each in response.json()["messages"]] == list(range(10))


@pytest.mark.parametrize(
    "given",
    [{"limit": 0}, {"limit": 101}, {"wait": -1}, {"wait": 21}, {"lease": 0}, {"lease": -1}, {"lease": 1e12}, {"x": 1}],
    ids=str,
)
async def test_receives_out_of_bounds_are_rejected(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, given: dict[str, Any]
) -> None:
    await site_app.queue("orders").send(1)
    rejected = await client.post(f"{QUEUE}/receive", json={"wait": 0, **given})
    assert rejected.status_code == 422
    assert next(iter(given)) in rejected.json()["detail"]
    assert (await site_app.queue("orders").stats()).leased == 0


async def test_waiting_receives_are_limited(client: httpx.AsyncClient) -> None:
    poll_limit_of(client).limit = 0
    rejected = await client.post(f"{QUEUE}/receive", json={"wait": 0.001})
    assert rejected.status_code == 429
    assert rejected.headers["retry-after"] == "1"


async def test_a_receive_without_waiting_is_not_limited(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    poll_limit_of(client).limit = 0
    id_ = await site_app.queue("orders").send(1)
    assert (await _one(client))["id"] == id_


async def test_a_finished_receive_no_longer_counts_against_the_limit(client: httpx.AsyncClient) -> None:
    room = poll_limit_of(client)
    room.limit = 1
    for _ in range(3):
        await _received(client, wait=0.001)
    assert (await client.post(f"{QUEUE}/receive", json={"wait": 1, "lease": -1})).status_code == 422
    assert room.waiting == 0


async def test_acked_messages_are_finished(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    ids = await site_app.queue("orders").send_many([1, 2, 3])
    receipts = [each["receipt"] for each in await _received(client)]
    assert (await _settle(client, "ack", *receipts[:2])).json() == {"settled": ids[:2], "lost": []}
    assert (await _settle(client, "ack", receipts[2], receipts[2])).json() == {"settled": [ids[2]], "lost": []}
    stats = await site_app.queue("orders").stats()
    assert (stats.acked, stats.leased) == (3, 0)


async def test_a_retried_message_counts_its_attempts(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    id_ = await site_app.queue("orders").send(1)
    for attempt in (1, 2):
        message = await _one(client)
        assert message["attempt"] == attempt
        assert (await _settle(client, "retry", message["receipt"], delay=0, error="it broke")).status_code == 200
    found = await site_app.queue("orders").get(id_)
    assert found is not None
    assert [each.error for each in found.errors] == ["it broke", "it broke"]
    assert (found.attempt, found.failures) == (3, 2)


async def test_a_retry_follows_the_policy_of_the_message(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    sent = await client.post(f"{QUEUE}/messages", json={"body": 1, "retry": {"delays": [0, 77]}})
    orders, id_ = site_app.queue("orders"), sent.json()["id"]
    await _settle(client, "retry", (await _one(client))["receipt"])
    message = await _one(client)
    await _settle(client, "retry", message["receipt"], error="it broke")
    found = await orders.get(id_)
    assert found is not None
    assert found.due_at is not None
    failed_at = found.errors[-1].at
    assert (found.due_at - failed_at).total_seconds() == pytest.approx(77, abs=0.001)
    await orders.promote(id_)
    await _settle(client, "retry", (await _one(client))["receipt"], error="the last")
    found = await orders.get(id_)
    assert found is not None
    assert (found.state, found.attempt) == ("dead", 4)


async def test_a_message_with_repeat_is_delivered_again_after_an_ack(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    sent = await client.post(f"{QUEUE}/messages", json={"body": 1, "delay": 0, "repeat": {"first": 60, "times": 2}})
    orders, id_ = site_app.queue("orders"), sent.json()["id"]
    assert (await _settle(client, "ack", (await _one(client))["receipt"])).json()["settled"] == [id_]
    found = await orders.get(id_)
    assert found is not None
    assert (found.state, found.cycles) == ("delayed", 1)
    await orders.promote(id_)
    assert (await _settle(client, "ack", (await _one(client))["receipt"])).status_code == 200
    assert await orders.get(id_) is None


async def test_deferred_and_released_messages_count_no_attempt(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    id_ = await site_app.queue("orders").send(1)
    await _settle(client, "defer", (await _one(client))["receipt"], delay=0, reason="the lock was taken")
    await _settle(client, "release", (await _one(client))["receipt"])
    message = await _one(client)
    assert (message["attempt"], message["deliveries"]) == (1, 3)
    shown = (await client.get(f"{QUEUE}/messages/{id_}")).json()
    assert "the lock was taken" in [each["detail"] for each in shown["timeline"]]


async def test_rejected_messages_are_dead(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    id_ = await site_app.queue("orders").send(1)
    await _settle(client, "reject", (await _one(client))["receipt"], reason="no such customer")
    shown = (await client.get(f"{QUEUE}/messages/{id_}")).json()
    assert (shown["state"], shown["reason"]) == ("dead", "no such customer")


async def test_a_recycled_message_keeps_everything_but_its_body(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    id_ = await site_app.queue("orders").send({"n": 1}, headers={"trace": "t"}, key="k", priority=4)
    message = await _one(client)
    recycled = await client.post(
        f"{QUEUE}/recycle",
        content=b'{"receipt": "%b", "body": {"n" : 2.0}}' % message["receipt"].encode(),
        headers={"Content-Type": "application/json"},
    )
    assert recycled.json() == {"settled": [id_], "lost": []}
    shown = await client.get(f"{QUEUE}/messages/{id_}")
    assert '"body":{"n" : 2.0},' in shown.text
    found = shown.json()
    assert (found["headers"], found["key"], found["priority"], found["cycles"]) == ({"trace": "t"}, "k", 4, 1)
    again = await _one(client)
    await _settle(client, "recycle", again["receipt"], delay=60)
    assert (await client.get(f"{QUEUE}/messages/{id_}")).json()["body"] == {"n": 2.0}


async def test_a_recycled_body_is_validated(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    @site_app.queue("orders", type=dict[str, int]).handler
    async def on_order(order: dict[str, int]) -> None: ...

    await site_app.queue("orders").send({"n": 1})
    message = await _one(client)
    for wrong in ({"body": "text"}, {"base64": "AA=="}, {"body": {"n": 1}, "base64": "AA=="}):
        assert (await _settle(client, "recycle", message["receipt"], **wrong)).status_code == 422, wrong
    assert (await _settle(client, "recycle", message["receipt"], body={"n": 2})).status_code == 200


async def test_a_lease_is_extended(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    await site_app.queue("orders").send(1)
    (message,) = await _received(client, lease=5)
    assert (await _settle(client, "extend", message["receipt"], seconds=500)).status_code == 200
    (held,) = (await client.get(f"{QUEUE}/pending")).json()["messages"]
    assert 400 < held["deadline_in"] <= 500


async def test_progress_is_shown_until_the_delivery_ends(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    id_ = await site_app.queue("orders").send(1)
    message = await _one(client)
    assert (await client.get(f"{QUEUE}/messages/{id_}")).json()["progress"] is None
    response = await _settle(client, "progress", message["receipt"], fraction=0.4, text="loading")
    assert (response.status_code, response.json()) == (200, {"settled": [id_], "lost": []})
    shown = (await client.get(f"{QUEUE}/messages/{id_}")).json()
    assert (shown["progress"]["fraction"], shown["progress"]["text"]) == (0.4, "loading")
    assert shown["progress"]["at"] == shown["timeline"][-1]["at"]
    assert shown["timeline"][-1]["what"] == "progress"
    assert (await _settle(client, "release", message["receipt"])).status_code == 200
    assert (await client.get(f"{QUEUE}/messages/{id_}")).json()["progress"] is None
    assert (await _settle(client, "progress", message["receipt"], fraction=0.5)).status_code == 409


@pytest.mark.parametrize("fraction", [-1, 1.5, "0.5", None])
async def test_progress_over_http_is_a_fraction(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, fraction: object
) -> None:
    id_ = await site_app.queue("orders").send(1)
    message = await _one(client)
    rejected = await _settle(client, "progress", message["receipt"], fraction=fraction)
    assert rejected.status_code == 422
    assert (await client.get(f"{QUEUE}/messages/{id_}")).json()["progress"] is None


async def test_a_result_is_kept_if_the_queue_keeps_results(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    orders = site_app.queue("orders", done=duly.Keep(count=10))

    @orders.handler
    async def on_order(order: int) -> None: ...

    ids = await orders.send_many([1, 2])
    receipts = [each["receipt"] for each in await _received(client)]
    assert (await _settle(client, "ack", *receipts, result={"total": 10**30})).json()["settled"] == ids
    assert await orders.result(ids[0], wait=0) == {"total": 10**30}
    shown = await client.get(f"{QUEUE}/messages/{ids[0]}")
    assert (shown.json()["state"], shown.json()["result"]) == ("done", {"total": 10**30})


_MORE: dict[str, dict[str, Any]] = {
    "defer": {"delay": 1},
    "reject": {"reason": "no"},
    "extend": {"seconds": 60},
    "progress": {"fraction": 0.4},
}
VERBS = ("ack", "retry", "defer", "reject", "release", "recycle", "extend", "progress")


@pytest.mark.parametrize("verb", VERBS)
async def test_a_stale_receipt_is_409_and_changes_nothing(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, verb: str
) -> None:
    orders = site_app.queue("orders")
    id_ = await orders.send(1)
    stale = (await _one(client))["receipt"]
    await _settle(client, "release", stale)
    await _one(client)
    before, counted = await orders.get(id_), await orders.stats()
    rejected = await _settle(client, verb, stale, **_MORE.get(verb, {}))
    assert rejected.status_code == 409
    assert id_ in rejected.json()["detail"]
    assert "receive with a longer `lease`, or call `extend` in time, if work" in rejected.json()["detail"]
    assert rejected.json()["title"] == "Not possible in the current state"
    assert await orders.get(id_) == before
    assert (await orders.stats()) == counted


@pytest.mark.parametrize("verb", VERBS)
async def test_some_of_several_may_be_lost(site_app: duly.AsyncDuly, client: httpx.AsyncClient, verb: str) -> None:
    orders = site_app.queue("orders")
    ids = await orders.send_many([1, 2])
    receipts = [each["receipt"] for each in await _received(client)]
    await orders.cancel(ids[0], running=True)
    response = await _settle(client, verb, *receipts, **_MORE.get(verb, {}))
    assert (response.status_code, response.json()) == (200, {"settled": [ids[1]], "lost": [ids[0]]})


def _watched(monkeypatch: pytest.MonkeyPatch, fails_at: int | None = None) -> list[str]:
    """Record the calls to the server; the call with the given number fails."""
    run, titles = AsyncMemoryLink.run, list[str]()

    async def noted(self: AsyncMemoryLink, call: Any) -> Any:
        titles.append(call.title)
        if len(titles) == fails_at:
            raise Unavailable(f"{call.title} may or may not have been carried out")
        return await run(self, call)

    monkeypatch.setattr(AsyncMemoryLink, "run", noted)
    return titles


@pytest.mark.parametrize("verb", VERBS)
async def test_many_receipts_are_settled_in_one_call(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    ids = await site_app.queue("orders").send_many(range(30))
    receipts = [each["receipt"] for each in await _received(client, limit=30)]
    titles = _watched(monkeypatch)
    response = await _settle(client, verb, *receipts, **_MORE.get(verb, {}))
    assert response.json() == {"settled": ids, "lost": []}
    assert titles == [f"{verb} on queue 'orders'"]


@pytest.mark.parametrize("verb", VERBS)
async def test_settling_stops_at_the_first_call_without_an_answer(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    orders = site_app.queue("orders")
    await orders.send_many(range(30))
    receipts = [each["receipt"] for each in await _received(client, limit=30)]
    titles = _watched(monkeypatch, fails_at=1)
    away = await _settle(client, verb, *receipts, **_MORE.get(verb, {}))
    assert (away.status_code, "may or may not" in away.json()["detail"]) == (503, True)
    assert len(titles) == 1
    assert (await orders.stats()).leased == 30


@pytest.mark.parametrize(("verb", "sent"), [("ack", {"repeat": {"first": 60}}), ("retry", {"retry": {"attempts": 1}})])
async def test_messages_settled_before_an_outage_are_reported(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, verb: str, sent: dict[str, Any]
) -> None:
    """Two kinds of messages need two calls."""
    both = [{"body": 1, "delay": 0, **more} for more in ({}, {}, {}, sent)]
    assert (await client.post(f"{QUEUE}/messages", json=both)).status_code == 201
    receipts = [each["receipt"] for each in await _received(client)]
    _watched(monkeypatch, fails_at=2)
    away = await _settle(client, verb, *receipts)
    assert away.status_code == 503
    assert "3 of 4 receipts were settled or lost before" in away.json()["detail"]
    monkeypatch.undo()
    again = (await _settle(client, verb, *receipts)).json()
    assert (len(again["settled"]), len(again["lost"])) == (1, 3)


async def test_large_bodies_are_split_into_several_calls(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settlement, "_MAX_BYTES", 10_000)
    ids = await site_app.queue("orders").send_many(range(5))
    receipts = [each["receipt"] for each in await _received(client)]
    titles = _watched(monkeypatch)
    response = await _settle(client, "recycle", *receipts, body="x" * 4_000)
    assert response.json() == {"settled": ids, "lost": []}
    assert titles[-4:] == ["get on queue 'orders'", *["recycle on queue 'orders'"] * 3]


async def test_a_new_body_is_encoded_once_and_written_for_one_call_at_a_time(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand copies of a large body would need too much memory."""
    monkeypatch.setattr(settlement, "_MAX_BYTES", 10_000)
    events, encode, write, run = list[str](), Encoder.body, codec.written_part, AsyncMemoryLink.run

    def encoded(self: Encoder, body: Any) -> Any:
        events.append("encode")
        return encode(self, body)

    def written(envelope: codec.Envelope, **options: Any) -> codec.Part:
        if len(envelope.body) > 4_000:
            events.append("write")
        return write(envelope, **options)

    async def carried(self: AsyncMemoryLink, call: Any) -> Any:
        events.append(call.title.partition(" ")[0])
        return await run(self, call)

    orders = site_app.queue("orders")
    ids = await orders.send_many([duly.Send(1, key="k", headers={"trace": "t"}), 2, 3])
    receipts = [each["receipt"] for each in await _received(client)]
    monkeypatch.setattr(Encoder, "body", encoded)
    monkeypatch.setattr(codec, "written_part", written)
    monkeypatch.setattr(AsyncMemoryLink, "run", carried)
    response = await _settle(client, "recycle", *receipts, body="x" * 4_000)
    assert response.json() == {"settled": ids, "lost": []}
    assert events == [*["get"] * 3, "encode", "write", "write", "recycle", "write", "recycle"]
    message = await orders.get(ids[0])
    assert message is not None
    assert (message.body, message.key, message.headers) == ("x" * 4_000, "k", {"trace": "t"})


async def test_dead_letters_are_logged(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = await site_app.queue("orders").send_many([1, duly.Send(2, retry=duly.Retry(attempts=1))])
    one, two = [each["receipt"] for each in await _received(client)]
    await _settle(client, "reject", one, reason="no such customer")
    await _settle(client, "retry", two, error="it broke")
    assert [record.message for record in caplog.records if "dead" in record.message] == [
        f"message {first} of queue 'orders' is dead: rejected: no such customer",
        f"message {second} of queue 'orders' is dead: failed: it broke",
    ]


@pytest.mark.parametrize("verb", VERBS)
async def test_a_damaged_lease_does_not_affect_the_others(
    server: StartedServer, server_app: duly.AsyncDuly, server_client: httpx.AsyncClient, verb: str
) -> None:
    orders = server_app.queue("orders")
    _, bad, gone, _ = await orders.send_many(range(4))
    receipts = [each["receipt"] for each in await _received(server_client)]
    await orders.cancel(gone, running=True)
    async with redis.Redis.from_url(server("valkey").url) as writer:
        await writer.hset(orders._keys.key("leases"), bad, b"short")
    rejected = await _settle(server_client, verb, *receipts, **_MORE.get(verb, {}))
    assert rejected.status_code == 502
    detail = f"of 4 messages 2 were settled and 1 lost; the server rejected {bad}: {verb} on queue 'orders' failed"
    assert detail in rejected.json()["detail"]
    if verb not in ("extend", "progress"):  # a settle can be repeated
        for receipt in (receipts[0], receipts[3]):
            assert (await _settle(server_client, verb, receipt, **_MORE.get(verb, {}))).status_code == 409


async def test_an_error_names_the_first_of_many_rejected_messages(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await site_app.queue("orders").send_many(range(22))
    receipts = [each["receipt"] for each in await _received(client, limit=22)]

    async def refuse(self: AsyncMemoryLink, call: Any) -> Any:
        raise ServerError(f"{call.title} failed")

    monkeypatch.setattr(AsyncMemoryLink, "run", refuse)
    rejected = await _settle(client, "ack", *receipts)
    assert rejected.status_code == 502
    assert f"rejected {', '.join(ids[:20])} and 2 more: ack on queue 'orders' failed" in rejected.json()["detail"]


@pytest.mark.parametrize("verb", VERBS)
async def test_a_receipt_with_the_longest_policy_is_accepted(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, verb: str
) -> None:
    longest = {"delays": [77.7] * 1000}
    sent = await client.post(f"{QUEUE}/messages", json=[{"body": 1, "retry": longest}] * 100)
    assert sent.status_code == 201
    receipts = [each["receipt"] for each in await _received(client, limit=100)]
    response = await _settle(client, verb, *receipts, **_MORE.get(verb, {}))
    assert response.status_code == 200
    assert len(response.json()["settled"]) == 100
    longer = {"body": 1, "retry": {"delays": [1] * 1001}}
    assert (await client.post(f"{QUEUE}/messages", json=longer)).status_code == 422


@pytest.mark.parametrize("verb", VERBS)
async def test_a_receipt_of_another_queue_settles_nothing(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, verb: str
) -> None:
    await site_app.queue("orders").send_many([1, 2])
    first, second = (each["receipt"] for each in await _received(client))
    rejected = await _settle(client, verb, first, inbox="/api/v1/queues/mail", **_MORE.get(verb, {}))
    assert rejected.status_code == 422
    assert "'orders'" in rejected.json()["detail"]
    mixed = await _settle(client, verb, second, "forged", **_MORE.get(verb, {}))
    assert mixed.status_code == 422
    assert (await site_app.queue("orders").stats()).leased == 2
    assert await site_app.queues() == ["orders"]


_MISUSE: list[tuple[str, dict[str, Any]]] = [
    ("retry", {"delay": -1}), ("retry", {"error": 5}), ("defer", {}), ("defer", {"delay": -1}), ("reject", {}),
    ("extend", {}), ("extend", {"seconds": 0}), ("recycle", {"delay": -1}), ("recycle", {"base64": "*"}),
    ("ack", {"delay": 1}), ("release", {"reason": "x"}), ("ack", {"receipts": []}), ("ack", {"receipts": ["x"]}),
]  # fmt: skip


@pytest.mark.parametrize(("verb", "given"), _MISUSE, ids=str)
async def test_an_invalid_settle_settles_nothing(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, verb: str, given: dict[str, Any]
) -> None:
    orders = site_app.queue("orders")
    await orders.send(1)
    message = await _one(client)
    before = await orders.get(message["id"])
    rejected = await _settle(client, verb, message["receipt"], **given)
    assert rejected.status_code == 422, rejected.text
    assert await orders.get(message["id"]) == before


async def test_a_settle_without_receipts_is_rejected(client: httpx.AsyncClient) -> None:
    assert "give either receipt, or receipts" in (await client.post(f"{QUEUE}/ack", json={})).json()["detail"]


async def test_a_group_is_consumed_like_a_queue(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    events = site_app.topic("events")
    await client.post("/api/v1/topics/events/messages", json=[{"body": 1}, {"body": 2}, {"body": 3}])
    inbox = "/api/v1/topics/events/groups/archive"
    first, second, third = await _received(client, inbox)
    assert first["queue"] == "events/archive"
    assert (await _settle(client, "ack", first["receipt"], inbox=inbox)).json()["settled"] == [first["id"]]
    assert (await _settle(client, "reject", second["receipt"], inbox=inbox, reason="no")).status_code == 200
    assert (await _settle(client, "retry", third["receipt"], inbox=inbox, delay=0)).status_code == 200
    again = await _one(client, inbox)
    assert (again["id"], again["attempt"]) == (third["id"], 2)
    (info,) = await events.groups()
    assert (info.name, info.dead) == ("archive", 1)
    other = await _settle(client, "ack", again["receipt"], inbox="/api/v1/topics/events/groups/other")
    assert other.status_code == 422


async def test_a_group_has_the_filter_of_its_handler(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    @site_app.topic("events").handler(group="archive", headers={"kind": "paid"})
    async def archive(event: int) -> None: ...

    await site_app.topic("events").publish(1, headers={"kind": "sent"})
    await site_app.topic("events").publish(2, headers={"kind": "paid"})
    found = await _received(client, "/api/v1/topics/events/groups/archive")
    assert [each["body"] for each in found] == [2]


async def test_a_body_that_is_wrongly_marked_as_json_is_returned_as_bytes(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    await site_app.queue("orders").send(msgspec.Raw(b"{bad"), headers={"trace": "t"})
    message = await _one(client)
    assert (message["body"], base64.b64decode(message["base64"])) == (None, b"{bad")
    assert message["headers"] == {"trace": "t"}
    assert (await _settle(client, "ack", message["receipt"])).status_code == 200


async def test_a_damaged_message_does_not_block_others(
    server: StartedServer, server_app: duly.AsyncDuly, server_client: httpx.AsyncClient
) -> None:
    orders = server_app.queue("orders")
    bad, good = await orders.send_many([1, 2])
    async with redis.Redis.from_url(server("valkey").url) as writer:
        key = orders._keys.key("msgs")
        record = await writer.hget(key, bad)
        assert isinstance(record, bytes)
        await writer.hset(key, bad, record[:19] + b"\xc1" * (len(record) - 19))
    first, second = await _received(server_client)
    changed = await _settle(server_client, "recycle", first["receipt"], second["receipt"], body=2)
    assert changed.status_code == 409
    assert f"message {bad} of queue 'orders' is damaged" in changed.json()["detail"]
    assert (await orders.stats()).leased == 2
    assert (first["id"], first["body"], "base64" in first, second["id"]) == (bad, None, True, good)
    rejected = await _settle(server_client, "reject", first["receipt"], second["receipt"], reason="damaged")
    assert rejected.json() == {"settled": [bad, good], "lost": []}
    shown = (await server_client.get(f"{QUEUE}/messages/{bad}")).json()
    assert (shown["state"], shown["reason"]) == ("dead", "damaged")


async def test_handlers_of_a_sync_app_are_used() -> None:
    with duly.Duly("memory://") as app:

        @app.topic("events", retry=duly.Retry(attempts=1)).handler(group="archive")
        def archive(event: int) -> None: ...

        @app.queue("orders", retry=duly.Retry(attempts=1)).handler
        def on_order(order: int) -> None: ...

        app.topic("events").publish(1)
        app.queue("orders").send(1)
        async with client_of(create_app(app)) as client:
            for inbox in ("/api/v1/topics/events/groups/archive", QUEUE):
                message = await _one(client, inbox)
                await _settle(client, "retry", message["receipt"], inbox=inbox)
                (dead,) = (await client.get(f"{inbox}/messages", params={"state": "dead"})).json()["messages"]
                assert dead["id"] == message["id"]


async def test_a_viewer_neither_receives_nor_settles(site_app: duly.AsyncDuly, token_client: TokenClient) -> None:
    await site_app.queue("orders").send(1)
    rejected = await token_client("viewer").post(f"{QUEUE}/receive", json={"wait": 0})
    assert rejected.status_code == 403
    assert (await site_app.queue("orders").stats()).leased == 0
    receipt = (await _one(token_client("operator")))["receipt"]
    assert (await _settle(token_client("viewer"), "ack", receipt)).status_code == 403
    assert (await site_app.queue("orders").stats()).leased == 1
