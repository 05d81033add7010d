"""The examination of the keys of a namespace. It has limits of number and time, and changes nothing."""

import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from duly._core.keys import RegistryKeys, TopicKeys
from duly._core.published import differing
from duly._core.registry import read_info
from duly._core.topology import slot_of
from duly.doctor import measurements
from duly.doctor.client import Client
from duly.doctor.facts import BigKey, Keyspace, Layout, Missing, Orphan, QueueClock, SilentWorker, SlotLoad, number
from duly.doctor.report import in_shell, quoted
from duly.doctor.scan import FEW, MOST_KEYS, WITH_MESSAGES, Owners, Scan, scan_keys

# Groups that their stream has lost

_DETACHED: Final = """
if redis.call('EXISTS', unpack(KEYS, 2)) == 0 then return 0 end
local groups = redis.pcall('XINFO', 'GROUPS', KEYS[1])
for _, row in ipairs(groups.err and {} or groups) do
  for field = 1, #row, 2 do
    if row[field] == 'name' and row[field + 1] == ARGV[1] then return 0 end
  end
end
return 1
"""
"""Returns 1 if a group has keys but its stream does not list it."""
_MOMENT: Final = 0.2
"""Seconds before a suspect is checked again. A group whose topic is being created again is complete by then."""
_ENTRY: Final = re.compile(rb"\d{1,20}-\d{1,20}")


@dataclass(frozen=True)
class _Suspect:
    """A group that its stream does not list."""

    owner: str
    stream: bytes
    held: list[bytes]
    meta: bytes | None
    reason: str

    @property
    def group(self) -> str:
        return self.owner.partition("/")[2]


def detached_groups(scan: Scan) -> Iterator[Orphan]:
    """Find groups that have keys but are not listed by their stream. Checks twice, since groups change."""
    suspects = list(_suspects(scan))
    if suspects:
        time.sleep(_MOMENT)
    for each in scan.within(suspects):
        if _is_detached(scan, each):
            yield Orphan(each.held[0], each.reason, _reattach_commands(scan, each))


def _suspects(scan: Scan) -> Iterator[_Suspect]:
    groups = [(owner, keys) for (family, owner), keys in scan.owners.items() if family == "group"]
    for owner, keys in scan.within(groups):
        held = list(data_keys(keys).values())
        if not any(scan.ask("orphans", "EXISTS", key) == 1 for key in held):
            continue
        topic, _, group = owner.partition("/")
        stream = TopicKeys(scan.namespace, topic).stream
        known = _groups_of(scan, stream)
        if "orphans" in scan.missing:
            return
        if known is None or group.encode() not in known:
            lost = "the stream of its topic is gone" if known is None else "the stream does not know the group"
            yield _Suspect(owner, stream, held, keys.get("meta"), lost)


def _is_detached(scan: Scan, suspect: _Suspect) -> bool:
    """Check keys and stream in one script, since the group may be deleted and created again in between."""
    reply = scan.client.ask("EVAL", _DETACHED, len(suspect.held) + 1, suspect.stream, *suspect.held, suspect.group)
    return isinstance(reply, Missing) or reply == 1  # without scripts, the first check decides


def _groups_of(scan: Scan, stream: bytes) -> set[bytes] | None:
    """Return the native groups of a stream. None if there is no stream, or the server refuses to list them."""
    reply = scan.client.ask("XINFO", "GROUPS", stream)
    if isinstance(reply, Missing):
        if "no such key" not in reply.reason:
            scan.missing.setdefault("orphans", reply)
        return None
    return {dict(zip(row[0::2], row[1::2], strict=True))[b"name"] for row in reply}


def _reattach_commands(scan: Scan, suspect: _Suspect) -> str:
    """Return commands that create the native group again at its old position, so that it can continue or be deleted.

    The position of a group that never read an entry is unknown. A wrong one would skip or repeat entries, so the
    operator has to choose it.
    """
    fed = None if suspect.meta is None else scan.ask("orphans", "HGET", suspect.meta, "fed")
    create = f"XGROUP CREATE {quoted(suspect.stream)} {quoted(suspect.group.encode())}"
    delete = f"duly delete {in_shell(suspect.owner)} --yes"
    if isinstance(fed, bytes) and _ENTRY.fullmatch(fed):
        position = fed.decode()
        return f"{create} {position} MKSTREAM\n# to delete the group instead, continue with:\n{delete}"
    return (
        f"# the position of {suspect.owner} in its stream is unknown: choose one. For new entries only:\n"
        f"# {create} $ MKSTREAM\n"
        f"# or for all entries that the stream still has, including those that the group had already:\n"
        f"# {create} 0 MKSTREAM\n"
        f"# to delete the group instead, run one of them, and then: {delete}"
    )


# Keys with unknown names, and queues that have lost the key by which they are found

