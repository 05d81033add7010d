"""Tasks on the session's server, with a namespace for each test, and worker processes."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conftest import StartedServer
from tests.foreign_workers import Program

SOURCE = Path(__file__).with_name("program.py")
COMMAND = ("-m", "taskiq", "worker", "tests.taskiq.program:broker", "--workers", "1", "--max-async-tasks", "4")


@pytest.fixture
def url(server: StartedServer) -> str:
    return server("valkey").url


@pytest.fixture
async def program(url: str, tmp_path: Path) -> AsyncIterator[Program]:
    """Return a program without workers."""
    program = Program("tests.taskiq.program", SOURCE, COMMAND, url, f"taskiq-{uuid.uuid4().hex[:12]}", tmp_path)
    yield program
    program.close()
    await program.module.app.aclose()
    program.module.record.close()
