"""Checks of memory, disk and replicas."""

import re
from collections.abc import Mapping
from typing import Final

from duly.doctor.facts import Facts, Missing, fields, number
from duly.doctor.report import Finding, Subject, in_shell, setting_fix, size

PERSISTENCE: Final = Subject(
    "persistence",
    "A message is as safe as the data of the server. Data outside the append-only file is lost when it ends.",
)
FSYNC: Final = Subject(
    "fsync",
    "A power failure loses data that was not synced: with everysec a second or two, with no half a minute.",
)
LAST_WRITES: Final = Subject(
    "disk", "While the server cannot write its files, it refuses writes, or loses confirmed writes when it ends."
)

DELAYED: Final = 100
"""Writes that waited for a slow sync since the server started; as many are a warning."""


def persistence(facts: Facts) -> Finding:
    """Check whether there is an append-only file."""
    is_written = _is_written(facts)
    if isinstance(is_written, Missing):
        return PERSISTENCE.unknown(facts, is_written)
    if is_written:
        return PERSISTENCE.ok("append-only file")
    info = {} if isinstance(facts.info, Missing) else facts.info
    fix = setting_fix(facts, ("appendonly", "yes"))
    saves = facts.setting("save")
    if not isinstance(saves, Missing) and not saves:
        return PERSISTENCE.bad("none: a restart of the server empties it", fix)
    kept = "snapshots only" if not isinstance(saves, Missing) else "no append-only file; snapshots at most"
    found = f"{kept}: a crash reverts to the last one ({_since(info)})"
    if replicas_of(info):  # they keep the data that the primary loses, unless it restarts before a fail-over
        return PERSISTENCE.warn(found, fix)
    return PERSISTENCE.bad(found, fix)


def fsync(facts: Facts) -> Finding:
    """Check when the append-only file is synced."""
    is_written, policy = _is_written(facts), facts.setting("appendfsync")
    if isinstance(is_written, Missing):
        return FSYNC.unknown(facts, is_written)
    if not is_written:
        return FSYNC.ok("there is no append-only file to sync: see persistence")
    if isinstance(policy, Missing):
        return FSYNC.unknown(facts, policy)
    if policy == "no":
        return FSYNC.warn(
            "appendfsync no: the operating system decides when", setting_fix(facts, ("appendfsync", "everysec"))
        )
    if facts.setting("no-appendfsync-on-rewrite") == "yes":
        return FSYNC.warn(
            f"appendfsync {policy}, but not while the file is rewritten",
            setting_fix(facts, ("no-appendfsync-on-rewrite", "no")),
        )
    return FSYNC.ok(f"appendfsync {policy}")


def last_writes(facts: Facts) -> Finding:
    """Check whether the last writes to disk succeeded."""
    info = facts.info
    if isinstance(info, Missing):
        return LAST_WRITES.unknown(facts, info)
    room = "# free space on the server's disk; its log has the error"
    if info.get("aof_last_write_status", "ok") != "ok":
        return LAST_WRITES.bad("the last write to the append-only file failed", f"{room}\nBGREWRITEAOF")
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        return _failed_snapshot(facts, room)
    if info.get("aof_last_bgrewrite_status", "ok") != "ok":
        return LAST_WRITES.warn("the last rewrite of the append-only file failed", f"{room}\nBGREWRITEAOF")
    if (delayed := number(info.get("aof_delayed_fsync", "0"))) >= DELAYED:
        return LAST_WRITES.warn(
            f"{delayed:.0f} writes waited for a slow sync",
            "# use a faster disk, or one that is not shared. Then reset the counters:\nCONFIG RESETSTAT",
        )
    return LAST_WRITES.ok("the last writes succeeded")


def _failed_snapshot(facts: Facts, room: str) -> Finding:
    stops = facts.setting("stop-writes-on-bgsave-error")
    if stops == "no":
        return LAST_WRITES.warn("the last snapshot failed", f"{room}\nBGSAVE")
    return LAST_WRITES.bad(
        "the last snapshot failed, and the server refuses writes until one succeeds", f"{room}\nBGSAVE"
    )


def _is_written(facts: Facts) -> bool | Missing:
    """Return whether an append-only file is written. Uses the setting if INFO is not allowed."""
    if not isinstance(facts.info, Missing):
        return has_file(facts.info)
    setting = facts.setting("appendonly")
    return facts.info if isinstance(setting, Missing) else setting == "yes"


def has_file(info: Mapping[str, str]) -> bool:
    """Return whether an append-only file is written."""
    return info.get("aof_enabled", "0") == "1"


def replicas_of(info: Mapping[str, str]) -> int:
    """Return the number of connected replicas."""
    return int(number(info.get("connected_slaves", "0")))


def _since(info: Mapping[str, str]) -> str:
    changes = info.get("rdb_changes_since_last_save", "?")
    return f"{changes} changes since"


# Replication

ROLE: Final = Subject("role", "A replica accepts no writes. An app refuses it.")
REPLICAS: Final = Subject(
    "replicas", "An isolated primary continues to accept writes. They are lost when a replica takes over."
)
RESTART: Final = Subject(
    "restart", "A primary without data on disk restarts empty, and its replicas copy the empty data set."
)

BEHIND_AFTER: Final = 10
"""Seconds without a report of a replica after which it counts as behind."""
LONGEST_LAG: Final = 2
"""Seconds for `min-replicas-max-lag`. An isolated primary accepts writes for that time, and they may be lost."""


def role(facts: Facts) -> Finding:
    """Check whether the server is a primary."""
    info = facts.info
    if isinstance(info, Missing):
        return ROLE.unknown(facts, info)
    if info.get("role", "master") == "master":
        return ROLE.ok("primary")
    primary = f"{info.get('master_host')}:{info.get('master_port')}"
    return ROLE.bad(
        f"replica of {primary}", f"# connect to the primary:\nduly doctor --url {in_shell(f'redis://{primary}')}"
    )


