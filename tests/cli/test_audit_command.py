"""`duly audit [--repair]`: exit status and output for undamaged, damaged and repaired queues."""

from typing import Final

import pytest
import redis

import duly
from tests.cli.shell import Shell


def test_undamaged_queues_and_groups_pass(shell: Shell, app: duly.Duly) -> None:
    app.queue("orders").send_many([1, 2, 3])
    app.topic("events").group("archive").create()
    app.topic("events").publish(1)

    told = shell.ok("audit").lines
    proved = shell.ok("audit", "orders", "events/archive", "--json").json["audits"]

    assert [line.split()[0] for line in told] == ["QUEUE", "orders", "events", "events/archive"]
    assert all(line.rstrip().endswith("right") for line in told[1:])
    assert [each["queue"] for each in proved] == ["orders", "events/archive"]
    assert all(each["ok"] and each["difference"] == 0 and each["faults"] == [] for each in proved)


def test_damage_is_found_and_repaired(shell: Shell, app: duly.Duly) -> None:
    queue = app.queue("orders")
    ids = queue.send_many(["a", "b"])
    with redis.Redis.from_url(shell.url) as client:
        damaged = [key for key in client.keys(f"{shell.namespace}:*") if client.type(key) == b"zset"]
        for key in damaged:
            client.zrem(key, ids[0])

    found = shell.run("audit", "orders")
    repaired = shell.run("audit", "orders", "--repair", "--json")
    after = shell.ok("audit").lines

    assert found.status == 1
    assert "WRONG" in found.lines[1]
    assert f"orders {ids[0]}: " in found.out
    assert repaired.status == 0, repaired
    assert repaired.json["audits"][0]["repaired"] is True
    assert after[1].rstrip().endswith("right")
    assert sorted(each.body for each in queue.receive(2, 0)) == ["a", "b"]


def test_a_topic_is_audited_by_its_name_or_with_all_others(shell: Shell, app: duly.Duly) -> None:
    app.topic("later").publish("body", delay=60)
    app.queue("events").send(1)
    app.topic("events").publish(1)

    all_told = shell.ok("audit").lines
    of_topic = shell.ok("audit", "later").lines
    of_both = shell.ok("audit", "events", "--json").json["audits"]

    assert [line.split("  ")[0] for line in all_told] == ["QUEUE", "events", "events (topic)", "later (topic)"]
    assert [line.split("  ")[0] for line in of_topic] == ["QUEUE", "later (topic)"]
    assert [(each["queue"], each["kind"], each["ok"]) for each in of_both] == [
        ("events", "queue", True),
        ("events", "topic", True),
    ]


def test_a_lost_delayed_entry_is_found_and_repaired(shell: Shell, app: duly.Duly) -> None:
    """A queue of the same name is not affected."""
    app.queue("events").send(1)
    events = app.topic("events")
    lost, bodiless = events.publish("lost", delay=60), events.publish("bodiless", delay=60)
    with redis.Redis.from_url(shell.url) as client:
        client.zrem(events.stream.replace("stream", "waiting0"), lost)
        client.hdel(events.stream.replace("stream", "msgs"), bodiless)

    found = shell.run("audit", "events")
    repaired = shell.run("audit", "--repair")
    after = shell.ok("audit", "events", "--json").json["audits"]

    assert (found.status, repaired.status) == (1, 0), repaired
    assert [line.split()[-1] for line in found.lines[1:3]] == ["right", "WRONG"]
    assert f"events (topic) {lost}: body without a place" in found.out
    assert f"events (topic) {bodiless}: place without a body" in found.out
    assert [line.split()[-1] for line in repaired.lines[1:3]] == ["right", "repaired"]
    assert [each["stats"]["dead"] for each in after] == [0, 1]
    assert [each.id for each in events.delayed()] == [lost]


def test_groups_of_other_programs_do_not_stop_an_audit(shell: Shell, app: duly.Duly) -> None:
    events = app.topic("events")
    events.publish(1)
    with redis.Redis.from_url(shell.url) as client:
        client.xgroup_create(events.stream, "not a name: {}", "0")

    assert [line.split()[0] for line in shell.ok("audit").lines] == ["QUEUE", "events"]
    assert shell.ok("stats", "--json").json == {"queues": []}


