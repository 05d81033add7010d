"""How the table of operations is served: who asks is checked, what is asked is read, what is given is written."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from duly.errors import DulyError, UsageError
from duly.web.api import openapi
from duly.web.api.catalog import OPERATIONS
from duly.web.api.operation import INBOX_PATHS, ApiCall, Operation
from duly.web.problems import BEARER_CHALLENGE, Refused, error_response, fault_response, problem_response
from duly.web.site import denial_reason, match_whole_path, role_of, site_of

_JSON: Final = "application/json"
_LONE_SURROGATE: Final = re.compile(rb'(?<!\\)(?:\\\\)*\\u[dD][89abAB][0-9a-fA-F]{2}[^\\"]{0,4}"[^\\]{0,4}\Z')
"""As close to the end as its other half would be long."""
_CHANGES: Final = logging.getLogger("duly.web.changes")


def mount() -> Mount:
    """Make the route of the API. Its errors are problems, also for what is not in the table."""
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
    """Write the path of an operation: two, where it is about a queue or a group."""
    return list(dict.fromkeys(operation.path.replace("{inbox}", each) for each in INBOX_PATHS))


def _route_path(path: str) -> str:
    """Let an id be any text: one of your own may have a slash."""
    return path.replace("{id}", "{id:path}")


def endpoint(methods: Mapping[str, Operation]) -> Callable[[Request], Awaitable[Response]]:
    """Make the function that serves the operations of a path. A HEAD is a GET whose answer is kept back."""

    async def serve(request: Request) -> Response:
        operation = methods["GET" if request.method == "HEAD" else request.method]
        try:
            _check_allowed(operation, request)
            call = await _parse_call(operation, request)
            response = await operation.handle(call)
        except DulyError as error:
            return error_response(error)
        if operation.is_logged and not getattr(call.body, "dry_run", False):
            _log_change(operation, request)
        if response is None:
            return Response(status_code=204)
        return Response(msgspec.json.encode(response), operation.status, media_type=_JSON)

    return serve


def _log_change(operation: Operation, request: Request) -> None:
    """Log a change. All that a caller can choose is written so that it stays within its line."""
    address = request.client.host if request.client else "unknown"
    _CHANGES.info("%s of %r by %s at %r", operation.name, request.url.path, role_of(request), address)


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
        raise Refused(400, f"the parameters of {operation.name}: each may be given once")
    if operation.query is None:
        if values:
            raise Refused(400, f"{operation.name} has no parameters, but was given {', '.join(map(repr, values))}")
        return None
    try:
        return msgspec.convert(values, operation.query, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(400, f"the parameters of {operation.name}: {error}") from None


async def _read_body(operation: Operation, request: Request) -> Any:
    try:
        body = await request.body()
    except ClientDisconnect:
        raise Refused(408, "the client went away before its request was whole") from None
    if operation.body is None:
        if body.strip() not in (b"", b"{}"):
            raise Refused(400, f"{operation.name} takes no content")
        return None
    if not body and operation.is_body_optional:
        body = b"{}"
    elif request.headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
        raise Refused(415, f"{operation.name} takes JSON: send it with Content-Type: {_JSON}")
    try:
        return msgspec.json.decode(body, type=operation.body)
    except msgspec.ValidationError as error:
        raise UsageError(f"the content of {operation.name}: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, f"the content of {operation.name}: {_decode_problem(body, error)}") from None


def _decode_problem(body: bytes, error: Exception) -> str:
    """Say what is wrong with JSON. Half a pair close to its end is told as an end that comes too early: it is not."""
    if "truncated" in str(error) and _LONE_SURROGATE.search(body):
        return "it has half a surrogate pair, which is no character: write both halves, like \\ud83d\\ude00, or none"
    return str(error)


async def _serve_openapi(request: Request) -> Response:
    reason = denial_reason(request, "viewer", changes=False)
    if reason is not None:
        return problem_response(401, reason, BEARER_CHALLENGE)
    root = request.scope.get("root_path", "")
    return Response(msgspec.json.encode(openapi.document(root)), media_type=_JSON)


async def _http_error_response(request: Request, error: HTTPException) -> Response:
    problems = {
        404: f"there is nothing at {request.url.path}: openapi.json names what there is",
        405: f"{request.method} does not go with {request.url.path}: openapi.json says what does",
    }
    return problem_response(error.status_code, problems.get(error.status_code, error.detail), error.headers)
