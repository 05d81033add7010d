"""All looks at the keys of a namespace, one after another: bounded, and nothing is changed."""

import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from redis.crc import key_slot

from duly._core.keys import RegistryKeys, TopicKeys
from duly.doctor.client import Asker
from duly.doctor.facts import BigKey, Keyspace, Layout, Missing, Orphan, QueueClock, SilentWorker, number
from duly.doctor.report import in_shell, quoted
from duly.doctor.walk import FEW, HOLDING, MOST_KEYS, Owners, Walk, walk_through

_CUT_OFF: Final = """
if redis.call('EXISTS', unpack(KEYS, 2)) == 0 then return 0 end
local groups = redis.pcall('XINFO', 'GROUPS', KEYS[1])
for _, row in ipairs(groups.err and {} or groups) do
  for field = 1, #row, 2 do
    if row[field] == 'name' and row[field + 1] == ARGV[1] then return 0 end
  end
end
return 1
"""
"""Whether there is a store of a group that the stream does not know."""
_MOMENT: Final = 0.2
"""Seconds until a group that seems lost is looked at again: one whose topic is just made anew is whole by then."""
_ENTRY: Final = re.compile(rb"\d{1,20}-\d{1,20}")


@dataclass(frozen=True)
class _Suspect:
    """A group that its stream does not seem to know."""

    owner: str
    stream: bytes
    held: list[bytes]
    meta: bytes | None
    reason: str

    @property
    def group(self) -> str:
        return self.owner.partition("/")[2]


def groups_cut_off(walk: Walk) -> Iterator[Orphan]:
    """Find them. Suspects are looked at twice: a group may go and come again meanwhile."""
    suspects = list(_suspects(walk))
    if suspects:
        time.sleep(_MOMENT)
    for each in walk.within(suspects):
        if _is_cut_off(walk, each):
            yield Orphan(each.held[0], each.reason, _fed_again(walk, each))


def _suspects(walk: Walk) -> Iterator[_Suspect]:
    groups = [(owner, keys) for (family, owner), keys in walk.owners.items() if family == "group"]
    for owner, keys in walk.within(groups):
        held = list(held_by(keys).values())
        if not any(walk.ask("orphans", "EXISTS", key) == 1 for key in held):
            continue
        topic, _, group = owner.partition("/")
        stream = TopicKeys(walk.namespace, topic).stream
        known = _groups_of(walk, stream)
        if "orphans" in walk.untold:
            return
        if known is None or group.encode() not in known:
            lost = "the stream of its topic is gone" if known is None else "the stream does not know the group"
            yield _Suspect(owner, stream, held, keys.get("meta"), lost)


def _is_cut_off(walk: Walk, suspect: _Suspect) -> bool:
    """Look at store and stream at once: the group may go and come again between two looks."""
    told = walk.asker.ask("EVAL", _CUT_OFF, len(suspect.held) + 1, suspect.stream, *suspect.held, suspect.group)
    return isinstance(told, Missing) or told == 1  # who may not run scripts goes by what was seen before


def _groups_of(walk: Walk, stream: bytes) -> set[bytes] | None:
    """Name the native groups of a stream; None: there is no stream, or it is not told."""
    told = walk.asker.ask("XINFO", "GROUPS", stream)
    if isinstance(told, Missing):
        if "no such key" not in told.reason:
            walk.untold.setdefault("orphans", told)
        return None
    return {dict(zip(row[0::2], row[1::2], strict=True))[b"name"] for row in told}


def _fed_again(walk: Walk, suspect: _Suspect) -> str:
    """Have the stream know the group again, where it was: then it is fed, or can be deleted by its name.

    Of a group that was never fed nobody knows where it was, and a place that is wrong skips entries or brings them all
    again: so that is for people to say.
    """
    fed = None if suspect.meta is None else walk.ask("orphans", "HGET", suspect.meta, "fed")
    create = f"XGROUP CREATE {quoted(suspect.stream)} {quoted(suspect.group.encode())}"
    delete = f"duly delete {in_shell(suspect.owner)} --yes"
    if isinstance(fed, bytes) and _ENTRY.fullmatch(fed):
        position = fed.decode()
        return f"{create} {position} MKSTREAM\n# if nobody needs the group any more, then also:\n{delete}"
    return (
        f"# where {suspect.owner} was in its stream is not known; say where it begins. With what comes from now on:\n"
        f"# {create} $ MKSTREAM\n"
        f"# or with all that the stream still has, also what it had before:\n"
        f"# {create} 0 MKSTREAM\n"
        f"# if nobody needs the group any more, one of them, and then: {delete}"
    )


