"""A server with a clock that tests move, and two versions of Duly on it."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.binaries import Kind
from tests.client.place import ServerPlace
from tests.clock import ServerClock, miss_the_shim
from tests.conftest import need
from tests.matrix import SERVERS
from tests.servers import Server

pytest.register_assert_rewrite("tests.versions.pair", "tests.versions.scenarios", "tests.versions.verbs")
from tests.versions.pair import Pair  # noqa: E402
from tests.versions.previous import ROOT, previous_commit, take_out  # noqa: E402

OpenPair = Callable[[], Pair]


@pytest.fixture(scope="session")
def previous_source(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Return the source of the previous version: all processes of a test run share it."""
    base = tmp_path_factory.getbasetemp()
    return take_out(previous_commit(), base.parent if hasattr(request.config, "workerinput") else base)


@pytest.fixture(scope="session")
def current_source() -> Path:
    return ROOT / "src"


@pytest.fixture(scope="session", params=SERVERS)
def pair(request: pytest.FixtureRequest, previous_source: Path, current_source: Path) -> Iterator[Pair]:
    """Run the test once on each server. Time goes forward from test to test, so each has its own names."""
    kind: Kind = request.param
    need(kind)
    if not shutil.which("gcc"):
        miss_the_shim()
    with ExitStack() as stack:
        clock = stack.enter_context(ServerClock())
        server = stack.enter_context(Server(kind, environment=clock.environment()))
        place = ServerPlace(server.url, clock)
        stack.callback(place.close)
        yield stack.enter_context(Pair(place, previous_source, current_source))
