"""On a server at maxmemory all commands that read or delete work. Only sends are refused."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

import duly
from tests.cli.conftest import Call
from tests.cli.shell import Shell
from tests.conftest import need
from tests.servers import Server

pytestmark = pytest.mark.fault

WORKING = [
    "stats",
    "queues",
    "workers",
    "list orders ready",
    "explain orders first",
    "receive orders --limit 2",
    "receive orders --release",
    "pause orders",
    "resume orders",
    "reschedule orders later --delay 1h",
    "promote orders later",
    "cancel orders later",
    "pending orders",
    "dead ls orders",
    "dead redrive orders --limit 1",
    "dead purge orders --yes",
    "purge orders --yes",
    "schedule ls",
    "schedule add hourly orders {} --every 1h",
    "schedule add nightly orders {} --every 12h",
    "schedule pause hourly",
    "schedule resume hourly",
    "schedule rm hourly",
    "topic ls",
    "topic groups events",
    "topic seek events archive beginning",
    "audit --repair",
    "topic delete events --yes",
    "delete orders --yes",
]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    need("valkey")
    with Server("valkey") as server:
        yield Shell(server.url, "cli", tmp_path)


def test_all_commands_except_sends_work(shell: Shell, app: duly.Duly, call: Call) -> None:
    queue, topic = app.queue("orders"), app.topic("events")
    topic.group("archive").create()
    topic.publish("x")
    app.schedule("hourly", queue, {}, every=3600)
    queue.send("x", id="first")
    queue.send("x", id="later", delay=1000)
    queue.send_many(["x"] * 6)
    for delivery in queue.receive(3):
        delivery.reject("no good")
    with redis.Redis.from_url(shell.url) as client:
        client.setrange("filler", 30_000_000, ".")  # a large value that is not sent
        client.config_set("maxmemory", "20mb")

    assert call("send", "orders", "x").status != 0
    assert call("topic", "publish", "events", "x").status != 0
    failed = {words: done.err for words in WORKING if (done := call(*words.split())).status != 0}
    assert failed == {}
    assert app.queues() == []