def replicas(facts: Facts) -> Finding:
    """Check whether replicas keep up, and whether the primary refuses writes after losing them."""
    info = facts.info
    if isinstance(info, Missing):
        return REPLICAS.unknown(facts, info)
    if info.get("role", "master") != "master":
        return REPLICAS.ok("this server is a replica: see role")
    least = facts.setting("min-replicas-to-write")
    needed = 0 if isinstance(least, Missing) else int(number(least))
    count = replicas_of(info)
    good = int(number(info.get("min_slaves_good_slaves", str(count))))
    if needed > good:
        return REPLICAS.bad(
            f"min-replicas-to-write is {needed}, but {good} keep up: the server refuses every write",
            "# restore the replicas; or, until then:\n" + setting_fix(facts, ("min-replicas-to-write", str(good))),
        )
    return _followed(facts, info, count, least) if count else REPLICAS.ok("none: this server has the only copy")


def _followed(facts: Facts, info: Mapping[str, str], count: int, least: str | Missing) -> Finding:
    if behind := _behind(info):
        return REPLICAS.warn(f"{count}, of which {behind} lag or are not synchronized", "# see the log of the replica")
    if info.get("cluster_enabled") == "1":  # a primary without the majority refuses calls after a moment
        return REPLICAS.ok(f"{count}, which keep up")
    if isinstance(least, Missing):
        return REPLICAS.unknown(facts, least)
    if number(least) < 1:
        return REPLICAS.warn(
            f"{count}, but the primary accepts writes without them",
            setting_fix(facts, ("min-replicas-to-write", "1"), ("min-replicas-max-lag", str(LONGEST_LAG)))
            + ("\n# the price with one replica: writes stop while it is away" if count == 1 else ""),
        )
    return REPLICAS.ok(f"{count}, of which {least} must keep up")


def restart(facts: Facts) -> Finding:
    """Check whether a restart would empty the replicas."""
    info = facts.info
    if isinstance(info, Missing):
        return RESTART.unknown(facts, info)
    count = replicas_of(info)
    if not count or info.get("role", "master") != "master":
        return RESTART.ok("no replicas")
    if has_file(info):
        return RESTART.ok("the data is on disk")
    saves = facts.setting("save")
    if isinstance(saves, Missing):
        return RESTART.unknown(facts, saves)
    if saves:
        return RESTART.warn(
            "it restarts from the last snapshot, and its replicas copy that", setting_fix(facts, ("appendonly", "yes"))
        )
    return RESTART.bad(f"no data on disk, and {count} replicas", setting_fix(facts, ("appendonly", "yes")))


def _behind(info: Mapping[str, str]) -> int:
    rows = [value for name, value in info.items() if re.fullmatch(r"slave\d+", name)]
    return sum(each.get("state") != "online" or number(each.get("lag")) > BEHIND_AFTER for each in map(fields, rows))


# Memory

EVICTION: Final = Subject(
    "eviction", "A server that evicts silently deletes keys of queues when memory is short. Messages are lost."
)
HEADROOM: Final = Subject(
    "memory",
    "At maxmemory, sends raise QueueFull. Without a limit, the operating system kills the server.",
)

NEAR: Final = 0.75
FULL: Final = 0.9
"""Shares of maxmemory."""
OF_MACHINE: Final = 0.75
"""The share of the machine's memory that a fix assigns. The rewrite of the append-only file needs the rest."""


def eviction(facts: Facts) -> Finding:
    """Check whether keys may be evicted."""
    policy = facts.setting("maxmemory-policy")
    if isinstance(policy, Missing):
        return EVICTION.unknown(facts, policy)
    if policy == "noeviction":
        return EVICTION.ok("noeviction")
    return EVICTION.bad(f"maxmemory-policy {policy}", setting_fix(facts, ("maxmemory-policy", "noeviction")))


def headroom(facts: Facts) -> Finding:
    """Check how much memory is left."""
    info = facts.info
    if isinstance(info, Missing):
        return HEADROOM.unknown(facts, info)
    used = number(info.get("used_memory", "0")) - number(info.get("mem_not_counted_for_evict", "0"))
    limit, machine = number(info.get("maxmemory", "0")), number(info.get("total_system_memory", "0"))
    if not limit:
        return _without_limit(facts, used, machine)
    share = used / limit
    found = f"{size(used)} of maxmemory {size(limit)} ({share:.0%})"
    if machine and limit > machine:
        return HEADROOM.warn(f"{found}, more than the machine has", _limit_fix(facts, used, machine))
    if share < NEAR:
        return HEADROOM.ok(found)
    finding = HEADROOM.bad if share >= FULL else HEADROOM.warn
    return finding(found, _limit_fix(facts, used, machine))


def _without_limit(facts: Facts, used: float, machine: float) -> Finding:
    found = f"{size(used)} used, no maxmemory"
    if not machine or used < machine * 0.5:
        return HEADROOM.ok(found)
    return HEADROOM.warn(f"{found}, on a machine with {size(machine)}", _limit_fix(facts, used, machine))


def _limit_fix(facts: Facts, used: float, machine: float) -> str:
    """Return a fix that sets the limit to twice the used memory, as far as the machine has it."""
    wanted = used * 2
    if machine and wanted > machine * OF_MACHINE:
        wanted = machine * OF_MACHINE
        if wanted * FULL <= used:
            return "# add memory to the machine, or consumers, or limits: docs/operations.md, Memory"
    megabytes = max(int(wanted / 1024 / 1024), 1)
    return setting_fix(facts, ("maxmemory", f"{megabytes}mb"))
