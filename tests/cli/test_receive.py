"""`duly receive`: its output, and that only printed messages are acked."""

import json
import os
import re
import signal
import subprocess
from datetime import datetime
from typing import IO

import pytest
import redis

import duly
from tests.cli.shell import DEADLINE, Shell
from tests.servers import Server


def read_until(stream: IO[str], text: str) -> None:
    """Read lines until one contains the text. Fails if the command ends before."""
    lines = []
    for line in stream:
        if text in line:
            return
        lines.append(line)
    pytest.fail(f"it ended without {text!r}: {lines}")


def test_receive_prints_whole_bodies_and_acks_them(shell: Shell, app: duly.Duly) -> None:
    queue = app.queue("q")
    long = "long " * 200
    ids = queue.send_many([long, {"list": ["x" * 300]}, b"\x00\xff" * 100])

    done = shell.ok("receive", "q", "--limit", "10", COLUMNS="60")

    assert done.lines == [
        f"{ids[0]}  {long}",
        f'{ids[1]}  {{"list": ["{"x" * 300}"]}}',
        f"{ids[2]}  bytes, 200: {' '.join(['00 ff'] * 100)}",
    ]
    stats = queue.stats()
    assert (stats.live, stats.acked) == (0, 3)


@pytest.mark.parametrize("columns", ["0", "20", "-5", "wide"])
def test_bodies_are_whole_at_every_width_of_a_terminal(shell: Shell, app: duly.Duly, columns: str) -> None:
    queue = app.queue("q")
    body = "a body that is longer than a line"

    sent = shell.ok("send", "q", body, COLUMNS=columns)
    explained = shell.ok("explain", "q", sent.out.strip(), COLUMNS=columns)
    listed = shell.ok("stats", COLUMNS=columns)
    received = shell.ok("receive", "q", COLUMNS=columns)

    assert len(sent.lines) == len(explained.lines) == 1
    assert len(listed.lines) == 2
    assert received.out == f"{sent.out.strip()}  {body}\n"
    assert queue.stats().acked == 1


def test_a_body_that_is_nested_too_deeply_is_printed_as_sent(shell: Shell, app: duly.Duly) -> None:
    body = "[" * 900 + "]" * 900
    id_ = shell.ok("send", "q", body).out.strip()

    assert shell.ok("list", "q", "ready").status == 0
    assert shell.ok("show", "q", id_, "--json").json["body"] == body
    assert "[" * 50 in shell.ok("show", "q", id_).out
    assert shell.ok("receive", "q", "--release", "--json").json["messages"][0]["body"] == body
    assert shell.ok("receive", "q").out == f"{id_}  {body}\n"
    assert app.queue("q").stats().acked == 1


def test_receive_as_json_has_the_fields_of_a_delivery(shell: Shell, app: duly.Duly) -> None:
    queue = app.queue("q")
    queue.send({"n": 1}, key="k", priority=3, headers={"a": "b"}, id="one")
    queue.send(b"\xff\x00", id="two")

    first, second = shell.ok("receive", "q", "--limit", "2", "--json").json["messages"]
    nothing = shell.ok("receive", "q", "--json", "--wait", "10ms")

    assert datetime.fromisoformat(first.pop("sent_at")) <= datetime.fromisoformat(first.pop("due_at"))
    assert first == {
        "body": {"n": 1},
        "id": "one",
        "queue": "q",
        "headers": {"a": "b"},
        "key": "k",
        "priority": 3,
        "attempt": 1,
        "deliveries": 1,
    }
    assert second["body"] == {"base64": "/wA="}
    assert nothing.json == {"messages": []}


def test_released_messages_keep_their_place_and_raw_bodies_are_as_stored(shell: Shell, app: duly.Duly) -> None:
    queue = app.queue("q")
    ids = queue.send_many([{"a": 1}, {"b": 2}])

    looked = shell.ok("receive", "q", "--limit", "2", "--release")
    taken = shell.ok("receive", "q", "--limit", "2", "--raw")

    assert [line.split()[0] for line in looked.lines] == ids
    assert [json.loads(line) for line in taken.lines] == [{"a": 1}, {"b": 2}]
    assert queue.stats().released == 2


def test_receive_waits_for_a_new_queue_and_fails_without_a_wait(shell: Shell, app: duly.Duly) -> None:
    app.queue("orders").send("other")

    refused = shell.run("receive", "order")
    waiting = shell.start("receive", "order", "--wait", "30s")
    assert waiting.stderr is not None
    said = waiting.stderr.readline()
    app.queue("order").send("here")
    out, _ = waiting.communicate(timeout=DEADLINE)

    assert refused.status == 1
    assert "there is no queue 'order'. Did you mean 'orders'?" in refused.err
    assert "Waiting for it" in said
    assert waiting.returncode == 0
    assert out.endswith("  here\n")


def test_the_caller_that_paused_a_queue_is_named(shell: Shell, app: duly.Duly) -> None:
    queue = app.queue("orders")
    queue.send("x")
    queue.pause()

    done = shell.run("receive", "orders")

    assert (done.status, done.out) == (0, "")
    assert done.err == f"duly: orders is paused by {queue.stats().paused}: `duly resume orders`\n"
    queue.resume()
    shell.ok("receive", "orders")
    shell.ok("receive", "orders")


