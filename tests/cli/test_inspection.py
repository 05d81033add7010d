"""`duly queues`, `list`, `show`, `explain`, `pending` and `workers`: their output, and that they change nothing."""

import asyncio
import re
import time
from datetime import datetime

import pytest

import duly
from duly.cli import output
from duly.web.api import responses
from tests.cli.shell import Shell, given_dead
from tests.waiting import wait_until


def test_queues_names_queues_and_groups(shell: Shell, app: duly.Duly) -> None:
    empty = shell.ok("queues")
    app.queue("orders").send(1)
    app.topic("events").group("archive").create()

    assert empty.out == ""
    assert shell.ok("queues").lines == ["orders", "events/archive"]
    assert shell.ok("queues", "--json").json == {
        "queues": [{"name": "orders"}],
        "groups": [{"name": "events/archive"}],
        "next": None,
    }


def test_list_shows_a_state_page_by_page(shell: Shell, app: duly.Duly) -> None:
    queue = app.queue("orders")
    ids = queue.send_many([duly.Send({"n": n}, key=f"k{n}") for n in range(3)])
    queue.send("later", delay=60)

    first = shell.run("list", "orders", "ready", "--limit", "2")
    rest = shell.ok("list", "orders", "ready", "--after", ids[1]).lines
    delayed = shell.ok("list", "orders", "delayed", "--json").json["messages"]

    assert [line.split()[0] for line in first.out.splitlines()] == ["ID", *ids[:2]]
    assert '{"n":1}' in first.out
    assert first.err == f"duly: there may be more: --after {ids[1]}\n"
    assert [line.split()[0] for line in rest] == ["ID", ids[2]]
    (message,) = delayed
    assert (message["state"], message["body"], message["queue"]) == ("delayed", "later", "orders")
    assert datetime.fromisoformat(message["due_at"]) > datetime.fromisoformat(message["sent_at"])


def test_a_page_of_json_names_the_next_one(shell: Shell, app: duly.Duly) -> None:
    ids = app.queue("orders").send_many(["1", "2", "3"])
    entries = [app.topic("events").publish(n) for n in range(2)]

    page = shell.ok("list", "orders", "ready", "--limit", "2", "--json").json
    last = shell.ok("list", "orders", "ready", "--after", page["next"], "--json").json
    read = shell.ok("topic", "read", "events", "--limit", "1", "--json").json

    assert ([each["id"] for each in page["messages"]], page["next"]) == (ids[:2], ids[1])
    assert ([each["id"] for each in last["messages"]], last["next"]) == (ids[2:], None)
    assert read["next"] == entries[0]


def test_lists_have_the_fields_of_the_http_api(shell: Shell, app: duly.Duly) -> None:
    queue = app.queue("orders")
    queue.send("body")
    app.schedule("daily", "orders", "report", cron="0 3 * * *")

    (message,) = shell.ok("list", "orders", "--json").json["messages"]
    (schedule,) = shell.ok("schedule", "ls", "--json").json["schedules"]
    pending = shell.ok("pending", "orders", "--json").json

    assert {*message} == {*responses.Message.__struct_fields__} - {"base64"}
    assert {*schedule} == {*responses.Schedule.__struct_fields__} - {"base64"}
    assert {*pending} == {*responses.PendingShown.__struct_fields__}
    assert message["sent_at"].endswith("Z")


def test_pages_of_large_messages_are_put_together(shell: Shell, app: duly.Duly) -> None:
    """The server returns at most 4 MiB per page."""
    queue, topic = app.queue("orders"), app.topic("events")
    for _ in range(7):
        queue.send("x" * 1_000_000)
        topic.publish("x" * 1_000_000)

    for words in (("list", "orders", "ready"), ("topic", "read", "events")):
        everything = shell.ok(*words).lines
        some = shell.run(*words, "--limit", "6")
        assert len(everything) == 1 + 7
        assert len(some.lines) == 1 + 6
        assert some.err == f"duly: there may be more: --after {some.lines[-1].split()[0]}\n"


