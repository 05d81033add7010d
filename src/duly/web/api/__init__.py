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
from duly.web.api.operation import INBOX_PATHS, Asked, Operation
from duly.web.problems import ASK_FOR_TOKEN, Refused, of_error, of_fault, problem_response
from duly.web.site import refusal_of, role_of, site_of, to_its_end

_JSON: Final = "application/json"
_HALF_A_PAIR: Final = re.compile(rb'(?<!\\)(?:\\\\)*\\u[dD][89abAB][0-9a-fA-F]{2}[^\\"]{0,4}"[^\\]{0,4}\Z')
"""As close to the end as its other half would be long."""
_CHANGES: Final = logging.getLogger("duly.web.changes")


def mount() -> Mount:
    """Make the route of the API. Its errors are problems, also for what is not in the table."""
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in OPERATIONS:
        for path in paths_of(operation):
            by_path.setdefault(path, {})[operation.method] = operation
    routes = [Route(_served(path), endpoint_of(methods), methods=[*methods]) for path, methods in by_path.items()]
    routes.append(Route("/openapi.json", _describe, methods=["GET"], name="openapi"))
    handlers: Any = {HTTPException: _of_http, Exception: of_fault}
    served = Starlette(routes=[*map(to_its_end, routes)], exception_handlers=handlers)
    served.router.redirect_slashes = False
    return to_its_end(Mount("/api/v1", app=served, name="api"))


def paths_of(operation: Operation) -> list[str]:
    """Write the path of an operation: two, where it is about a queue or a group."""
    return list(dict.fromkeys(operation.path.replace("{inbox}", each) for each in INBOX_PATHS))


def _served(path: str) -> str:
    """Let an id be any text: one of your own may have a slash."""
    return path.replace("{id}", "{id:path}")


def endpoint_of(methods: Mapping[str, Operation]) -> Callable[[Request], Awaitable[Response]]:
    """Make the function that serves the operations of a path. A HEAD is a GET whose answer is kept back."""

    async def serve(request: Request) -> Response:
        operation = methods["GET" if request.method == "HEAD" else request.method]
        try:
            _check_allowed(operation, request)
            asked = await _asked(operation, request)
            answer = await operation.act(asked)
        except DulyError as error:
            return of_error(error)
        if operation.is_logged and not getattr(asked.body, "dry_run", False):
            _tell(operation, request)
        if answer is None:
            return Response(status_code=204)
        return Response(msgspec.json.encode(answer), operation.status, media_type=_JSON)

    return serve


def _tell(operation: Operation, request: Request) -> None:
    """Log a change. All that a caller can choose is written so that it stays within its line."""
    address = request.client.host if request.client else "unknown"
    _CHANGES.info("%s of %r by %s at %r", operation.name, request.url.path, role_of(request), address)


def _check_allowed(operation: Operation, request: Request) -> None:
    why = refusal_of(request, operation.needs, changes=operation.changes)
    if why is not None:
        raise Refused(403, why) if role_of(request) is not None else Refused(401, why, ASK_FOR_TOKEN)


async def _asked(operation: Operation, request: Request) -> Asked:
    role = role_of(request)
    assert role is not None
    query = _read_query(operation, request)
    return Asked(site_of(request), role, request, query, await _read_body(operation, request))


def _read_query(operation: Operation, request: Request) -> Any:
    given = dict(request.query_params)
    if len(given) < len(request.query_params.multi_items()):
        raise Refused(400, f"the parameters of {operation.name}: each may be given once")
    if operation.query is None:
        if given:
            raise Refused(400, f"{operation.name} has no parameters, but was given {', '.join(map(repr, given))}")
        return None
    try:
        return msgspec.convert(given, operation.query, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(400, f"the parameters of {operation.name}: {error}") from None


async def _read_body(operation: Operation, request: Request) -> Any:
    try:
        content = await request.body()
    except ClientDisconnect:
        raise Refused(408, "the client went away before its request was whole") from None
    if operation.body is None:
        if content.strip() not in (b"", b"{}"):
            raise Refused(400, f"{operation.name} takes no content")
        return None
    if not content and operation.may_be_empty:
        content = b"{}"
    elif request.headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
        raise Refused(415, f"{operation.name} takes JSON: send it with Content-Type: {_JSON}")
    try:
        return msgspec.json.decode(content, type=operation.body)
    except msgspec.ValidationError as error:
        raise UsageError(f"the content of {operation.name}: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, f"the content of {operation.name}: {_why_unread(content, error)}") from None


def _why_unread(content: bytes, error: Exception) -> str:
    """Say what is wrong with JSON. Half a pair close to its end is told as an end that comes too early: it is not."""
    if "truncated" in str(error) and _HALF_A_PAIR.search(content):
        return "it has half a surrogate pair, which is no character: write both halves, like \\ud83d\\ude00, or none"
    return str(error)


async def _describe(request: Request) -> Response:
    why = refusal_of(request, "viewer", changes=False)
    if why is not None:
        return problem_response(401, why, ASK_FOR_TOKEN)
    root = request.scope.get("root_path", "")
    return Response(msgspec.json.encode(openapi.document(root)), media_type=_JSON)


async def _of_http(request: Request, error: HTTPException) -> Response:
    details = {
        404: f"there is nothing at {request.url.path}: openapi.json names what there is",
        405: f"{request.method} does not go with {request.url.path}: openapi.json says what does",
    }
    return problem_response(error.status_code, details.get(error.status_code, error.detail), error.headers)
