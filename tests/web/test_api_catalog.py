"""All operations of the API: each is called with each role, and no role exceeds its permissions."""

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
    "put_schedule": {"queue": "orders", "body": 1, "every": 60},
}
_SETTLES: Final = ("ack", "retry", "defer", "reject", "release", "recycle", "extend", "progress")
_CALLS: Final = [(operation, path) for operation in OPERATIONS for path in paths_of(operation)]


async def _call(
    client: httpx.AsyncClient, operation: Operation, path: str, app: duly.AsyncDuly | None = None
) -> httpx.Response:
    """Make a valid call of an operation, for a queue and a group with all kinds of messages."""
    is_group = "{group}" in path
    given = dict(_BODIES.get(operation.name, {}))
    if operation.name == "purge":
        given = {"confirm": "events/archive" if is_group else "orders"}
    if operation.name in _SETTLES:
        given["receipt"] = await _receipt(client, is_group=is_group) if app is not None else "none"
    id_ = await _waiting(app, is_group=is_group)
    names = {"queue": "orders", "topic": "events", "group": "archive", "id": id_, "name": "report"}
    if operation.name == "result" and app is not None:
        names["id"] = (await app.queue("orders").list("done"))[0].id
    filled = path.format(**names)
    if operation.name == "delete":
        filled += f"?confirm={'events/archive' if is_group else 'orders'}"
    content = None if operation.body is None else given
    # The first event of an endless stream is enough, and HEAD has its status as well.
    method = "HEAD" if operation.media_type == "text/event-stream" else operation.method
    return await client.request(method, f"/api/v1{filled}", json=content)


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
    """Create messages in every state, with a secret in each field."""
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
async def test_every_operation_succeeds(
    site_app: duly.AsyncDuly, client: httpx.AsyncClient, operation: Operation, path: str
) -> None:
    await _fill(site_app)
    response = await _call(client, operation, path, site_app)
    assert response.status_code == (operation.status if operation.answer is not None else 204), response.text
    if operation.answer is not None:
        assert response.headers["content-type"].partition(";")[0] == operation.media_type


@pytest.mark.parametrize("role", [None, *ROLES])
async def test_no_role_can_exceed_its_permissions(site_app: duly.AsyncDuly, role: Role | None) -> None:
    async with client_of(create_app(site_app, tokens=TOKENS), headers=authorization(role) if role else {}) as caller:
        for operation, path in _CALLS:
            response = await _call(caller, operation, path)
            which = f"{operation.method} {path}"
            if role is None:
                assert (response.status_code, response.headers.get("www-authenticate")) == (401, "Bearer"), which
            elif ROLES.index(role) < ROLES.index(operation.needs):
                assert (response.status_code, operation.needs in response.json()["detail"]) == (403, True), which
            else:
                assert response.status_code not in (401, 403), which


@pytest.mark.parametrize(
    ("shown", "detail"),
    [
        ("Bearer a-token-of-a-stranger", "this token is not known to this dashboard"),
        ("Bearer ", "this needs a token: Authorization: Bearer TOKEN"),
        ("Basic YTpi", "this needs a token: Authorization: Bearer TOKEN"),
    ],
)
async def test_a_wrong_token_and_a_missing_one_have_different_errors(
    site_app: duly.AsyncDuly, shown: str, detail: str
) -> None:
    async with client_of(create_app(site_app, tokens=TOKENS), headers={"Authorization": shown}) as caller:
        rejected = await caller.get("/api/v1/queues")
    assert (rejected.status_code, rejected.json()["detail"]) == (401, detail)


async def test_read_only_changes_nothing(site_app: duly.AsyncDuly) -> None:
    async with client_of(create_app(site_app, read_only=True)) as caller:
        for operation, path in _CALLS:
            response = await _call(caller, operation, path)
            which = f"{operation.method} {path}"
            if operation.method == "GET":
                assert response.status_code in (200, 404), which
            else:
                assert (response.status_code, "read-only" in response.json()["detail"]) == (403, True), which
    assert await site_app.queues() == await site_app.topics() == []


def _looks() -> list[str]:
    """Return the URL of every GET, with all its parameters. Results and streams are tested elsewhere."""
    states = ("ready", "delayed", "leased", "parked", "dead", "done")
    found = list[str]()
    for operation, path in _CALLS:
        if operation.method == "GET" and operation.name != "result" and operation.media_type == "application/json":
            queries = [f"?state={state}" for state in states] if operation.name == "list" else [""]
            found += [path + query for query in queries]
    return found


async def _all_looks(client: httpx.AsyncClient, app: duly.AsyncDuly) -> list[httpx.Response]:
    """Call every GET, for every message."""
    responses = [await client.get("/api/v1/openapi.json"), await client.get("/healthz")]
    ids: dict[bool, list[str]] = {}
    for is_group, inbox in ((False, app.queue("orders")), (True, app.topic("events").group("archive"))):
        states = ("ready", "delayed", "leased", "parked", "dead", "done")
        ids[is_group] = [each.id for state in states for each in await inbox.list(state)]  # type: ignore[arg-type]
    for path in _looks():
        about = ids["{group}" in path] if "{id}" in path else ["none"]
        for id_ in about:
            filled = path.format(queue="orders", topic="events", group="archive", id=id_)
            responses += [await client.get(f"/api/v1{filled}"), await client.head(f"/api/v1{filled}")]
    return responses


async def test_a_viewer_never_sees_a_payload(site_app: duly.AsyncDuly, token_client: TokenClient) -> None:
    await _fill(site_app)
    responses = await _all_looks(token_client("viewer"), site_app)
    assert sum(response.status_code == 200 for response in responses) > 60
    for response in responses:
        assert response.status_code in (200, 403), response.request.url
        assert SECRET not in response.text, response.request.url
        assert "czNjcjN0" not in response.text, response.request.url  # the secret in Base64


async def test_an_operator_sees_payloads(site_app: duly.AsyncDuly, token_client: TokenClient) -> None:
    await _fill(site_app)
    text = "".join(response.text for response in await _all_looks(token_client("operator"), site_app))
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


async def test_errors_for_viewers_have_no_payload(site_app: duly.AsyncDuly, token_client: TokenClient) -> None:
    await _fill(site_app)
    for operation, path in _CALLS:
        if operation.method != "GET":
            response = await _call(token_client("viewer"), operation, path)
            assert (response.status_code, SECRET in response.text) == (403, False)


async def _everything(server: StartedServer, namespace: str) -> dict[bytes, Any]:
    """Dump all keys of a namespace with their expiry."""
    async with redis.Redis.from_url(server("valkey").url) as reader:
        keys = sorted([key async for key in reader.scan_iter(f"{namespace}:*", count=1000)])
        return {key: (await reader.dump(key), await reader.pexpiretime(key)) for key in keys}


async def test_no_get_changes_anything(
    server: StartedServer, server_app: duly.AsyncDuly, server_client: httpx.AsyncClient
) -> None:
    await _fill(server_app)
    before = await _everything(server, server_app.namespace)
    responses = await _all_looks(server_client, server_app)
    assert {response.status_code for response in responses} == {200}
    for path in ("queues/none", "queues/none/messages", "topics/none/groups/none", "queues/none/pending"):
        assert (await server_client.get(f"/api/v1/{path}")).status_code == 404
    assert before
    assert await _everything(server, server_app.namespace) == before
