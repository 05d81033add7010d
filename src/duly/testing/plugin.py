"""The fixtures that pytest finds when Duly is installed.

pytest imports this in every run, so all that is not needed to name the fixtures is imported when one is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duly
    from duly.testing import Clock, ServerApp
    from duly.testing.valkey_server import TestServer


@pytest.fixture
def duly_clock() -> Iterator[Clock]:
    """Give the clock of all `memory://` apps. Before and after the test it goes with real time."""
    from duly.testing import clock

    clock.reset()
    yield clock
    clock.reset()


@pytest.fixture
def duly_app(duly_clock: Clock) -> Iterator[duly.Duly]:  # noqa: ARG001 - it is reset for the app
    """Give an app on `memory://`, with a store of its own."""
    import duly

    with duly.Duly("memory://") as app:
        yield app


@pytest.fixture
def duly_server(_duly_test_server: TestServer) -> Iterator[ServerApp]:
    """Give an app on a real Valkey, which is empty. It has a `url`, for other apps and processes."""
    from duly.testing import ServerApp

    with ServerApp(_duly_test_server.url) as app:
        yield app
    _duly_test_server.flush()


@pytest.fixture(scope="session")
def _duly_test_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestServer]:
    """Start one server for the session; under xdist, for each worker."""
    from duly.errors import Unavailable
    from duly.testing.valkey_server import TestServer

    try:
        server = TestServer(tmp_path_factory.mktemp("duly") / "server")
    except Unavailable as error:
        pytest.fail(str(error), pytrace=False)
    yield server
    server.stop()
