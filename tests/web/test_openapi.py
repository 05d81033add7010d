"""openapi.json is valid OpenAPI 3.1, self-contained, and matches the operations."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import duly
from duly.web import create_app
from duly.web.api import paths_of
from duly.web.api.catalog import OPERATIONS
from duly.web.api.openapi import document
from duly.web.api.operation import Operation
from tests.web.conftest import TOKENS, TokenClient, client_of

MAY_BE_EMPTY = ("reschedule", "reschedule_of_group", "result")
"""Operations that may have no content, for reasons that their summaries state."""


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    return document()


def _operations(described: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for part in value.values():
            yield from _references(part)
    elif isinstance(value, list):
        for part in value:
            yield from _references(part)


def test_the_document_is_valid_openapi(described: dict[str, Any]) -> None:
    assert described["openapi"].startswith("3.1.")
    assert described["info"]["title"] == "Duly"
    assert described["info"]["version"] == duly.__version__
    assert described["components"]["securitySchemes"]["token"] == {"type": "http", "scheme": "bearer"}
    assert all(name in described["components"]["securitySchemes"] for each in described["security"] for name in each)


def test_every_reference_is_resolved(described: dict[str, Any]) -> None:
    found = set(_references(described))
    assert found
    for reference in found:
        place: Any = described
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
        assert place["title"] == reference.rpartition("/")[2]


def test_operation_ids_are_unique_words(described: dict[str, Any]) -> None:
    ids = [operation["operationId"] for _, _, operation in _operations(described)]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z_]+", each) for each in ids)


def test_every_path_parameter_is_declared(described: dict[str, Any]) -> None:
    for path, _, operation in _operations(described):
        declared = {each["name"] for each in operation["parameters"] if each["in"] == "path" and each["required"]}
        assert declared == set(re.findall(r"{(\w+)}", path)), path


def test_every_operation_describes_request_and_response(described: dict[str, Any]) -> None:
    for path, method, operation in _operations(described):
        assert operation["summary"].endswith("."), path
        assert ("requestBody" in operation) <= (method in ("post", "put", "patch")), path
        good = [status for status in operation["responses"] if status.startswith("2")]
        assert len(good) == (2 if operation["operationId"] in MAY_BE_EMPTY else 1), path
        assert all(each["description"] for each in operation["responses"].values())
        for rejected in ("422", "default"):
            assert "application/problem+json" in operation["responses"][rejected]["content"]


def test_the_empty_response_of_reschedule_is_described(described: dict[str, Any]) -> None:
    responses = described["paths"]["/queues/{queue}/messages/{id}"]["patch"]["responses"]
    assert "content" in responses["200"]
    assert "content" not in responses["204"]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
def test_the_table_is_described(described: dict[str, Any], operation: Operation) -> None:
    for path in paths_of(operation):
        found = described["paths"][path][operation.method.lower()]
        assert found["operationId"].startswith(operation.name)
        assert operation.needs in found["description"]


def test_a_schema_rejects_the_same_input_as_the_api(described: dict[str, Any]) -> None:
    send = described["components"]["schemas"]["Send"]
    assert send["additionalProperties"] is False
    options = set(duly.Send.__dataclass_fields__) | {"base64", "durable"}
    assert set(send["properties"]) == options


def test_a_message_is_described_with_all_its_fields(described: dict[str, Any]) -> None:
    shown = set(described["components"]["schemas"]["Message"]["properties"])
    fields = set(duly.Message.__dataclass_fields__) - {"raw", "cursor"}
    assert shown == fields | {"base64", "attempt", "deliveries"}


async def test_the_description_is_served_below_the_api(token_client: TokenClient, site_app: duly.AsyncDuly) -> None:
    response = await token_client("viewer").get("/api/v1/openapi.json")
    assert response.status_code == 200
    assert response.json()["servers"] == [{"url": "/api/v1"}]
    async with client_of(create_app(site_app, tokens=TOKENS)) as stranger:
        rejected = await stranger.get("/api/v1/openapi.json")
        wrong = await stranger.get("/api/v1/openapi.json", headers={"Authorization": "Bearer not-a-token-of-it"})
    assert "this needs a token" in rejected.json()["detail"]
    assert wrong.json()["detail"] == "this token is not known to this dashboard"
    assert rejected.status_code == 401
    assert rejected.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", ["/queues/%0A/messages", "/%0A", "/queues%0A", "/queues/x/messages%0A"])
async def test_a_line_break_in_a_path_is_a_problem_response(client: httpx.AsyncClient, path: str) -> None:
    response = await client.get(f"/api/v1{path}")
    assert response.status_code in (404, 422)
    assert response.headers["content-type"] == "application/problem+json"


async def test_an_unknown_path_is_a_problem_response(client: httpx.AsyncClient) -> None:
    nowhere = await client.get("/api/v1/nowhere")
    assert (nowhere.status_code, nowhere.headers["content-type"]) == (404, "application/problem+json")
    wrong = await client.delete("/api/v1/queues/orders/messages")
    assert wrong.status_code == 405
    assert {each.strip() for each in wrong.headers["allow"].split(",")} == {"GET", "HEAD", "POST"}
    assert wrong.json()["title"] == "Method not allowed"