_DISPENSABLE: Final = frozenset({"wake", "dedup", "dedup_ends", "awaited", "ends", "history"})
"""Keys that store no messages, and may outlive a queue for a while."""


def data_keys(keys: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the keys that store the data of a queue or group. Records of calls are left out: they outlive it."""
    return {tail: key for tail, key in keys.items() if tail not in _DISPENSABLE and not tail.startswith("call:")}


def unknown_names(scan: Scan) -> Iterator[Orphan]:
    """Find keys with names that no script uses, or with owners that could not have their name."""
    for key, name in scan.unknown_keys:
        reason = "Duly has no key with this name" if name.family else "no queue, topic or group can have this name"
        yield Orphan(key, reason, f"# unless a newer version of Duly or another program uses it:\nDEL {quoted(key)}")


def queues_without_meta(scan: Scan) -> Iterator[Orphan]:
    """Find queues that have lost `meta`. Needs a complete scan: otherwise `meta` may be among the other keys."""
    if not scan.is_complete:
        return
    without_meta = [
        (owner, keys) for (family, owner), keys in scan.owners.items() if family == "queue" and "meta" not in keys
    ]
    for owner, keys in scan.within(without_meta):
        held = data_keys(keys)
        tail = next(iter(held), "wake")
        if tail in keys and _is_alone(scan, keys[tail], tail):
            yield _lost_meta(owner, keys[tail], tail) if held else _leftover_token(keys[tail])


def _meta_of(key: bytes, tail: str) -> bytes:
    return key.removesuffix(tail.encode()) + b"meta"


def _is_alone(scan: Scan, key: bytes, tail: str) -> bool:
    """Check both keys in one command, since the queue may have changed after the scan. 1: only `key` exists."""
    meta = _meta_of(key, tail)
    return bool(scan.ask("orphans", "EXISTS", meta, meta, key) == 1)


def _lost_meta(owner: str, key: bytes, tail: str) -> Orphan:
    fix = f"HSETNX {quoted(_meta_of(key, tail))} clock 0\nduly audit {in_shell(owner)} --repair"
    return Orphan(key, f"queue {owner!r} has lost its meta, and is not listed", fix)


def _leftover_token(key: bytes) -> Orphan:
    return Orphan(key, "a wake token of a deleted queue", f"DEL {quoted(key)}")


# Clocks


def clocks_ahead(scan: Scan, server_us: int) -> Iterator[QueueClock]:
    """Find queues, topics and groups whose clock is ahead of the server's."""
    for (family, owner), keys in scan.within(scan.owners.items()):
        if family in WITH_MESSAGES and "meta" in keys:
            clock = number(scan.ask("queue-clocks", "HGET", keys["meta"], "clock"))
            if clock <= server_us:
                continue
            # The queue may have worked since `server_us`, which is from the beginning of the examination.
            now = measurements.server_time(scan.client)
            ahead = (clock - (server_us if isinstance(now, Missing) else now)) / 1_000_000
            if ahead > 0:
                yield QueueClock(owner, ahead)


# Expiry

_KEPT_MS: Final = {"call": 3_600_000, "awaited": 60_000, "ends": 60_000, "history": 8 * 86_400_000}
"""Keys that expire, by the first part of their names, with their longest expiry in milliseconds."""
_WINDOWS: Final = ("dedup", "dedup_ends")
"""Keys that expire with the last window of deduplication."""
_LASTING: Final = (*WITH_MESSAGES, "schedules")


def without_expiry(scan: Scan) -> Iterator[tuple[bytes, int]]:
    """Find keys that lack an expiry, with the milliseconds that it should be."""
    temporary = [
        (key, _KEPT_MS[kind])
        for keys in scan.owners.values()
        for tail, key in keys.items()
        if (kind := tail.partition(":")[0]) in _KEPT_MS
    ]
    for key, kept in scan.within(temporary, FEW):
        if scan.ask("expiry", "PTTL", key) == -1:
            yield key, kept


def expiring(scan: Scan) -> Iterator[bytes]:
    """Find keys of messages or schedules that have an expiry. No script of Duly sets one on them."""
    lasting = [
        key
        for (family, _), keys in scan.owners.items()
        for tail, key in keys.items()
        if family in _LASTING and tail.partition(":")[0] not in _KEPT_MS and tail not in _WINDOWS
    ]
    for key in scan.within(lasting):
        left = scan.ask("expiry", "PTTL", key)
        if left is None:
            return
        if left >= 0:
            yield key


# Sizes

_SAMPLES: Final = 5
_SMALL: Final = ("wake", "ends", "history")


def sizes(scan: Scan) -> Iterator[BigKey]:
    """Measure the keys that grow with the number of messages."""
    growing = [
        (owner, tail, key)
        for (family, owner), keys in scan.owners.items()
        for tail, key in keys.items()
        if family in WITH_MESSAGES and tail not in _SMALL and not tail.startswith("call:")
    ]
    for owner, tail, key in scan.within(growing):
        reply = scan.ask("big-keys", "MEMORY", "USAGE", key, "SAMPLES", _SAMPLES)
        if "big-keys" in scan.missing:
            return
        if reply is not None:  # deleted since the scan
            yield BigKey(key, owner, tail, reply)


# Slots of a cluster, which follow from the names of the keys


def layout(scan: Scan) -> Layout:
    """Return whether all keys that scripts use together share a slot."""
    slots = slots_of(scan.owners)
    return Layout(len(slots), tuple(owner for owner, found in slots.items() if len(found) > 1))


def slots_of(owners: Owners) -> dict[str, set[int]]:
    """Return the slots of each owner. A topic and its groups are one owner: scripts of groups use the topic's keys."""
    found: dict[str, set[int]] = defaultdict(set)
    for (family, owner), keys in owners.items():
        whole = f"topic {owner.partition('/')[0]}" if family in ("topic", "group") else owner
        found[whole] |= {slot_of(key) for key in keys.values()}
    return dict(found)


_COUNTED: Final = {"msgs": "HLEN", "stream": "XLEN"}
"""The keys with the messages of a queue or group and the entries of a topic, and the commands that count them."""


def loads(scan: Scan) -> tuple[SlotLoad, ...]:
    """Count the messages in each slot."""
    counts: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    stores = [
        (owner, _COUNTED[tail], key)
        for (family, owner), keys in scan.owners.items()
        for tail, key in keys.items()
        if family in WITH_MESSAGES and tail in _COUNTED
    ]
    for owner, command, key in scan.within(stores):
        count = scan.ask("heavy-slots", command, key)
        if count:
            counts[slot_of(key)][owner] += count
    return tuple(SlotLoad(slot, tuple(owners), sum(owners.values())) for slot, owners in counts.items())


# Workers


def silent_workers(scan: Scan, server_us: int) -> tuple[SilentWorker, ...]:
    """List the registered workers, with the time since their last heartbeat."""
    registry = RegistryKeys(scan.namespace)
    if ("workers", registry.name) not in scan.owners:
        return ()
    beats = scan.ask("workers", "ZRANGE", registry.key("beats"), 0, FEW - 1, "WITHSCORES")
    page = scan.ask("workers", "HSCAN", registry.key("workers"), 0, "COUNT", FEW)
    if "workers" in scan.missing:
        return ()
    last = {name: number(score) for name, score in zip(beats[0::2], beats[1::2], strict=True)}
    found = [SilentWorker(name, max((server_us - beat) / 1_000_000, 0)) for name, beat in last.items()]
    rows = page[1][0::2] if len(last) < FEW else []  # beyond that, unread heartbeats may belong to these rows
    return (*found, *(SilentWorker(name, None) for name in rows if name not in last and _never_beat(scan, name)))


def differing_options(scan: Scan) -> dict[str, list[str]]:
    """Compare the options that workers publish for the same queue. Workers that have stopped no longer count."""
    registry = RegistryKeys(scan.namespace)
    if ("workers", registry.name) not in scan.owners:
        return {}
    page = scan.ask("options", "HSCAN", registry.key("workers"), 0, "COUNT", FEW)
    if "options" in scan.missing:
        return {}
    infos = (read_info(stored) for stored in page[1][1::2])
    return differing(info for info in infos if info is not None)


def _never_beat(scan: Scan, worker: bytes) -> bool:
    """Check again, since the worker may have started or stopped. Heartbeat and row are always written together."""
    registry = RegistryKeys(scan.namespace)
    if scan.ask("workers", "ZSCORE", registry.key("beats"), worker) is not None:
        return False
    return bool(scan.ask("workers", "HEXISTS", registry.key("workers"), worker) == 1)


# All of it


def examine_keys(
    client: Client, namespace: str, server_us: int, *, most: int = MOST_KEYS, in_cluster: bool = False
) -> Keyspace | Missing:
    """Find and examine the keys of a namespace. `server_us` is the server's time in microseconds."""
    scan = scan_keys(client, namespace, most)
    if isinstance(scan, Missing):
        return scan
    return Keyspace(
        orphans=(*unknown_names(scan), *queues_without_meta(scan), *detached_groups(scan)),
        clocks=tuple(clocks_ahead(scan, server_us)),
        without_expiry=tuple(without_expiry(scan)),
        expiring=tuple(expiring(scan)),
        big=tuple(sizes(scan)),
        silent=silent_workers(scan, server_us),
        differing=differing_options(scan),
        layout=layout(scan),
        loads=loads(scan) if in_cluster else (),
        examined=scan.examined,
        is_complete=scan.is_complete,  # last: any of the above may run out of time
        missing=scan.missing,
    )
