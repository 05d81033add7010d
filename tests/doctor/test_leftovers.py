"""Keys without an owner: each kind is found separately, and its fix loses no message."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import redis

import duly
from duly.doctor import Finding, examine
from duly.doctor.client import Client, connected
from duly.doctor.facts import Keyspace
from duly.doctor.keyspace import examine_keys
from tests.binaries import Kind
from tests.doctor.fixes import run
from tests.servers import Server

pytestmark = pytest.mark.fault

Place = tuple[duly.Duly, redis.Redis, str]


@pytest.fixture
def place(kind: Kind) -> Iterator[Place]:
    """Yield an app on its own server, and a plain client."""
    with Server(kind) as server, duly.Duly(server.url) as app, redis.Redis.from_url(server.url) as client:
        yield app, client, server.url


def found(place: Place, name: str = "orphans") -> Finding:
    return examine(place[0]).finding(name)


def check_fixed(place: Place, finding: Finding) -> None:
    run(finding, place[2])
    assert found(place, finding.name).verdict == "ok"


def test_a_busy_namespace_has_no_orphans(place: Place) -> None:
    app = place[0]
    queue = app.queue("orders", done=duly.Keep(count=10))
    for number in range(9):
        queue.send(number, key="k", priority=number, dedup=str(number), ttl=60)
    queue.send("later", delay=60)
    (first,) = queue.receive()
    first.ack()
    (second,) = queue.receive()
    second.reject("no")
    app.schedule("nightly", "orders", "x", every=3600)
    events = app.topic("events")
    events.publish("now")
    events.publish("later", delay=60)
    (entry,) = events.group("archive").receive()
    entry.reject("no")
    with app.lock("stock:{42}"):
        finding = found(place)

    assert finding.verdict == "ok", finding
    assert found(place, "expiry").verdict == "ok"


def test_keys_with_unknown_names_are_found(place: Place) -> None:
    place[0].queue("orders").send("x")
    place[1].set("duly:{orders}:of old \xff", "1")
    place[1].set("duly:{~ghosts}:list", "1")
    place[1].set("duly:mine", "1")
    place[1].set("other:{orders}:x", "1")

    finding = found(place)

    assert finding.verdict == "warn"
    assert len(finding.commands) == 2
    check_fixed(place, finding)
    assert place[1].exists("duly:mine", "other:{orders}:x") == 2
    assert place[0].queue("orders").stats().ready == 1


PLANTED = (
    "duly:{q;touch x;}:msgs",
    "duly:{q$(touch x)}:msgs",
    "duly:{q\nFLUSHALL\n#}:msgs",
    "duly:{@t;touch x;}:meta",
    "duly:{@t}:group:g`touch x`:meta",
)


def test_planted_names_appear_in_commands_only_quoted(place: Place) -> None:
    app, client, _ = place
    app.queue("orders").send("x")
    for key in PLANTED:
        client.hset(key, "a", "b")

    finding = found(place)

    assert [line for line in finding.fix.splitlines() if line.startswith("duly ")] == []
    assert all(line.startswith(('DEL "duly:{', "DEL duly:{")) for line in finding.commands), finding.commands
    check_fixed(place, finding)
    assert client.exists(*PLANTED) == 0
    assert app.queue("orders").stats().ready == 1


def test_a_planted_position_is_in_no_command(place: Place) -> None:
    app, client, _ = place
    app.topic("events").group("archive").create()
    client.hset("duly:{@events}:group:archive:meta", "fed", "0\nFLUSHALL")
    client.xgroup_destroy("duly:{@events}:stream", "archive")

    finding = found(place)

    assert finding.verdict == "warn"
    assert "FLUSHALL" not in finding.fix


def test_a_queue_that_has_lost_its_meta_is_found_again_with_its_messages(place: Place) -> None:
    app, client, _ = place
    queue = app.queue("orders")
    queue.send_many(range(4))
    queue.send(4, priority=7)
    client.delete("duly:{orders}:meta")
    assert app.queues() == []

    finding = found(place)

    assert "has lost its meta" in finding.found
    assert "duly audit orders --repair" in finding.fix
    check_fixed(place, finding)
    assert app.queues() == ["orders"]
    queue.audit(repair=True)
    assert sorted(each.body for each in queue.receive(10, wait=0)) == [0, 1, 2, 3, 4]


def test_the_wake_token_of_a_deleted_queue_is_found(place: Place) -> None:
    place[1].rpush("duly:{gone}:wake", "1")

    finding = found(place)

    assert "a wake token of a deleted queue" in finding.found
    check_fixed(place, finding)


@pytest.mark.parametrize("lost", ["stream", "group"])
def test_a_group_that_its_stream_lost_continues_at_its_position(place: Place, lost: str) -> None:
    app, client, _ = place
    events = app.topic("events")
    events.publish("first")
    group = events.group("archive")
    (delivery,) = group.receive(wait=0)
    delivery.retry(delay=0)
    if lost == "stream":
        client.delete(events.stream)
    else:
        client.xgroup_destroy(events.stream, "archive")

    finding = found(place)

    assert ("gone" if lost == "stream" else "does not know") in finding.found
    assert "duly delete events/archive --yes" in finding.fix
    check_fixed(place, finding)
    assert [each.name for each in events.groups()] == ["archive"]
    (again,) = group.receive(wait=0)
    assert again.body == "first"
    again.ack()
    assert group.receive(wait=0) == []  # it continues at its position, not from the beginning


@pytest.mark.parametrize(("position", "arrives"), [("$", ["new"]), ("0", ["old", "new"])], ids=["end", "beginning"])
def test_the_operator_chooses_the_position_of_a_group_that_never_read(
    place: Place, position: str, arrives: list[str]
) -> None:
    app, client, _ = place
    events = app.topic("events")
    events.publish("old")
    group = events.group("archive", start="new")
    group.create()
    group.pause()
    client.xgroup_destroy(events.stream, "archive")

    finding = found(place)

    assert "does not know" in finding.found
    assert "is unknown" in finding.fix
    assert finding.commands == ()  # none that a program could run without a choice
    (choice,) = re.findall(rf"^# (XGROUP CREATE .* {re.escape(position)} MKSTREAM)$", finding.fix, re.MULTILINE)
    client.execute_command(*shlex.split(choice))  # type: ignore[no-untyped-call]
    events.publish("new")
    group.resume()
    assert [each.body for each in group.receive(10, wait=0)] == arrives
    assert found(place).verdict == "ok"


def test_a_group_that_is_recreated_during_the_scan_is_not_an_orphan(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, _, _ = place
    group = app.topic("events").group("archive")
    group.create()
    group.pause()
    ask = Client.ask

    def ask_with_changes(self: Client, *command: Any) -> Any:
        if command[0] not in ("XINFO", "EVAL"):
            return ask(self, *command)
        group.delete()
        reply = ask(self, *command)
        group.create()
        group.pause()
        return reply

    monkeypatch.setattr(Client, "ask", ask_with_changes)
    with connected(app._address) as wire:
        keyspace = examine_keys(Client(wire, "duly"), "duly", 0)

    assert isinstance(keyspace, Keyspace)
    assert keyspace.orphans == ()


def test_a_queue_that_is_recreated_during_the_scan_is_not_an_orphan(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, client, _ = place
    app.queue("orders").send("x")
    client.delete("duly:{orders}:meta")
    ask = Client.ask
    checked: list[tuple[Any, ...]] = []

    def ask_with_changes(self: Client, *command: Any) -> Any:
        if command[0] != "EXISTS" or checked:
            return ask(self, *command)
        checked.append(command)
        app.queue("orders").delete()
        reply = ask(self, *command)
        app.queue("orders").send("x")
        return reply

    monkeypatch.setattr(Client, "ask", ask_with_changes)
    with connected(app._address) as wire:
        keyspace = examine_keys(Client(wire, "duly"), "duly", 0)

    assert isinstance(keyspace, Keyspace)
    assert keyspace.orphans == ()


def test_a_record_of_a_call_without_an_expiry_is_found(place: Place) -> None:
    app, client, _ = place
    app.queue("orders").send("x")
    (record,) = client.scan_iter("duly:{orders}:call:*")
    client.persist(record)

    finding = found(place, "expiry")

    assert finding.verdict == "warn"
    check_fixed(place, finding)
    assert 0 < client.pttl(record) <= 3_600_000


@pytest.mark.parametrize(
    "key",
    [
        "duly:{orders}:msgs",
        "duly:{orders}:waiting0",
        "duly:{@events}:stream",
        "duly:{@events}:msgs",
        "duly:{~schedules}:schedules",
    ],
)
def test_messages_with_an_expiry_are_found(place: Place, key: str) -> None:
    app, client, _ = place
    app.queue("orders").send("x")
    app.topic("events").publish("x")
    app.topic("events").publish("later", delay=60)
    app.schedule("nightly", "orders", "x", every=3600)
    assert client.expire(key, 3000)

    finding = found(place, "expiry")

    assert (finding.verdict, key in finding.found) == ("bad", True)
    check_fixed(place, finding)
    assert client.ttl(key) == -1


def test_workers_that_died_long_ago_are_found(place: Place) -> None:
    client = place[1]
    seconds, micros = client.time()
    now = seconds * 1_000_000 + micros
    client.zadd("duly:{~workers}:beats", {"host:1:aa": now - 3 * 86_400_000_000, "host:2:bb": now})
    client.hset("duly:{~workers}:workers", mapping={"host:1:aa": "{}", "host:2:bb": "{}", "host:3:cc": "{}"})

    finding = found(place, "workers")

    assert "host:1:aa, silent for 72 h" in finding.found
    assert "host:3:cc, never sent a heartbeat" in finding.found
    assert "host:2:bb" not in finding.found
    check_fixed(place, finding)
    assert client.hkeys("duly:{~workers}:workers") == [b"host:2:bb"]


def test_a_worker_that_starts_or_stops_during_the_scan_is_not_silent(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, client, _ = place
    beats, rows = "duly:{~workers}:beats", "duly:{~workers}:workers"
    seconds, _ = client.time()
    client.zadd(beats, {"host:1:aa": seconds * 1_000_000})
    client.hset(rows, "host:1:aa", "{}")
    ask = Client.ask

    def ask_with_changes(self: Client, *command: Any) -> Any:
        if command[0] == "HSCAN":
            client.zadd(beats, {"host:2:bb": seconds * 1_000_000, "host:3:cc": seconds * 1_000_000})
            client.hset(rows, mapping={"host:2:bb": "{}", "host:3:cc": "{}"})
        reply = ask(self, *command)
        if command[0] == "HSCAN":
            client.zrem(beats, "host:3:cc")
            client.hdel(rows, "host:3:cc")
        return reply

    monkeypatch.setattr(Client, "ask", ask_with_changes)
    with connected(app._address) as wire:
        keyspace = examine_keys(Client(wire, "duly"), "duly", seconds * 1_000_000)

    assert isinstance(keyspace, Keyspace)
    assert [each.name for each in keyspace.silent] == [b"host:1:aa"]


def test_a_group_whose_topic_is_recreated_after_the_scan_is_not_an_orphan(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, client, _ = place
    events = app.topic("events")
    group = events.group("archive")
    group.create()
    group.pause()
    client.delete(events.stream)
    monkeypatch.setattr("duly.doctor.keyspace.time.sleep", lambda _: group.create())

    with connected(app._address) as wire:
        keyspace = examine_keys(Client(wire, "duly"), "duly", 0)

    assert isinstance(keyspace, Keyspace)
    assert keyspace.orphans == ()


def test_the_scan_is_limited_and_reports_it(place: Place) -> None:
    app, client, _ = place
    for number in range(30):
        app.queue(f"q{number}").send("x")
    client.delete("duly:{q0}:meta")  # not reported after an incomplete scan: its meta might be among the other keys

    with connected(app._address) as wire:
        keyspace = examine_keys(Client(wire, "duly"), "duly", 0, most=10)

    assert isinstance(keyspace, Keyspace)
    assert (keyspace.examined, keyspace.is_complete, keyspace.orphans) == (10, False, ())


def test_a_scan_that_runs_out_of_time_reports_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    app, client, _ = place
    app.queue("orders").send("x")
    client.set("duly:{orders}:unknown", "1")  # recognized by its name alone, without another command
    monkeypatch.setattr("duly.doctor.scan.MOST_SECONDS", -1.0)

    with connected(app._address) as wire:
        keyspace = examine_keys(Client(wire, "duly"), "duly", 0)

    assert isinstance(keyspace, Keyspace)
    assert (keyspace.is_complete, keyspace.big, keyspace.clocks) == (False, (), ())
    assert [each.key for each in keyspace.orphans] == [b"duly:{orders}:unknown"]
