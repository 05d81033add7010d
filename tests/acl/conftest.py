"""Users of the session's servers, each deleted after its test."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from tests.acl.users import give_rights, url_as
from tests.binaries import Kind
from tests.conftest import StartedServer, each_kind
from tests.matrix import SCRIPT_SERVERS

NewUser = Callable[..., str]
"""Takes a role, and returns the address of the server for a new user with this role."""

kind = each_kind(SCRIPT_SERVERS)


@pytest.fixture
def root(server: StartedServer, kind: Kind) -> "Iterator[redis.Redis]":
    """Yield a client with all permissions."""
    with redis.Redis.from_url(server(kind).url) as client:
        yield client


@pytest.fixture
def new_user(server: StartedServer, kind: Kind, root: "redis.Redis") -> Iterator[NewUser]:
    made: list[str] = []

    def make(role: str, **options: Any) -> str:
        made.append(f"{role}-{uuid.uuid4().hex}")
        give_rights(root, made[-1], role, **options)
        return url_as(server(kind).url, made[-1])

    yield make
    if made:
        root.acl_deluser(*made)


@pytest.fixture
def plain(new_user: NewUser) -> "Iterator[Callable[[str], redis.Redis]]":
    """Return plain clients that are users with a role."""
    made: list[redis.Redis] = []

    def connect(role: str) -> "redis.Redis":
        made.append(redis.Redis.from_url(new_user(role), protocol=2))
        return made[-1]

    yield connect
    for client in made:
        client.close()
