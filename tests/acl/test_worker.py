"""A worker runs with the permissions of a consumer from start to end, without a refusal."""

import json
from pathlib import Path
from typing import Any

import pytest
import redis

import duly
from tests.acl.conftest import NewUser
from tests.waiting import wait_until
from tests.worker.rig import WorkerProcess

MODULE = """
    orders = app.queue({name!r}, lease=4, done=duly.Keep(count=10), retry=duly.Retry(attempts=3, first=0.01, jitter=0))
    mail = app.queue({name!r} + "-mail")
    events = app.topic({name!r}, keep=None)
    app.schedule({name!r}, mail, "tick", every=0.2)

    @orders.handler
    async def on_order(body, d):
        note("order", body=body, attempt=d.attempt)
        if body == "fails":
            raise ValueError("no")
        if body == "fails once" and d.attempt == 1:
            raise duly.RetryIn(0.01)
        if body == "rejected":
            raise duly.Reject("no use")
        if body == "commits":
            await d.commit(send=[(mail, "committed")], redis=[("INCR", {name!r} + ":own")])
        if body == "careful":
            async with app.aio.lock({name!r}, ttl=5):
                note("once", first=await duly.once(d, {name!r}, ttl=60))
        if body == "slow":
            while not os.path.exists("finish"):
                await asyncio.sleep(0.02)
        return {{"did": body}}

    @mail.handler
    def on_mail(body, d):
        note("mail", body=body)

    @events.handler(group="archive")
    async def on_event(body, d):
        note("event", body=body)
        if body == "fails once" and d.attempt == 1:
            raise ValueError("again")
"""
ORDERS = ["works", "fails", "fails once", "rejected", "commits", "careful", "slow"]


def refusals(root: "redis.Redis", url: str) -> list[object]:
    """Return the commands that the server has refused to a user."""
    user = url.partition("://")[2].partition(":")[0]
    return [entry for entry in root.acl_log() if entry["username"] == user]


def deadline_of(queue: duly.Queue, id_: str) -> Any:
    """Return when the lease of a message ends."""
    message = queue.get(id_)
    assert message is not None
    return message.deadline


def test_handlers_retries_commits_locks_schedules_and_topics_work_for_a_consumer(
    new_user: NewUser, root: "redis.Redis", queue_name: str, tmp_path: Path
) -> None:
    url = new_user("consumer", own_keys=[f"{queue_name}:*"], own_commands=["INCR"])
    with (
        duly.Duly(new_user("producer")) as producer,
        duly.Duly(new_user("observer")) as observer,
        WorkerProcess(url, tmp_path, MODULE.format(name=queue_name)) as worker,
    ):
        worker.wait_for_start()
        orders, events = producer.queue(queue_name, done=duly.Keep(count=10)), producer.topic(queue_name, keep=None)
        ids = orders.send_many(ORDERS)
        events.publish_many(["works", "fails once"])
        events.publish("delayed", delay=0.1)

        assert orders.result(ids[0], wait=30) == {"did": "works"}
        watched = observer.queue(queue_name)
        wait_until(lambda: deadline_of(watched, ids[-1]) is not None)
        first = deadline_of(watched, ids[-1])
        wait_until(lambda: deadline_of(watched, ids[-1]) > first)  # the lease of the slow message is renewed
        (tmp_path / "finish").touch()
        wait_until(lambda: (found := watched.stats()).done == 5 and found.dead == 2)
        wait_until(lambda: {note["body"] for note in worker.notes("mail")} == {"committed", "tick"})
        wait_until(lambda: len(worker.notes("event")) == 4)
        assert any(queue_name in json.dumps(each.queues) for each in observer.workers())
        assert worker.stop() == 0, worker.log()
        log = worker.log()

    assert [note["body"] for note in worker.notes("order")].count("slow") == 1
    assert [note["first"] for note in worker.notes("once")] == [True]
    assert root.get(f"{queue_name}:own") == b"1"
    assert refusals(root, url) == [], log
    assert "duly acl" not in log


def test_a_worker_that_may_not_wait_polls_and_logs_it_once(
    new_user: NewUser, root: "redis.Redis", queue_name: str, tmp_path: Path
) -> None:
    url = new_user("consumer")
    user = url.partition("://")[2].partition(":")[0]
    root.execute_command("ACL", "SETUSER", user, "-client")  # type: ignore[no-untyped-call]
    module = MODULE.format(name=queue_name)
    with WorkerProcess(url, tmp_path, module) as worker, duly.Duly(url) as app:
        app.queue(queue_name).send("works")
        wait_until(lambda: len(worker.notes("order")) == 1)
        wait_until(lambda: "watch.refused" in worker.log())
        app.queue(queue_name).send("works")
        wait_until(lambda: len(worker.notes("order")) == 2)
    (line,) = [line for line in worker.log().splitlines() if "watch.refused" in line]
    assert "NOPERM" in line
    assert "idle queues are polled" in line


def test_a_call_that_may_not_wait_polls_and_logs_it_once(
    new_user: NewUser, root: "redis.Redis", queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = new_user("consumer")
    user = url.partition("://")[2].partition(":")[0]
    root.execute_command("ACL", "SETUSER", user, "-client")  # type: ignore[no-untyped-call]
    with duly.Duly(url) as app:
        queue = app.queue(queue_name)
        queue.send("later", delay=1)
        (delivery,) = queue.receive(wait=60)
        assert queue.receive(wait=0.6) == []

    assert delivery.body == "later"
    (line,) = [record.getMessage() for record in caplog.records if "waiting is refused" in record.getMessage()]
    assert "NOPERM" in line
