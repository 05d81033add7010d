"""The objects that all pages and API calls share: the app, access control, names and caches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeVar

from starlette.requests import Request
from starlette.routing import Mount, Route

from duly import AsyncDuly
from duly.errors import DulyError
from duly.web.access import Access, Role
from duly.web.names import Names
from duly.web.overview import Snapshots


@dataclass(frozen=True)
class Site:
    """One dashboard."""

    app: AsyncDuly
    access: Access
    names: Names
    poll_limit: PollLimit = field(default_factory=lambda: PollLimit(200))

    @cached_property
    def snapshots(self) -> Snapshots:
        """The caches of topics, workers, schedules and leases."""
        return Snapshots(self.names)


def site_of(request: Request) -> Site:
    """Return the dashboard that serves a request. The guards have set it."""
    site: Site = request.state.site
    return site


def role_of(request: Request) -> Role | None:
    """Return the role of the client. None: the client is unknown."""
    role: Role | None = request.state.role
    return role


def denial_reason(request: Request, needs: Role, *, changes: bool) -> str | None:
    """Return the reason why a request is denied, or None."""
    access, has_token = site_of(request).access, request.state.has_token
    return access.denial_reason(role_of(request), needs, changes=changes, has_token=has_token)


class PollLimitReached(DulyError):
    """Too many calls are waiting."""

    headers: Final = {"Retry-After": "1"}


class PollLimit:
    """Limits how many receives, results and streams wait at the same time. Each holds memory, and most a connection."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.waiting: int = 0

    def check(self) -> None:
        """Raise if no other call may wait."""
        if self.waiting >= self.limit:
            raise PollLimitReached(f"{self.limit} calls are waiting already: try again in a second")

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Count a waiting call during a block."""
        self.check()
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1


R = TypeVar("R", Route, Mount)


def match_whole_path(route: R) -> R:
    """Let a route match line breaks. Otherwise an id that ends with a newline would match without it."""
    route.path_regex = re.compile(route.path_regex.pattern.removesuffix("$") + r"\Z", re.DOTALL)
    return route