def test_list_shows_the_consumer_and_the_reason_of_death(shell: Shell, app: duly.Duly) -> None:
    queue = app.queue("orders")
    given_dead(queue, "dead", "out of paper")
    queue.send("held")
    (delivery,) = queue.receive(1, 0)
    consumer = next(iter(queue.pending().consumers))

    leased = shell.ok("list", "orders", "leased").lines
    dead = shell.ok("list", "orders", "dead").lines
    pending = shell.ok("pending", "orders").lines
    others = shell.ok("pending", "orders", "--consumer", "nobody", "--limit", "5", "--json").json

    assert leased[0].split() == ["ID", "DEADLINE", "(UTC)", "ATTEMPT", "KEY", "HOLDER", "BODY"]
    assert consumer in leased[1]
    assert dead[0].split() == ["ID", "DIED", "(UTC)", "FAILURES", "KEY", "REASON", "BODY"]
    assert dead[1].split()[3] == "1"
    assert pending[0] == f"1 held: {consumer} 1"
    assert pending[2].split()[0] == delivery.id
    assert others["messages"] == []


def test_list_without_a_state_shows_all_of_them(shell: Shell, app: duly.Duly) -> None:
    queue = app.queue("orders", done=duly.Keep(count=10))
    dead = given_dead(queue, "dead")
    done = queue.send("done")
    queue.receive(1, 0)[0].ack()
    leased = queue.send("leased")
    queue.receive(1, 0)
    ready = [queue.send(n) for n in range(2)]
    delayed = queue.send("later", delay=60)
    everything = [*ready, delayed, leased, dead, done]

    head, *rows = shell.ok("list", "orders").lines
    first = shell.run("list", "orders", "--limit", "3")
    rest = shell.ok("list", "orders", "--after", delayed, "--json").json["messages"]

    assert head.split() == ["ID", "STATE", "WHEN", "(UTC)", "FAILURES", "KEY", "BODY"]
    assert [row.split()[0] for row in rows] == everything
    assert [row.split()[1] for row in rows] == ["ready", "ready", "delayed", "leased", "dead", "done"]
    assert [line.split()[0] for line in first.lines[1:]] == everything[:3]
    assert f"there may be more: --after {delayed}" in first.err
    assert [each["id"] for each in rest] == everything[3:]


@pytest.mark.parametrize(
    ("zone", "title"), [("Europe/Berlin", "DUE (CET/CEST)"), ("Asia/Shanghai", "DUE (CST)"), ("UTC", "DUE (UTC)")]
)
def test_a_table_names_the_zone_of_its_times(monkeypatch: pytest.MonkeyPatch, zone: str, title: str) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert output.zoned("DUE") == title
    finally:
        monkeypatch.undo()
        time.tzset()


def test_list_shows_the_chosen_columns(shell: Shell, app: duly.Duly) -> None:
    app.queue("q").send("x", key="k", priority=3, headers={"trace": "7"})

    lines = shell.ok("list", "q", "--columns", "key,priority,headers,key").out.splitlines()
    assert [line.split() for line in lines] == [["KEY", "PRIORITY", "HEADERS"], ["k", "3", "trace=7"]]

    app.queue("q").receive()[0].reject("no stock")
    lines = shell.ok("dead", "ls", "q", "--columns", "reason,holder,body").out.splitlines()
    assert lines[1].split() == ["no", "stock", "-", "x"]


def test_an_unknown_column_is_refused_with_the_names_of_all(shell: Shell, app: duly.Duly) -> None:
    app.queue("q").send("x")

    for words in (("list", "q"), ("dead", "ls", "q")):
        done = shell.run(*words, "--columns", "id,colour")
        assert (done.status, done.out) == (2, "")
        assert "there is no column 'colour', but there are id, state, when" in done.err
        assert "JSON has all fields" in shell.run(*words, "--columns", "id", "--json").err


