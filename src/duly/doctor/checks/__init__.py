"""The checks: each is a pure function of the facts. `CHECKS` has them in the order in which they are told."""

from collections.abc import Callable, Mapping
from typing import Final

from duly.doctor.checks import (
    clocks,
    clusters,
    commands,
    connections,
    disk,
    leftovers,
    memory,
    replication,
    rights,
    scripts,
    speed,
    versions,
)
from duly.doctor.facts import Facts
from duly.doctor.report import Finding

Check = Callable[[Facts], Finding]

CHECKS: Final[Mapping[str, Check]] = {
    "version": versions.version,
    "known-flaws": versions.known_flaws,
    "commands": commands.commands,
    "role": replication.role,
    "cluster": clusters.cluster,
    "slots": clusters.slots,
    "eviction": memory.eviction,
    "memory": memory.headroom,
    "persistence": disk.persistence,
    "fsync": disk.fsync,
    "disk": disk.last_writes,
    "replicas": replication.replicas,
    "restart": replication.restart,
    "clock": clocks.clock,
    "queue-clocks": clocks.queue_clocks,
    "latency": speed.latency,
    "blocking": speed.blocking,
    "slow-log": speed.slow_log,
    "stalls": speed.stalls,
    "script-limit": scripts.script_limit,
    "script-cache": scripts.script_cache,
    "compact-forms": speed.compact_forms,
    "idle-timeout": connections.idle_timeout,
    "keepalive": connections.keepalive,
    "clients": connections.clients,
    "big-keys": leftovers.big_keys,
    "orphans": leftovers.orphans,
    "expiry": leftovers.expiry,
    "workers": leftovers.workers,
    "rights": rights.rights,
}
