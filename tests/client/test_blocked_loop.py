"""The sync client warns when it blocks an event loop: once in a process, and only then."""

import asyncio
import logging
import sys
import threading
from collections.abc import Iterator

import pytest

import duly
from duly._sync import blocked_loop
from tests.client.place import ServerPlace


@pytest.fixture
def app(server: ServerPlace, monkeypatch: pytest.MonkeyPatch) -> Iterator[duly.Duly]:
    monkeypatch.setattr(blocked_loop, "_warned", [])
    with duly.Duly(server.url) as app:
        yield app


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("how", ["send", "receive"])
def test_a_sync_call_in_a_coroutine_warns_once_and_names_the_line(
    app: duly.Duly, queue_name: str, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    queue = app.queue(queue_name)

    async def blocks() -> None:
        for _ in range(3):
            queue.send("x") if how == "send" else queue.receive(1, wait=0)

    asyncio.run(blocks())
    (warning,) = warnings(caplog)
    assert f"{__file__}:{blocks.__code__.co_firstlineno + 2}" in warning
    assert "app.aio" in warning
    assert "duly.AsyncDuly" in warning


def test_calls_that_block_no_event_loop_do_not_warn(
    app: duly.Duly, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue = app.queue(queue_name)

    def works() -> None:
        queue.send("x")
        queue.receive(1, wait=0)

    async def waits_for_a_thread() -> None:
        await asyncio.to_thread(works)
        await app.aio.queue(queue_name).send("x")

    works()
    thread = threading.Thread(target=works)
    thread.start()
    thread.join()
    asyncio.run(waits_for_a_thread())
    works()  # an event loop that has ended is none
    assert warnings(caplog) == []


def test_a_notebook_is_not_warned(
    app: duly.Duly, queue_name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", asyncio)

    async def runs_a_cell() -> None:
        app.queue(queue_name).send("x")

    asyncio.run(runs_a_cell())
    assert warnings(caplog) == []
