"""`duly audit [--repair]`: status and words for what is right, wrong and repaired."""

import redis

import duly
from tests.cli.shell import Shell


def test_sound_queues_and_groups_are_proved(shell: Shell, app: duly.Duly) -> None:
    app.queue("orders").send_many([1, 2, 3])
    app.topic("events").group("archive").create()
    app.topic("events").publish(1)

    told = shell.ok("audit").lines
    proved = shell.ok("audit", "orders", "events/archive", "--json").json

    assert [line.split()[0] for line in told] == ["QUEUE", "orders", "events/archive"]
    assert all(line.rstrip().endswith("right") for line in told[1:])
    assert [each["queue"] for each in proved] == ["orders", "events/archive"]
    assert all(each["ok"] and each["difference"] == 0 and each["faults"] == [] for each in proved)


def test_what_somebody_broke_is_found_and_repaired(shell: Shell, app: duly.Duly) -> None:
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
    assert repaired.json[0]["repaired"] is True
    assert after[1].rstrip().endswith("right")
    assert sorted(each.body for each in queue.receive(2, 0)) == ["a", "b"]
