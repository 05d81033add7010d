"""What lies in the namespace."""

from typing import Final

from duly._core.keys import RegistryKeys
from duly.doctor.facts import BigKey, Facts, Missing, SilentWorker
from duly.doctor.report import Finding, Subject, in_shell, listed, quoted, size

BIG_KEYS: Final = Subject(
    "big-keys", "What grows without a bound fills the server in the end; a big key is slow to copy and to free."
)
ORPHANS: Final = Subject(
    "orphans", "Keys that belong to nothing take memory for ever; messages whose queue has lost its name are not found."
)
EXPIRY: Final = Subject(
    "expiry",
    "A key of messages that expires takes them all along; one that should go by itself, and does not, stays for ever.",
)
WORKERS: Final = Subject(
    "workers", "Workers that died long ago are still on the list while no other beats, and look like some that hang."
)

BIG: Final = 32 * 1024 * 1024
SILENT: Final = 86_400.0
"""Seconds: a day."""
_SHOWN: Final = 20
"""Commands of a mend at the most; examine again for the rest."""


def big_keys(facts: Facts) -> Finding:
    """Look for keys that have grown too far."""
    keyspace = facts.keys_for(BIG_KEYS.name)
    if isinstance(keyspace, Missing):
        return BIG_KEYS.unknown(facts, keyspace)
    big = sorted((each for each in keyspace.big if each.size >= BIG), key=lambda each: -each.size)
    if not big:
        return BIG_KEYS.ok(f"none of {size(BIG)} or more{keyspace.if_partly}")
    named = listed([f"{quoted(each.key)} {size(each.size)}" for each in big])
    return BIG_KEYS.warn(
        f"{named}{keyspace.if_partly}", "\n".join(dict.fromkeys(_smaller(each) for each in big[:_SHOWN]))
    )


def orphans(facts: Facts) -> Finding:
    """Look for keys that belong to nothing."""
    keyspace = facts.keys_for(ORPHANS.name)
    if isinstance(keyspace, Missing):
        return ORPHANS.unknown(facts, keyspace)
    if not keyspace.orphans:
        return ORPHANS.ok(f"none among {keyspace.looked_at} keys{keyspace.if_partly}")
    named = listed([f"{quoted(each.key)} ({each.reason})" for each in keyspace.orphans], 3)
    return ORPHANS.warn(f"{named}{keyspace.if_partly}", "\n".join(each.mend for each in keyspace.orphans[:_SHOWN]))


def expiry(facts: Facts) -> Finding:
    """Look for keys that will expire and should not, and the other way round."""
    keyspace = facts.keys_for(EXPIRY.name)
    if isinstance(keyspace, Missing):
        return EXPIRY.unknown(facts, keyspace)
    if keyspace.vanishing:
        named = listed([quoted(key) for key in keyspace.vanishing], 3)
        mend = "\n".join(f"PERSIST {quoted(key)}" for key in keyspace.vanishing[:_SHOWN])
        return EXPIRY.bad(f"{named} will expire, with all that is in them", mend)
    if not keyspace.unexpiring:
        return EXPIRY.ok(f"as it should be{keyspace.if_partly}")
    named = listed([quoted(key) for key, _ in keyspace.unexpiring], 3)
    return EXPIRY.warn(named, "\n".join(f"PEXPIRE {quoted(key)} {kept}" for key, kept in keyspace.unexpiring[:_SHOWN]))


def workers(facts: Facts) -> Finding:
    """Look for workers that have been silent for long."""
    keyspace = facts.keys_for(WORKERS.name)
    if isinstance(keyspace, Missing):
        return WORKERS.unknown(facts, keyspace)
    silent = [each for each in keyspace.silent if each.seconds is None or each.seconds > SILENT]
    if not silent:
        return WORKERS.ok("none is silent for long")
    named = listed([_silence(each) for each in silent], 3)
    gone = " ".join(quoted(each.name) for each in silent[:_SHOWN])
    rows, beats = (quoted(RegistryKeys(facts.namespace).key(tail)) for tail in ("workers", "beats"))
    return WORKERS.warn(named, f"HDEL {rows} {gone}\nZREM {beats} {gone}")


def _silence(worker: SilentWorker) -> str:
    name = quoted(worker.name)
    return (
        f"{name}, which never beat" if worker.seconds is None else f"{name}, silent for {worker.seconds / 3600:.0f} h"
    )


def _smaller(each: BigKey) -> str:
    """Say what makes a key smaller without losing what somebody wants."""
    owner = in_shell(each.owner)
    if each.tail == "stream":
        return (
            f"# bound the topic, app.topic({each.owner!r}, keep=duly.Keep(bytes=...)), and delete idle groups:\n"
            f"duly topic groups {owner}"
        )
    if each.tail in ("dead", "why"):
        return f"# redrive or purge the dead letters, and bound them with dead=duly.Keep(...):\nduly dead ls {owner}"
    return f"# more consumers, or bounds (max_length, max_bytes, ttl, dead=Keep, done=Keep):\nduly stats {owner}"
