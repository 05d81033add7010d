"""Serves the operations of the HTTP API: checks permissions, parses requests and writes responses."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from duly._port import joining
from duly.errors import DulyError, UsageError
from duly.web.api import openapi
from duly.web.api.catalog import OPERATIONS
from duly.web.api.operation import INBOX_PATHS, ApiCall, Operation
from duly.web.changes import log_change
from duly.web.problems import BEARER_CHALLENGE, Refused, error_response, fault_response, problem_response
from duly.web.site import denial_reason, match_whole_path, role_of, site_of

_JSON: Final = "application/json"
_LONE_SURROGATE: Final = re.compile(rb'(?<!\\)(?:\\\\)*\\u[dD][89abAB][0-9a-fA-F]{2}[^\\"]{0,4}"[^\\]{0,4}\Z')
"""Matches half a surrogate pair that is so close to the end that its other half would not fit."""


def mount() -> Mount:
    """Create the route of the API. All its errors are problem responses, even for unknown paths."""
    operations_by_path: dict[str, dict[str, Operation]] = {}
    for operation in OPERATIONS:
        for path in paths_of(operation):
            operations_by_path.setdefault(path, {})[operation.method] = operation
    routes = [
        Route(_route_path(path), endpoint(methods), methods=[*methods]) for path, methods in operations_by_path.items()
    ]
    routes.append(Route("/openapi.json", _serve_openapi, methods=["GET"], name="openapi"))
    handlers: Any = {HTTPException: _http_error_response, Exception: fault_response}
    application = Starlette(routes=[*map(match_whole_path, routes)], exception_handlers=handlers)
    application.router.redirect_slashes = False
    return match_whole_path(Mount("/api/v1", app=application, name="api"))


def paths_of(operation: Operation) -> list[str]:
    """Return the paths of an operation: two if it is for queues and groups."""
    return list(dict.fromkeys(operation.path.replace("{inbox}", each) for each in INBOX_PATHS))


def _route_path(path: str) -> str:
    """Let an id be any text, even with a slash."""
    return path.replace("{id}", "{id:path}")


def endpoint(methods: Mapping[str, Operation]) -> Callable[[Request], Awaitable[Response]]:
    """Create the endpoint for the operations of a path. HEAD is served as GET."""

    async def serve(request: Request) -> Response:
        operation = methods["GET" if request.method == "HEAD" else request.method]
        try:
            _check_allowed(operation, request)
            call = await _parse_call(operation, request)
            with joining(call.site.app, request.headers):
                response = await operation.handle(call)
        except DulyError as error:
            return error_response(error)
        if operation.is_logged and not getattr(call.body, "dry_run", False):
            log_change(operation.name, request)
        if response is None:
            return Response(status_code=204)
        if isinstance(response, Response):
            return response
        return Response(msgspec.json.encode(response), operation.status, media_type=_JSON)

    return serve


def _check_allowed(operation: Operation, request: Request) -> None:
    reason = denial_reason(request, operation.needs, changes=operation.changes)
    if reason is not None:
        raise Refused(403, reason) if role_of(request) is not None else Refused(401, reason, BEARER_CHALLENGE)


async def _parse_call(operation: Operation, request: Request) -> ApiCall:
    role = role_of(request)
    assert role is not None
    query = _read_query(operation, request)
    return ApiCall(site_of(request), role, request, query, await _read_body(operation, request))


def _read_query(operation: Operation, request: Request) -> Any:
    values = dict(request.query_params)
    if len(values) < len(request.query_params.multi_items()):
        raise Refused(400, f"the parameters of {operation.name}: give each one once")
    if operation.query is None:
        if values:
            raise Refused(400, f"{operation.name} has no parameters, but got {', '.join(map(repr, values))}")
        return None
    try:
        return msgspec.convert(values, operation.query, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(400, f"the parameters of {operation.name}: {error}") from None


async def _read_body(operation: Operation, request: Request) -> Any:
    try:
        body = await request.body()
    except ClientDisconnect:
        raise Refused(408, "the client disconnected before its request was complete") from None
    if operation.body is None:
        if body.strip() not in (b"", b"{}"):
            raise Refused(400, f"{operation.name} expects no content")
        return None
    if not body and operation.is_body_optional:
        body = b"{}"
    elif request.headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
        raise Refused(415, f"{operation.name} expects JSON: send it with Content-Type: {_JSON}")
    try:
        return msgspec.json.decode(body, type=operation.body)
    except msgspec.ValidationError as error:
        raise UsageError(f"the content of {operation.name}: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, f"the content of {operation.name}: {_decode_problem(body, error)}") from None


def _decode_problem(body: bytes, error: Exception) -> str:
    """Describe invalid JSON. msgspec reports half a surrogate pair near the end as truncated input."""
    if "truncated" in str(error) and _LONE_SURROGATE.search(body):
        return "it has half a surrogate pair, which is not a character: write both halves, like \\ud83d\\ude00, or none"
    return str(error)


async def _serve_openapi(request: Request) -> Response:
    reason = denial_reason(request, "viewer", changes=False)
    if reason is not None:
        return problem_response(401, reason, BEARER_CHALLENGE)
    root = request.scope.get("root_path", "")
    return Response(msgspec.json.encode(openapi.document(root)), media_type=_JSON)


async def _http_error_response(request: Request, error: HTTPException) -> Response:
    problems = {
        404: f"there is no {request.url.path}: openapi.json lists all paths",
        405: f"{request.url.path} does not support {request.method}: openapi.json lists the methods",
    }
    return problem_response(error.status_code, problems.get(error.status_code, error.detail), error.headers)
