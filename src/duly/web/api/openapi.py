"""The OpenAPI 3.1 description of the API, created from the table of operations."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

import duly
from duly.web.api.catalog import OPERATIONS
from duly.web.api.operation import INBOX_PATHS, Operation
from duly.web.problems import TITLES, Problem

_SUFFIXES: Final = dict(zip(INBOX_PATHS, ("", "_of_group"), strict=True))
"""The suffix of operation names, for queues and for groups."""
_REF: Final = "#/components/schemas/{name}"
_NAME: Final = "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
"""The names of queues, topics, groups and schedules."""
_REFUSALS: Final = (400, 401, 403, 404, 409, 413, 415, 422, 429, 502, 503, 507)


def document(root: str = "/api/v1") -> dict[str, Any]:
    """Describe the API as it is served below `root`."""
    return {**_fixed_part(), "servers": [{"url": root or "/"}]}


@functools.cache
def _fixed_part() -> dict[str, Any]:
    schemas, components = _schemas()
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        for inbox, suffix in _SUFFIXES.items():
            path = operation.path.replace("{inbox}", inbox)
            name = operation.name + (suffix if "{inbox}" in operation.path else "")
            paths.setdefault(path, {})[operation.method.lower()] = _operation_object(operation, path, name, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Duly", "version": duly.__version__, "description": "Reliable and delayed messages."},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation_object(operation: Operation, path: str, name: str, schemas: dict[int, Any]) -> dict[str, Any]:
    description: dict[str, Any] = {
        "operationId": name,
        "summary": operation.summary,
        "description": f"Needs the role {operation.needs}.",
        "parameters": [*_path_parameters(path), *_query_parameters(operation)],
        "responses": {**_success_responses(operation, schemas), **_problem_responses(schemas)},
    }
    if operation.body is not None:
        content = {"application/json": {"schema": schemas[id(operation.body)]}}
        description["requestBody"] = {"required": not operation.is_body_optional, "content": content}
    return description


def _path_parameters(path: str) -> Iterable[dict[str, Any]]:
    for name in re.findall(r"{(\w+)}", path):
        shape = {"minLength": 1} if name == "id" else {"pattern": _NAME}
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", **shape}}


def _query_parameters(operation: Operation) -> Iterable[dict[str, Any]]:
    if operation.query is None:
        return
    schema = msgspec.json.schema(operation.query)
    shape = schema["$defs"][operation.query.__name__]
    for name, kind in shape["properties"].items():
        yield {"name": name, "in": "query", "required": name in shape.get("required", ()), "schema": kind}


def _success_responses(operation: Operation, schemas: dict[int, Any]) -> dict[str, Any]:
    no_content = {"204": {"description": "Done."}}
    if operation.answer is None:
        return no_content
    content = {operation.media_type: {"schema": schemas[id(operation.answer)]}}
    response = {str(operation.status): {"description": operation.summary, "content": content}}
    return response | no_content if operation.may_return_nothing else response


def _problem_responses(schemas: dict[int, Any]) -> dict[str, Any]:
    content = {"application/problem+json": {"schema": schemas[id(Problem)]}}
    description = {str(status): {"description": TITLES[status], "content": content} for status in _REFUSALS}
    return description | {"default": {"description": "Any other error.", "content": content}}


def _schemas() -> tuple[dict[int, Any], dict[str, Any]]:
    """Create the schemas of all request and response types. Named ones become components."""
    kinds = [Problem, *(kind for each in OPERATIONS for kind in (each.body, each.answer) if kind is not None)]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    return {id(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}, components