# Keys with a name that nothing has, and queues that have lost the key by which they are found.

_DISPENSABLE: Final = frozenset({"wake", "dedup", "dedup_ends", "awaited", "ends"})
"""Keys without which no message is lost, and which may outlive a queue for a while."""


def held_by(keys: Mapping[str, bytes]) -> dict[str, bytes]:
    """Pick the keys of a queue or group that hold something of it. Records of calls outlive it, too."""
    return {tail: key for tail, key in keys.items() if tail not in _DISPENSABLE and not tail.startswith("call:")}


def names_unknown(walk: Walk) -> Iterator[Orphan]:
    """Find keys with a name that no script knows, or of something that could not have that name."""
    for key, whose in walk.strangers:
        reason = "no kind of key has this name" if whose.family else "nothing has such a name"
        yield Orphan(key, reason, f"# unless a newer Duly or a program of yours keeps it:\nDEL {quoted(key)}")


def queues_nameless(walk: Walk) -> Iterator[Orphan]:
    """Find queues that have lost `meta`. In a part of the keys that cannot be told: it may be in the other."""
    if not walk.is_complete:
        return
    nameless = [
        (owner, keys) for (family, owner), keys in walk.owners.items() if family == "queue" and "meta" not in keys
    ]
    for owner, keys in walk.within(nameless):
        held = held_by(keys)
        tail = next(iter(held), "wake")
        if tail in keys and _is_alone(walk, keys[tail], tail):
            yield _lost(owner, keys[tail], tail) if held else _token(keys[tail])


def _meta_beside(key: bytes, tail: str) -> bytes:
    return key.removesuffix(tail.encode()) + b"meta"


def _is_alone(walk: Walk, key: bytes, tail: str) -> bool:
    """Look at both at once: the queue may have gone, or come again, since the walk. 1 is the key without `meta`."""
    meta = _meta_beside(key, tail)
    return bool(walk.ask("orphans", "EXISTS", meta, meta, key) == 1)


def _lost(owner: str, key: bytes, tail: str) -> Orphan:
    again = f"HSETNX {quoted(_meta_beside(key, tail))} clock 0\nduly audit {in_shell(owner)} --repair"
    return Orphan(key, f"queue {owner!r} has lost its meta, and is not listed", again)


def _token(key: bytes) -> Orphan:
    return Orphan(key, "a token of a queue that is gone", f"DEL {quoted(key)}")


# Queues whose clock is ahead of the server's.


def clocks_ahead(walk: Walk, server_us: int) -> Iterator[QueueClock]:
    """Compare the clock that each queue, topic and group keeps with the server's."""
    for (family, owner), keys in walk.within(walk.owners.items()):
        if family in HOLDING and "meta" in keys:
            clock = walk.ask("queue-clocks", "HGET", keys["meta"], "clock")
            ahead = (number(clock) - server_us) / 1_000_000
            if ahead > 0:
                yield QueueClock(owner, ahead)


# Keys that should go by themselves and will not, and keys that will and should not.

_KEPT_MS: Final = {"call": 3_600_000, "awaited": 60_000, "ends": 60_000}
"""Keys that go by themselves, by how their names begin, and after how long at the most."""
_WINDOWS: Final = ("dedup", "dedup_ends")
"""Keys that go when the last of their windows is over."""
_LASTING: Final = (*HOLDING, "schedules")


def unexpiring(walk: Walk) -> Iterator[tuple[bytes, int]]:
    """Find those without an expiry, with the milliseconds that they would have."""
    passing = [
        (key, _KEPT_MS[kind])
        for keys in walk.owners.values()
        for tail, key in keys.items()
        if (kind := tail.partition(":")[0]) in _KEPT_MS
    ]
    for key, kept in walk.within(passing, FEW):
        if walk.ask("expiry", "PTTL", key) == -1:
            yield key, kept


