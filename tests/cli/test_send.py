"""`duly send`: messages and output."""

import os
import select
import signal
import subprocess
import time
from datetime import UTC, datetime, timedelta

import pytest
import redis

import duly
from tests.cli.shell import DEADLINE, Shell
from tests.conftest import StartedServer
from tests.fault.proxy import SCRIPT_COMMANDS, Command, Cut, Policy, Proxy, Stage
from tests.warm import WarmPopen


def only(queue: duly.Queue, state: str) -> duly.Message:
    (message,) = queue.list(state)  # type: ignore[arg-type]
    return message


def test_every_option_of_a_message_arrives(shell: Shell, app: duly.Duly) -> None:
    queue = app.queue("orders")

    done = shell.ok(
        *("send", "orders", '{"order": 17}', "--delay", "1h30m", "--key", "c-1", "--priority", "7", "--ttl", "10m"),
        *("--header", "trace=a=b", "--header", "from=shop", "--id", "order-17"),
    )

    message = only(queue, "delayed")
    assert done.out == "order-17\n"
    assert message.id == "order-17"
    assert message.body == {"order": 17}
    assert (message.key, message.priority) == ("c-1", 7)
    assert message.headers == {"trace": "a=b", "from": "shop"}
    assert message.due_at is not None
    assert message.sent_at is not None
    assert message.due_at - message.sent_at == timedelta(hours=1, minutes=30)


def test_a_time_and_a_dedup_value_are_sent(shell: Shell, app: duly.Duly) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=2)
    options = ("--at", at.isoformat(), "--dedup", "daily", "--dedup-for", "1d", "--json")

    first = shell.ok("send", "reports", "first", *options).json
    second = shell.ok("send", "reports", "second", *options, "--replace").json

    message = only(app.queue("reports"), "delayed")
    assert first == {"queue": "reports", "id": message.id}
    assert second["id"] == message.id
    assert message.body == "second"
    assert message.due_at == at


@pytest.mark.parametrize(
    ("typed", "options", "body"),
    [
        ("hello", (), "hello"),
        ("17", (), 17),
        ("17", ("--text",), "17"),
        ("null", (), None),
        ("@@joe", (), "@joe"),
        ('{"a":', ("--text",), '{"a":'),
        ("raw", ("--bytes",), b"raw"),
        ("@body.json", (), {"from": "file"}),
        ("-", (), {"from": "stdin"}),
        (None, (), {"from": "stdin"}),
        ("", (), ""),
    ],
)
def test_a_body_is_json_or_text_from_the_argument_a_file_or_standard_input(
    shell: Shell, app: duly.Duly, typed: str | None, options: tuple[str, ...], body: object
) -> None:
    (shell.place / "body.json").write_text('{"from": "file"}')

    given = () if typed is None else (typed,)
    shell.ok("send", "q", *given, *options, stdin='{"from": "stdin"}')

    (delivery,) = app.queue("q").receive(1, 0)
    assert delivery.body == body
    delivery.ack()


def test_lines_are_messages_and_a_failure_prints_how_many_were_sent(shell: Shell, app: duly.Duly) -> None:
    queue = app.queue("q")
    good = "".join(f'{{"n": {n}}}\r\n\n' for n in range(1500))
    (shell.place / "bodies").write_text(good)

    done = shell.ok("send", "q", "@bodies", "--lines", "--json").json
    failed = shell.run("send", "q", "--lines", stdin=good + '{"n": \n')

    assert (done["queue"], done["count"], len(set(done["ids"]))) == ("q", 1500, 1500)
    assert failed.status == 2
    assert "duly: line 3001: the body looks like JSON but is not" in failed.err
    assert "1,000 were sent to q before it failed: all up to line 1999\n" in failed.err
    assert queue.stats().sent == 2500
    assert [each.body for each in queue.receive(2, 0)] == [{"n": 0}, {"n": 1}]


def test_slow_lines_are_sent_as_they_arrive(shell: Shell, app: duly.Duly) -> None:
    queue = app.queue("q")
    words = shell.words("send", "q", "--lines")
    with WarmPopen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=shell.environment(), cwd=shell.place, text=True
    ) as process:
        assert process.stdin is not None
        process.stdin.write("first\nre")
        process.stdin.flush()
        (first,) = queue.receive(1, DEADLINE)
        out, _ = process.communicate("st\nlast", timeout=DEADLINE)

    assert first.body == "first"
    assert [each.body for each in queue.list("ready")] == ["rest", "last"]
    assert (process.returncode, out) == (0, "3 sent to q\n")


