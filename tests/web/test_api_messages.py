"""Sending over HTTP: bodies are returned as sent, and rejected requests write nothing."""

import base64
import json
from typing import Any

import httpx
import pytest

import duly
from duly._async.durability import Confirmation
from duly.web import create_app
from tests.web.conftest import client_of

_BODIES = [
    "null", '""', "{}", "[]", "0", "1.0", "1.10", "-0.0", "1e300", "12345678901234567890123456789012345678901234567890",
    "0.1000000000000000055511151231257827", '"\\u00e9"', '"\\ud83d\\ude00"', '"</script>"', '{"a" : [1,  2]}',
    '{"b":1,"a":2}', '"\\u0000"',
]  # fmt: skip
_UNDECODABLE = {
    "a lone surrogate": b'"\\ud800"',
    "a lone surrogate within": b'"x \\udc00 y"',
    "no UTF-8": b'"\xff"',
    "a number without end": b"1e400",
    "too many digits": b"1" * 5000,
    "too deep": b"[" * 250 + b"]" * 250,
    "much too deep": b"[" * 20_000 + b"]" * 20_000,
    "cut off": b'{"a": ',
    "no JSON": b"{'a': 1}",
    "NaN": b"NaN",
}


async def _post(client: httpx.AsyncClient, path: str, content: bytes) -> httpx.Response:
    return await client.post(f"/api/v1{path}", content=content, headers={"Content-Type": "application/json"})


async def _send(client: httpx.AsyncClient, **given: Any) -> httpx.Response:
    return await client.post("/api/v1/queues/orders/messages", json=given)


@pytest.mark.parametrize("body", _BODIES)
async def test_a_body_is_returned_as_it_was_sent(client: httpx.AsyncClient, body: str) -> None:
    sent = await _post(client, "/queues/orders/messages", b'{"body": ' + body.encode() + b"}")
    assert sent.status_code == 201
    shown = await client.get(f"/api/v1/queues/orders/messages/{sent.json()['id']}")
    assert f'"body":{body},' in shown.text
    received = await client.post("/api/v1/queues/orders/receive", json={"wait": 0})
    assert f'"body":{body},' in received.text
    assert "base64" not in received.text


@pytest.mark.parametrize("body", _UNDECODABLE.values(), ids=_UNDECODABLE.keys())
async def test_an_undecodable_body_is_rejected(
    client: httpx.AsyncClient, site_app: duly.AsyncDuly, body: bytes
) -> None:
    rejected = await _post(client, "/queues/orders/messages", b'{"body": ' + body + b"}")
    assert rejected.status_code in (400, 422), rejected.text
    assert rejected.headers["content-type"] == "application/problem+json"
    assert await site_app.queues() == []


@pytest.mark.parametrize(
    ("content", "is_half"),
    [
        (b'{"body": "\\ud800"}', True),
        (b'[{"body": "\\\\\\uDBFFa"}]', True),
        (b'{"body": "\\udc00 and more"}', True),
        (b'{"body": "\\\\ud800"', False),
        (b'{"body": "\\ud800\\udc', False),
        (b'{"body": "abc', False),
    ],
    ids=["at the end", "behind a backslash", "the second half", "a backslash and letters", "cut within", "cut off"],
)
async def test_half_a_surrogate_pair_is_not_reported_as_truncated_content(
    client: httpx.AsyncClient, content: bytes, is_half: bool
) -> None:
    rejected = await _post(client, "/queues/orders/messages", content)
    detail = rejected.json()["detail"]
    assert (rejected.status_code, "surrogate pair" in detail, "truncated" in detail) == (400, is_half, not is_half)


async def test_bytes_are_sent_and_returned_as_base64(client: httpx.AsyncClient, site_app: duly.AsyncDuly) -> None:
    encoded = base64.b64encode(bytes(range(256))).decode()
    sent = await _send(client, base64=encoded)
    found = await site_app.queue("orders").get(sent.json()["id"])
    assert found is not None
    assert found.body == bytes(range(256))
    shown = (await client.get(f"/api/v1/queues/orders/messages/{sent.json()['id']}")).json()
    assert (shown["body"], shown["base64"]) == (None, encoded)


async def test_all_options_are_stored(client: httpx.AsyncClient, site_app: duly.AsyncDuly) -> None:
    sent = await _send(
        client,
        body={"order": 1},
        delay=30,
        key="user-42",
        priority=5,
        dedup="pay-17",
        dedup_for=3600,
        ttl=600,
        headers={"trace": "t-1"},
        id="mine/1",
        retry={"attempts": 3, "delays": [1, 2]},
    )
    assert sent.json() == {"id": "mine/1"}
    found = await site_app.queue("orders").get("mine/1")
    assert found is not None
    assert found.sent_at is not None
    assert found.due_at is not None
    assert (found.key, found.priority, dict(found.headers)) == ("user-42", 5, {"trace": "t-1"})
    assert (found.due_at - found.sent_at).total_seconds() == pytest.approx(30, abs=0.001)
    assert (await client.get("/api/v1/queues/orders/messages/mine%2F1")).json()["state"] == "delayed"
    assert (await _send(client, body=2, dedup="pay-17")).json() == {"id": "mine/1"}


