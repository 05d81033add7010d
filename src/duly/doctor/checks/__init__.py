"""The checks: each is a pure function of the facts. `CHECKS` lists them in the order of the report."""

from collections.abc import Callable, Mapping
from typing import Final

from duly.doctor.checks import capabilities, leftovers, network, performance, storage
from duly.doctor.facts import Facts
from duly.doctor.report import Finding

Check = Callable[[Facts], Finding]

CHECKS: Final[Mapping[str, Check]] = {
    "version": capabilities.version,
    "known-flaws": capabilities.known_flaws,
    "commands": capabilities.commands,
    "role": storage.role,
    "cluster": capabilities.cluster,
    "slots": capabilities.slots,
    "eviction": storage.eviction,
    "memory": storage.headroom,
    "persistence": storage.persistence,
    "fsync": storage.fsync,
    "disk": storage.last_writes,
    "replicas": storage.replicas,
    "restart": storage.restart,
    "clock": performance.clock,
    "queue-clocks": performance.queue_clocks,
    "latency": performance.latency,
    "blocking": performance.blocking,
    "slow-log": performance.slow_log,
    "stalls": performance.stalls,
    "script-limit": performance.script_limit,
    "script-cache": performance.script_cache,
    "compact-forms": performance.compact_forms,
    "idle-timeout": network.idle_timeout,
    "keepalive": network.keepalive,
    "clients": network.clients,
    "big-keys": leftovers.big_keys,
    "orphans": leftovers.orphans,
    "expiry": leftovers.expiry,
    "workers": leftovers.workers,
    "options": leftovers.options,
    "rights": capabilities.rights,
}
