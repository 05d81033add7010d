"""Instrumented apps, and the recorder of what they do."""

from collections.abc import AsyncIterator, Iterator

import pytest

import duly
from tests.otel.recording import Recorder


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    yield recorder
    recorder.tracer_provider.shutdown()
    recorder.meter_provider.shutdown()


@pytest.fixture
def app(recorder: Recorder) -> Iterator[duly.Duly]:
    with duly.Duly("memory://") as app:
        recorder.instrument(app)
        yield app


@pytest.fixture
async def async_app(recorder: Recorder) -> AsyncIterator[duly.AsyncDuly]:
    async with duly.AsyncDuly("memory://") as app:
        recorder.instrument(app)
        yield app
