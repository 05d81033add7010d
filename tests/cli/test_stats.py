"""`duly stats` without a terminal: once, and repeatedly into a pipe."""

import json
import signal

import pytest
import redis

import duly
from tests.cli.shell import DEADLINE, Shell, given_dead


def test_the_table_counts_each_queue_and_group(shell: Shell, app: duly.Duly) -> None:
    nothing = shell.ok("stats").out
    given_dead(app.queue("orders"), "dead")
    app.queue("orders").send_many(range(1200))
    app.queue("quiet").pause()
    app.topic("events").group("archive").create()

    head, *rows = shell.ok("stats").lines
    counted = shell.ok("stats", "orders", "--json").json["queues"]

    assert nothing == "there are no queues yet: `duly send orders hello` creates one\n"
    assert head.split()[:7] == ["QUEUE", "READY", "DELAYED", "LEASED", "PARKED", "DEAD", "OLDEST"]
    assert rows[0].split()[:6] == ["orders", "1,200", "0", "0", "0", "1"]
    assert [row.split()[0] for row in rows] == ["orders", "quiet", "events/archive"]
    assert "quiet (paused)" in rows[1]
    (orders,) = counted
    assert (orders["name"], orders["live"], orders["dead"], orders["sent"]) == ("orders", 1200, 1, 1201)


def test_a_damaged_queue_does_not_hide_others(shell: Shell, app: duly.Duly) -> None:
    app.queue("orders").send("x")
    app.queue("zz").send("x")
    with redis.Redis.from_url(shell.url) as client:
        client.delete(f"{shell.namespace}:{{zz}}:meta")
        client.set(f"{shell.namespace}:{{zz}}:meta", "x")

    shown, as_json = shell.run("stats"), shell.run("stats", "--json")

    assert (shown.status, as_json.status) == (1, 1)
    assert [row.split()[0] for row in shown.lines[1:]] == ["orders"]
    assert [each["name"] for each in as_json.json["queues"]] == ["orders"]
    assert "WRONGTYPE" in shown.err
    assert "Run `duly audit zz` for details" in shown.err


def test_watch_into_a_pipe_prints_a_table_each_time_with_rates(shell: Shell, app: duly.Duly) -> None:
    queue = app.queue("orders")
    queue.send("x")

    process = shell.start("stats", "--watch", "--interval", "100ms", "--json")
    assert process.stdout is not None
    looks = [json.loads(process.stdout.readline())]
    queue.send_many(range(50))
    while looks[-1]["queues"][0]["sent"] < 51:
        looks.append(json.loads(process.stdout.readline()))
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=DEADLINE)

    assert process.returncode == 0
    assert looks[0]["queues"][0]["sent_per_second"] == 0
    assert looks[-1]["queues"][0]["sent_per_second"] > 0
    assert looks[-1]["at"].endswith("Z")


def test_a_queue_that_is_deleted_while_it_is_watched_stays_in_view(shell: Shell, app: duly.Duly) -> None:
    app.queue("van").send("x")
    app.topic("events").group("archive").create()
    app.topic("events").publish("x")

    with shell.start("stats", "van", "events/archive", "--watch", "--interval", "100ms", "--json") as process:
        assert process.stdout is not None
        live = [each["live"] for each in json.loads(process.stdout.readline())["queues"]]
        app.queue("van").delete()
        app.topic("events").delete()
        while any(each["live"] for each in json.loads(process.stdout.readline())["queues"]):
            pass
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE)

    assert live == [1, 1]
    assert (process.returncode, err) == (0, "")


def test_watch_into_a_pipe_ends_with_its_reader(shell: Shell, app: duly.Duly) -> None:
    app.queue("orders").send("x")

    process = shell.start("stats", "orders", "--watch", "--interval", "100ms")
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(4)]
    process.stdout.close()
    assert process.stderr is not None
    err = process.stderr.read()
    process.wait(timeout=DEADLINE)
    process.stderr.close()

    assert {"LATE", "IN/S", "OUT/S"} <= set(lines[1].split())
    assert lines[2].split()[0] == "orders"
    assert lines[3].startswith("1 in all")
    assert err == ""


