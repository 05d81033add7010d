"""What every page and every call of the API needs: the app it shows, who may do what, and what was seen lately."""

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
        """What all who ask share."""
        return Snapshots(self.app, self.names)


def site_of(request: Request) -> Site:
    """Find the dashboard that a request came to: the guards have put it there."""
    site: Site = request.state.site
    return site


def role_of(request: Request) -> Role | None:
    """Tell as what somebody came; None: nobody knows."""
    role: Role | None = request.state.role
    return role


def denial_reason(request: Request, needs: Role, *, changes: bool) -> str | None:
    """Say why somebody may not do what he asks for; None: he may."""
    access, has_token = site_of(request).access, request.state.has_token
    return access.denial_reason(role_of(request), needs, changes=changes, has_token=has_token)


class PollLimitReached(DulyError):
    """All seats are taken."""

    headers: Final = {"Retry-After": "1"}


class PollLimit:
    """The seats of one dashboard."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.waiting = 0

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Take a seat for a block."""
        if self.waiting >= self.limit:
            raise PollLimitReached(f"{self.limit} receives wait here already: try again in a second")
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1


R = TypeVar("R", Route, Mount)


def match_whole_path(route: R) -> R:
    """Let a route match line breaks too: without it, an id that ends in one is taken for the id without."""
    route.path_regex = re.compile(route.path_regex.pattern.removesuffix("$") + r"\Z", re.DOTALL)
    return route
