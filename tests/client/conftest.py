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
from tests.client.place import ClusterPlace, MemoryPlace, Place, SentinelPlace, ServerPlace
from tests.clock import ServerClock, miss_the_shim
from tests.conftest import need
from tests.matrix import ENGINES, IS_QUICK, IS_WHOLE, RIGS, SERVERS, Rig
from tests.scale.cluster import ClusterRig
from tests.scale.sentinels import SentinelRig
from tests.servers import Server

_FOLDERS: Final = ("_async", "_sync")
"""Of the conformance tests."""
_ON_RIGS: Final = {
    "test_app.py": "lists of queues, which come from all nodes",
    "test_receive.py": "claims, and waits that block on the node of a queue",
    "test_settle.py": "settles",
    "test_leases.py": "renewals, which have another connection",
    "test_locks.py": "keys that belong to no queue",
    "test_once.py": "keys that belong to no queue",
    "test_wake.py": "wake-ups: the node of a queue wakes its consumers",
    "test_group_waking.py": "the same for topics",
    "test_workers.py": "the registry, which is on another node than most queues",
}
"""Tested with Sentinel and on a cluster in every run, with the reason. The whole matrix has all files."""
OpenPlace = Callable[[Kind | Rig], ServerPlace]

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
    """Run a test once on each engine of this run, except those that the test is marked for."""
    if "place" in metafunc.fixturenames:
        left_out = {name for mark in metafunc.definition.iter_markers("not_on") for name in mark.args}
        places = [name for name in _places(metafunc.definition.path) if name not in left_out]
        metafunc.parametrize("place", places, indirect=True)


def _places(path: Path) -> Sequence[str]:
    if not IS_WHOLE and path.name in _UNSENT:
        return ("memory",)
    is_sync = path.parent.name == "_sync"
    # The sync client is generated. Only its connection is its own.
    engines = SERVERS if is_sync and not IS_WHOLE and not IS_QUICK else ENGINES
    rigs = RIGS if path.parent.name in _FOLDERS and (IS_WHOLE or path.name in _ON_RIGS) else ()
    users = [name for name, each in AS_USERS.items() if path.name not in each.left_out] if IS_WHOLE and is_sync else ()
    return (*engines, *rigs, *users)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests on rigs one after the other, so that few processes of a run start a rig."""
    items.sort(key=_is_on_rig)


def _is_on_rig(item: pytest.Item) -> bool:
    return hasattr(item, "callspec") and item.callspec.params.get("place") in RIGS


@pytest.fixture(scope="session")
def server_place() -> Iterator[OpenPlace]:
    """Return the session's server of a kind, or its rig.

    Their clocks are moved by tests, so they are not those of other folders.
    """
    started: dict[Kind | Rig, ServerPlace] = {}
    with ExitStack() as stack:

        def open_place(name: Kind | Rig) -> ServerPlace:
            if name not in started:
                clock = stack.enter_context(ServerClock()) if shutil.which("gcc") else None
                started[name] = _open_place(name, clock, stack)
                stack.callback(started[name].close)
            return started[name]

        yield open_place


def _open_place(name: Kind | Rig, clock: ServerClock | None, stack: ExitStack) -> ServerPlace:
    environment = clock.environment() if clock else {}
    if name == "sentinel":
        need("valkey")
        sentinels = stack.enter_context(SentinelRig(environment=environment))
        sentinels.hold_still()
        return SentinelPlace(sentinels, clock)
    if name == "cluster":
        need("valkey")
        cluster = stack.enter_context(ClusterRig(environment=environment))
        cluster.hold_still()
        return ClusterPlace(cluster, clock)
    need(name)
    server = stack.enter_context(Server(name, environment=environment))
    if IS_WHOLE:
        create_users(server.url)
    return ServerPlace(server.url, clock)


@pytest.fixture
def place(request: pytest.FixtureRequest, server_place: OpenPlace, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Return the engine that a test runs on."""
    if request.param == "memory":
        found: Place = MemoryPlace(uuid.uuid4().hex)
    else:
        users = AS_USERS.get(request.param)
        name: Kind | Rig = request.param if users is None else users.kind
        found = server_place(name)
        if users is not None:
            monkeypatch.setattr("duly._sync.app.Link", routing(users.roles))
    yield found
    found.reset()


@pytest.fixture
def namespace(request: pytest.FixtureRequest, place: Place) -> str:
    """Return the namespace of the test's apps: with braces on a cluster, if the test needs one slot."""
    is_one_slot = request.node.get_closest_marker("one_slot") is not None
    return f"{{{uuid.uuid4().hex[:12]}}}" if is_one_slot and isinstance(place, ClusterPlace) else "duly"


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
