"""Connections of kombu to the session's server, with another namespace for each test."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import kombu
import pytest

import duly.kombu
from tests.conftest import StartedServer

Connect = Callable[..., kombu.Connection]


def kept(found: list[Any], message: kombu.Message) -> None:
    """Keep the body of a message, and ack it."""
    found.append(message.payload)
    message.ack()


@pytest.fixture
def url(server: StartedServer) -> str:
    return f"duly+{server('valkey').url}"


@pytest.fixture
def namespace() -> str:
    return f"kombu-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def connect(url: str, namespace: str) -> Iterator[Connect]:
    """Open connections that are closed with the test."""
    opened: list[kombu.Connection] = []

    def connect(url: str = url, **options: Any) -> kombu.Connection:
        connection = kombu.Connection(url, transport_options={"namespace": namespace, **options})
        opened.append(connection)
        return connection

    yield connect
    for each in opened:
        each.release()


@pytest.fixture
def connection(connect: Connect) -> kombu.Connection:
    return connect()


@pytest.fixture
def app(server: StartedServer, namespace: str) -> Iterator[duly.Duly]:
    """The same queues, without kombu."""
    with duly.Duly(server("valkey").url, namespace=namespace) as app:
        yield app
