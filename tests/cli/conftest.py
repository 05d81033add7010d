"""A shell for each test: one server for all, a namespace of its own, so that tests do not meet."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import duly
from tests.cli.shell import Shell
from tests.conftest import StartedServer


@pytest.fixture
def shell(server: StartedServer, tmp_path: Path) -> Shell:
    return Shell(server("valkey").url, f"cli-{uuid.uuid4().hex[:12]}", tmp_path)


@pytest.fixture
def app(shell: Shell) -> Iterator[duly.Duly]:
    """Give the library's view of what the commands see."""
    with duly.Duly(shell.url, namespace=shell.namespace) as app:
        yield app