async def test_a_list_is_stored_in_order(client: httpx.AsyncClient, site_app: duly.AsyncDuly) -> None:
    sent = await client.post("/api/v1/queues/orders/messages", json=[{"body": 1}, {"body": 2, "id": "two"}])
    assert sent.status_code == 201
    assert sent.json()["ids"][1] == "two"
    assert [each.body for each in await site_app.queue("orders").list("ready")] == [1, 2]


async def test_one_invalid_message_of_a_list_rejects_all(client: httpx.AsyncClient, site_app: duly.AsyncDuly) -> None:
    for bad in ({"body": 2, "priority": 10}, {"body": 2, "unknown": 1}, {}, {"body": 2, "durable": "fsync"}):
        rejected = await client.post("/api/v1/queues/orders/messages", json=[{"body": 1}, bad])
        assert rejected.status_code == 422, bad
    assert await site_app.queues() == []


_REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a negative delay": ({"delay": -1}, "delay must be a finite number of at least 0"),
    "an absurd delay": ({"delay": 1e12}, "delay must be at most ten years"),
    "a naive time": ({"at": "2030-01-01T00:00:00"}, "has no time zone"),
    "milliseconds": ({"at": 1_900_000_000_000}, "divide it by 1000"),
    "both": ({"delay": 1, "at": "2030-01-01T00:00:00Z"}, "exclude each other"),
    "a priority out of range": ({"priority": 10}, "priority must be from 0 to 9"),
    "a priority of a wrong type": ({"priority": "high"}, "$.priority"),
    "an empty id": ({"id": ""}, "id must not be empty"),
    "an empty key": ({"key": ""}, "key must not be empty"),
    "an empty dedup": ({"dedup": ""}, "dedup must not be empty"),
    "a ttl of 0": ({"ttl": 0}, "ttl must be more than 0"),
    "replace alone": ({"replace": True}, "replace needs dedup="),
    "dedup_for alone": ({"dedup_for": 1}, "dedup_for needs dedup="),
    "headers of numbers": ({"headers": {"a": 1}}, "$.headers"),
    "a policy of endless attempts": ({"retry": {"attempts": 10**30}}, "Retry.attempts must be from 1 to"),
    "more repeats than can be counted": ({"repeat": {"times": 10**30}}, "Repeat.times must be from 1 to"),
    "a policy of no attempts": ({"retry": {"attempts": 0}}, "Retry.attempts must be at least 1"),
    "an unknown part of a policy": ({"retry": {"tries": 3}}, "unknown field `tries`"),
    "a repeat ever faster": ({"repeat": {"factor": 0.5}}, "give times="),
    "no such durability": ({"durable": "disk"}, "$.durable"),
    "no replicas": ({"durable": 0}, "durable must be"),
    "two bodies": ({"base64": "AA=="}, "body and base64 exclude each other"),
    "an unknown field": ({"dealy": 3}, "unknown field `dealy`"),
}


@pytest.mark.parametrize(("given", "sentence"), _REFUSED.values(), ids=_REFUSED.keys())
async def test_an_invalid_send_is_422_with_its_reason_and_writes_nothing(
    client: httpx.AsyncClient, site_app: duly.AsyncDuly, given: dict[str, Any], sentence: str
) -> None:
    rejected = await _send(client, body=1, **given)
    assert rejected.status_code == 422, rejected.text
    problem = rejected.json()
    assert sentence in problem["detail"]
    assert (problem["title"], problem["status"]) == ("Refused", 422)
    assert await site_app.queues() == []


async def test_a_missing_or_invalid_body_is_rejected(client: httpx.AsyncClient) -> None:
    assert "needs a body" in (await _send(client, delay=1)).json()["detail"]
    assert "is not Base64" in (await _send(client, base64="*")).json()["detail"]


async def test_a_body_that_is_too_large_is_413(site_app: duly.AsyncDuly) -> None:
    async with duly.AsyncDuly(site_app, max_message_bytes=10) as small, client_of(create_app(small)) as client:
        rejected = await _send(client, body="more than ten bytes")
        assert rejected.status_code == 413
        assert "max_message_bytes=10" in rejected.json()["detail"]


async def test_an_invalid_name_is_422(client: httpx.AsyncClient) -> None:
    rejected = await client.post("/api/v1/queues/-bad/messages", json={"body": 1})
    assert rejected.status_code == 422
    assert "is not a queue name" in rejected.json()["detail"]