def test_show_prints_all_of_a_message(shell: Shell, app: duly.Duly) -> None:
    id_ = given_dead(app.queue("orders"), {"order": 17}, "out of paper", headers={"trace": "abc"}, key="c-1")

    shown = shell.ok("show", "orders", id_).out
    fields = shell.ok("show", "orders", id_, "--json").json

    for text in (id_, "dead", "c-1", "trace=abc", '{"order": 17}', "timeline", "claimed", "last error", "out of paper"):
        assert text in shown
    assert "\nattempt " not in shown
    assert "\nattempt " in shell.ok("show", "orders", app.queue("orders").send("waits")).out
    assert fields["state"] == "dead"
    assert fields["body"] == {"order": 17}
    assert fields["errors"][0]["error"] == "out of paper"
    assert fields["timeline"][0]["what"] == "sent"
    moments = [datetime.fromisoformat(event["at"]).astimezone() for event in fields["timeline"]]
    for each in moments:  # several events of one second are distinct
        assert f"{each:%Y-%m-%d %H:%M:%S}.{each.microsecond // 1000:03} " in shown
    assert "raw" not in fields
    assert fields["deliveries"] == 1


def test_explain_prints_the_reason_and_fails_for_an_unknown_id(shell: Shell, app: duly.Duly) -> None:
    id_ = app.queue("orders").send("later", delay=3600)

    known = shell.ok("explain", "orders", id_)
    unknown = shell.run("explain", "orders", "nothing", "--json")

    assert re.search(r"delayed|due", known.out)
    assert unknown.status == 1
    assert unknown.json["id"] == "nothing"
    assert "unknown" in unknown.json["explanation"]


async def test_explain_uses_the_options_that_workers_publish(shell: Shell, app: duly.Duly) -> None:
    queue = app.queue("q", rate="1/h")
    queue.handler(lambda body: None)
    queue.send_many(["first", "second"])
    async with duly.Worker(app):
        await asyncio.to_thread(wait_until, lambda: queue.stats().acked == 1, "one message is handled")
        await asyncio.to_thread(wait_until, lambda: any(each.options for each in app.workers()), "options are known")
        (waiting,) = queue.list("ready")
        sentence = (await asyncio.to_thread(shell.ok, "explain", "q", waiting.id)).out
    assert "the rate of 1/h is used up until" in sentence


async def test_explain_names_options_on_which_workers_differ(shell: Shell, app: duly.Duly) -> None:
    (id_,) = app.queue("q", rate="1/h").send_many(["waits"])
    app.queue("q", rate="1/h").pause()
    with duly.Duly(shell.url, namespace=shell.namespace) as other:
        for each, rate in ((app, "1/h"), (other, "2/h")):
            each.queue("q", rate=rate).handler(lambda body: None)
        async with duly.Worker(app), duly.Worker(other):
            await asyncio.to_thread(wait_until, lambda: sum(bool(each.options) for each in app.workers()) == 2)
            sentence = (await asyncio.to_thread(shell.ok, "explain", "q", id_)).out
    assert sentence.endswith("Its workers have different options, which this leaves out: rate.\n")


def test_groups_are_inspected_like_queues(shell: Shell, app: duly.Duly) -> None:
    app.topic("events").group("archive").create()
    id_ = app.topic("events").publish({"n": 1})

    listed = shell.ok("list", "events/archive", "ready", "--json").json["messages"]
    explained = shell.ok("explain", "events/archive", id_)

    assert [each["id"] for each in listed] == [id_]
    assert explained.out


def test_workers_with_heartbeats_are_shown(shell: Shell, app: duly.Duly) -> None:
    assert shell.ok("workers").lines == [f"no worker on {shell.url}"]
    assert shell.ok("workers", "--json").json == {"workers": [], "next": None}
