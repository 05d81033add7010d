"""`duly schedule ls|add|rm|pause|resume`."""

import asyncio
from datetime import datetime

import duly
from tests.cli.shell import Shell
from tests.waiting import wait_until


def test_a_schedule_is_added_listed_paused_resumed_and_removed(shell: Shell, app: duly.Duly) -> None:
    added = shell.ok(
        *("schedule", "add", "report", "jobs", '{"report": "daily"}', "--cron", "0 3 * * *"),
        *("--tz", "Asia/Shanghai", "--catch-up", "skip", "--json"),
    ).json
    listed = shell.run("schedule", "ls").lines
    paused = shell.ok("schedule", "pause", "report").out
    (stored,) = shell.ok("schedule", "ls", "--json").json["schedules"]
    resumed = shell.ok("schedule", "resume", "report", "--json").json
    (running,) = app.schedules()
    removed = shell.ok("schedule", "rm", "report").out

    assert (added["name"], added["queue"], added["body"]) == ("report", "jobs", {"report": "daily"})
    assert (added["cron"], added["tz"], added["catch_up"]) == ("0 3 * * *", "Asia/Shanghai", "skip")
    assert datetime.fromisoformat(added["next_at"]).hour == 19  # in UTC, like all times in JSON
    assert "0 3 * * * Asia/Shanghai" in listed[1]
    assert "03:00:00 CST" in listed[1]  # in the zone of the schedule, not the local zone
    assert paused == "report is paused\n"
    assert stored["paused"] is True
    assert resumed == {"name": "report", "resumed": True}
    assert running.paused is False
    assert removed == "report is removed\n"
    assert app.schedules() == []


def test_an_existing_name_is_replaced_and_bodies_keep_their_types(shell: Shell, app: duly.Duly) -> None:
    told = shell.ok("schedule", "add", "tick", "jobs", "17", "--every", "1m", "--text").out
    shell.ok("schedule", "add", "tick", "jobs", "--every", "90s", "--bytes", stdin=b"\xff")

    (stored,) = app.schedules()
    assert told.startswith("tick sends to jobs; next 20")
    assert (stored.every, stored.body) == (90.0, b"\xff")


async def test_a_queue_that_no_worker_serves_is_named(shell: Shell, app: duly.Duly) -> None:
    @app.queue("served").handler
    def handle(_body: object) -> None: ...

    for name, queue in {"a": "served", "b": "unserved", "c": "unserved", "d": "paused"}.items():
        app.schedule(name, queue, 1, every=3600)
    app.pause_schedule("d")

    async with duly.Worker(app):
        await asyncio.to_thread(wait_until, lambda: bool(app.workers()))
        listed = await asyncio.to_thread(shell.run, "schedule", "ls")
        as_json = await asyncio.to_thread(shell.ok, "schedule", "ls", "--json")

    assert [line.split()[0] for line in listed.lines[1:]] == ["a", "b", "c", "d"]
    assert (listed.status, listed.err) == (
        0,
        "duly: no worker serves 'unserved': nothing is sent until a worker or another consumer receives from it\n",
    )
    assert len(as_json.json["schedules"]) == 4


def test_a_deeply_nested_body_is_shown_as_text(shell: Shell) -> None:
    deep = "[" * 900 + "]" * 900

    added = shell.ok("schedule", "add", "s", "q", "-", "--every", "1h", "--json", stdin=deep).json
    (listed,) = shell.ok("schedule", "ls", "--json").json["schedules"]
    table = shell.run("schedule", "ls")

    assert added["body"] == listed["body"] == deep
    assert (table.status, table.lines[1].endswith("[" * 200 + "...")) == (0, True)