def test_the_reason_is_printed_if_no_message_is_ready(shell: Shell, app: duly.Duly) -> None:
    queue = app.queue("orders")
    queue.send_many([duly.Send("first", key="k"), duly.Send("second", key="k"), duly.Send("later", delay=3600)])
    (held,) = queue.receive(1, 0)

    waiting = shell.run("receive", "orders", "--json")
    queue.purge()
    empty = shell.ok("receive", "orders")

    assert held.body == "first"
    assert (waiting.status, waiting.json) == (0, {"messages": []})
    assert re.fullmatch(
        r"duly: nothing is ready in orders: 1 delayed \(next in .+\), 1 leased, 1 parked behind others of their keys\n",
        waiting.err,
    )
    assert empty.out == ""


def test_a_consumer_role_can_receive(shell: Shell, app: duly.Duly) -> None:
    rules = shell.ok("acl", "--role", "consumer", "--json").json["rules"]
    group = app.topic("events").group("archive")
    group.create()
    app.topic("events").publish("entry")
    app.queue("plain").send("message")
    user = f"joe-{shell.namespace}"
    as_user = ("--url", shell.url.replace("://", f"://{user}:x@"))
    with redis.Redis.from_url(shell.url) as admin:
        admin.execute_command("ACL", "SETUSER", user, "on", ">x", *rules)
        try:
            received = [shell.ok("receive", each, *as_user).out for each in ("plain", "events/archive", "plain")]
        finally:
            admin.execute_command("ACL", "DELUSER", user)

    assert [each.split()[1:] for each in received] == [["message"], ["entry"], []]
    assert app.queue("plain").stats().acked == group.stats().acked == 1


@pytest.mark.fault
@pytest.mark.parametrize(
    ("words", "before", "after"),
    [
        (("receive", "orders", "--follow"), "first", "second"),
        (("topic", "read", "events", "--follow"), "first", "second"),
        (("stats", "--watch"), "orders", "orders"),
    ],
    ids=["receive", "topic read", "stats"],
)
def test_long_commands_survive_a_restart_of_the_server(
    shell: Shell, words: tuple[str, ...], before: str, after: str
) -> None:
    with Server("valkey", {"appendonly": "yes", "appendfsync": "always"}) as own:

        def put(body: str) -> None:
            with duly.Duly(own.url, namespace=shell.namespace) as app:
                app.queue("orders").send(body)
                app.topic("events").publish(body)

        put("first")
        process = shell.start(*words, DULY_URL=own.url)
        assert process.stdout is not None
        assert process.stderr is not None
        read_until(process.stdout, before)
        own.kill9()
        read_until(process.stderr, f"{own.url} does not answer, retrying for up to 600 s")
        own.start()
        read_until(process.stderr, f"{own.url} answers again")
        put("second")
        read_until(process.stdout, after)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE)

    assert (process.returncode, err) == (0, "")


@pytest.mark.fault
def test_a_stop_during_an_outage_does_not_wait(shell: Shell) -> None:
    with Server("valkey") as own:
        with duly.Duly(own.url, namespace=shell.namespace) as app:
            app.queue("orders").send("first")
        process = shell.start("receive", "orders", "--follow", DULY_URL=own.url)
        assert process.stdout is not None
        assert process.stderr is not None
        read_until(process.stdout, "first")
        own.kill9()
        read_until(process.stderr, "does not answer")

        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE)

    assert process.returncode in (0, 1)  # 1: the ack was under way, and its outcome is unknown
    assert process.returncode == 0 or "ack on queue 'orders' " in err
    assert "Traceback" not in err


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_follow_continues_until_stopped_and_leaves_nothing_leased(
    shell: Shell, app: duly.Duly, how: signal.Signals
) -> None:
    queue = app.queue("q")
    queue.send({"n": 1})

    process = shell.start("receive", "q", "--follow", "--json")
    assert process.stdout is not None
    lines = [process.stdout.readline()]
    queue.send({"n": 2})
    lines.append(process.stdout.readline())
    process.send_signal(how)
    rest, err = process.communicate(timeout=DEADLINE)

    assert [json.loads(line)["body"] for line in lines] == [{"n": 1}, {"n": 2}]
    assert (process.returncode, rest, err) == (0, "", "")
    stats = queue.stats()
    assert stats.leased == 0
    assert stats.acked + stats.ready == 2  # printed and acked, or stopped in between and released


def test_messages_that_a_closed_pipe_did_not_take_are_released(shell: Shell, app: duly.Duly) -> None:
    queue = app.queue("q")
    queue.send_many(["a", "b"])

    for options in ((), ("--json",), ("--raw",)):
        reader, writer = os.pipe()
        os.close(reader)
        process = shell.start("receive", "q", "--limit", "2", *options, stdout=writer)
        os.close(writer)
        _, err = process.communicate(timeout=DEADLINE)
        assert (process.returncode, err) == (1, "")

    stats = queue.stats()
    assert (stats.ready, stats.leased, stats.acked, stats.released) == (2, 0, 0, 6)


def test_messages_printed_by_a_killed_command_are_not_acked(shell: Shell, app: duly.Duly) -> None:
    """Killed between printing and acking: the full pipe blocks the command while it prints."""
    queue = app.queue("q")
    queue.send_many(["x" * 50_000] * 4)
    process = shell.start("receive", "q", "--limit", "4", "--raw")
    assert process.stdout is not None
    assert process.stdout.read(2) == '"x'

    process.kill()
    process.communicate(timeout=DEADLINE)

    stats = queue.stats()
    assert (stats.live, stats.leased, stats.acked) == (4, 4, 0)


def test_nothing_is_received_into_a_closed_standard_output(shell: Shell, app: duly.Duly) -> None:
    queue = app.queue("q")
    queue.send("a")

    process = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *shell.words("receive", "q")],
        env=shell.environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )

    assert process.returncode == 2
    assert process.stderr == "duly: standard output is closed: redirect it, for example to /dev/null\n"
    assert queue.stats().ready == 1
