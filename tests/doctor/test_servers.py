"""The examination of real servers: problems are found, and their fixes work."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

import duly
from duly.doctor import Report, examine, measurements
from duly.doctor.client import Client
from tests.binaries import Kind
from tests.clock import ServerClock
from tests.doctor.fixes import run
from tests.doctor.tampering import tampering_proxy
from tests.servers import Server

pytestmark = pytest.mark.fault

MEASURED = ("latency", "stalls", "disk")
"""Checks that depend on the load of the machine."""
SAFE = {"appendonly": "yes", "appendfsync": "everysec"}


def examined(url: str, namespace: str = "duly") -> Report:
    with duly.Duly(url, namespace=namespace) as app:
        return examine(app)


def verdicts(report: Report) -> dict[str, str]:
    return {each.name: each.verdict for each in report.findings}


def check_fix(url: str, *names: str) -> None:
    """Check that the fixes of findings work: afterwards the checks are ok."""
    report = examined(url)
    for name in names:
        run(report.finding(name), url)
    after = examined(url)
    assert {name: after.finding(name).verdict for name in names} == dict.fromkeys(names, "ok"), after


@pytest.fixture
def valkey() -> Iterator[Server]:
    with Server("valkey", SAFE) as server:
        yield server


def test_a_server_that_keeps_messages_safe_is_ok(kind: Kind) -> None:
    with Server(kind, SAFE) as server:
        report = examined(server.url)

    assert report.ok
    left = {name: verdict for name, verdict in verdicts(report).items() if name not in (*MEASURED, "known-flaws")}
    assert set(left.values()) == {"ok"}, report


BAD_SETTINGS = {
    "maxmemory-policy": "allkeys-lru",
    "appendonly": "no",
    "timeout": "5",
    "tcp-keepalive": "0",
    "maxclients": "40",
    "lua-time-limit": "0",
    "zset-max-ziplist-value": "1024",
    "hash-max-ziplist-entries": "65000",
    "slowlog-log-slower-than": "-1",
    "min-replicas-to-write": "1",
}
FOUND = {
    "eviction": "bad",
    "persistence": "bad",
    "idle-timeout": "warn",
    "keepalive": "warn",
    "clients": "warn",
    "script-limit": "warn",
    "compact-forms": "warn",
    "slow-log": "warn",
    "replicas": "bad",
}


def test_wrong_settings_are_found_and_their_fixes_work(kind: Kind) -> None:
    with Server(kind, BAD_SETTINGS) as server:
        report = examined(server.url)  # an app would refuse this server
        found = verdicts(report)

        assert {name: found[name] for name in FOUND} == FOUND, report
        assert not report.ok
        check_fix(server.url, *FOUND)


@pytest.mark.parametrize(
    ("config", "name", "verdict"),
    [
        ({"appendonly": "no", "save": "3600 1"}, "persistence", "bad"),
        ({"appendonly": "yes", "appendfsync": "no"}, "fsync", "warn"),
        ({"appendonly": "yes", "no-appendfsync-on-rewrite": "yes"}, "fsync", "warn"),
    ],
    ids=["snapshots-only", "fsync-no", "no-fsync-on-rewrite"],
)
def test_persistence_settings_are_checked(kind: Kind, config: dict[str, str], name: str, verdict: str) -> None:
    with Server(kind, config) as server:
        assert examined(server.url).finding(name).verdict == verdict
        check_fix(server.url, name)


@pytest.mark.parametrize("policy", ["always", "everysec"])
def test_a_synced_file_is_ok(policy: str) -> None:
    with Server("valkey", {"appendonly": "yes", "appendfsync": policy}) as server:
        assert examined(server.url).finding("fsync").found == f"appendfsync {policy}"


def test_memory_that_is_nearly_full_is_found_and_its_fix_works(kind: Kind) -> None:
    with Server(kind, SAFE) as server, redis.Redis.from_url(server.url) as client:
        client.setrange("others", 20 << 20, "x")
        used = client.info("memory")["used_memory"]
        client.config_set("maxmemory", int(used * 1.02))

        finding = examined(server.url).finding("memory")

        assert finding.verdict == "bad", finding
        check_fix(server.url, "memory")


def test_a_replica_is_recognized_and_a_primary_without_a_file_endangers_it(kind: Kind) -> None:
    soon = {"repl-diskless-sync-delay": "0"}
    with Server(kind, soon) as primary, Server(kind, {"replicaof": f"127.0.0.1 {primary.port}"}) as replica:
        _wait_for_replica(primary)

        of_replica, of_primary = examined(replica.url), examined(primary.url)

        assert of_replica.finding("role").verdict == "bad"
        assert f"duly doctor --url redis://127.0.0.1:{primary.port}" in of_replica.finding("role").fix
        assert verdicts(of_primary)["restart"] == "bad"
        assert verdicts(of_primary)["replicas"] == "warn"
        check_fix(primary.url, "restart", "replicas")


def _wait_for_replica(primary: Server) -> None:
    deadline = time.monotonic() + 30
    with redis.Redis.from_url(primary.url) as client:
        while True:
            rows = client.info("replication")
            if rows["connected_slaves"] == 1 and rows["slave0"]["state"] == "online" and rows["slave0"]["lag"] <= 1:
                return
            assert time.monotonic() < deadline, rows
            time.sleep(0.02)


@pytest.mark.parametrize("given", ["", ":wrong@"], ids=["no-password", "wrong-password"])
def test_a_refused_password_is_one_finding_without_the_password(kind: Kind, given: str) -> None:
    with Server(kind, {"requirepass": "sesame"}) as server:
        report = examined(server.url.replace("redis://", f"redis://{given}"))
        right = examined(server.url.replace("redis://", "redis://:sesame@"))

    assert [(each.name, each.verdict) for each in report.findings] == [("connection", "bad")]
    assert "refuses the user or the password" in report.findings[0].found
    assert "wrong" not in str(report).replace("wrong number", "").replace("WRONGPASS", "")
    assert right.finding("connection").verdict == "ok"
    assert "sesame" not in str(right)


def test_an_unreachable_server_is_one_finding_and_soon() -> None:
    began = time.monotonic()

    report = examined("redis://127.0.0.1:1/0")

    assert [(each.name, each.verdict) for each in report.findings] == [("connection", "bad")]
    assert "cannot be reached" in report.findings[0].found
    assert time.monotonic() - began < 10


def test_a_server_at_its_limit_of_clients_is_one_finding_and_its_fix_works() -> None:
    with Server("valkey", {**SAFE, "maxclients": "1"}) as server, redis.Redis.from_url(server.url) as held:
        connection = held.connection_pool.get_connection()
        report = examined(server.url)
        assert [(each.name, each.verdict) for each in report.findings] == [("connection", "bad")]

        connection.send_command(*report.findings[0].commands[0].split())
        assert connection.read_response() == b"OK"

        assert examined(server.url).finding("clients").verdict == "ok"
        connection.disconnect()


def test_a_stuck_script_is_found_and_can_be_killed() -> None:
    with Server("valkey", {**SAFE, "lua-time-limit": "500"}) as server, redis.Redis.from_url(server.url) as client:
        connection = client.connection_pool.get_connection()
        connection.send_command("EVAL", "while true do end", 0)

        report = examined(server.url)

        assert [(each.name, each.verdict) for each in report.findings] == [("connection", "bad")], report
        run(report.findings[0], server.url)
        with pytest.raises(redis.ResponseError, match="killed"):
            connection.read_response()
        assert examined(server.url).finding("connection").verdict == "ok"
        connection.disconnect()


def test_slow_scripts_and_stalls_are_found_and_cleared(kind: Kind) -> None:
    busy = (  # some servers hide `os` from scripts, and in others TIME does not change while a script runs
        "local is_there, clock = pcall(function() return os.clock end) if not is_there then clock = function() "
        "local t = redis.call('TIME') return t[1] + t[2] / 1000000 end end "
        "local til = clock() + 0.7 while clock() < til do end return redis.call('EXISTS', KEYS[1])"
    )
    with Server(kind, {**SAFE, "latency-monitor-threshold": "100"}) as server:
        with redis.Redis.from_url(server.url) as client:
            client.eval(busy, 1, "duly:{orders}:meta")

        report = examined(server.url)

        assert "EVAL of a queue " in report.finding("slow-log").found, report
        assert report.finding("stalls").verdict == "warn"
        check_fix(server.url, "slow-log", "stalls")


def test_a_blocking_call_that_a_proxy_delays_is_found(valkey: Server) -> None:
    assert examined(valkey.url).finding("blocking").verdict == "ok"
    with tampering_proxy(valkey.port, b"$4\r\n0.05\r\n", b"$4\r\n1.50\r\n") as url:
        finding = examined(url).finding("blocking")

    assert finding.verdict == "warn", finding
    assert "connect to the server directly" in finding.fix


def test_a_blocking_call_that_a_proxy_cuts_short_is_found(valkey: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("measurements", "checks.performance"):
        monkeypatch.setattr(f"duly.doctor.{module}.PAUSE", 5.0)  # far longer than a reply takes on a busy machine
    with tampering_proxy(valkey.port, b"BLPOP", b"HMGET") as url:  # has the same arguments, and does not block
        finding = examined(url).finding("blocking")

    assert finding.verdict == "warn", finding
    assert "connect to the server directly" in finding.fix


def test_a_clock_that_differs_is_found(server_clock: ServerClock) -> None:
    with Server("redis7", SAFE, server_clock.environment()) as server:
        server_clock.step(90)
        report = examined(server.url)

    assert report.finding("clock").verdict == "warn"
    assert (
        "the server is 90.0" in report.finding("clock").found or "the server is 89.9" in report.finding("clock").found
    )


def test_a_clock_that_was_set_back_after_a_send_is_found(server_clock: ServerClock) -> None:
    with Server("redis7", SAFE, server_clock.environment()) as server, duly.Duly(server.url) as app:
        app.queue("orders").send("x")
        app.topic("events").publish("y", delay=60)
        server_clock.step(-600)

        finding = examine(app).finding("queue-clocks")

    assert finding.verdict == "warn"
    assert "orders by" in finding.found
    assert "events by" in finding.found


def test_a_queue_that_is_busy_during_the_examination_is_not_ahead(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = measurements.compare_clocks

    def compare_clocks_long_before(client: Client) -> Any:
        skew, server_us = begun(client)
        return skew, server_us - 10_000_000

    monkeypatch.setattr(measurements, "compare_clocks", compare_clocks_long_before)
    with duly.Duly(valkey.url) as app:
        app.queue("orders").send("x")
        report = examine(app)

    assert report.finding("queue-clocks").verdict == "ok"


def test_settings_that_a_provider_hides_are_unknown(kind: Kind) -> None:
    hidden = {"rename-command": 'CONFIG ""\nrename-command SLOWLOG ""\nrename-command LATENCY ""'}
    with Server(kind, {**SAFE, **hidden}) as server:
        report = examined(server.url)

    assert report.ok
    unknown = {each.name: each for each in report.findings if each.verdict == "unknown"}
    assert {"fsync", "idle-timeout", "slow-log", "stalls", "compact-forms"} <= set(unknown)
    assert "does not offer CONFIG GET" in unknown["fsync"].found
    assert "provider" in unknown["fsync"].fix
    assert report.finding("eviction").verdict == "ok"  # INFO has it as well


@pytest.mark.parametrize("hidden", ["HSET", "EVALSHA", "EVAL", "TIME", "DEL", "INFO"])
def test_a_hidden_command_that_scripts_use_is_bad(hidden: str) -> None:
    with Server("redis7", {**SAFE, "rename-command": f'{hidden} ""'}) as server:
        report = examined(server.url)

    finding = report.finding("commands")
    assert (finding.verdict, report.ok) == ("bad", False), report
    assert hidden in finding.found
    assert "rename-command" in finding.fix


def test_hidden_commands_are_found_on_every_server(kind: Kind) -> None:
    with Server(kind, {**SAFE, "rename-command": 'ZADD ""\nrename-command XGROUP ""'}) as server:
        finding = examined(server.url).finding("commands")

    assert finding.verdict == "bad"
    assert "XGROUP, ZADD" in finding.found


def test_a_hidden_command_that_only_observers_use_is_a_warning() -> None:
    with Server("valkey", {**SAFE, "rename-command": 'SCAN ""'}) as server:
        finding = examined(server.url).finding("commands")

    assert finding.verdict == "warn"
    assert "observer, admin" in finding.found


@pytest.mark.parametrize(("appendonly", "verdict"), [("yes", "ok"), ("no", "bad")])
def test_persistence_is_known_from_the_settings_where_info_is_hidden(kind: Kind, appendonly: str, verdict: str) -> None:
    with Server(kind, {"appendonly": appendonly, "rename-command": 'INFO ""'}) as server:
        report = examined(server.url)

    assert report.finding("persistence").verdict == verdict
    assert report.finding("fsync").verdict == "ok"


def test_big_keys_are_found(valkey: Server) -> None:
    with duly.Duly(valkey.url) as app, redis.Redis.from_url(valkey.url) as client:
        app.queue("orders").send("x")
        client.hset("duly:{orders}:msgs", "big", b"x" * (33 << 20))

        finding = examine(app).finding("big-keys")

    assert finding.verdict == "warn"
    assert "duly:{orders}:msgs 33 MiB" in finding.found
    assert "duly stats orders" in finding.fix


def test_an_examination_changes_nothing(kind: Kind) -> None:
    with Server(kind, SAFE) as server, duly.Duly(server.url) as app, redis.Redis.from_url(server.url) as client:
        app.queue("orders").send("x", delay=60)
        app.topic("events").group("archive").create()
        before = {key: client.dump(key) for key in client.scan_iter()}
        dirty = client.info("persistence")["rdb_changes_since_last_save"]

        examine(app)

        assert {key: client.dump(key) for key in client.scan_iter()} == before
        assert client.info("persistence")["rdb_changes_since_last_save"] == dirty


def test_the_memory_engine_has_nothing_to_examine() -> None:
    report = examined("memory://")

    assert report.ok
    assert [(each.name, each.verdict) for each in report.findings] == [("connection", "ok")]
    assert "nothing to examine" in report.findings[0].found


def test_an_embedded_server_that_cannot_start_is_one_finding(tmp_path: object) -> None:
    (tmp_path / "duly.conf").write_text("appendfsync sometimes\n")  # type: ignore[operator]

    report = examined(f"embedded://{tmp_path}")

    assert [(each.name, each.verdict) for each in report.findings] == [("connection", "bad")]
    assert "duly server status" in report.findings[0].fix
