"""The backends of the conformance tests: each has a clock that a test may move.

The sync tests run once more as the user of each role (docs/acl.md): what a role has is sent with its rights, and
the rest with an admin's.
"""

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from tests.acl.routed import LEAST_FIRST, create_users, routing
from tests.binaries import KINDS, Kind
from tests.client.place import MemoryPlace, Place, ServerPlace
from tests.clock import ServerClock
from tests.conftest import need
from tests.servers import Server

OpenPlace = Callable[[Kind], ServerPlace]

AS_USERS: Final[dict[str, tuple[Kind, tuple[str, ...]]]] = {
    "as-producer": ("valkey", ("producer", "admin")),
    "as-consumer": ("valkey", ("consumer", "admin")),
    "as-observer": ("valkey", ("observer", "admin")),
    "as-admin": ("valkey", ("admin",)),
    "least-on-6": ("redis6", LEAST_FIRST),
    "least-on-7": ("redis7", LEAST_FIRST),
}
"""On which server, and who sends the calls of a test: the first of these roles that has them."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once on each engine, and a sync one also as users with the rights of roles."""
    if "place" in metafunc.fixturenames:
        users = AS_USERS if metafunc.definition.path.parent.name == "_sync" else {}
        metafunc.parametrize("place", ["memory", *KINDS, *users], indirect=True)


@pytest.fixture(scope="session")
def server_place() -> Iterator[OpenPlace]:
    """Give the session's server of a kind. Its clock is moved by tests, so it is not the one of other folders."""
    started: dict[Kind, ServerPlace] = {}
    with ExitStack() as stack:

        def open_place(kind: Kind) -> ServerPlace:
            if kind not in started:
                clock = stack.enter_context(ServerClock()) if shutil.which("gcc") else None
                server = stack.enter_context(Server(kind, environment=clock.environment() if clock else {}))
                create_users(server.url)
                started[kind] = ServerPlace(server.url, clock)
                stack.callback(started[kind].close)
            return started[kind]

        yield open_place


@pytest.fixture
def place(
    request: pytest.FixtureRequest, server_place: OpenPlace, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    """Give the engine that a test runs on."""
    if request.param == "memory":
        found: Place = MemoryPlace(uuid.uuid4().hex)
    else:
        kind, roles = AS_USERS.get(request.param, (request.param, ()))
        need(kind)
        found = server_place(kind)
        if roles:
            monkeypatch.setattr("duly._sync.app.Link", routing(roles))
    yield found
    found.reset()


@pytest.fixture
def server(place: Place) -> ServerPlace:
    """Run the test on each real server only."""
    if not isinstance(place, ServerPlace):
        pytest.skip("memory:// has no keys and no settings")
    return place


@pytest.fixture
def clock(place: Place) -> Place:
    """Give a clock that can be moved."""
    if isinstance(place, ServerPlace) and place._clock is None:
        pytest.skip("no gcc for the clock shim: `make servers`")
    return place


@pytest.fixture
def backend(place: Place) -> str:
    """Give the URL to reach the engine."""
    return place.url
