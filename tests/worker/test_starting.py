"""Errors of a worker that cannot start, and warnings of one that no other process can send to."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

import duly
from duly.errors import Unavailable, UsageError
from duly.worker import run
from duly.worker.app_loader import warn_of_memory
from duly.worker.parent_pipe import StoppedEarly


def _app(url: str) -> duly.Duly:
    app = duly.Duly(url)

    @app.queue("orders").handler
    async def on_order(body: object) -> None: ...

    return app


async def test_an_embedded_server_that_cannot_be_started_raises_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.embedded.binary._in_wheel", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(Unavailable, match=r"duly\[embedded\]"):
        async with duly.Worker(_app(f"embedded://{tmp_path}/home")):
            pytest.fail("it began")


async def test_run_in_a_running_event_loop_names_the_alternative() -> None:
    with pytest.raises(UsageError, match=r"duly\.Worker"):
        run(_app("memory://"))


async def test_a_worker_takes_the_options_of_run_by_name() -> None:
    with pytest.raises(UsageError, match="no handler for queue nothing"):
        duly.Worker(_app("memory://"), queues=["nothing"])
    async with duly.Worker(_app("memory://"), concurrency=3, grace=1):
        pass


@pytest.mark.parametrize("named", [{"queues": ["orders"]}, {"concurrency": 3}, {"grace": 1}], ids=str)
async def test_a_worker_takes_its_options_in_one_way(named: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="not both"):
        duly.Worker(_app("memory://"), duly.WorkerOptions(), **named)


async def test_a_worker_refuses_anything_but_an_app() -> None:
    with pytest.raises(UsageError, match="takes an app"):
        duly.Worker(_app("memory://").queue("orders"))  # type: ignore[arg-type]


async def test_a_server_that_was_never_reached_is_left_without_complaint() -> None:
    worker = duly.Worker(_app("redis://127.0.0.1:1/0"), grace=1)
    async with worker:
        await asyncio.sleep(0.1)
    assert not worker.was_cut_off


def test_a_worker_process_in_memory_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "duly.worker"):
        warn_of_memory(_app("memory://"))
    assert "worker.in_memory" in caplog.text


def test_a_misspelt_option_names_the_nearest_one() -> None:
    with pytest.raises(UsageError, match=r"did you mean lease=\?"):
        duly.Duly("memory://").queue("orders", leese=3)  # type: ignore[call-overload]


def test_a_bad_address_in_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DULY_URL", "localhost:6379")
    with pytest.raises(UsageError, match="DULY_URL"):
        duly.Duly()


async def test_a_new_embedded_server_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        async with duly.Worker(_app(f"embedded://{tmp_path}/home")):
            pass

    assert caplog.text.count(f"worker.new_server directory={tmp_path}/home") == 1
    assert (
        'note="empty and new; senders in other directories use their own servers, unless DULY_URL names one"'
        in caplog.text
    )


class _InterruptedLoop(asyncio.SelectorEventLoop):
    """A loop in the state of uvloop after a signal handler has raised during its start."""

    def run_until_complete(self, future: Any) -> Any:
        if self.is_running():
            raise RuntimeError("this event loop is already running")
        self.is_running = lambda: True  # type: ignore[method-assign]
        raise StoppedEarly


def test_a_signal_while_the_event_loop_begins_ends_the_worker_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = _InterruptedLoop()
    monkeypatch.setattr("duly.worker.event_loop._new_loop", lambda: loop)

    with pytest.raises(StoppedEarly):
        run(_app("memory://"))

    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        task.get_coro().close()
    asyncio.set_event_loop(None)
    del loop.is_running
    loop.close()
