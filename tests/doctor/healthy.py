"""Facts of a server without problems, to be changed by tests."""

from dataclasses import replace
from typing import Any

from duly.doctor.facts import Facts, Keyspace, Layout, Permissions, Skew

INFO = {
    "redis_version": "7.4.9",
    "role": "master",
    "cluster_enabled": "0",
    "maxmemory_policy": "noeviction",
    "maxmemory": str(1 << 30),
    "used_memory": str(100 << 20),
    "total_system_memory": str(8 << 30),
    "aof_enabled": "1",
    "aof_last_write_status": "ok",
    "rdb_last_bgsave_status": "ok",
    "aof_last_bgrewrite_status": "ok",
    "aof_delayed_fsync": "0",
    "connected_slaves": "0",
    "connected_clients": "10",
    "number_of_cached_scripts": "60",
    "used_memory_scripts_eval": str(200 << 10),
    "used_memory_vm_eval": str(300 << 10),
    "number_of_functions": "0",
    "evicted_scripts": "0",
    "cmdstat_evalsha": "calls=100000,usec=5000000,usec_per_call=50.00,rejected_calls=0,failed_calls=60",
    "errorstat_NOSCRIPT": "count=60",
}
SETTINGS = {
    "maxmemory-policy": "noeviction",
    "appendfsync": "everysec",
    "save": "",
    "no-appendfsync-on-rewrite": "no",
    "min-replicas-to-write": "0",
    "timeout": "0",
    "tcp-keepalive": "300",
    "maxclients": "10000",
    "busy-reply-threshold": "5000",
    "slowlog-log-slower-than": "10000",
    "latency-monitor-threshold": "100",
    "zset-max-listpack-value": "64",
    "hash-max-listpack-value": "64",
    "zset-max-listpack-entries": "128",
    "hash-max-listpack-entries": "512",
}
HEALTHY = Facts(
    shown="redis://db:6379/0",
    kind="tcp",
    namespace="duly",
    info=INFO,
    settings=SETTINGS,
    skew=Skew(0.001, 0.0005),
    pings=(0.0002,) * 100,
    scripts=(0.0003,) * 50,
    blocked=0.06,
    slow=(),
    stalls=(),
    keyspace=Keyspace(examined=12, layout=Layout(owners=2)),
    permissions=Permissions({"producer": (), "consumer": ("+claim",)}),
    absent=frozenset(),
    user="app",
)


def changed(info: Any = None, settings: Any = None, **others: Any) -> Facts:
    """Change some fields of INFO, some settings, or whole facts. A `Missing` replaces all fields."""
    if info is not None:
        others["info"] = {**INFO, **info} if isinstance(info, dict) else info
    if settings is not None:
        others["settings"] = {**SETTINGS, **settings} if isinstance(settings, dict) else settings
    return replace(HEALTHY, **others)
