"""The table as a whole: every operation is called, by everybody, and nobody gets more than is his."""

from collections.abc import Mapping
from typing import Any, Final

import httpx
import pytest
import redis.asyncio as redis

import duly
from duly.web import create_app
from duly.web.access import ROLES, Role
from duly.web.api import paths_of
from duly.web.api.catalog import OPERATIONS
from duly.web.api.operation import Operation
from tests.conftest import StartedServer
from tests.web.conftest import TOKENS, TokenClient, authorization, client_of

SECRET: Final = "s3cr3t"

_BODIES: Final[Mapping[str, Any]] = {
    "send": {"body": 1},
    "publish": {"body": 1},
    "reschedule": {"delay": 30},
    "receive": {"wait": 0},
    "defer": {"delay": 1},
    "reject": {"reason": "no"},
    "extend": {"seconds": 60},
    "progress": {"fraction": 0.4},
}
_SETTLES: Final = ("ack", "retry", "defer", "reject", "release", "recycle", "extend", "progress")
_CALLS: Final = [(operation, path) for operation in OPERATIONS for path in paths_of(operation)]


async def _call(
    client: httpx.AsyncClient, operation: Operation, path: str, app: duly.AsyncDuly | None = None
) -> httpx.Response:
    """Make one call as it is meant, about a queue and a group that hold something of every kind."""
    is_group = "{group}" in path
    given = dict(_BODIES.get(operation.name, {}))
    if operation.name == "purge":
        given = {"confirm": "events/archive" if is_group else "orders"}
    if operation.name in _SETTLES:
        given["receipt"] = await _receipt(client, is_group=is_group) if app is not None else "none"
    names = {"queue": "orders", "topic": "events", "group": "archive", "id": await _waiting(app, is_group=is_group)}
    filled = path.format(**names)
    content = None if operation.body is None else given
    return await client.request(operation.method, f"/api/v1{filled}", json=content)


async def _receipt(client: httpx.AsyncClient, *, is_group: bool) -> str:
    inbox = "topics/events/groups/archive" if is_group else "queues/orders"
    (message,) = (await client.post(f"/api/v1/{inbox}/receive", json={"wait": 0, "limit": 1})).json()["messages"]
    receipt: str = message["receipt"]
    return receipt


async def _waiting(app: duly.AsyncDuly | None, *, is_group: bool) -> str:
    if app is None:
        return "none"
    inbox = app.topic("events").group("archive") if is_group else app.queue("orders")
    return (await inbox.list("delayed"))[0].id


async def _fill(app: duly.AsyncDuly) -> None:
    """Have messages in every state, with a secret wherever there is room for one."""
    orders, events = app.queue("orders", done=duly.Keep(count=10)), app.topic("events")
    archive = events.group("archive")
    headers = {f"name-{SECRET}": SECRET}
    for number in range(8):
        await orders.send({"text": SECRET, "n": number}, headers=headers)
        await events.publish({"text": SECRET, "n": number}, headers=headers)
    await orders.send(SECRET.encode(), key="lane")
    await orders.send({"text": SECRET}, key="lane")
    for inbox in (orders, archive):
        first, second, third, fourth, held = await inbox.receive(5, wait=0)
        await first.reject(f"reason {SECRET}")
        await second.retry(delay=600, error=f"error {SECRET}")
        await third.defer(600, f"reason {SECRET}")
        await fourth.ack(result={"text": SECRET})
        await held.progress(0.4, f"progress {SECRET}")
    await app.schedule("report", "orders", {"text": SECRET}, every=3600)


@pytest.mark.parametrize(
    ("operation", "path"), _CALLS, ids=[f"{operation.method} {path}" for operation, path in _CALLS]
)
async def test_every_operation_does_what_it_says(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, operation: Operation, path: str
) -> None:
    await _fill(site_app)
    answer = await _call(client, operation, path, site_app)
    assert answer.status_code == (operation.status if operation.answer is not None else 204), answer.text
    if operation.answer is not None:
        assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("role", [None, *ROLES])
async def test_nobody_does_more_than_his_role_may(site_app: duly.AsyncDuly, role: Role | None) -> None:
    async with client_of(create_app(site_app, tokens=TOKENS), headers=authorization(role) if role else {}) as caller:
        for operation, path in _CALLS:
            answer = await _call(caller, operation, path)
            which = f"{operation.method} {path}"
            if role is None:
                assert (answer.status_code, answer.headers.get("www-authenticate")) == (401, "Bearer"), which
            elif ROLES.index(role) < ROLES.index(operation.needs):
                assert (answer.status_code, operation.needs in answer.json()["detail"]) == (403, True), which
            else:
                assert answer.status_code not in (401, 403), which


