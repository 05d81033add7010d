"""What of the data is on disk."""

from collections.abc import Mapping
from typing import Final

from duly.doctor.facts import Facts, Missing
from duly.doctor.reading import number
from duly.doctor.report import Finding
from duly.doctor.subject import Subject, setting_mend

PERSISTENCE: Final = Subject(
    "persistence",
    "A message is as safe as the data of the server: what is not in the append-only file goes when it ends.",
)
FSYNC: Final = Subject(
    "fsync",
    "A power failure takes what was not synced: with everysec a second or two, with no half a minute.",
)
LAST_WRITES: Final = Subject(
    "disk", "While the server cannot write its files it refuses writes, or loses what it answered when it ends."
)

DELAYED: Final = 100
"""Writes that waited for a slow sync, since the server started, before it is worth a word."""


def persistence(facts: Facts) -> Finding:
    """Look whether there is an append-only file."""
    is_written = _is_written(facts)
    if isinstance(is_written, Missing):
        return PERSISTENCE.unknown(facts, is_written)
    if is_written:
        return PERSISTENCE.ok("append-only file")
    info = {} if isinstance(facts.info, Missing) else facts.info
    mend = setting_mend(facts, ("appendonly", "yes"))
    saves = facts.setting("save")
    if not isinstance(saves, Missing) and not saves:
        return PERSISTENCE.bad("none: a restart of the server empties it", mend)
    told = "snapshots only" if not isinstance(saves, Missing) else "no append-only file; snapshots at the most"
    found = f"{told}: a crash goes back to the last one ({_since(info)})"
    if replicas_of(info):  # they have what the primary loses, unless it comes back before one of them takes over
        return PERSISTENCE.warn(found, mend)
    return PERSISTENCE.bad(found, mend)


def fsync(facts: Facts) -> Finding:
    """Look when the file is synced."""
    is_written, policy = _is_written(facts), facts.setting("appendfsync")
    if isinstance(is_written, Missing):
        return FSYNC.unknown(facts, is_written)
    if not is_written:
        return FSYNC.ok("there is no append-only file to sync: see persistence")
    if isinstance(policy, Missing):
        return FSYNC.unknown(facts, policy)
    if policy == "no":
        return FSYNC.warn("appendfsync no: the system decides when", setting_mend(facts, ("appendfsync", "everysec")))
    if facts.setting("no-appendfsync-on-rewrite") == "yes":
        return FSYNC.warn(
            f"appendfsync {policy}, but not while the file is rewritten",
            setting_mend(facts, ("no-appendfsync-on-rewrite", "no")),
        )
    return FSYNC.ok(f"appendfsync {policy}")


def last_writes(facts: Facts) -> Finding:
    """Look whether the last writes to disk went well."""
    info = facts.info
    if isinstance(info, Missing):
        return LAST_WRITES.unknown(facts, info)
    room = "# make room on the server's disk; its log says what was wrong"
    if info.get("aof_last_write_status", "ok") != "ok":
        return LAST_WRITES.bad("the last write to the append-only file failed", f"{room}\nBGREWRITEAOF")
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        return _failed_snapshot(facts, room)
    if info.get("aof_last_bgrewrite_status", "ok") != "ok":
        return LAST_WRITES.warn("the last rewrite of the append-only file failed", f"{room}\nBGREWRITEAOF")
    if (delayed := number(info.get("aof_delayed_fsync", "0"))) >= DELAYED:
        return LAST_WRITES.warn(
            f"{delayed:.0f} writes had to wait for a slow sync",
            "# a faster disk, or one that others do not share; then count anew:\nCONFIG RESETSTAT",
        )
    return LAST_WRITES.ok("the last writes went well")


def _failed_snapshot(facts: Facts, room: str) -> Finding:
    stops = facts.setting("stop-writes-on-bgsave-error")
    if stops == "no":
        return LAST_WRITES.warn("the last snapshot failed", f"{room}\nBGSAVE")
    return LAST_WRITES.bad(
        "the last snapshot failed, and the server refuses writes while that is so", f"{room}\nBGSAVE"
    )


def _is_written(facts: Facts) -> bool | Missing:
    """Tell whether an append-only file is written. The setting says it where INFO is hidden."""
    if not isinstance(facts.info, Missing):
        return has_file(facts.info)
    setting = facts.setting("appendonly")
    return facts.info if isinstance(setting, Missing) else setting == "yes"


def has_file(info: Mapping[str, str]) -> bool:
    """Tell whether an append-only file is written."""
    return info.get("aof_enabled", "0") == "1"


def replicas_of(info: Mapping[str, str]) -> int:
    """Count the replicas that are connected."""
    return int(number(info.get("connected_slaves", "0")))


def _since(info: Mapping[str, str]) -> str:
    changes = info.get("rdb_changes_since_last_save", "?")
    return f"{changes} changes since"
