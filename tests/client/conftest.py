"""The backends of the conformance tests: each has a clock that a test may move."""

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.binaries import KINDS, Kind
from tests.client.place import MemoryPlace, Place, ServerPlace
from tests.clock import ServerClock
from tests.conftest import need
from tests.servers import Server

OpenPlace = Callable[[Kind], ServerPlace]


@pytest.fixture(scope="session")
def server_place() -> Iterator[OpenPlace]:
    """Give the session's server of a kind. Its clock is moved by tests, so it is not the one of other folders."""
    started: dict[Kind, ServerPlace] = {}
    with ExitStack() as stack:

        def open_place(kind: Kind) -> ServerPlace:
            if kind not in started:
                clock = stack.enter_context(ServerClock()) if shutil.which("gcc") else None
                server = stack.enter_context(Server(kind, environment=clock.environment() if clock else {}))
                started[kind] = ServerPlace(server.url, clock)
                stack.callback(started[kind].close)
            return started[kind]

        yield open_place


@pytest.fixture(params=("memory", *KINDS))
def place(request: pytest.FixtureRequest, server_place: OpenPlace) -> Iterator[Place]:
    """Run the test once on each engine."""
    if request.param == "memory":
        found: Place = MemoryPlace(uuid.uuid4().hex)
    else:
        need(request.param)
        found = server_place(request.param)
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
