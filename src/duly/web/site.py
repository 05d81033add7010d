"""What every page and every call of the API needs: the app it shows, who may do what, and what was seen lately."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from starlette.requests import Request

from duly import AsyncDuly
from duly.web.access import Access, Role
from duly.web.looks import Looks
from duly.web.names import Names
from duly.web.waiting_room import WaitingRoom


@dataclass(frozen=True)
class Site:
    """One dashboard."""

    app: AsyncDuly
    access: Access
    names: Names
    waiting_room: WaitingRoom = field(default_factory=lambda: WaitingRoom(200))

    @cached_property
    def looks(self) -> Looks:
        """What all who ask share."""
        return Looks(self.app, self.names)


def site_of(request: Request) -> Site:
    """Find the dashboard that a request came to: the guards have put it there."""
    site: Site = request.state.site
    return site


def role_of(request: Request) -> Role | None:
    """Tell as what somebody came; None: nobody knows."""
    role: Role | None = request.state.role
    return role


def refusal_of(request: Request, needs: Role, *, changes: bool) -> str | None:
    """Say why somebody may not do what he asks for; None: he may."""
    access, has_token = site_of(request).access, request.state.has_token
    return access.refusal(role_of(request), needs, changes=changes, has_token=has_token)
