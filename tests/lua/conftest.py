"""Servers whose clocks are frozen at NOW, one of each kind per session, and a new queue on each for every test."""

from collections.abc import Callable, Iterator

import pytest

from tests.binaries import Kind
from tests.clock import ServerClock
from tests.conftest import each_kind, need
from tests.lua.harness import A_WEEK, NOW, Queue, Topic, Wire, free
from tests.matrix import SCRIPT_SERVERS
from tests.servers import Server

MakeQueue = Callable[..., Queue]
MakeTopic = Callable[..., Topic]

kind = each_kind(SCRIPT_SERVERS)


@pytest.fixture(scope="session", params=SCRIPT_SERVERS)
def still_server(request: pytest.FixtureRequest) -> Iterator[tuple[Server, ServerClock]]:
    need(request.param)
    with ServerClock() as clock, Server(request.param, environment=clock.environment()) as server:
        yield server, clock


@pytest.fixture
def clock(still_server: tuple[Server, ServerClock]) -> ServerClock:
    """Return the clock of the test's server. It is frozen at NOW when the test begins."""
    _, clock = still_server
    clock.freeze(NOW)
    return clock


@pytest.fixture
def wire(still_server: tuple[Server, ServerClock], clock: ServerClock) -> Iterator[Wire]:
    server, _ = still_server
    with Wire(server) as wire:
        yield wire


@pytest.fixture
def queue(wire: Wire, queue_name: str) -> Queue:
    return Queue(wire, queue_name)


@pytest.fixture
def make_queue(wire: Wire, queue_name: str) -> MakeQueue:
    """Make a queue with options."""
    return lambda **options: Queue(wire, queue_name, **options)


@pytest.fixture
def topic(wire: Wire, queue_name: str) -> Topic:
    """Return a topic that keeps entries for a week."""
    return Topic(wire, queue_name)


@pytest.fixture
def freeing(wire: Wire, queue_name: str) -> Topic:
    """Return a topic that frees entries when every group has acked them."""
    return Topic(wire, queue_name, keep=None)


@pytest.fixture(params=[A_WEEK, None], ids=["kept", "freed"])
def any_topic(request: pytest.FixtureRequest, wire: Wire, queue_name: str) -> Topic:
    """Run the test on a topic of either kind: the scripts differ."""
    return Topic(wire, queue_name, keep=request.param)


@pytest.fixture
def make_topic(wire: Wire, queue_name: str) -> MakeTopic:
    """Make a topic with another bound."""
    return lambda keep: Topic(wire, queue_name, keep=keep)


@pytest.fixture(scope="session", params=SCRIPT_SERVERS)
def server_to_fill(request: pytest.FixtureRequest) -> Iterator[Server]:
    need(request.param)
    with Server(request.param, {"maxmemory-policy": "noeviction"}) as server:
        yield server


@pytest.fixture
def fillable(server_to_fill: Server) -> Iterator[Wire]:
    """Return a wire to a server that the test may fill."""
    with Wire(server_to_fill) as wire:
        yield wire
        free(wire)


@pytest.fixture
def own_wire(kind: Kind) -> Iterator[Callable[..., tuple[Server, Wire]]]:
    """Start a server with the test's configuration."""
    opened: list[Wire | Server] = []

    def start(**config: str) -> tuple[Server, Wire]:
        server = Server(kind, {name.replace("_", "-"): value for name, value in config.items()})
        opened.append(server)
        wire = Wire(server)
        opened.append(wire)
        return server, wire

    yield start
    for one in reversed(opened):
        one.close()
