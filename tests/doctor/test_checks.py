"""The finding of each check for given facts: every check, and every verdict that it can give."""

import dataclasses
from collections import defaultdict

import pytest

from duly.doctor.checks import CHECKS
from duly.doctor.facts import (
    BigKey,
    Facts,
    Keyspace,
    Layout,
    Missing,
    Orphan,
    Permissions,
    QueueClock,
    SilentWorker,
    Skew,
    SlowCommand,
    Stall,
)
from tests.doctor.healthy import HEALTHY, changed

NO_INFO = changed(info=Missing("the user may not run INFO", "+info"))
NO_CONFIG = changed(settings=Missing("the user may not run CONFIG GET", "+config|get"))
NO_SCAN = changed(keyspace=Missing("the user may not run SCAN", "+scan"))
REPLICA = {"connected_slaves": "1", "slave0": "ip=10.0.0.2,port=6379,state=online,offset=10,lag=0"}
MEBI = 1 << 20


def keys(**found: object) -> Facts:
    return changed(keyspace=Keyspace(examined=3, **found))  # type: ignore[arg-type]


def node(**answers: str) -> Facts:
    """Return the facts of a node that is up and has all slots, with some answers of CLUSTER INFO changed."""
    up = {"cluster_state": "ok", "cluster_slots_assigned": "16384", "cluster_size": "1"}
    return changed(info={"cluster_enabled": "1"}, cluster=up | answers)


