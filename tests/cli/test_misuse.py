"""Misuse exits with status 2 and a helpful sentence, failures with 1. There is never a traceback."""

import socket
import time

import pytest

import duly
from tests.cli.conftest import Call
from tests.cli.shell import DEADLINE, Shell

MEMORY = "memory:// works within one process, and ends with this command: give a --url, or leave it out"

MISUSES = [
    ("send bad/name x", "'bad/name' is not a queue name"),
    ("send q", "there is no body"),
    ("send q x --delay soon", "--delay: 'soon' is not a duration. Write 500ms, 30s"),
    ("send q x --at tomorrow", "--at: 'tomorrow' is not a time. Write it like 2026-12-01T09:00+08:00"),
    ("send q x --at 2026-12-01T09:00", "has no zone"),
    ("send q x --at 9999-12-31T00:00Z", "duly: --at: '9999-12-31T00:00Z' is more than ten years ahead"),
    ("send q x --at 20261201", "--at: '20261201' is not a time: seconds since the epoch have 9 to 11 digits"),
    ("send q x --at 1796000000000", "have 9 to 11 digits. It looks like milliseconds: divide it by 1000"),
    ("send q x --delay 1s --at 1796000000", "--delay and --at exclude each other: give one"),
    ("send q x --ttl never", "--ttl: 'never' is not a duration"),
    ("send q x --dedup v --dedup-for long", "--dedup-for: 'long' is not a duration"),
    ("send q x --replace", "replace"),
    ("send q x --header plain", "--header: 'plain' is not a header. Write NAME=VALUE"),
    ("send q x --priority 10", "priority must be from 0 to 9, not 10"),
    ("send q x --priority high", "--priority"),
    ("send q x --durable soon", "durable must be"),
    (f"send q x --durable {'9' * 5000}", "durable must be"),
    ("send q x --text --bytes", "--text and --bytes: a body is one or the other"),
    ("send q @missing", "the body cannot be read from 'missing'"),
    ("send q @/proc/self/mem", "the body cannot be read from '/proc/self/mem': Input/output error"),
    ("send q @/proc/self/mem --lines", "the body cannot be read from '/proc/self/mem': Input/output error"),
    ("send q x --lines", "--lines reads a file (@file) or standard input (-)"),
    ("send q - --lines --id one", "--lines sends many messages: --id and --dedup are for one"),
    ("send q x --namespace no/name", "'no/name' is not a namespace"),
    ("receive q --release --follow", "--release and --follow"),
    ("receive q --raw --json", "--raw and --json"),
    ("receive q --wait long", "--wait: 'long' is not a duration"),
    (
        "list q readi",
        "duly: STATE must be ready, delayed, leased, parked, dead or done, not 'readi'. Did you mean 'ready'",
    ),
    ("acl", "duly: acl needs a --role: producer, consumer, observer or admin"),
    (
        "acl --role adm",
        "duly: --role must be producer, consumer, observer or admin, not 'adm'. Did you mean 'admin'?",
    ),
    (
        "schedule add s q x --every 1m --catch-up al",
        "--catch-up must be one, skip or all, not 'al'. Did you mean 'all'?",
    ),
    ("list known ready --limit 0", "limit must be from 1 to 1000, not 0"),
    ("list known ready --limit 1001", "limit must be from 1 to 1000, not 1001"),
    ("stats --watch --interval 1ms", "--interval: '1ms' is too short, the minimum is 100ms"),
    ("stats --watch --interval 1e10", "--interval: '1e10' is more than ten years"),
    ("reschedule known id", "reschedule needs one of --delay and --at"),
    ("reschedule known id --delay 1s --at 1", "reschedule needs one of --delay and --at"),
    ("purge known", "Confirm with --yes: there is no terminal to ask on"),
    ("purge known --state gone", "duly: --state must be ready, delayed, leased, parked, dead or done, not 'gone'."),
    ("dead ls known --since yesterday", "--since: 'yesterday' is not a time"),
    ("dead redrive known --until later", "--until: 'later' is not a time"),
    ("dead redrive known --rate fast", "rate"),
    ("dead redrive known --limit 0", "limit"),
    ("schedule add s q x", "a schedule needs one of --cron and --every"),
    ("schedule add s q x --cron often", "cron"),
    ("schedule add s q x --every 1m --tz Asia/Shanghai", "is for cron="),
    ("schedule add s q x --cron @daily --tz Mars/Olympus", "Mars/Olympus"),
    ("schedule add s q x --every 1m --text --bytes", "one or the other"),
    ("topic publish t x --text --bytes", "one or the other"),
    ("topic seek talk team 2036-01-01T09:00+08:00", "to=2036-01-01T09:00:00+08:00 is in the future"),
    ("topic seek talk team nowhere", "POSITION: 'nowhere' is not a time"),
    (
        "topic seek talk team 20261201",
        "POSITION: '20261201' is not a time: seconds since the epoch have 9 to 11 digits",
    ),
    ("topic read talk --after nan", "--after: 'nan' is not a time"),
    ("send q x --url memory://", MEMORY),
    ("stats --url memory://", MEMORY),
    ("topic publish t x --url memory://", MEMORY),
    ("schedule add s q x --every 1m --url memory://", MEMORY),
    ("bench --url memory://", MEMORY),
    ("stats --url http://localhost", "http:// is not known: use one of redis"),
    ("stats --url redis://localhost:port", "cannot be read"),
    ("sned q x", "No such command 'sned'"),
    ("dead list q", "No such command 'list'"),
    ("send q x --dealy 3s", "No such option"),
    ("send", "Missing argument"),
    ("topic seek talk team", "Missing argument 'POSITION'. Example: duly topic seek events archive"),
    ("--url redis://localhost stats", "duly: put --url after the command: duly stats --url ..."),
    ("--namespace x topic ls", "duly: put --namespace after the command: duly topic ls --namespace ..."),
    ("topic --json ls", "duly: put --json after the command: duly topic ls --json ..."),
    ("server --url x status", "No such option: --url"),
    ("--url=redis://localhost stats", "duly: put --url after the command: duly stats --url ..."),
    ("--json stats", "put --json after the command"),
    ("dead --namespace other ls", "duly: put --namespace after the command: duly dead ls --namespace ..."),
]

