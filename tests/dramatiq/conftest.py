"""Actors on the session's server, with a namespace for each test, and worker processes."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import StartedServer
from tests.foreign_workers import Program

SOURCE = Path(__file__).with_name("program.py")
COMMAND = ("-m", "dramatiq", "tests.dramatiq.program", "--processes", "1", "--threads", "4")


@pytest.fixture
def program(server: StartedServer, tmp_path: Path) -> Iterator[Program]:
    """Return a program without workers."""
    url = server("valkey").url
    program = Program("tests.dramatiq.program", SOURCE, COMMAND, url, f"dramatiq-{uuid.uuid4().hex[:12]}", tmp_path)
    yield program
    program.close()
    program.module.broker.close()
    program.module.record.close()