@pytest.mark.parametrize(
    ("shown", "detail"),
    [
        ("Bearer a-token-of-nobody", "this is not a token of this dashboard"),
        ("Bearer ", "a token is needed: Authorization: Bearer TOKEN"),
        ("Basic YTpi", "a token is needed: Authorization: Bearer TOKEN"),
    ],
)
async def test_a_wrong_token_is_told_apart_from_none(site_app: duly.AsyncDuly, shown: str, detail: str) -> None:
    async with client_of(create_app(site_app, tokens=TOKENS), headers={"Authorization": shown}) as caller:
        refused = await caller.get("/api/v1/queues")
    assert (refused.status_code, refused.json()["detail"]) == (401, detail)


async def test_read_only_changes_nothing(site_app: duly.AsyncDuly) -> None:
    async with client_of(create_app(site_app, read_only=True)) as caller:
        for operation, path in _CALLS:
            answer = await _call(caller, operation, path)
            which = f"{operation.method} {path}"
            if operation.method == "GET":
                assert answer.status_code in (200, 404), which
            else:
                assert (answer.status_code, "read-only" in answer.json()["detail"]) == (403, True), which
    assert await site_app.queues() == await site_app.topics() == []


def _looks() -> list[str]:
    """Name every GET, each with all it can be asked for."""
    states = ("ready", "delayed", "leased", "parked", "dead", "done")
    found = list[str]()
    for operation, path in _CALLS:
        if operation.method == "GET":
            queries = [f"?state={state}" for state in states] if operation.name == "list" else [""]
            found += [path + query for query in queries]
    return found


async def _all_looks(client: httpx.AsyncClient, app: duly.AsyncDuly) -> list[httpx.Response]:
    """Make every GET, about every message."""
    answers = [await client.get("/api/v1/openapi.json"), await client.get("/healthz")]
    ids: dict[bool, list[str]] = {}
    for is_group, inbox in ((False, app.queue("orders")), (True, app.topic("events").group("archive"))):
        states = ("ready", "delayed", "leased", "parked", "dead", "done")
        ids[is_group] = [each.id for state in states for each in await inbox.list(state)]  # type: ignore[arg-type]
    for path in _looks():
        about = ids["{group}" in path] if "{id}" in path else ["none"]
        for id_ in about:
            filled = path.format(queue="orders", topic="events", group="archive", id=id_)
            answers += [await client.get(f"/api/v1{filled}"), await client.head(f"/api/v1{filled}")]
    return answers


async def test_a_viewer_never_sees_a_payload(site_app: duly.AsyncDuly, token_client: TokenClient) -> None:
    await _fill(site_app)
    answers = await _all_looks(token_client("viewer"), site_app)
    assert sum(answer.status_code == 200 for answer in answers) > 60
    for answer in answers:
        assert answer.status_code in (200, 403), answer.request.url
        assert SECRET not in answer.text, answer.request.url
        assert "czNjcjN0" not in answer.text, answer.request.url  # the same as Base64


async def test_an_operator_sees_them(site_app: duly.AsyncDuly, token_client: TokenClient) -> None:
    await _fill(site_app)
    text = "".join(answer.text for answer in await _all_looks(token_client("operator"), site_app))
    for part in (
        f'"body":{{"text":"{SECRET}"',
        f"reason {SECRET}",
        f"error {SECRET}",
        f"progress {SECRET}",
        f'"result":{{"text":"{SECRET}"',
    ):
        assert part in text
    assert f'"name-{SECRET}":"{SECRET}"' in text
    assert '"base64":"czNjcjN0"' in text


async def test_what_a_viewer_is_refused_names_no_payload(site_app: duly.AsyncDuly, token_client: TokenClient) -> None:
    await _fill(site_app)
    for operation, path in _CALLS:
        if operation.method != "GET":
            answer = await _call(token_client("viewer"), operation, path)
            assert (answer.status_code, SECRET in answer.text) == (403, False)


async def _everything(server: StartedServer, namespace: str) -> dict[bytes, Any]:
    """Dump all keys of a namespace, and when each of them expires, if it does."""
    async with redis.Redis.from_url(server("valkey").url) as reader:
        keys = sorted([key async for key in reader.scan_iter(f"{namespace}:*", count=1000)])
        return {key: (await reader.dump(key), await reader.pexpiretime(key)) for key in keys}


async def test_no_get_changes_anything(
    server: StartedServer, server_app: duly.AsyncDuly, server_client: httpx.AsyncClient
) -> None:
    await _fill(server_app)
    before = await _everything(server, server_app.namespace)
    answers = await _all_looks(server_client, server_app)
    assert {answer.status_code for answer in answers} == {200}
    for path in ("queues/none", "queues/none/messages", "topics/none/groups/none", "queues/none/pending"):
        assert (await server_client.get(f"/api/v1/{path}")).status_code == 404
    assert before
    assert await _everything(server, server_app.namespace) == before
