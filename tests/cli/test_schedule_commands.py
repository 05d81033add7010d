"""`duly schedule ls|add|rm|pause|resume`."""

from datetime import datetime

import duly
from tests.cli.shell import Shell


def test_a_schedule_is_added_listed_paused_resumed_and_removed(shell: Shell, app: duly.Duly) -> None:
    added = shell.ok(
        *("schedule", "add", "report", "jobs", '{"report": "daily"}', "--cron", "0 3 * * *"),
        *("--tz", "Asia/Shanghai", "--catch-up", "skip", "--json"),
    ).json
    listed = shell.ok("schedule", "ls").lines
    paused = shell.ok("schedule", "pause", "report").out
    (stored,) = shell.ok("schedule", "ls", "--json").json
    resumed = shell.ok("schedule", "resume", "report", "--json").json
    (running,) = app.schedules()
    removed = shell.ok("schedule", "rm", "report").out

    assert (added["name"], added["queue"], added["body"]) == ("report", "jobs", {"report": "daily"})
    assert (added["cron"], added["tz"], added["catch_up"]) == ("0 3 * * *", "Asia/Shanghai", "skip")
    assert datetime.fromisoformat(added["next_at"]).hour == 19  # in UTC, as all times of JSON
    assert "0 3 * * * Asia/Shanghai" in listed[1]
    assert paused == "report is paused\n"
    assert stored["paused"] is True
    assert resumed == {"name": "report", "resumed": True}
    assert running.paused is False
    assert removed == "report is removed\n"
    assert app.schedules() == []


def test_the_same_name_replaces_and_bodies_have_their_forms(shell: Shell, app: duly.Duly) -> None:
    told = shell.ok("schedule", "add", "tick", "jobs", "17", "--every", "1m", "--text").out
    shell.ok("schedule", "add", "tick", "jobs", "--every", "90s", "--bytes", stdin=b"\xff")

    (stored,) = app.schedules()
    assert told.startswith("tick feeds jobs; next 20")
    assert (stored.every, stored.body) == (90.0, b"\xff")
