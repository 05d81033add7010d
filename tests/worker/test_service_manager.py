"""A service manager signals every process of a service at once: a child gets the signal again from its parent."""

import os
import signal
from pathlib import Path

import pytest

import duly
from tests.conftest import StartedServer
from tests.waiting import wait_until
from tests.worker.rig import WorkerProcess

pytestmark = pytest.mark.fault


def test_a_signal_to_parent_and_children_is_one_signal(server: StartedServer, queue_name: str, tmp_path: Path) -> None:
    url = server("valkey").url
    with duly.Duly(url) as app:
        orders = app.queue(queue_name)
        orders.send("slow")
        source = f"""
            orders = app.queue({queue_name!r})

            @orders.handler
            async def on_order(body):
                note("begin")
                await asyncio.sleep(2)
                note("end")
        """
        with WorkerProcess(url, tmp_path, source, "--processes", "1") as worker:
            wait_until(lambda: len(worker.notes("begin")) == 1)
            (child,) = {note["pid"] for note in worker.notes("begin")}
            worker.send_signal(signal.SIGTERM)
            os.kill(child, signal.SIGTERM)
            assert worker.wait() == 0, worker.log()
        assert len(worker.notes("end")) == 1
        assert orders.stats().acked == 1
