"""`duly topic ls|groups|pending|seek|publish|read|delete`."""

import json
import signal
from datetime import UTC, datetime, timedelta

import duly
from tests.cli.shell import DEADLINE, Shell


def test_published_entries_are_read_and_counted(shell: Shell, app: duly.Duly) -> None:
    first = shell.ok(
        *("topic", "publish", "events", '{"n": 1}', "--key", "k", "--header", "kind=paid"),
        *("--dedup", "a", "--dedup-for", "1h", "--json"),
    ).json
    again = shell.ok("topic", "publish", "events", "other", "--dedup", "a").out
    shell.ok("topic", "publish", "events", "17", "--text", "--delay", "2h")
    shell.ok("topic", "publish", "events", "--bytes", "--at", later(), stdin=b"\xff")
    (entry,) = shell.ok("topic", "read", "events", "--json").json["entries"]
    (listed,) = shell.ok("topic", "ls", "--json").json["topics"]

    assert again == first["id"] + "\n"
    assert entry["id"] == first["id"]
    assert (entry["topic"], entry["body"], entry["key"]) == ("events", {"n": 1}, "k")
    assert entry["headers"] == {"kind": "paid"}
    assert (listed["name"], listed["length"], listed["delayed"], listed["duplicates"]) == ("events", 1, 2, 1)


def test_a_new_topic_with_a_similar_name_is_noted(shell: Shell, app: duly.Duly) -> None:
    app.topic("sales").publish("x")
    app.topic("empty").group("team").create()

    done = shell.run("topic", "publish", "sale", "x")
    shell.ok("topic", "publish", "sale", "again")
    shell.ok("topic", "publish", "quite-another", "x")
    shell.ok("topic", "publish", "empty", "x")

    assert (done.status, done.err) == (0, "duly: topic 'sale' is new. Did you mean 'sales'?\n")
    assert app.topic("sale").stats().published == 2


def later() -> str:
    return (datetime.now(UTC) + timedelta(days=1)).isoformat()


def test_groups_are_listed_and_moved(shell: Shell, app: duly.Duly) -> None:
    topic = app.topic("events")
    group = topic.group("archive", start="beginning")
    group.create()
    ids = [topic.publish({"n": n}) for n in range(3)]
    (held,) = group.receive(1, 0)

    groups = shell.ok("topic", "groups", "events").lines
    pending = shell.ok("topic", "pending", "events", "archive", "--min-idle", "0s", "--limit", "9").lines
    idle = shell.ok("topic", "pending", "events", "archive", "--min-idle", "1h", "--consumer", "x", "--json").json
    end = shell.ok("topic", "seek", "events", "archive", "end").out
    behind = shell.ok("topic", "seek", "events", "archive", ids[1], "--json").json
    by_time = shell.ok("topic", "seek", "events", "archive", "1000000000", "--json").json

    assert groups[0].split()[:3] == ["GROUP", "UNREAD", "PENDING"]
    assert groups[1].split()[:3] == ["archive", "2", "1"]
    assert pending[0].startswith("1 held: ")
    assert pending[2].split()[0] == held.id == ids[0]
    assert idle["messages"] == []
    assert end == f"events/archive continues after {ids[2]}; 0 unread\n"
    assert (behind["last_id"], behind["unread"]) == (ids[1], 1)
    assert by_time["unread"] == 3


def test_read_pages_by_position_and_follows(shell: Shell, app: duly.Duly) -> None:
    topic = app.topic("events")
    ids = [topic.publish({"n": n}) for n in range(3)]

    some = shell.run("topic", "read", "events", "--after", ids[0], "--limit", "1")
    new = shell.ok("topic", "read", "events", "--after", "new", "--wait", "10ms", "--json").json["entries"]
    process = shell.start("topic", "read", "events", "--follow", "--json", "--after", ids[1])
    assert process.stdout is not None
    lines = [process.stdout.readline()]
    topic.publish({"n": 3})
    lines.append(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=DEADLINE)

    assert some.lines[1].split()[0] == ids[1]
    assert len(some.lines) == 2
    assert some.err == f"duly: there may be more: --after {ids[1]}\n"
    assert new == []
    assert [json.loads(line)["body"] for line in lines] == [{"n": 2}, {"n": 3}]
    assert (process.returncode, err) == (0, "")


def test_delete_asks_and_removes(shell: Shell, app: duly.Duly) -> None:
    app.topic("events").publish("x")
    assert "events" in shell.ok("topic", "ls").lines[1]

    refused = shell.run("topic", "delete", "events")
    shell.ok("topic", "delete", "events", "--yes")

    assert refused.status == 2
    assert "Delete topic events with 1 entries and 0 group(s) permanently? Confirm with --yes" in refused.err
    assert app.topics() == []