@pytest.mark.parametrize(
    ("words", "bodies"),
    [
        ("send q", ["first\nhalf of it"]),
        ("send q --lines", ["first", "half of it"]),
        ("topic publish events", ["first\nhalf of it"]),
    ],
)
def test_a_non_blocking_pipe_is_read_to_its_end(shell: Shell, app: duly.Duly, words: str, bodies: list[str]) -> None:
    """Programs with an event loop pass on non-blocking pipes: no data yet is not the end."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.write(writing, b"first\nhalf of ")
    with WarmPopen(shell.words(*words.split()), stdin=reading, env=shell.environment()) as process:
        deadline = time.monotonic() + DEADLINE
        while select.select([reading], [], [], 0)[0]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.write(writing, b"it")
        os.close(writing)
        status = process.wait(DEADLINE)
    os.close(reading)

    found = app.topic("events").read() if words.startswith("topic") else app.queue("q").list("ready")
    assert (status, [each.body for each in found]) == (0, bodies)


def test_a_terminal_that_is_closed_while_lines_are_read_prints_the_progress(shell: Shell, app: duly.Duly) -> None:
    with WarmPopen(
        shell.words("send", "q", "--lines"),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=shell.environment(),
        text=True,
    ) as process:
        assert process.stdin is not None
        process.stdin.write("\n\nfirst\n")
        process.stdin.flush()
        app.queue("q").receive(1, DEADLINE)
        process.send_signal(signal.SIGHUP)
        process.wait(DEADLINE)
        _, err = process.communicate()

    assert process.returncode == -signal.SIGHUP
    assert err == "duly: 1 were sent to q before it was stopped: all up to line 3\n"


def test_an_unconfirmed_durable_send_prints_the_stored_ids(shell: Shell, app: duly.Duly) -> None:
    process = shell.start("send", "q", "x", "--durable", "1")  # both wait for a replica at the same time
    many = shell.run("send", "many", "--lines", "--durable", "1", stdin="1\n2\n")
    out, err = process.communicate(timeout=DEADLINE)

    assert process.returncode == many.status == 1
    assert out == f"{only(app.queue('q'), 'ready').id}\n"
    assert "1 message(s) are stored in queue 'q' but not confirmed as durable" in err
    assert "2 were sent to many before it failed: all up to line 2\n" in many.err
    assert app.queue("many").stats().ready == 2


class LoseSends(Policy):
    """Drops each reply to a script of a connection except the first, which reads the queue's counters."""

    def choose(self, command: Command) -> Cut | None:
        return Cut(Stage.EXECUTED) if self.seen > 1 else None


def test_the_id_of_a_send_with_unknown_result_is_printed(shell: Shell, app: duly.Duly, server: StartedServer) -> None:
    with Proxy(server("valkey").port, LoseSends(only=SCRIPT_COMMANDS)) as proxy:
        failed = shell.run("send", "q", "x", DULY_URL=proxy.url)
    id_ = only(app.queue("q"), "ready").id

    again = shell.ok("send", "q", "x", "--id", id_).out

    assert (failed.status, failed.out) == (1, "")
    assert f"duly: unknown whether {id_} is stored: `duly show q {id_}` shows it" in failed.err
    assert again == f"{id_}\n"
    assert app.queue("q").stats().ready == 1


def test_a_new_queue_with_a_similar_name_is_noted_once(shell: Shell, app: duly.Duly) -> None:
    shell.ok("send", "mails", "first of all")

    slips = [shell.run("send", "mials", "x"), shell.run("send", "mailss", "-", "--lines", stdin="a\nb\n")]

    assert [(each.status, each.err) for each in slips] == [
        (0, "duly: queue 'mials' is new. Did you mean 'mails'?\n"),
        (0, "duly: queue 'mailss' is new. Did you mean 'mails' or 'mials'?\n"),
    ]
    shell.ok("send", "mials", "so it was meant")
    shell.ok("send", "invoices", "nothing is near")
    assert app.queue("mials").stats().ready == 2


def test_a_producer_role_sends_without_a_check_of_names(shell: Shell, app: duly.Duly) -> None:
    rules = shell.ok("acl", "--role", "producer", "--json").json["rules"]
    app.queue("mails").send("other")
    user = f"joe-{shell.namespace}"
    with redis.Redis.from_url(shell.url) as admin:
        admin.execute_command("ACL", "SETUSER", user, "on", ">x", *rules)
        try:
            shell.ok("send", "mials", "x", "--url", shell.url.replace("://", f"://{user}:x@"))
        finally:
            admin.execute_command("ACL", "DELUSER", user)

    assert app.queue("mials").stats().ready == 1


def test_spread_messages_are_due_within_that_time(shell: Shell, app: duly.Duly) -> None:
    """new-14."""
    shell.ok("send", "orders", "--lines", "--delay", "1h", "--spread", "1h", stdin="\n".join("abcdefgh"))

    due = [message.due_at for message in app.queue("orders").list("delayed") if message.due_at]

    assert len(set(due)) == 8
    assert 0 <= (max(due) - min(due)).total_seconds() <= 3600
    assert min(due) > datetime.now(UTC) + timedelta(seconds=3500)
