"""Inspection and control over HTTP: the same results as the library."""

import asyncio
import datetime as dt
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import redis.asyncio

import duly
from duly._core import ops
from duly._core.keys import RegistryKeys
from duly._core.registry import Info, written_info
from duly.web import cache, create_app, names, overview
from tests.conftest import StartedServer
from tests.web.conftest import client_of

API = "/api/v1"


async def _json(client: httpx.AsyncClient, path: str, status: int = 200, **params: Any) -> Any:
    response = await client.get(f"{API}{path}", params=params)
    assert response.status_code == status, response.text
    return response.json()


async def test_queues_are_paginated(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    for name in "cabde":
        await site_app.queue(name).send(1)
    first = await _json(client, "/queues", limit=2)
    assert [each["name"] for each in first["queues"]] == ["a", "b"]
    assert (first["queues"][0]["stats"]["ready"], first["queues"][0]["stats"]["paused"]) == (1, None)
    second = await _json(client, "/queues", limit=3, after=first["next"])
    assert ([each["name"] for each in second["queues"]], second["next"]) == (["c", "d", "e"], None)
    assert await _json(client, "/queues", after="e") == {"queues": [], "next": None}


@pytest.mark.parametrize(
    "path", ["/queues", "/topics", "/workers", "/schedules", "/queues/orders/messages", "/queues/orders/pending"]
)
@pytest.mark.parametrize(
    "params",
    [{"limit": "101"}, {"limit": "-1"}, {"limit": "ten"}, {"limit": ""}, {"most": "1"}, [("limit", "1")] * 2],
    ids=str,
)
async def test_page_parameters_out_of_bounds_are_rejected(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, path: str, params: Any
) -> None:
    await site_app.queue("orders").send(1)
    rejected = await client.get(f"{API}{path}", params=params)
    assert rejected.status_code == 400
    assert rejected.json()["title"] == "The request is malformed"
    assert (await client.get(f"{API}{path}", params={"limit": "100"})).status_code == 200


async def test_an_unknown_state_is_rejected(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    await site_app.queue("orders").send(1)
    assert "state" in (await _json(client, "/queues/orders/messages", 400, state="late"))["detail"]


async def test_unknown_parameters_are_rejected(client: httpx.AsyncClient) -> None:
    await client.post(f"{API}/queues/orders/messages", json={"body": 1})
    assert "has no parameters" in (await _json(client, "/queues/orders", 400, limit=3))["detail"]


async def test_a_queue_is_returned_with_its_leases(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    orders = site_app.queue("orders")
    await orders.send_many([1, 2, 3])
    await orders.receive(2, wait=0)
    shown = await _json(client, "/queues/orders")
    consumer = site_app._link.consumer
    assert (shown["name"], shown["stats"]["leased"], shown["stats"]["sent"]) == ("orders", 2, 3)
    assert shown["pending"] == {"total": 2, "consumers": {consumer: 2}}
    pending = await _json(client, "/queues/orders/pending", consumer=consumer, limit=1)
    assert (pending["total"], len(pending["messages"]), pending["messages"][0]["consumer"]) == (2, 1, consumer)
    assert (await _json(client, "/queues/orders/pending", consumer="nobody"))["total"] == 0


async def test_messages_are_paginated(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    ids = await site_app.queue("orders").send_many(range(5))
    first = await _json(client, "/queues/orders/messages", limit=3)
    assert [each["id"] for each in first["messages"]] == ids[:3]
    second = await _json(client, "/queues/orders/messages", limit=3, after=first["next"])
    assert ([each["id"] for each in second["messages"]], second["next"]) == (ids[3:], None)
    assert (await _json(client, "/queues/orders/messages", state="dead"))["messages"] == []
    same = await _json(client, "/queues/orders/messages", limit=3, after=ids[2])
    assert same == second
    gone = await _json(client, "/queues/orders/messages", 409, after="unknown")
    assert "'unknown' is no longer ready in queue 'orders'" in gone["detail"]
    await _json(client, "/queues/orders/messages", 422, after="")


@pytest.mark.parametrize("state", ["ready", "delayed", "leased", "parked", "dead"])
async def test_pagination_continues_after_a_removed_message(
    site_app: duly.AsyncDuly, server_app: duly.AsyncDuly, state: str
) -> None:
    for app in (site_app, server_app):
        orders = app.queue("orders")
        ids = await _messages_in(orders, state)
        async with client_of(create_app(app)) as client:
            first = await _json(client, "/queues/orders/messages", state=state, limit=3)
            assert [each["id"] for each in first["messages"]] == ids[:3]
            for id_ in ids[1:4]:
                assert await orders.cancel(id_, running=True)
            second = await _json(client, "/queues/orders/messages", state=state, limit=3, after=first["next"])
        assert ([each["id"] for each in second["messages"]], second["next"]) == (ids[4:], None)


async def _messages_in(orders: duly.AsyncQueue, state: str) -> list[duly.MessageId]:
    """Put six messages into a state, and return their ids in its order."""
    if state == "parked":
        await orders.send("first", key="k")
        assert len(await orders.receive(1, wait=0)) == 1
    sends = [duly.Send(n, key="k" if state == "parked" else None, delay=600 + n if state == "delayed" else None)
             for n in range(6)]  # fmt: skip
    ids = await orders.send_many(sends)
    if state == "parked":
        assert await orders.receive(1, wait=0) == []
    if state in ("leased", "dead"):
        for delivery in [(await orders.receive(1, wait=0))[0] for _ in ids]:
            if state == "dead":
                await delivery.reject("no")
    return ids


async def test_pagination_of_a_group_continues_after_a_removed_entry(
    server_app: duly.AsyncDuly, server_client: httpx.AsyncClient
) -> None:
    events = server_app.topic("events")
    await events.group("archive").create()
    ids = await events.publish_many(range(5))
    path = "/topics/events/groups/archive/messages"
    first = await _json(server_client, path, limit=3)
    assert [each["id"] for each in first["messages"]] == ids[:3]
    for delivery in await events.group("archive").receive(3, wait=0):
        await delivery.ack()
    second = await _json(server_client, path, limit=3, after=first["next"])
    assert [each["id"] for each in second["messages"]] == ids[3:]


@pytest.mark.parametrize("inbox", ["/queues/orders", "/topics/events/groups/archive"])
async def test_a_forged_cursor_is_422(site_app: duly.AsyncDuly, client: httpx.AsyncClient, inbox: str) -> None:
    await site_app.queue("orders").send_many(range(3))
    await site_app.topic("events").group("archive").create()
    await site_app.topic("events").publish_many(range(3))
    cursor = (await _json(client, f"{inbox}/messages", limit=1))["next"]
    for forged in ("next~", cursor[:-3], cursor + "A", "next~" + "A" * 40, "next~é", cursor.replace("~", "~A")):
        assert "cursor" in (await _json(client, f"{inbox}/messages", 422, after=forged))["detail"], forged
    other = await _json(client, f"{inbox}/messages", 422, state="dead", after=cursor)
    assert "from a page of 'ready' messages" in other["detail"]


async def test_a_short_page_of_large_messages_has_a_next_page(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    ids = await site_app.queue("orders").send_many(["x" * 1_000_000] * 6)
    found, after = list[str](), None
    while True:
        params = {"limit": 100} if after is None else {"limit": 100, "after": after}
        page = await _json(client, "/queues/orders/messages", **params)
        found += [each["id"] for each in page["messages"]]
        after = page["next"]
        if after is None:
            break
    assert found == ids


async def test_a_message_is_returned_with_its_history(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    orders = site_app.queue("orders")
    id_ = await orders.send({"order": 1}, headers={"trace": "t"}, key="k")
    (delivery,) = await orders.receive(1, wait=0)
    await delivery.retry(delay=60, error="it broke")
    shown, found = await _json(client, f"/queues/orders/messages/{id_}"), await orders.get(id_)
    assert found is not None
    for name in ("id", "queue", "state", "body", "headers", "key", "priority", "failures", "attempt", "deliveries"):
        assert shown[name] == getattr(found, name), name
    assert found.due_at is not None
    assert dt.datetime.fromisoformat(shown["due_at"]) == found.due_at
    assert [each["error"] for each in shown["errors"]] == ["it broke"]
    assert [each["what"] for each in shown["timeline"]] == [each.what for each in found.timeline]


async def test_explain_shows_why_a_message_waits(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    orders = site_app.queue("orders")
    id_ = await orders.send(1, id="mine/1", delay=3600)
    shown = await _json(client, f"/queues/orders/explanations/{id_}")
    assert "delayed" in shown["explanation"] or "due" in shown["explanation"]
    assert "unknown" in (await _json(client, "/queues/orders/explanations/none"))["explanation"]


@pytest.mark.parametrize("id_", ["x/explanation", "explanations/x", "x"])
async def test_an_id_may_be_any_text(site_app: duly.AsyncDuly, client: httpx.AsyncClient, id_: str) -> None:
    orders = site_app.queue("orders")
    await orders.send_many([duly.Send(1, id=each, delay=3600) for each in dict.fromkeys(("x", id_))])
    path = quote(id_, safe="")
    assert (await _json(client, f"/queues/orders/messages/{path}"))["id"] == id_
    assert repr(id_)[1:-1] in repr(await _json(client, f"/queues/orders/explanations/{path}"))
    assert (await client.get(f"/queues/orders/messages/{path}")).status_code == 200
    assert (await client.delete(f"{API}/queues/orders/messages/{path}")).status_code == 204
    assert await orders.get(id_) is None


@pytest.mark.parametrize("ending", ["%0A", "%0Ay", "%0D", "%2F"])
async def test_an_id_may_end_with_a_newline(site_app: duly.AsyncDuly, client: httpx.AsyncClient, ending: str) -> None:
    orders = site_app.queue("orders")
    await orders.send(1, id="x")
    for path in ("/queues/orders/messages/x", f"{API}/queues/orders/messages/x"):
        assert (await client.get(path + ending)).status_code in (404, 422)
        assert (await client.get(path)).status_code == 200
    assert (await client.delete(f"{API}/queues/orders/messages/x{ending}")).status_code in (404, 422)
    assert await orders.get("x") is not None


async def test_an_unknown_name_is_404_with_the_nearest_names(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    await site_app.queue("orders").send(1)
    await site_app.topic("events").group("archive").create()
    for path, words in {
        "/queues/order": ("'order'", "orders"),
        "/queues/order/messages": ("'order'", "orders"),
        "/queues/orders/messages/none": ("'none'", "orders"),
        "/topics/event/groups/archive": ("'event'", "events"),
        "/topics/event": ("'event'", "events"),
        "/topics/events/groups/archi": ("'archi'", "archive"),
    }.items():
        problem = await _json(client, path, 404)
        assert all(word in problem["detail"] for word in words), problem
    for verb in ("pause", "resume", "redrive"):
        assert (await client.post(f"{API}/queues/order/{verb}")).status_code == 404
    assert await site_app.queues() == ["orders"]


async def test_a_new_queue_is_found_at_once(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    await _json(client, "/queues/orders", 404)
    await client.post(f"{API}/queues/orders/messages", json={"body": 1})
    assert (await _json(client, "/queues/orders"))["stats"]["ready"] == 1
    await _json(client, "/topics/events/groups/archive", 404)
    await site_app.topic("events").group("archive").create()
    assert (await _json(client, "/topics/events/groups/archive"))["name"] == "events/archive"


async def test_requests_for_missing_queues_do_not_scan_each_time(
    site_app: duly.AsyncDuly, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listing all names scans all keys of the server, so clients must not be able to trigger it at will."""
    searches, search = list[str](), site_app._link.queues

    async def counted(namespace: str, *without: Any) -> Any:
        searches.append(namespace)
        return await search(namespace, *without)

    monkeypatch.setattr(site_app._link, "queues", counted)
    monkeypatch.setattr(names, "_TTL", 3600.0)
    async with client_of(create_app(site_app)) as client:
        for number in range(20):
            await _json(client, f"/queues/none-{number}", 404)
            await _json(client, "/queues")
    assert len(searches) == 1


async def test_a_cancelled_message_is_removed(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    id_ = await site_app.queue("orders").send(1)
    done = await client.delete(f"{API}/queues/orders/messages/{id_}")
    assert (done.status_code, done.content) == (204, b"")
    assert (await client.delete(f"{API}/queues/orders/messages/{id_}")).status_code == 404
    assert (await site_app.queue("orders").stats()).cancelled == 1


async def test_a_leased_message_is_cancelled_only_with_running(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient
) -> None:
    orders = site_app.queue("orders", done=duly.Keep(count=5))
    id_ = await orders.send(1)
    (delivery,) = await orders.receive(1, wait=0)
    path = f"{API}/queues/orders/messages/{id_}"

    rejected = await client.delete(path)
    not_a_flag = await client.delete(path, params={"running": "perhaps"})
    unknown = await client.delete(f"{API}/queues/orders/messages/none", params={"running": "true"})
    assert (rejected.status_code, not_a_flag.status_code, unknown.status_code) == (409, 400, 404)
    assert "a consumer holds it" in rejected.json()["detail"]
    assert "?running=true" in rejected.json()["detail"]
    assert (await orders.stats()).leased == 1

    assert (await client.delete(path, params={"running": "true"})).status_code == 204
    with pytest.raises(duly.LeaseLost):
        await delivery.ack()
    finished = await orders.send(2)
    for each in await orders.receive(1, wait=0):
        await each.ack()
    assert (await client.delete(f"{API}/queues/orders/messages/{finished}")).status_code == 404


async def test_a_waiting_message_is_rescheduled(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    id_ = await site_app.queue("orders").send(1, delay=60)
    path, when = f"{API}/queues/orders/messages/{id_}", dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    moved = await client.patch(path, json={"at": when.isoformat()})
    assert abs(dt.datetime.fromisoformat(moved.json()["due_at"]) - when) < dt.timedelta(milliseconds=1)
    assert (await client.patch(path, json={"delay": 30})).json()["state"] == "delayed"
    assert (await client.patch(path, json={"promote": True})).json()["state"] == "ready"
    for wrong in ({}, {"delay": 1, "at": 2e9}, {"delay": 1, "promote": True}, {"promote": False}, {"delay": -1}):
        assert (await client.patch(path, json=wrong)).status_code == 422, wrong
    await site_app.queue("orders").receive(1, wait=0)
    rejected = await client.patch(path, json={"delay": 1})
    assert (rejected.status_code, "it is leased" in rejected.json()["detail"]) == (409, True)
    unknown = await client.patch(f"{API}/queues/orders/messages/none", json={"delay": 1})
    assert unknown.status_code == 404


async def test_a_queue_is_paused_and_resumed(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    await site_app.queue("orders").send(1)
    paused = (await client.post(f"{API}/queues/orders/pause")).json()
    assert paused == {"paused": site_app._link.consumer}
    assert await site_app.queue("orders").receive(1, wait=0) == []
    assert (await client.post(f"{API}/queues/orders/resume", json={})).json() == {"paused": None}
    assert len(await site_app.queue("orders").receive(1, wait=0)) == 1
    assert (await client.post(f"{API}/queues/orders/pause", json={"x": 1})).status_code == 400


async def test_control_operations_are_logged(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "duly")
    await site_app.queue("orders").send(1, id="a\u202eb")
    await client.get(f"{API}/queues/orders")
    await client.post(f"{API}/queues/orders/pause")
    await client.post(f"{API}/queues/none/pause")
    await client.delete(f"{API}/queues/orders/messages/a%E2%80%AEb")
    await client.post(f"{API}/queues/orders/purge", json={"confirm": "orders"})
    await client.post(f"{API}/queues/orders/redrive", json={"dry_run": True})
    assert [(each.levelname, each.message) for each in caplog.records if each.name == "duly.web.changes"] == [
        ("INFO", "pause of '/api/v1/queues/orders/pause' by admin at '127.0.0.1'"),
        ("INFO", "cancel of '/api/v1/queues/orders/messages/a\\u202eb' by admin at '127.0.0.1'"),
        ("INFO", "purge of '/api/v1/queues/orders/purge' by admin at '127.0.0.1'"),
    ]


async def test_a_purge_requires_the_name(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    orders = site_app.queue("orders")
    await orders.send_many([1, 2])
    await orders.send(3, delay=60)
    for wrong in ({}, {"confirm": ""}, {"confirm": "Orders"}, {"confirm": "orders", "state": "late"}):
        assert (await client.post(f"{API}/queues/orders/purge", json=wrong)).status_code == 422, wrong
    assert (await orders.stats()).live == 3
    purged = await client.post(f"{API}/queues/orders/purge", json={"confirm": "orders", "state": "ready"})
    assert purged.json() == {"purged": 2}
    assert (await client.post(f"{API}/queues/orders/purge", json={"confirm": "orders"})).json() == {"purged": 1}


async def _bury(orders: duly.AsyncQueue, *bodies: Any) -> None:
    await orders.send_many([duly.Send(body, key=f"k-{body}", headers={"n": str(body)}) for body in bodies])
    for delivery in await orders.receive(10, wait=0):
        await delivery.reject(f"reason {delivery.body}")


async def test_dead_letters_are_redriven(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    orders = site_app.queue("orders")
    await _bury(orders, 1, 2, 3, 4)
    path = f"{API}/queues/orders/redrive"
    dry = await client.post(path, json={"dry_run": True, "where": {"reason": "reason *"}})
    assert (dry.json(), (await orders.stats()).dead) == ({"redriven": 4}, 4)
    chosen: list[dict[str, Any]] = [{"reason": "reason 1"}, {"key": "k-2", "headers": {"n": "2"}}]
    for where in chosen:
        assert (await client.post(path, json={"where": where})).json() == {"redriven": 1}
    assert (await client.post(path, json={"to": "again", "limit": 1})).json() == {"redriven": 1}
    assert (await client.post(path)).json() == {"redriven": 1}
    assert ((await orders.stats()).ready, (await site_app.queue("again").stats()).ready) == (3, 1)


async def test_an_invalid_redrive_moves_nothing(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    orders = site_app.queue("orders")
    await _bury(orders, 1)
    for wrong in (
        {"limit": 0}, {"rate": "fast"}, {"to": "-"}, {"to": "orders"}, {"where": {"reason": ""}}, {"edit": "x"},
        {"where": {"since": "2026-01-01T00:00:00"}}, {"where": {"body": 1}}, {"where": {"ids": "one"}},
    ):  # fmt: skip
        rejected = await client.post(f"{API}/queues/orders/redrive", json=wrong)
        assert rejected.status_code == 422, wrong
    assert (await orders.stats()).dead == 1


async def test_topics_are_listed_with_their_groups(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    events = site_app.topic("events")
    await events.group("archive").create()
    id_ = await events.publish(1)
    (shown,) = (await _json(client, "/topics"))["topics"]
    assert await _json(client, "/topics/events") == shown
    assert (shown["name"], shown["stats"]["length"], shown["stats"]["last_id"]) == ("events", 1, id_)
    assert [(each["name"], each["unread"]) for each in shown["groups"]] == [("archive", 1)]
    (message,) = (await _json(client, "/topics/events/groups/archive/messages"))["messages"]
    assert (message["id"], message["body"]) == (id_, 1)


async def test_topics_schedules_and_workers_are_paginated(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    names = ["a", "b", "c"]
    for name in names:
        await site_app.topic(name).publish(1)
        await site_app.schedule(name, "orders", 1, every=60)
        await _beat(site_app, name)
    for path, name in {"topics": "name", "schedules": "name", "workers": "id"}.items():
        first = await _json(client, f"/{path}", limit=2)
        assert ([each[name] for each in first[path]], first["next"]) == (["a", "b"], "b"), path
        second = await _json(client, f"/{path}", limit=2, after="b")
        assert ([each[name] for each in second[path]], second["next"]) == (["c"], None), path
        assert await _json(client, f"/{path}", after="c") == {path: [], "next": None}


def _beat(app: duly.AsyncDuly, name: str) -> Any:
    info = Info(
        host="h", pid=7, queues=("orders",), concurrency=1, in_flight=0, handled=0,
        started_at=dt.datetime.now(dt.UTC), last_poll=None, version="1",
    )  # fmt: skip
    return app._link.run(ops.beat(RegistryKeys(app.namespace), name, written_info(info), 60.0))


async def test_a_damaged_object_does_not_hide_others(
    server: StartedServer, server_app: duly.AsyncDuly, server_client: httpx.AsyncClient
) -> None:
    for name in ("broken", "whole"):
        await server_app.queue(name).send(1)
        await server_app.topic(name).publish(1)
    raw: Any = redis.asyncio.Redis.from_url(server("valkey").url)
    for key, counter in {"broken": "sent", "@broken": "published"}.items():
        await raw.hset(f"{server_app.namespace}:{{{key}}}:meta", counter, "a nonsense")
    await raw.aclose()
    for path, number in {"queues": "ready", "topics": "length"}.items():
        broken, whole = (await _json(server_client, f"/{path}"))[path]
        assert (broken["name"], broken["stats"]) == ("broken", None)
        assert "a nonsense" in broken["error"]
        assert (whole["stats"][number], "error" in whole) == (1, False)


async def test_topics_schedules_and_workers_are_cached(
    site_app: duly.AsyncDuly, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site_app.topic("events").group("archive").create()
    await site_app.topic("events").publish(1)
    looks = list[str]()
    run = site_app._link.run

    async def counted(call: Any) -> Any:
        looks.append(call.script.name)
        return await run(call)

    async with client_of(create_app(site_app)) as client:
        await client.get(f"{API}/topics")
        monkeypatch.setattr(cache.Cached, "is_expired", False)  # the second has not expired
        monkeypatch.setattr(site_app._link, "run", counted)
        for path in ("/topics", f"{API}/topics"):
            assert (await client.get(path)).status_code == 200
    assert looks == []


async def test_very_many_leases_are_only_counted(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "MAX_LEASES", 3)
    archive = site_app.topic("events").group("archive")
    await archive.create()
    await site_app.queue("orders").send_many(range(9))
    await site_app.topic("events").publish_many(range(9))
    for inbox, path in ((site_app.queue("orders"), "/queues/orders"), (archive, "/topics/events/groups/archive")):
        await inbox.receive(3, wait=0)
        assert (await _json(client, path))["pending"]["consumers"] == {site_app._link.consumer: 3}
        assert len((await _json(client, f"{path}/pending"))["messages"]) == 3
        await inbox.receive(1, wait=0)

        async def never(*_: Any, **__: Any) -> None:
            pytest.fail("leases were read")

        with monkeypatch.context() as patched:
            patched.setattr(type(inbox), "pending", never)
            assert (await _json(client, path))["pending"] == {"total": 4, "consumers": None}
            pending = await _json(client, f"{path}/pending")
            page = (await client.get(path)).text
            rejected = await _json(client, f"{path}/pending", 409, consumer="somebody")
        assert pending == {"total": 4, "min_id": None, "max_id": None, "consumers": None, "messages": None}
        assert "4 leases are too many to list here" in page
        assert "too many" in rejected["detail"]


async def test_long_lists_of_leases_are_cached_and_short_ones_are_not(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, looks = site_app.queue("orders"), list[str]()
    await orders.send_many(range(9))
    await orders.receive(4, wait=0)
    look = duly.AsyncQueue.pending

    async def counted(queue: Any, *given: Any, **more: Any) -> Any:
        looks.append(queue.name)
        return await look(queue, *given, **more)

    monkeypatch.setattr(duly.AsyncQueue, "pending", counted)
    for _ in range(3):
        await _json(client, "/queues/orders/pending")
    assert len(looks) == 3
    monkeypatch.setattr(overview, "_FEW_LEASES", 3)
    responses = await asyncio.gather(*(_json(client, f"/queues/orders{path}") for path in ["", "/pending"] * 5))
    assert len(looks) == 4
    assert [each["total"] for each in responses[1::2]] == [4] * 5


async def test_schedules_are_listed(site_app: duly.AsyncDuly, client: httpx.AsyncClient) -> None:
    await site_app.schedule("report", "orders", {"kind": "daily"}, cron="0 3 * * *", tz="Asia/Shanghai")
    await site_app.schedule("ping", "orders", b"\x00", every=30)
    ping, report = (await _json(client, "/schedules"))["schedules"]
    assert (report["name"], report["queue"], report["cron"], report["body"]) == (
        "report", "orders", "0 3 * * *", {"kind": "daily"},
    )  # fmt: skip
    assert (ping["every"], ping["body"], ping["base64"]) == (30, None, "AA==")


async def test_without_workers_the_list_is_empty(client: httpx.AsyncClient) -> None:
    assert await _json(client, "/workers") == {"workers": [], "next": None}


async def test_an_unavailable_server_is_503(free_address: Callable[[], str]) -> None:
    async with duly.AsyncDuly(free_address(), patience=0.2) as app, client_of(create_app(app)) as client:
        rejected = await client.get(f"{API}/queues/orders")
        assert (rejected.status_code, rejected.json()["title"]) == (503, "The server is unavailable")
        assert "SECRET" not in rejected.text
        assert (await client.get("/healthz")).json() == {"ok": False}


@pytest.fixture
def free_address() -> Callable[[], str]:
    def find() -> str:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return f"redis://:SECRET-PASSWORD@127.0.0.1:{probe.getsockname()[1]}/0"

    return find
