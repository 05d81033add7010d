"""An app on the test's backend, and its own queue."""

from collections.abc import AsyncIterator

import pytest

from duly import AsyncDuly, AsyncGroup, AsyncQueue, AsyncTopic


@pytest.fixture
async def app(backend: str, namespace: str) -> AsyncIterator[AsyncDuly]:
    async with AsyncDuly(backend, namespace=namespace) as app:
        yield app


@pytest.fixture
async def other_app(backend: str, namespace: str) -> AsyncIterator[AsyncDuly]:
    """Return a second consumer: for the server, another process."""
    async with AsyncDuly(backend, namespace=namespace) as app:
        yield app


@pytest.fixture
def queue(app: AsyncDuly, queue_name: str) -> AsyncQueue:
    return app.queue(queue_name)


@pytest.fixture
def events(app: AsyncDuly, queue_name: str) -> AsyncTopic:
    return app.topic(queue_name)


@pytest.fixture
def archive(events: AsyncTopic) -> AsyncGroup:
    return events.group("archive")


@pytest.fixture
def live(events: AsyncTopic) -> AsyncGroup:
    return events.group("live")
