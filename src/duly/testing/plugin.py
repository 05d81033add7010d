"""The pytest fixtures of Duly. pytest finds them when Duly is installed.

pytest imports this module in every run, so each fixture imports the modules that it needs.
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
    """Return the clock of all `memory://` apps. It is reset to real time before and after the test."""
    from duly.testing import clock

    clock.reset()
    yield clock
    clock.reset()


@pytest.fixture
def duly_app(duly_clock: Clock) -> Iterator[duly.Duly]:  # noqa: ARG001 - it is reset for the app
    """Return an app on `memory://` with a separate store."""
    import duly

    with duly.Duly("memory://") as app:
        yield app


@pytest.fixture
def duly_server(_duly_test_server: TestServer) -> Iterator[ServerApp]:
    """Return an app on a real, empty Valkey server. Its `url` is for other apps and processes."""
    from duly.testing import ServerApp

    with ServerApp(_duly_test_server.url) as app:
        yield app
    _duly_test_server.flush()


@pytest.fixture(scope="session")
def _duly_test_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestServer]:
    """Start one server for the session; with xdist, one per worker."""
    from duly.errors import Unavailable
    from duly.testing.valkey_server import TestServer

    try:
        server = TestServer(tmp_path_factory.mktemp("duly") / "server")
    except Unavailable as error:
        pytest.fail(str(error), pytrace=False)
    yield server
    server.stop()