def vanishing(walk: Walk) -> Iterator[bytes]:
    """Find those with an expiry that would take messages or schedules along. No script of ours gives them one."""
    lasting = [
        key
        for (family, _), keys in walk.owners.items()
        for tail, key in keys.items()
        if family in _LASTING and tail.partition(":")[0] not in _KEPT_MS and tail not in _WINDOWS
    ]
    for key in walk.within(lasting):
        left = walk.ask("expiry", "PTTL", key)
        if left is None:
            return
        if left >= 0:
            yield key


# How much memory the keys take that grow with the messages.

_SAMPLES: Final = 5
_SMALL: Final = ("wake", "ends")


def sizes(walk: Walk) -> Iterator[BigKey]:
    """Ask for the size of each, until it is not told."""
    growing = [
        (owner, tail, key)
        for (family, owner), keys in walk.owners.items()
        for tail, key in keys.items()
        if family in HOLDING and tail not in _SMALL and not tail.startswith("call:")
    ]
    for owner, tail, key in walk.within(growing):
        told = walk.ask("big-keys", "MEMORY", "USAGE", key, "SAMPLES", _SAMPLES)
        if "big-keys" in walk.untold:
            return
        if told is not None:  # it is gone meanwhile
            yield BigKey(key, owner, tail, told)


# In which slots of a cluster the keys lie, or would lie. Nothing is asked: a slot follows from the key's name.


def layout(walk: Walk) -> Layout:
    """Find out whether all keys that scripts use together share a slot."""
    slots = slots_of(walk.owners)
    return Layout(len(slots), tuple(owner for owner, found in slots.items() if len(found) > 1))


def slots_of(owners: Owners) -> dict[str, set[int]]:
    """Name the slots of each owner. A topic and its groups are one: scripts of a group use the topic's keys as well."""
    found: dict[str, set[int]] = defaultdict(set)
    for (family, owner), keys in owners.items():
        whole = f"topic {owner.partition('/')[0]}" if family in ("topic", "group") else owner
        found[whole] |= {key_slot(key) for key in keys.values()}
    return dict(found)


# Workers on the list, and how long they have been silent.


def silent_workers(walk: Walk, server_us: int) -> tuple[SilentWorker, ...]:
    """List the workers that are known, with their silence. Who beats is not among them for long."""
    registry = RegistryKeys(walk.namespace)
    if ("workers", registry.name) not in walk.owners:
        return ()
    beats = walk.ask("workers", "ZRANGE", registry.key("beats"), 0, FEW - 1, "WITHSCORES")
    page = walk.ask("workers", "HSCAN", registry.key("workers"), 0, "COUNT", FEW)
    if "workers" in walk.untold:
        return ()
    last = {name: number(score) for name, score in zip(beats[0::2], beats[1::2], strict=True)}
    found = [SilentWorker(name, max((server_us - beat) / 1_000_000, 0)) for name, beat in last.items()]
    rows = page[1][0::2] if len(last) < FEW else []  # with more beats than were read, a row may have one of the others
    return (*found, *(SilentWorker(name, None) for name in rows if name not in last and _never_beat(walk, name)))


def _never_beat(walk: Walk, worker: bytes) -> bool:
    """Look again: it may have come, or gone, since the beats were read. Both add and remove beat and row at once."""
    registry = RegistryKeys(walk.namespace)
    if walk.ask("workers", "ZSCORE", registry.key("beats"), worker) is not None:
        return False
    return bool(walk.ask("workers", "HEXISTS", registry.key("workers"), worker) == 1)


# All looks at the keys of a namespace, one after another.


def look(asker: Asker, namespace: str, server_us: int, *, most: int = MOST_KEYS) -> Keyspace | Missing:
    """Find the keys of a namespace and look at them. `server_us`: the server's time, in microseconds."""
    walk = walk_through(asker, namespace, most)
    if isinstance(walk, Missing):
        return walk
    return Keyspace(
        orphans=(*names_unknown(walk), *queues_nameless(walk), *groups_cut_off(walk)),
        clocks=tuple(clocks_ahead(walk, server_us)),
        unexpiring=tuple(unexpiring(walk)),
        vanishing=tuple(vanishing(walk)),
        big=tuple(sizes(walk)),
        silent=silent_workers(walk, server_us),
        layout=layout(walk),
        looked_at=walk.looked_at,
        is_complete=walk.is_complete,  # after all looks: each may have run out of time
        untold=walk.untold,
    )