async def test_only_json_is_accepted(client: httpx.AsyncClient) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        rejected = await client.post(
            "/api/v1/queues/orders/messages", content=b'{"body": 1}', headers={"Content-Type": kind}
        )
        assert rejected.status_code == 415, kind
    taken = await client.post(
        "/api/v1/queues/orders/messages",
        content=b'{"body": 1}',
        headers={"Content-Type": "application/json; charset=utf-8"},
    )
    assert taken.status_code == 201


async def test_the_options_of_a_handler_apply(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    small = site_app.queue("orders", type=dict[str, int], max_length=1, on_full="block")

    @small.handler
    async def on_order(order: dict[str, int]) -> None: ...

    wrong = await _send(client, body=["no", "order"])
    assert wrong.status_code == 422
    assert (await _send(client, body={"order": 1})).status_code == 201
    full = await _send(client, body={"order": 2})  # a full queue rejects the call at once
    assert full.status_code == 507
    assert "max_length=1" in full.json()["detail"]


async def test_a_body_that_does_not_decode_to_its_type_is_returned_unchanged(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    id_ = await site_app.queue("orders").send(["no", "order"])

    @site_app.queue("orders", type=dict[str, int]).handler
    async def on_order(order: dict[str, int]) -> None: ...

    assert (await client.get(f"/api/v1/queues/orders/messages/{id_}")).json()["body"] == ["no", "order"]
    received = await client.post("/api/v1/queues/orders/receive", json={"wait": 0})
    assert received.json()["messages"][0]["body"] == ["no", "order"]


async def test_stored_but_unconfirmed_messages_are_named(client: httpx.AsyncClient) -> None:
    rejected = await _send(client, body=1, durable="replica")
    assert rejected.status_code == 409
    (id_,) = rejected.json()["ids"]
    assert (await client.get(f"/api/v1/queues/orders/messages/{id_}")).status_code == 200


async def test_the_reply_to_a_durable_send_has_the_confirmed_level(
    client: httpx.AsyncClient, site_app: duly.AsyncDuly, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels = iter([Confirmation("fsync"), Confirmation(3)])

    async def run_durably(call: Any, durable: Any) -> Any:
        return await site_app._link.run(call), next(levels)

    monkeypatch.setattr(site_app._link, "run_durably", run_durably)

    assert (await _send(client, body=1, durable="fsync")).json()["durable"] == "fsync"
    many = await client.post("/api/v1/queues/orders/messages", json=[{"body": 1, "durable": 2}] * 2)
    assert (many.json()["durable"], len(many.json()["ids"])) == (3, 2)
    assert "durable" not in (await _send(client, body=1)).json()


async def test_publish_accepts_all_its_options(client: httpx.AsyncClient, site_app: duly.AsyncDuly) -> None:
    events = site_app.topic("events")
    await events.group("archive").create()
    sent = await client.post("/api/v1/topics/events/messages", json={"body": {"a": 1.0}, "headers": {"k": "v"}})
    assert sent.status_code == 201
    (entry,) = await events.read()
    assert (entry.id, dict(entry.headers)) == (sent.json()["id"], {"k": "v"})
    many = await client.post("/api/v1/topics/events/messages", json=[{"body": 2}, {"body": 3, "delay": 60}])
    assert len(many.json()["ids"]) == 2
    for option in ('"priority": 1', '"ttl": 1', '"id": "x"', '"retry": {}', '"repeat": {}'):
        rejected = await _post(client, "/topics/events/messages", f'{{"body": 1, {option}}}'.encode())
        assert rejected.status_code == 422, option


async def test_a_publish_has_the_retention_of_the_handlers_topic(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    events = site_app.topic("events", keep=duly.Keep(count=2))

    @events.handler(group="archive")
    async def archive(event: int) -> None: ...

    for number in range(4):
        await client.post("/api/v1/topics/events/messages", json={"body": number})
    assert (await events.stats()).length == 2


async def test_a_body_may_contain_any_text(client: httpx.AsyncClient) -> None:
    texts = ["<script>alert(1)</script>", "{{7*7}}", "a\r\nb", "\x1b[31m", "\u202e", "\x00", "a" * 10_000]
    sent = await client.post("/api/v1/queues/orders/messages", json=[{"body": text} for text in texts])
    assert sent.status_code == 201
    list_messages = await client.get("/api/v1/queues/orders/messages")
    assert [each["body"] for each in json.loads(list_messages.text)["messages"]] == texts
    assert list_messages.headers["content-type"] == "application/json"


@pytest.mark.parametrize("inmost", ["", "1", "{}"])
async def test_bodies_are_nested_at_most_200_levels_deep(client: httpx.AsyncClient, inmost: str) -> None:
    levels = 199 if inmost == "{}" else 200
    for more, status in ((0, 201), (1, 422)):
        body = "[" * (levels + more) + inmost + "]" * (levels + more)
        content, headers = f'{{"body": {body}}}', {"Content-Type": "application/json"}
        response = await client.post("/api/v1/queues/orders/messages", content=content, headers=headers)
        assert response.status_code == status, response.text
