"""The backends of the conformance tests: each has a clock that a test may move.

In the whole matrix the sync tests run once more as the user of each role (docs/acl.md): calls that a role may make
are sent with its permissions, and the rest with an admin's. In every run tests/acl makes each call as each role.
"""

import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.acl.routed import LEAST_FIRST, create_users, routing
from tests.binaries import Kind
from tests.client.place import MemoryPlace, Place, ServerPlace
from tests.clock import ServerClock, miss_the_shim
from tests.conftest import need
from tests.matrix import ENGINES, IS_QUICK, IS_WHOLE, SERVERS
from tests.servers import Server

OpenPlace = Callable[[Kind], ServerPlace]

_UNSENT: Final = ("test_bad_input.py", "test_topic_input.py")
"""Refused before anything is sent: neither the server nor the permissions of a user matter."""
_WAITING: Final = ("test_results.py", "test_wake.py", "test_group_waking.py")
"""Slow commands that other users send as well."""


class Users(NamedTuple):
    """The user that sends the calls of a test, instead of the server's default user."""

    kind: Kind
    roles: tuple[str, ...]
    """The first of them that has a call."""
    left_out: tuple[str, ...] = _UNSENT


AS_USERS: Final[dict[str, Users]] = {
    "as-producer": Users("valkey", ("producer", "admin")),
    "as-consumer": Users("valkey", ("consumer", "admin")),
    "as-observer": Users("valkey", ("observer", "admin")),
    "as-admin": Users("valkey", ("admin",)),
    "least-on-6": Users("redis6", LEAST_FIRST, (*_UNSENT, *_WAITING)),
    "least-on-7": Users("redis7", LEAST_FIRST, (*_UNSENT, *_WAITING)),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once on each engine of this run."""
    if "place" in metafunc.fixturenames:
        metafunc.parametrize("place", _places(metafunc.definition.path), indirect=True)


def _places(path: Path) -> Sequence[str]:
    if not IS_WHOLE and path.name in _UNSENT:
        return ("memory",)
    if not IS_WHOLE:
        # The sync client is generated. Only its connection is its own.
        return SERVERS if path.parent.name == "_sync" and not IS_QUICK else ENGINES
    users = [name for name, each in AS_USERS.items() if path.name not in each.left_out]
    return (*ENGINES, *(users if path.parent.name == "_sync" else ()))


@pytest.fixture(scope="session")
def server_place() -> Iterator[OpenPlace]:
    """Return the session's server of a kind. Its clock is moved by tests, so it is not the one of other folders."""
    started: dict[Kind, ServerPlace] = {}
    with ExitStack() as stack:

        def open_place(kind: Kind) -> ServerPlace:
            if kind not in started:
                clock = stack.enter_context(ServerClock()) if shutil.which("gcc") else None
                server = stack.enter_context(Server(kind, environment=clock.environment() if clock else {}))
                if IS_WHOLE:
                    create_users(server.url)
                started[kind] = ServerPlace(server.url, clock)
                stack.callback(started[kind].close)
            return started[kind]

        yield open_place


@pytest.fixture
def place(request: pytest.FixtureRequest, server_place: OpenPlace, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Return the engine that a test runs on."""
    if request.param == "memory":
        found: Place = MemoryPlace(uuid.uuid4().hex)
    else:
        users = AS_USERS.get(request.param)
        kind: Kind = request.param if users is None else users.kind
        need(kind)
        found = server_place(kind)
        if users is not None:
            monkeypatch.setattr("duly._sync.app.Link", routing(users.roles))
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
    """Return a clock that can be moved."""
    if isinstance(place, ServerPlace) and place._clock is None:
        miss_the_shim()
    return place


@pytest.fixture
def backend(place: Place) -> str:
    """Return the URL to reach the engine."""
    return place.url