FAILURES = [
    ("stats ordres", "there is no queue 'ordres'. Did you mean 'orders'? `duly queues` lists all"),
    ("list ordres ready", "Did you mean 'orders'?"),
    ("pause zzz", "there is no queue 'zzz'. `duly queues` lists all"),
    ("delete ordres --yes", "Did you mean 'orders'?"),
    ("audit ordres", "Did you mean 'orders'?"),
    ("stats talk", "'talk' is a topic: name one of its groups, like talk/GROUP (`duly topic groups talk`)"),
    ("receive talk --wait 1s", "'talk' is a topic"),
    ("send talk x", "'talk' is a topic, not a queue: `duly topic publish talk`"),
    ("topic publish orders x", "'orders' is a queue, not a topic: `duly send orders`"),
    ("send talk --lines @/dev/null", "'talk' is a topic, not a queue"),
    ("dead redrive orders --to talk", "'talk' is a topic, not a queue"),
    ("schedule add s talk x --every 1m", "'talk' is a topic, not a queue"),
    ("receive talk/taem --wait 1s", "topic 'talk' has no group 'taem'. Did you mean 'team'? `duly topic groups talk`"),
    ("topic read tlak", "there is no topic 'tlak'. Did you mean 'talk'? `duly topic ls` lists all"),
    ("topic seek talk taem end", "Did you mean 'team'?"),
    ("schedule rm rport", "there is no schedule 'rport'. Did you mean 'report'? `duly schedule ls` lists all"),
    ("schedule pause rport", "Did you mean 'report'?"),
    ("list orders ready --after nothing", "message 'nothing' is not ready in orders any more: start again without it"),
    ("show orders nothing", "queue 'orders' has no message 'nothing'"),
    ("dead show orders nothing", "queue 'orders' has no message 'nothing'"),
    ("reschedule orders nothing --delay 1s", "message 'nothing' of queue 'orders' is not waiting"),
    ("dead redrive orders --id nothing", "0 of 1 redriven"),
]


@pytest.fixture
def known(app: duly.Duly) -> duly.Duly:
    app.queue("orders").send(1)
    app.queue("known").send(1)
    app.topic("talk").group("team").create()
    app.schedule("report", "orders", 1, every=3600)
    return app


def test_each_misuse_is_explained(call: Call, known: duly.Duly) -> None:
    for line, words in MISUSES:
        done = call(*line.split())
        assert (done.status, done.out) == (2, ""), line
        assert words in done.err, line
    assert known.queues() == ["known", "orders"]
    assert [each.name for each in known.schedules()] == ["report"]


def test_each_failure_names_the_missing_thing_and_similar_names(call: Call, known: duly.Duly) -> None:
    for line, words in FAILURES:
        done = call(*line.split())
        assert (done.status, done.out) == (1, ""), line
        assert words in done.err, line
    assert known.queues() == ["known", "orders"]


