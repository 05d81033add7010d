"""How the table of operations is served: who asks is checked, what is asked is read, what is given is written."""

from __future__ import annotations

import logging
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
from duly.web.api.operation import Asked, Operation
from duly.web.api.problems import Refused, of_error, of_fault, problem_response
from duly.web.api.table import OPERATIONS
from duly.web.site import role_of, site_of

_INBOXES: Final = ("/queues/{queue}", "/topics/{topic}/groups/{group}")
_JSON: Final = "application/json"
_LOG: Final = logging.getLogger("duly")


def mount() -> Mount:
    """Make the route of the API. Its errors are problems, also for what is not in the table."""
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in OPERATIONS:
        for path in paths_of(operation):
            by_path.setdefault(path, {})[operation.method] = operation
    routes = [Route(_served(path), endpoint_of(methods), methods=[*methods]) for path, methods in by_path.items()]
    routes.append(Route("/openapi.json", _describe, methods=["GET"], name="openapi"))
    handlers: Any = {HTTPException: _of_http, Exception: of_fault}
    served = Starlette(routes=routes, exception_handlers=handlers)
    served.router.redirect_slashes = False
    return Mount("/api/v1", app=served, name="api")


def paths_of(operation: Operation) -> list[str]:
    """Write the path of an operation: two, where it is about a queue or a group."""
    return list(dict.fromkeys(operation.path.replace("{inbox}", each) for each in _INBOXES))


def _served(path: str) -> str:
    """Let an id be any text: one of your own may have a slash."""
    return path.replace("{id}", "{id:path}")


def endpoint_of(methods: Mapping[str, Operation]) -> Callable[[Request], Awaitable[Response]]:
    """Make the function that serves the operations of a path. A HEAD is a GET whose answer is kept back."""

    async def serve(request: Request) -> Response:
        operation = methods["GET" if request.method == "HEAD" else request.method]
        try:
            _check_allowed(operation, request)
            answer = await operation.act(await _asked(operation, request))
        except DulyError as error:
            return of_error(error)
        if operation.is_logged:
            _LOG.info("%s of %r by somebody who is %s", operation.name, request.url.path, role_of(request))
        if answer is None:
            return Response(status_code=204)
        return Response(msgspec.json.encode(answer), operation.status, media_type=_JSON)

    return serve


def _check_allowed(operation: Operation, request: Request) -> None:
    role = role_of(request)
    why = site_of(request).access.refusal(role, operation.needs, changes=operation.changes)
    if why is not None:
        raise Refused(403, why) if role is not None else Refused(401, why, {"WWW-Authenticate": "Bearer"})


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
        raise Refused(400, f"the content of {operation.name}: {error}") from None


async def _describe(request: Request) -> Response:
    role = role_of(request)
    if role is None:
        return problem_response(401, "a token is needed: Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})
    root = request.scope.get("root_path", "")
    return Response(msgspec.json.encode(openapi.document(root)), media_type=_JSON)


async def _of_http(request: Request, error: HTTPException) -> Response:
    details = {
        404: f"there is nothing at {request.url.path}: openapi.json names what there is",
        405: f"{request.method} does not go with {request.url.path}: openapi.json says what does",
    }
    return problem_response(error.status_code, details.get(error.status_code, error.detail), error.headers)