def test_an_overwritten_stream_is_found_for_the_topic_and_its_groups(shell: Shell, app: duly.Duly) -> None:
    topic = app.topic("events")
    topic.group("archive").create()
    with redis.Redis.from_url(shell.url) as client:
        client.set(topic.stream, "something else")

    every, one = shell.run("audit", "--json"), shell.run("audit", "events/archive", "--json")
    repaired = shell.ok("audit", "--repair").lines

    assert (every.status, one.status) == (1, 1)
    assert {each["queue"] for each in every.json["audits"] if each["faults"]} == {"events", "events/archive"}
    assert [fault["id"] for fault in one.json["audits"][0]["faults"]] == ["stream"]
    assert [line.split()[0] for line in repaired[1:3]] == ["events", "events/archive"]
    assert shell.ok("audit").status == 0


DAMAGES_OF_TOPICS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "missed is not a number": ("HSET", ("meta", "missed:archive", "abc")),
    "the clock is not a number": ("HSET", ("meta", "clock", "abc")),
    "the largest is not a number": ("HSET", ("meta", "largest", "abc")),
    "meta is overwritten": ("SET", ("meta", "something else")),
    "waiting0 is overwritten": ("SET", ("waiting0", "something else")),
    "meta of the group is overwritten": ("SET", ("group:archive:meta", "something else")),
}


@pytest.mark.parametrize("damage", DAMAGES_OF_TOPICS)
def test_a_damaged_queue_does_not_stop_the_audit_of_others(shell: Shell, app: duly.Duly, damage: str) -> None:
    topic = app.topic("events")
    topic.group("archive").create()
    topic.publish("body", delay=60)
    app.queue("orders").send(1)
    app.topic("later").publish("body", delay=60)
    command, (key, *values) = DAMAGES_OF_TOPICS[damage]
    with redis.Redis.from_url(shell.url) as client:
        client.execute_command(command, topic.stream.removesuffix("stream") + key, *values)

    found, repaired = shell.run("audit", "--json"), shell.run("audit", "--repair")

    every = {(each["queue"], each["kind"]): each["ok"] for each in found.json["audits"]}
    assert found.status == 1
    assert set(every) == {("orders", "queue"), ("events", "topic"), ("events/archive", "group"), ("later", "topic")}
    assert not (every["events", "topic"] and every["events/archive", "group"])
    assert (every["orders", "queue"], every["later", "topic"]) == (True, True)
    assert repaired.status == 0, repaired
    assert shell.ok("audit").status == 0
    assert [each.body for each in topic.delayed()] == ["body"]


def test_a_source_that_cannot_be_audited_is_reported(shell: Shell, app: duly.Duly) -> None:
    topic = app.topic("events")
    topic.group("archive").create()
    with redis.Redis.from_url(shell.url) as client:
        client.set(topic.stream.replace("stream", "meta"), "something else")

    told = shell.run("audit", "events/archive")

    assert told.status == 1
    assert "events/archive could not be audited" in told.err


@pytest.mark.parametrize("tag", [b"bad name", b"a\xff", b"a/b", b"a\n", b"n" * 200], ids=repr)
@pytest.mark.parametrize("key", [b"%b:{@%b}:stream", b"%b:{%b}:meta"], ids=["topic", "queue"])
def test_keys_with_impossible_names_do_not_stop_an_audit(shell: Shell, app: duly.Duly, key: bytes, tag: bytes) -> None:
    app.queue("orders").send(1)
    with redis.Redis.from_url(shell.url) as client:
        name = key % (shell.namespace.encode(), tag)
        if b"@" in name:
            client.xadd(name, {"a": "1"})
        else:
            client.hset(name, "a", "1")

    assert [line.split()[0] for line in shell.ok("audit").lines] == ["QUEUE", "orders"]
    assert (app.queues(), app.topics()) == (["orders"], [])