def test_an_unreachable_server_is_reported_at_once_and_fails_soon(shell: Shell) -> None:
    by_tls = shell.start("queues", "--url", "rediss://127.0.0.1:1/0")  # both wait at the same time
    began = time.monotonic()
    done = shell.run("stats", "--url", "redis://:s3cr3t@127.0.0.1:1/0")
    took = time.monotonic() - began
    _, said_of_tls = by_tls.communicate(timeout=DEADLINE)

    assert done.status == 1
    assert "redis://127.0.0.1:1/0 does not answer, retrying for up to 5 s" in done.err
    assert "listing the queues was not carried out. Check that the server runs and can be reached\n" in done.err
    assert "Traceback" not in done.err
    assert "s3cr3t" not in done.err
    assert took < 20
    assert by_tls.returncode == 1
    assert said_of_tls.endswith("can be reached, and that it speaks TLS on this port (redis:// is without)\n")


def test_a_wrong_password_is_explained(shell: Shell) -> None:
    done = shell.run("stats", "--url", shell.url.replace("://", "://joe:wr0ng@"))

    assert done.status == 1
    assert done.err.endswith("Check user and password in the URL, redis://USER:PASSWORD@host\n")


def test_a_password_is_never_shown(shell: Shell) -> None:
    address = shell.url.removeprefix("redis://")

    for url in (f"redis://:s3cr3t@{address}", f"redis://joe:s3cr3t@{address}?x=1", "redis://:s3cr3t@[::1/0"):
        done = shell.run("stats", "--url", url, "--json")
        assert done.status in (1, 2)
        assert done.err.startswith("duly: ")
        assert "s3cr3t" not in done.out + done.err
        assert "Traceback" not in done.err


def test_a_server_of_another_protocol_is_refused(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = shell.start("stats", "--url", f"redis://127.0.0.1:{listener.getsockname()[1]}/0")
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            listener.close()
            _, err = process.communicate(timeout=DEADLINE)

    assert process.returncode == 1
    assert "Traceback" not in err
    assert "duly: " in err


def test_a_new_embedded_server_is_named_once_and_kept_out_of_git(shell: Shell) -> None:
    first = shell.run("send", "orders", "hello", "--json", DULY_URL="")
    again = shell.run("stats", "--json", DULY_URL="")

    home = shell.place / ".duly"
    assert (first.status, first.err) == (0, f"duly: new embedded server in {home} (no --url, no DULY_URL)\n")
    assert first.json["queue"] == "orders"
    assert (again.status, again.err) == (0, "")
    assert (home / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize("line", ["stats", "queues", "doctor", "receive orders", "topic ls", "schedule ls", "audit"])
def test_read_only_commands_start_no_embedded_server(shell: Shell, line: str) -> None:
    here = shell.run(*line.split(), DULY_URL="")
    named = shell.run(*line.split(), "--url", f"embedded://{shell.place}/typo")
    (shell.place / "empty").mkdir()
    empty = shell.run(*line.split(), "--url", f"embedded://{shell.place}/empty")
    assert (empty.status, list((shell.place / "empty").iterdir())) == (1, [])
    (shell.place / "empty").rmdir()

    assert (here.status, here.out, named.status, named.out) == (1, "", 1, "")
    assert here.err == (
        f"duly: there is no embedded server in {shell.place}/.duly yet: `duly send` starts one. "
        "To use another server, set --url or DULY_URL\n"
    )
    assert f"no embedded server in {shell.place}/typo yet" in named.err
    assert list(shell.place.iterdir()) == []


@pytest.mark.parametrize(
    "line", ["topic publish events x", "schedule add s q x --every 1h", "receive orders --wait 10ms"]
)
def test_commands_that_may_be_the_first_start_the_embedded_server(shell: Shell, line: str) -> None:
    named = shell.run(*line.split(), "--url", f"embedded://{shell.place}/named")
    assert f"duly: new embedded server in {shell.place}/named\n" in named.err
    first = shell.run(*line.split(), DULY_URL="")
    then = shell.run("stats", DULY_URL="")

    assert f"duly: new embedded server in {shell.place}/.duly (no --url, no DULY_URL)\n" in first.err
    assert (first.status, then.status, then.err) == (0, 0, "")


def test_a_directory_that_cannot_be_created_is_explained(shell: Shell) -> None:
    (shell.place / "file").touch()

    done = shell.run("send", "q", "x", DULY_URL="", DULY_HOME="file/home")

    assert done.status == 1
    assert done.err.endswith("Set DULY_HOME to a directory that can be written, or DULY_URL to a server\n")