CASES: list[tuple[str, Facts, str, str, str]] = [
    # check, facts, verdict, part of the finding, part of the fix
    ("version", HEALTHY, "ok", "Redis 7.4.9", ""),
    ("version", changed(info={"valkey_version": "9.1.2"}), "ok", "Valkey 9.1.2", ""),
    ("version", changed(info={"redis_version": "6.0.16"}), "bad", "6.2 is needed", "duly[embedded]"),
    ("version", changed(info={"valkey_version": "7.0.0"}), "bad", "7.2 is needed", "Valkey 7.2 or later"),
    ("version", NO_INFO, "unknown", "may not run INFO", "ACL SETUSER app +info"),
    ("known-flaws", HEALTHY, "ok", "none known", ""),
    ("known-flaws", changed(info={"redis_version": "7.4.5"}), "warn", "CVE-2025-49844", "Redis 7.4.9 or later"),
    ("known-flaws", NO_INFO, "unknown", "INFO", "+info"),
    ("commands", HEALTHY, "ok", "all", ""),
    ("commands", changed(absent=frozenset({"HSET"})), "bad", "HSET, needed by producer, consumer, admin", "HSET"),
    ("commands", changed(absent=frozenset({"BLPOP"})), "bad", "BLPOP, needed by producer, consumer, admin", "BLPOP"),
    ("commands", changed(absent=frozenset({"SCAN"})), "warn", "SCAN, needed by observer, admin", "rename-command SCAN"),
    ("commands", changed(absent=Missing("no", "+command|info")), "unknown", "no", "ACL SETUSER app +command|info"),
    ("role", HEALTHY, "ok", "primary", ""),
    (
        "role",
        changed(info={"role": "slave", "master_host": "10.0.0.1", "master_port": "6379"}),
        "bad",
        "replica of 10.0.0.1:6379",
        "duly doctor --url redis://10.0.0.1:6379",
    ),
    (
        "role",
        changed(info={"role": "slave", "master_host": "a;touch x", "master_port": "1"}),
        "bad",
        "replica of",
        "duly doctor --url 'redis://a;touch x:1'",
    ),
    ("role", NO_INFO, "unknown", "INFO", "+info"),
    ("cluster", HEALTHY, "ok", "off", ""),
    ("cluster", node(), "warn", "all hash slots on this node: each queue, topic and lock works", "cluster-enabled no"),
    ("cluster", node(cluster_size="3"), "bad", "one of 3 nodes", "cluster-enabled no"),
    ("cluster", node(cluster_state="fail"), "bad", "not up", "cluster-enabled no"),
    (
        "cluster",
        node(cluster_slots_assigned="8192"),
        "bad",
        "8192 of 16384 hash slots are served",
        "cluster-enabled no",
    ),
    (
        "cluster",
        changed(info={"cluster_enabled": "1"}, cluster=Missing("no", "+cluster|info")),
        "bad",
        "number of nodes is unknown",
        "cluster-enabled no",
    ),
    ("cluster", NO_INFO, "unknown", "INFO", "+info"),
    ("slots", HEALTHY, "ok", "each of 2 queues, topics, locks and registries has its keys in one hash slot", ""),
    ("slots", changed(keyspace=Keyspace()), "ok", "no keys yet", ""),
    ("slots", keys(layout=Layout(owners=9), is_complete=False), "ok", "there are more keys than the 3", ""),
    ("slots", keys(layout=Layout(owners=2, split=("orders",))), "warn", "keys in several hash slots: orders", "# keep"),
    ("slots", NO_SCAN, "unknown", "SCAN", "ACL SETUSER app +scan"),
    ("eviction", HEALTHY, "ok", "noeviction", ""),
    (
        "eviction",
        changed(settings={"maxmemory-policy": "allkeys-lru"}),
        "bad",
        "allkeys-lru",
        "CONFIG SET maxmemory-policy noeviction\n# and in the server's configuration file",
    ),
    ("eviction", NO_CONFIG, "ok", "noeviction", ""),  # INFO has it as well
    (
        "eviction",
        changed(info=Missing("no", "+info"), settings=Missing("no CONFIG", "+config|get")),
        "unknown",
        "no CONFIG",
        "ACL SETUSER app +config|get",
    ),
    ("memory", HEALTHY, "ok", "100 MiB of maxmemory 1.0 GiB (10%)", ""),
    ("memory", changed(info={"used_memory": str(800 * MEBI)}), "warn", "78%", "CONFIG SET maxmemory 1600mb"),
    ("memory", changed(info={"used_memory": str(1000 * MEBI)}), "bad", "98%", "CONFIG SET maxmemory 2000mb"),
    (
        "memory",
        changed(info={"used_memory": str(1000 * MEBI), "mem_not_counted_for_evict": str(600 * MEBI)}),
        "ok",
        "39%",
        "",
    ),
    (
        "memory",
        changed(info={"used_memory": str(1000 * MEBI), "total_system_memory": str(1024 * MEBI)}),
        "bad",
        "98%",
        "# add memory",
    ),
    (
        "memory",
        changed(info={"maxmemory": str(16 << 30)}),
        "warn",
        "more than the machine has",
        "CONFIG SET maxmemory 200mb",
    ),
    ("memory", changed(info={"maxmemory": "0"}), "ok", "no maxmemory", ""),
    (
        "memory",
        changed(info={"maxmemory": "0", "used_memory": str(5 << 30)}),
        "warn",
        "on a machine with 8.0 GiB",
        "CONFIG SET maxmemory 6144mb",
    ),
    ("memory", NO_INFO, "unknown", "INFO", "+info"),
    ("persistence", HEALTHY, "ok", "append-only file", ""),
    ("persistence", changed(info={"aof_enabled": "0"}), "bad", "none", "CONFIG SET appendonly yes"),
    (
        "persistence",
        changed(info={"aof_enabled": "0", "rdb_changes_since_last_save": "7"}, settings={"save": "3600 1"}),
        "bad",
        "snapshots only: a crash reverts to the last one (7 changes since)",
        "CONFIG SET appendonly yes",
    ),
    (
        "persistence",
        changed(info={"aof_enabled": "0", **REPLICA}, settings={"save": "3600 1"}),
        "warn",
        "snapshots only",
        "CONFIG SET appendonly yes",
    ),
    (
        "persistence",
        changed(info={"aof_enabled": "0"}, settings=Missing("no", "+config|get")),
        "bad",
        "snapshots at most",
        "CONFIG SET appendonly yes",
    ),
    ("persistence", NO_INFO, "unknown", "INFO", "+info"),
    ("fsync", HEALTHY, "ok", "appendfsync everysec", ""),
    ("fsync", changed(settings={"appendfsync": "always"}), "ok", "always", ""),
    ("fsync", changed(info={"aof_enabled": "0"}), "ok", "see persistence", ""),
    (
        "fsync",
        changed(settings={"appendfsync": "no"}),
        "warn",
        "the operating system decides",
        "CONFIG SET appendfsync everysec",
    ),
    (
        "fsync",
        changed(settings={"no-appendfsync-on-rewrite": "yes"}),
        "warn",
        "not while the file is rewritten",
        "CONFIG SET no-appendfsync-on-rewrite no",
    ),
    ("fsync", NO_CONFIG, "unknown", "CONFIG GET", "+config|get"),
    ("disk", HEALTHY, "ok", "succeeded", ""),
    ("disk", changed(info={"aof_last_write_status": "err"}), "bad", "append-only file failed", "BGREWRITEAOF"),
    ("disk", changed(info={"rdb_last_bgsave_status": "err"}), "bad", "refuses writes", "BGSAVE"),
    (
        "disk",
        changed(info={"rdb_last_bgsave_status": "err"}, settings={"stop-writes-on-bgsave-error": "no"}),
        "warn",
        "snapshot failed",
        "BGSAVE",
    ),
    ("disk", changed(info={"aof_last_bgrewrite_status": "err"}), "warn", "rewrite", "BGREWRITEAOF"),
    ("disk", changed(info={"aof_delayed_fsync": "250"}), "warn", "250 writes", "CONFIG RESETSTAT"),
    ("disk", NO_INFO, "unknown", "INFO", "+info"),
    ("replicas", HEALTHY, "ok", "the only copy", ""),
    ("replicas", changed(info=REPLICA), "warn", "accepts writes without them", "CONFIG SET min-replicas-to-write 1"),
    ("replicas", changed(info=REPLICA), "warn", "accepts writes without them", "writes stop while it is away"),
    ("replicas", changed(info={**REPLICA, "cluster_enabled": "1"}), "ok", "1, which keep up", ""),
    ("replicas", changed(info=REPLICA, settings={"min-replicas-to-write": "1"}), "ok", "1 must keep up", ""),
    (
        "replicas",
        changed(info={**REPLICA, "slave0": "ip=a,port=1,state=online,offset=1,lag=45"}),
        "warn",
        "1 lag",
        "# see the log",
    ),
    (
        "replicas",
        changed(info={**REPLICA, "slave0": "ip=a,port=1,state=wait_bgsave,offset=1,lag=0"}),
        "warn",
        "not synchronized",
        "# see the log",
    ),
    (
        "replicas",
        changed(info={"min_slaves_good_slaves": "0"}, settings={"min-replicas-to-write": "2"}),
        "bad",
        "refuses every write",
        "CONFIG SET min-replicas-to-write 0",
    ),
    ("replicas", changed(info={"role": "slave"}), "ok", "see role", ""),
    ("replicas", changed(info=REPLICA, settings=Missing("no", "+config|get")), "unknown", "no", "+config|get"),
    ("replicas", NO_INFO, "unknown", "INFO", "+info"),
    ("restart", HEALTHY, "ok", "no replicas", ""),
    ("restart", changed(info=REPLICA), "ok", "on disk", ""),
    ("restart", changed(info={**REPLICA, "aof_enabled": "0"}), "bad", "1 replicas", "CONFIG SET appendonly yes"),
    (
        "restart",
        changed(info={**REPLICA, "aof_enabled": "0"}, settings={"save": "60 1"}),
        "warn",
        "last snapshot",
        "CONFIG SET appendonly yes",
    ),
    (
        "restart",
        changed(info={**REPLICA, "aof_enabled": "0"}, settings=Missing("no", "+config|get")),
        "unknown",
        "no",
        "+config|get",
    ),
    ("clock", HEALTHY, "ok", "0.001 s ahead of", ""),
    ("clock", changed(skew=Skew(-2.5, 0.001)), "warn", "2.500 s behind", "# synchronize both machines"),
    ("clock", changed(skew=Skew(2.5, 2.0)), "ok", "+/- 2.000 s", ""),  # the margin is larger than the limit
    ("clock", changed(skew=Missing("no", "+time")), "unknown", "no", "ACL SETUSER app +time"),
    ("queue-clocks", HEALTHY, "ok", "none is ahead", ""),
    ("queue-clocks", keys(clocks=(QueueClock("orders", 0.2),)), "ok", "none is ahead", ""),
    ("queue-clocks", keys(clocks=(QueueClock("orders", 90.0),)), "warn", "orders by 90 s", "duly promote orders ID"),
    (
        "queue-clocks",
        keys(clocks=(QueueClock("a", 5.0), QueueClock("b", 7200.0))),
        "bad",
        "b by 7200 s, a by 5 s",
        "promote b",
    ),
    ("queue-clocks", NO_SCAN, "unknown", "SCAN", "ACL SETUSER app +scan"),
    ("latency", HEALTHY, "ok", "PING p50 0.20 ms, p99 0.20 ms; a script p50 0.30 ms, p99 0.30 ms", ""),
    ("latency", changed(pings=Missing("may not run PING", "+ping")), "ok", "a script p50 0.30 ms", ""),
    ("latency", changed(pings=(0.02,) * 100), "warn", "p50 20 ms", "# run workers"),
    ("latency", changed(pings=(*(0.0002,) * 90, *(0.2,) * 10)), "warn", "p99 200 ms", "# run workers"),
    ("latency", changed(pings=(1.5, 1.5)), "bad", "p99 1500 ms", "# run workers"),
    ("latency", changed(scripts=Missing("may not run EVAL", "+eval")), "unknown", "EVAL", "ACL SETUSER app +eval"),
    ("blocking", HEALTHY, "ok", "a blocking call of 50 ms took 60 ms", ""),
    ("blocking", changed(blocked=0.001), "warn", "took 1.00 ms", "# connect to the server directly"),
    ("blocking", changed(blocked=3.0), "warn", "took 3000 ms", "# connect to the server directly"),
    ("blocking", changed(blocked=Missing("may not run BLPOP", "+blpop")), "unknown", "BLPOP", "+blpop"),
    ("slow-log", HEALTHY, "ok", "no command", ""),
    ("slow-log", changed(slow=(SlowCommand("KEYS", 0.05, is_ours=False),)), "ok", "no command", ""),
    (
        "slow-log",
        changed(
            slow=(SlowCommand("KEYS", 0.2, is_ours=False), SlowCommand("EVALSHA claim", 0.3, is_ours=True)),
        ),
        "warn",
        "2 slow commands in the last day: EVALSHA claim of a queue 300 ms, KEYS 200 ms",
        "SLOWLOG RESET",
    ),
    (
        "slow-log",
        changed(settings={"slowlog-log-slower-than": "-1"}),
        "warn",
        "is off",
        "CONFIG SET slowlog-log-slower-than 10000",
    ),
    ("slow-log", changed(slow=Missing("no", "+slowlog|get")), "unknown", "no", "ACL SETUSER app +slowlog|get"),
    ("stalls", HEALTHY, "ok", "none of 500 ms", ""),
    ("stalls", changed(settings={"latency-monitor-threshold": "0"}), "ok", "not monitored", ""),
    ("stalls", changed(stalls=(Stall("fork", 0.9),)), "warn", "fork 900 ms", "LATENCY RESET"),
    ("stalls", changed(stalls=Missing("no", "+latency|latest")), "unknown", "no", "+latency|latest"),
    ("script-limit", HEALTHY, "ok", "busy-reply-threshold 5000 ms", ""),
    (
        "script-limit",
        changed(settings={"busy-reply-threshold": "0"}),
        "warn",
        "cannot be killed",
        "CONFIG SET busy-reply-threshold 5000",
    ),
    ("script-limit", changed(settings={"busy-reply-threshold": "10"}), "warn", "are rejected", "5000"),
    ("script-limit", changed(settings={"busy-reply-threshold": "60000"}), "warn", "time out", "5000"),
    (
        "script-limit",
        dataclasses.replace(HEALTHY, settings={"lua-time-limit": "0"}),
        "warn",
        "lua-time-limit 0",
        "CONFIG SET lua-time-limit 5000",
    ),
    ("script-limit", NO_CONFIG, "unknown", "CONFIG GET", "+config|get"),
    ("script-cache", HEALTHY, "ok", "60 scripts in 500 KiB", ""),
    (
        "script-cache",
        changed(info={"number_of_functions": "3"}),
        "ok",
        "60 scripts in 500 KiB, and 3 functions of other programs",
        "",
    ),
    ("script-cache", changed(info={"number_of_cached_scripts": "999"}), "ok", "999 scripts", ""),
    ("script-cache", changed(info={"number_of_cached_scripts": "1000"}), "warn", "1000 scripts", "SCRIPT FLUSH ASYNC"),
    ("script-cache", changed(info={"used_memory_vm_eval": str(40 * MEBI)}), "warn", "in 40 MiB", "SCRIPT FLUSH ASYNC"),
    (
        "script-cache",  # as in Redis 6.2
        changed(
            info={"used_memory_scripts_eval": "", "used_memory_vm_eval": ""}
            | {"used_memory_scripts": str(2 * MEBI), "used_memory_lua": str(MEBI)}
        ),
        "ok",
        "in 3 MiB",
        "",
    ),
    ("script-cache", changed(info={"evicted_scripts": "499"}), "ok", "60 scripts", ""),
    ("script-cache", changed(info={"evicted_scripts": "500"}), "warn", "500 evicted", "CONFIG RESETSTAT"),
    (
        "script-cache",
        changed(info={"errorstat_NOSCRIPT": "count=1000"}),
        "warn",
        "1% of 100000 calls did not find their script in the cache",
        "CONFIG RESETSTAT",
    ),
    ("script-cache", changed(info={"errorstat_NOSCRIPT": "count=999"}), "ok", "60 scripts", ""),
    (
        "script-cache",
        changed(info={"errorstat_NOSCRIPT": "count=1000", "cmdstat_evalsha": "calls=1000000"}),
        "ok",
        "60 scripts",
        "",
    ),
    ("script-cache", NO_INFO, "unknown", "INFO", "+info"),
    ("compact-forms", HEALTHY, "ok", "within", ""),
    (
        "compact-forms",
        changed(settings={"zset-max-listpack-value": "1024", "hash-max-listpack-entries": "100000"}),
        "warn",
        "zset-max-listpack-value 1024, hash-max-listpack-entries 100000",
        "CONFIG SET zset-max-listpack-value 64\nCONFIG SET hash-max-listpack-entries 512",
    ),
    (
        "compact-forms",
        dataclasses.replace(HEALTHY, settings={"hash-max-ziplist-value": "65"}),
        "warn",
        "hash-max-ziplist-value 65",
        "CONFIG SET hash-max-ziplist-value 64",
    ),
    ("compact-forms", NO_CONFIG, "unknown", "CONFIG GET", "+config|get"),
    ("idle-timeout", HEALTHY, "ok", "never", ""),
    ("idle-timeout", changed(settings={"timeout": "300"}), "ok", "after 300 s", ""),
    ("idle-timeout", changed(settings={"timeout": "5"}), "warn", "after 5 s", "CONFIG SET timeout 0"),
    ("idle-timeout", NO_CONFIG, "unknown", "CONFIG GET", "+config|get"),
    ("keepalive", HEALTHY, "ok", "tcp-keepalive 300", ""),
    ("keepalive", changed(settings={"tcp-keepalive": "0"}), "warn", "tcp-keepalive 0", "CONFIG SET tcp-keepalive 300"),
    ("keepalive", changed(settings={"tcp-keepalive": "0"}, kind="unix"), "ok", "not needed", ""),
    ("keepalive", NO_CONFIG, "unknown", "CONFIG GET", "+config|get"),
    ("clients", HEALTHY, "ok", "10 of 10000", ""),
    ("clients", changed(info={"connected_clients": "8500"}), "warn", "8500 of 10000", "CONFIG SET maxclients 20000"),
    ("clients", changed(info={"connected_clients": "9900"}), "bad", "9900", "CONFIG SET maxclients 20000"),
    ("clients", changed(settings={"maxclients": "64"}), "warn", "10 of 64", "CONFIG SET maxclients 10000"),
    ("clients", changed(info={"rejected_connections": "3"}), "ok", "3 refused", ""),
    ("clients", NO_CONFIG, "unknown", "CONFIG GET", "+config|get"),
    ("clients", NO_INFO, "unknown", "INFO", "+info"),
    ("big-keys", HEALTHY, "ok", "none of 32 MiB", ""),
    (
        "big-keys",
        keys(big=(BigKey(b"duly:{a}:msgs", "a", "msgs", 40 * MEBI), BigKey(b"duly:{b}:msgs", "b", "msgs", 10))),
        "warn",
        "duly:{a}:msgs 40 MiB",
        "duly stats a",
    ),
    (
        "big-keys",
        keys(big=(BigKey(b"duly:{a}:dead", "a", "dead", 40 * MEBI),)),
        "warn",
        "duly:{a}:dead",
        "duly dead ls a",
    ),
    (
        "big-keys",
        keys(big=(BigKey(b"duly:{@t}:stream", "t", "stream", 40 * MEBI),), is_complete=False),
        "warn",
        "more keys than the 3 that were examined",
        "duly topic groups t",
    ),
    (
        "big-keys",
        keys(missing={"big-keys": Missing("no", "+memory|usage")}),
        "unknown",
        "no",
        "ACL SETUSER app +memory|usage",
    ),
    ("big-keys", NO_SCAN, "unknown", "SCAN", "+scan"),
    ("orphans", HEALTHY, "ok", "none among 12 keys", ""),
    ("orphans", keys(is_complete=False), "ok", "there are more keys than the 3", ""),
    ("orphans", keys(orphans=(Orphan(b"duly:{a}:x y", "odd", "DEL k"),)), "warn", '"duly:{a}:x y" (odd)', "DEL k"),
    ("orphans", NO_SCAN, "unknown", "SCAN", "+scan"),
    ("expiry", HEALTHY, "ok", "as expected", ""),
    (
        "expiry",
        keys(without_expiry=((b"duly:{a}:call:ff", 3_600_000),)),
        "warn",
        "duly:{a}:call:ff",
        "PEXPIRE duly:{a}:call:ff 3600000",
    ),
    (
        "expiry",
        keys(expiring=(b"duly:{a}:msgs", b"duly:{b c}:meta")),
        "bad",
        'duly:{a}:msgs, "duly:{b c}:meta" will expire',
        'PERSIST duly:{a}:msgs\nPERSIST "duly:{b c}:meta"',
    ),
    ("expiry", keys(missing={"expiry": Missing("no", "+pttl")}), "unknown", "no", "ACL SETUSER app +pttl"),
    ("expiry", keys(missing={"big-keys": Missing("no", "+memory|usage")}), "ok", "as expected", ""),
    ("expiry", NO_SCAN, "unknown", "SCAN", "+scan"),
    ("workers", HEALTHY, "ok", "all have sent a heartbeat", ""),
    ("workers", keys(silent=(SilentWorker(b"h:1", 60.0),)), "ok", "all have sent a heartbeat", ""),
    ("options", NO_SCAN, "unknown", "SCAN", "+scan"),
    ("options", keys(), "ok", "all workers of a queue have the same", ""),
    ("options", keys(differing={"orders": ["lease", "rate"]}), "warn", "orders (lease, rate)", "# run the same code"),
    (
        "workers",
        keys(silent=(SilentWorker(b"h:1", 2 * 86_400.0), SilentWorker(b"h:2", None))),
        "warn",
        "h:1, silent for 48 h, h:2, never sent a heartbeat",
        "HDEL duly:{~workers}:workers h:1 h:2\nZREM duly:{~workers}:beats h:1 h:2",
    ),
    ("workers", NO_SCAN, "unknown", "SCAN", "+scan"),
    ("rights", HEALTHY, "ok", "user 'app' can be producer", ""),
    (
        "rights",
        changed(permissions=Permissions({"producer": ("+hset", "+zadd"), "observer": ("+info",)})),
        "bad",
        "nearest is observer, which needs +info",
        "duly acl --role observer --user app",
    ),
    (
        "rights",
        changed(permissions=Permissions({"observer": ("+info",)}), user="$(touch x)"),
        "bad",
        "nearest is observer",
        "--user '$(touch x)'",
    ),
    ("rights", changed(permissions=Missing("no", "+acl|getuser")), "unknown", "no", "ACL SETUSER app +acl|getuser"),
    (
        "rights",
        changed(permissions=Missing("cannot be known")),
        "unknown",
        "cannot be known",
        "duly acl --role consumer --user app",
    ),
]


def name_of(case: tuple[str, Facts, str, str, str]) -> str:
    return f"{case[0]}-{case[2]}-{case[3].replace(' ', '-')[:40]}"


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_check_reports(case: tuple[str, Facts, str, str, str]) -> None:
    name, facts, verdict, found, fix = case

    finding = CHECKS[name](facts)

    assert finding.name == name
    assert (finding.verdict, found in finding.found) == (verdict, True), finding
    assert fix in finding.fix
    assert bool(finding.fix) == (verdict != "ok"), "every verdict but ok has a fix"
    assert finding.why.endswith(".")


def test_every_check_has_cases_for_ok_for_trouble_and_for_unknown() -> None:
    covered = defaultdict(set)
    for name, _, verdict, _, _ in CASES:
        covered[name].add("trouble" if verdict in ("warn", "bad") else verdict)

    assert {name: covered[name] for name in CHECKS} == {name: {"ok", "trouble", "unknown"} for name in CHECKS}


def test_an_embedded_server_keeps_its_settings_in_its_directory() -> None:
    facts = changed(settings={"timeout": "5"}, kind="embedded", place="/data/.duly")

    assert "# and in /data/.duly/duly.conf" in CHECKS["idle-timeout"](facts).fix