def test_stats_accounts_for_every_sent_message(shell: Shell, app: duly.Duly) -> None:
    queue = app.queue("orders", done=duly.Keep(count=10), max_length=3, on_full="drop_oldest")
    for _ in range(2):
        queue.send("finished")
        (delivery,) = queue.receive(1, 0)
        delivery.ack()
    queue.cancel(queue.send("cancelled"))
    queue.send_many(["dropped", 1, 2, 3])
    app.queue("plain").send("waits", delay=60)

    head, orders, plain = (line.split() for line in shell.ok("stats").lines)

    assert head[7:] == ["SENT", "ACKED", "DONE", "CANCELLED", "DROPPED", "SIZE"]
    row = dict(zip(head, orders, strict=False))
    assert (row["SENT"], row["ACKED"], row["DONE"], row["CANCELLED"], row["DROPPED"]) == ("7", "2", "2", "1", "1")
    kept = sum(int(row[name]) for name in ("READY", "DELAYED", "LEASED", "PARKED", "DEAD"))
    assert kept + 2 + 1 + 1 == 7
    assert dict(zip(head, plain, strict=False))["CANCELLED"] == "0"


def test_since_shows_the_history_of_each_queue(shell: Shell, app: duly.Duly) -> None:
    app.queue("orders").send_many(range(1200))
    app.topic("events").group("archive").create()

    shown = shell.ok("stats", "--since", "10m").lines
    (orders,) = shell.ok("stats", "orders", "--since", "1h", "--json").json["queues"]

    assert shown[0].strip() == "orders"
    assert shown[1].split()[:3] == ["FROM", "SENT", "DELIVERED"]
    assert sum(int(line.split()[2].replace(",", "")) for line in shown[2:-2]) == 1200
    assert shown[-1] == "events/archive: no history yet"
    assert sum(point["sent"] for point in orders["history"]) == 1200
    assert len(orders["bounds"]) + 1 == len(orders["history"][0]["lateness"]["counts"])


def test_since_is_a_minute_at_least_and_not_for_watch(shell: Shell) -> None:
    too_short, with_watch = shell.run("stats", "--since", "5s"), shell.run("stats", "--since", "1h", "--watch")

    assert (too_short.status, with_watch.status) == (2, 2)
    assert "--since: '5s' must be a minute at least and a week at most" in too_short.err
    assert "choose one of them" in with_watch.err


def test_ahead_draws_what_becomes_due(shell: Shell, app: duly.Duly) -> None:
    """new-14."""
    app.queue("orders").send_many([duly.Send(n, delay=1800) for n in range(1, 4)] + [duly.Send(4, delay=10)])
    app.queue("idle").send("now")

    shown = shell.ok("stats", "--ahead", "1h").lines
    (orders,) = shell.ok("stats", "orders", "--ahead", "1h", "--json").json["queues"]

    assert "idle: nothing becomes due" in shown
    assert "orders: 4 become due" in shown
    assert "orders: 1 becomes due" in shell.ok("stats", "orders", "--ahead", "1m").lines
    assert max(line.count("█") + line.count("#") for line in shown) == 40
    assert orders["name"] == "orders"
    assert sorted(each["count"] for each in orders["forecast"] if each["count"]) == [1, 3]
    assert set(orders["forecast"][0]) == {"start", "end", "count"}


@pytest.mark.parametrize("options", [["--ahead"], ["--ahead", "--json"], ["--json", "--ahead"]], ids=" ".join)
def test_ahead_is_a_day_unless_it_has_a_value(shell: Shell, app: duly.Duly, options: list[str]) -> None:
    app.queue("orders").send_many([duly.Send(1, delay=80_000), duly.Send(2, delay=90_000)])

    shown = shell.ok("stats", "orders", *options)

    if "--json" not in options:
        assert "orders: 1 becomes due" in shown.lines
        return
    (orders,) = shown.json["queues"]
    assert [each["count"] for each in orders["forecast"] if each["count"]] == [1]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--ahead", "orders"], "--ahead: 'orders' must be a duration"),
        (["--ahead", "1d", "--since", "1h"], "choose one of them"),
        (["--ahead", "1d", "--watch"], "choose one of them"),
        (["--ahead", "11y"], "--ahead"),
        (["--ahead", "0s"], "--ahead: '0s' must be a duration from a second to ten years"),
    ],
)
def test_a_wrong_ahead_is_refused(shell: Shell, options: list[str], error: str) -> None:
    done = shell.run("stats", *options)

    assert (done.status, error in done.err) == (2, True)
