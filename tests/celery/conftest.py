"""A Celery program on the session's server, with a namespace for each module or test."""

import importlib.util
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import duly.kombu  # noqa: F401 - the names of the transport
from tests.celery.rig import Program
from tests.conftest import StartedServer

SOURCE = Path(__file__).with_name("program.py")


def load(environment: Mapping[str, str]) -> Any:
    """Import the program with these variables. Its tasks have the names that the workers know."""
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        spec = importlib.util.spec_from_file_location("tests.celery.program", SOURCE)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        os.environ.clear()
        os.environ.update(before)
    return module


def opened(server: StartedServer, directory: Path, **settings: str) -> Iterator[Program]:
    program = Program(server("valkey").url, f"celery-{uuid.uuid4().hex[:12]}", directory, load, **settings)
    yield program
    program.close()
    program.module.app.close()
    program.module.record.close()


@pytest.fixture
def program(server: StartedServer, tmp_path: Path) -> Iterator[Program]:
    """Return a program without workers."""
    yield from opened(server, tmp_path)


@pytest.fixture(scope="module")
def running(server: StartedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """Return a program with one worker that has two processes, shared by the tests of a module."""
    for program in opened(server, tmp_path_factory.mktemp("celery")):
        program.worker("-c", "2")
        yield program
