"""Servers shared by a test session, and a fresh queue name for every test. Nothing here is ever flushed."""

import gc
import os
import re
import signal
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.internal.constants_ast import Constants

from duly._sync import blocked_loop
from tests.binaries import KINDS, Kind, ServerMissing, find_binary
from tests.clock import ServerClock
from tests.matrix import ENGINES, SERVERS
from tests.servers import Server, die_with_parent

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# `nohup` has them ignore a closed terminal in the same way.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

StartedServer = Callable[[Kind], Server]


def need(kind: Kind) -> None:
    """Skip the test when this machine lacks the server; in CI that is a failure."""
    try:
        find_binary(kind)
    except ServerMissing as missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(missing))


_STATES: Final = TemporaryDirectory(prefix="duly-state-")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Give each test a state directory. A start notes the default servers there, and one of another test may run."""
    os.environ["XDG_STATE_HOME"] = str(Path(_STATES.name) / uuid.uuid4().hex)


# Tests call the sync client in coroutines. The one warning of the process must not end up in the log of any of them.
blocked_loop._warned.append("a test")


@pytest.fixture(scope="session")
def server() -> Iterator[StartedServer]:
    """Return the session's one server of a kind. Do not stop, flush or reconfigure it: start your own."""
    started: dict[Kind, Server] = {}

    def get(kind: Kind) -> Server:
        need(kind)
        if kind not in started:
            started[kind] = Server(kind)
        return started[kind]

    yield get
    for one in started.values():
        one.close()


def each_kind(kinds: Sequence[Kind]) -> Any:
    """Make the fixture `kind`: it runs a test once for each of these kinds of server."""

    @pytest.fixture(params=kinds)
    def kind(request: pytest.FixtureRequest) -> Kind:
        need(request.param)
        return request.param  # type: ignore[no-any-return]

    return kind


kind = each_kind(SERVERS)


@pytest.fixture(params=ENGINES)
def backend(request: pytest.FixtureRequest, server: StartedServer) -> str:
    """Run the test once on each engine of this run, and give the URL to reach it."""
    return "memory://" if request.param == "memory" else server(request.param).url


@pytest.fixture
def queue_name(request: pytest.FixtureRequest) -> str:
    """Return a name that no other test uses, and that contains the name of the test."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-")
    return f"{words[:80]}-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def server_clock() -> Iterator[ServerClock]:
    """Return a clock for your own server: `Server(kind, environment=server_clock.environment())`."""
    with ServerClock() as clock:
        yield clock


def pytest_configure(config: pytest.Config) -> None:
    # A machine that stands still for a moment is not a finding.
    settings.register_profile("patient", settings(), deadline=None)
    settings.load_profile("patient")
    _draw_alike()
    if hasattr(config, "workerinput"):  # under xdist: a killed run takes its workers, and they their servers
        die_with_parent()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without garbage collection. Their objects stay until the end and are never garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _draw_alike() -> None:
    """Have `derandomize` mean the same examples in every run.

    Hypothesis also draws from the constants of the modules that are loaded by now: under xdist these depend on the
    tests that the process happened to run before.
    """
    if hasattr(HypothesisProvider, "_local_constants"):  # there is no setting for it
        HypothesisProvider._local_constants = Constants()  # type: ignore[assignment]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for kind in KINDS:
        try:
            find_binary(kind)
        except ServerMissing as missing:
            terminalreporter.write_line(f"!!! WARNING: {missing}. Its tests did not run.", red=True, bold=True)
