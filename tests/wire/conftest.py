"""Most tests of a wire run three times: for threads, for asyncio and for uvloop."""

import os
from collections.abc import Iterator

import pytest

from tests.wire.certificates import Authority, OpensslMissing
from tests.wire.driven import WIRE_KINDS, Driver


@pytest.fixture(params=WIRE_KINDS)
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    """Make wires. Afterwards, none of them has left a task or an error that nothing retrieved."""
    driver = Driver(request.param)
    yield driver
    driver.close()


@pytest.fixture(params=["asyncio", "uvloop"])
def async_driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    """Make wires whose calls may overlap."""
    driver = Driver(request.param)
    yield driver
    driver.close()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    try:
        return Authority(tmp_path_factory.mktemp("certificates"))
    except OpensslMissing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("the openssl program is missing")
