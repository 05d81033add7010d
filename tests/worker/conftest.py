"""A worker for each test and engine, with sync and async apps and handlers."""

from collections.abc import AsyncIterator

import pytest

from tests.worker.rig import ALL_FLAVOURS, FLAVOURS, Bench, given_bench


@pytest.fixture(params=FLAVOURS)
async def bench(request: pytest.FixtureRequest, backend: str, queue_name: str) -> AsyncIterator[Bench]:
    async with given_bench(backend, queue_name, request.param) as bench:
        yield bench


@pytest.fixture(params=ALL_FLAVOURS)
async def memory_bench(request: pytest.FixtureRequest, queue_name: str) -> AsyncIterator[Bench]:
    """For promises that do not depend on the server."""
    async with given_bench("memory://", queue_name, request.param) as bench:
        yield bench


@pytest.fixture
async def async_bench(backend: str, queue_name: str) -> AsyncIterator[Bench]:
    """For promises that only an `async def` handler can show."""
    async with given_bench(backend, queue_name, "AsyncDuly, async def") as bench:
        yield bench
