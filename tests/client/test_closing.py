"""An app that is closed leaves nothing running; one that is forgotten does no harm."""

import subprocess
import sys
import threading

import duly
from tests.client.place import ServerPlace

FORGETFUL = """
import asyncio, sys, duly

url, queue = sys.argv[1:]
app = duly.Duly(url)
app.queue(queue).send_many([1, 2, 3])
held = app.queue(queue).receive(limit=1, renew=True)

async def main():
    await duly.AsyncDuly(url).queue(queue).send(4)

asyncio.run(main())
print("done")
"""


def test_closing_ends_every_thread(server: ServerPlace, queue_name: str) -> None:
    before = set(threading.enumerate())
    app = duly.Duly(server.url)
    queue = app.queue(queue_name)
    queue.send("a")
    queue.receive(renew=True)
    started = set(threading.enumerate()) - before
    assert [thread.name for thread in started] == ["duly-renewer"]

    app.close()

    for thread in started:
        thread.join(20)
    assert set(threading.enumerate()) <= before


def test_forgetting_to_close_at_exit_is_harmless(server: ServerPlace, queue_name: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FORGETFUL, server.url, queue_name],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")
    with duly.Duly(server.url) as app:
        stats = app.queue(queue_name).stats()
        assert (stats.ready, stats.leased, stats.sent) == (3, 1, 4)
