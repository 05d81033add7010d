"""Checks of the keys in the namespace."""

from typing import Final

from duly._core.keys import RegistryKeys
from duly.doctor.facts import BigKey, Facts, Missing, SilentWorker
from duly.doctor.report import Finding, Subject, in_shell, listed, quoted, size

BIG_KEYS: Final = Subject(
    "big-keys", "A key that grows without a limit fills the server in the end. Big keys are slow to copy and to free."
)
ORPHANS: Final = Subject(
    "orphans", "Keys without an owner occupy memory forever. Messages of a queue that is not listed are not found."
)
EXPIRY: Final = Subject(
    "expiry",
    "A key of messages that expires deletes them all. A temporary key without an expiry stays forever.",
)
WORKERS: Final = Subject(
    "workers", "Workers that died stay listed until another worker sends a heartbeat, and look like workers that hang."
)
OPTIONS: Final = Subject(
    "options",
    "Options are not stored: each worker uses its own. If they differ, leases, retries and limits depend on the worker "
    "that gets a message.",
)

BIG: Final = 32 * 1024 * 1024
SILENT: Final = 86_400.0
"""Seconds; a day."""
_SHOWN: Final = 20
"""The highest number of commands in a fix. Examine again for the rest."""


def big_keys(facts: Facts) -> Finding:
    """Find keys that have grown too large."""
    keyspace = facts.keys_for(BIG_KEYS.name)
    if isinstance(keyspace, Missing):
        return BIG_KEYS.unknown(facts, keyspace)
    big = sorted((each for each in keyspace.big if each.size >= BIG), key=lambda each: -each.size)
    if not big:
        return BIG_KEYS.ok(f"none of {size(BIG)} or more{keyspace.coverage_note}")
    named = listed([f"{quoted(each.key)} {size(each.size)}" for each in big])
    return BIG_KEYS.warn(
        f"{named}{keyspace.coverage_note}", "\n".join(dict.fromkeys(_smaller(each) for each in big[:_SHOWN]))
    )


def orphans(facts: Facts) -> Finding:
    """Find keys without an owner."""
    keyspace = facts.keys_for(ORPHANS.name)
    if isinstance(keyspace, Missing):
        return ORPHANS.unknown(facts, keyspace)
    if not keyspace.orphans:
        return ORPHANS.ok(f"none among {keyspace.examined} keys{keyspace.coverage_note}")
    named = listed([f"{quoted(each.key)} ({each.reason})" for each in keyspace.orphans], 3)
    return ORPHANS.warn(f"{named}{keyspace.coverage_note}", "\n".join(each.fix for each in keyspace.orphans[:_SHOWN]))


def expiry(facts: Facts) -> Finding:
    """Find keys that will expire and must not, and keys that should expire and will not."""
    keyspace = facts.keys_for(EXPIRY.name)
    if isinstance(keyspace, Missing):
        return EXPIRY.unknown(facts, keyspace)
    if keyspace.expiring:
        named = listed([quoted(key) for key in keyspace.expiring], 3)
        fix = "\n".join(f"PERSIST {quoted(key)}" for key in keyspace.expiring[:_SHOWN])
        return EXPIRY.bad(f"{named} will expire, with all messages in them", fix)
    if not keyspace.without_expiry:
        return EXPIRY.ok(f"all keys are as expected{keyspace.coverage_note}")
    named = listed([quoted(key) for key, _ in keyspace.without_expiry], 3)
    return EXPIRY.warn(
        named, "\n".join(f"PEXPIRE {quoted(key)} {kept}" for key, kept in keyspace.without_expiry[:_SHOWN])
    )


def workers(facts: Facts) -> Finding:
    """Find workers without a recent heartbeat."""
    keyspace = facts.keys_for(WORKERS.name)
    if isinstance(keyspace, Missing):
        return WORKERS.unknown(facts, keyspace)
    silent = [each for each in keyspace.silent if each.seconds is None or each.seconds > SILENT]
    if not silent:
        return WORKERS.ok("all have sent a heartbeat in the last day")
    named = listed([_silence(each) for each in silent], 3)
    gone = " ".join(quoted(each.name) for each in silent[:_SHOWN])
    rows, beats = (quoted(RegistryKeys(facts.namespace).key(tail)) for tail in ("workers", "beats"))
    return WORKERS.warn(named, f"HDEL {rows} {gone}\nZREM {beats} {gone}")


def options(facts: Facts) -> Finding:
    """Find queues whose workers have different options."""
    keyspace = facts.keys_for(OPTIONS.name)
    if isinstance(keyspace, Missing):
        return OPTIONS.unknown(facts, keyspace)
    if not keyspace.differing:
        return OPTIONS.ok("all workers of a queue have the same")
    named = listed([f"{name} ({', '.join(fields)})" for name, fields in keyspace.differing.items()], 3)
    return OPTIONS.warn(named, "# run the same code in all workers. During a deployment, wait until it has ended")


def _silence(worker: SilentWorker) -> str:
    name = quoted(worker.name)
    return (
        f"{name}, never sent a heartbeat"
        if worker.seconds is None
        else f"{name}, silent for {worker.seconds / 3600:.0f} h"
    )


def _smaller(each: BigKey) -> str:
    """Return a fix that makes a key smaller without deleting live messages."""
    owner = in_shell(each.owner)
    if each.tail == "stream":
        return (
            f"# limit the topic, app.topic({each.owner!r}, keep=duly.Keep(bytes=...)), and delete idle groups:\n"
            f"duly topic groups {owner}"
        )
    if each.tail in ("dead", "why"):
        return f"# redrive or purge the dead letters, and limit them with dead=duly.Keep(...):\nduly dead ls {owner}"
    return f"# add consumers, or set limits (max_length, max_bytes, ttl, dead=Keep, done=Keep):\nduly stats {owner}"
