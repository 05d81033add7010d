"""The API described for programs, OpenAPI 3.1, from the table that it is served by."""

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

_INBOXES: Final = dict(zip(INBOX_PATHS, ("", "_of_group"), strict=True))
"""With what the names of operations end in that are about one."""
_REF: Final = "#/components/schemas/{name}"
_REFUSALS: Final = (400, 401, 403, 404, 409, 413, 415, 422, 429, 502, 503, 507)


def document(root: str = "/api/v1") -> dict[str, Any]:
    """Describe the API as it is served below `root`."""
    return {**_fixed(), "servers": [{"url": root or "/"}]}


@functools.cache
def _fixed() -> dict[str, Any]:
    schemas, components = _schemas()
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        for inbox, ending in _INBOXES.items():
            path = operation.path.replace("{inbox}", inbox)
            name = operation.name + (ending if "{inbox}" in operation.path else "")
            paths.setdefault(path, {})[operation.method.lower()] = _described(operation, path, name, schemas)
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


def _described(operation: Operation, path: str, name: str, schemas: dict[int, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": name,
        "summary": operation.summary,
        "description": f"Needs the role {operation.needs}.",
        "parameters": [*_in_path(path), *_in_query(operation)],
        "responses": {**_answer(operation, schemas), **_problems(schemas)},
    }
    if operation.body is not None:
        content = {"application/json": {"schema": schemas[id(operation.body)]}}
        found["requestBody"] = {"required": not operation.may_be_empty, "content": content}
    return found


def _in_path(path: str) -> Iterable[dict[str, Any]]:
    for name in re.findall(r"{(\w+)}", path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _in_query(operation: Operation) -> Iterable[dict[str, Any]]:
    if operation.query is None:
        return
    schema = msgspec.json.schema(operation.query)
    shape = schema["$defs"][operation.query.__name__]
    for name, kind in shape["properties"].items():
        yield {"name": name, "in": "query", "required": name in shape.get("required", ()), "schema": kind}


def _answer(operation: Operation, schemas: dict[int, Any]) -> dict[str, Any]:
    silence = {"204": {"description": "Done."}}
    if operation.answer is None:
        return silence
    content = {"application/json": {"schema": schemas[id(operation.answer)]}}
    answer = {str(operation.status): {"description": operation.summary, "content": content}}
    return answer | silence if operation.may_be_silent else answer


def _problems(schemas: dict[int, Any]) -> dict[str, Any]:
    content = {"application/problem+json": {"schema": schemas[id(Problem)]}}
    found = {str(status): {"description": TITLES[status], "content": content} for status in _REFUSALS}
    return found | {"default": {"description": "Whatever else is wrong.", "content": content}}


def _schemas() -> tuple[dict[int, Any], dict[str, Any]]:
    """Describe all types that are taken or given, once; those with names go to the components."""
    kinds = [Problem, *(kind for each in OPERATIONS for kind in (each.body, each.answer) if kind is not None)]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    return {id(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}, components
