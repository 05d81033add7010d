"""A walk through the keys of a namespace: bounded, and nothing is changed.

A queue has few keys, whatever it holds, so the walk is short unless there are very many queues.
"""

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from duly._core.call import Arg
from duly._core.keys import RegistryKeys, TopicKeys, pattern_of
from duly.doctor.asking import Asker
from duly.doctor.facts import BigKey, Keyspace, Missing, Orphan, QueueClock, SilentWorker
from duly.doctor.families import Family, Owned, owned
from duly.doctor.subject import in_shell, quoted

MOST_KEYS: Final = 50_000
MOST_SECONDS: Final = 5.0
"""For each of the two parts: finding the keys, and looking at them."""
_PAGE: Final = 1000
_SAMPLES: Final = 5
_KEPT_MS: Final = {"call": 3_600_000, "awaited": 60_000, "ends": 60_000}
"""Keys that go by themselves, and after how long at the most."""
_NAMELESS: Final = frozenset({"wake", "dedup", "dedup_ends", "awaited", "ends"})
"""Keys without which no message is lost, and which may outlive a queue for a while."""
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
_FEW: Final = 1000
"""Workers and records of calls that are looked at, at the most."""


def workers_key(namespace: str, tail: str) -> bytes:
    """Name a key of the registry of workers."""
    return RegistryKeys(namespace).key(tail)


@dataclass
class _Walk:
    """What was found so far."""

    asker: Asker
    namespace: str
    ends_at: float
    is_complete: bool = True
    untold: dict[str, Missing] = field(default_factory=dict)
    big: list[BigKey] = field(default_factory=list)
    orphans: list[Orphan] = field(default_factory=list)
    unexpiring: list[tuple[bytes, int]] = field(default_factory=list)
    clocks: list[QueueClock] = field(default_factory=list)

    def ask(self, check: str, *command: Arg) -> Any:
        """Ask for a check, and note when it is not told. None stands for what was not told."""
        told = self.asker.ask(*command)
        if isinstance(told, Missing):
            self.untold.setdefault(check, told)
            return None
        return told

    def within(self, things: Iterable[Any], most: int = MOST_KEYS) -> Iterator[Any]:
        """Go through some as long as there is time."""
        for count, thing in enumerate(things):
            if count >= most or time.monotonic() > self.ends_at:
                self.is_complete = False
                return
            yield thing


def look(asker: Asker, namespace: str, server_us: int, *, most: int = MOST_KEYS) -> Keyspace | Missing:
    """Find the keys of a namespace and look at them."""
    found = _find(asker, namespace, most)
    if isinstance(found, Missing):
        return found
    keys, is_complete = found
    walk = _Walk(asker, namespace, time.monotonic() + MOST_SECONDS, is_complete)
    by_owner: dict[tuple[Family, str], dict[str, bytes]] = defaultdict(dict)
    for key in keys:
        whose = owned(namespace, key)
        if whose is not None and whose.family is not None and whose.is_known:
            by_owner[whose.family, whose.owner][whose.tail] = key
        elif whose is not None:
            walk.orphans.append(_unknown(key, whose))
    _look_for_names(walk, by_owner)
    _look_at_groups(walk, by_owner)
    _look_at_clocks(walk, by_owner, server_us)
    _look_at_expiry(walk, by_owner)
    _look_at_sizes(walk, by_owner)
    silent = _silent(walk, server_us) if ("workers", "~workers") in by_owner else ()
    return Keyspace(
        looked_at=len(keys),
        is_complete=walk.is_complete,
        big=tuple(walk.big),
        orphans=tuple(walk.orphans),
        unexpiring=tuple(walk.unexpiring),
        clocks=tuple(walk.clocks),
        silent=silent,
        untold=walk.untold,
    )


Owners = dict[tuple[Family, str], dict[str, bytes]]


def _find(asker: Asker, namespace: str, most: int) -> tuple[list[bytes], bool] | Missing:
    """Scan, so many keys and seconds at the most."""
    keys: dict[bytes, None] = {}
    ends_at, cursor = time.monotonic() + MOST_SECONDS, b"0"
    while True:
        page = asker.ask("SCAN", cursor, "MATCH", pattern_of(namespace), "COUNT", _PAGE)
        if isinstance(page, Missing):
            return page
        cursor = page[0]
        keys.update(dict.fromkeys(page[1]))
        if cursor == b"0":
            return sorted(keys)[:most], len(keys) <= most
        if len(keys) > most or time.monotonic() > ends_at:
            return sorted(keys)[:most], False


def _unknown(key: bytes, whose: Owned) -> Orphan:
    reason = "no kind of key has this name" if whose.family else "nothing has such a name"
    return Orphan(key, reason, f"# unless a newer Duly or a program of yours keeps it:\nDEL {quoted(key)}")


def _look_for_names(walk: _Walk, by_owner: Owners) -> None:
    """Find queues that have lost `meta`, by which they are found."""
    nameless = [(owner, keys) for (family, owner), keys in by_owner.items() if family == "queue" and "meta" not in keys]
    for owner, keys in walk.within(nameless if walk.is_complete else ()):
        held = [tail for tail in keys if tail not in _NAMELESS and not tail.startswith("call:")]
        tail = held[0] if held else "wake"
        if tail not in keys:
            continue
        key = keys[tail]
        meta = key.removesuffix(tail.encode()) + b"meta"
        if walk.ask("orphans", "EXISTS", meta, meta, key) != 1:  # 1 is the key alone; else it came or went meanwhile
            continue
        if held:
            mend = f"HSETNX {quoted(meta)} clock 0\nduly audit {in_shell(owner)} --repair"
            walk.orphans.append(Orphan(key, f"queue {owner!r} has lost its meta, and is not listed", mend))
        else:
            walk.orphans.append(Orphan(key, "a token of a queue that is gone", f"DEL {quoted(key)}"))


def _is_there(walk: _Walk, key: bytes) -> bool:
    return bool(walk.ask("orphans", "EXISTS", key) == 1)


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


def _look_at_groups(walk: _Walk, by_owner: Owners) -> None:
    """Find stores of groups that the stream does not know: nobody lists them, and nothing feeds them."""
    suspects = list(_suspects(walk, by_owner))
    if suspects:
        time.sleep(_MOMENT)
    for each in walk.within(suspects):
        if _is_cut_off(walk, each):
            walk.orphans.append(Orphan(each.held[0], each.reason, _fed_again(walk, each)))


def _suspects(walk: _Walk, by_owner: Owners) -> Iterator[_Suspect]:
    groups = [(owner, keys) for (family, owner), keys in by_owner.items() if family == "group"]
    for owner, keys in walk.within(groups):
        held = [key for tail, key in keys.items() if tail not in _NAMELESS and not tail.startswith("call:")]
        topic, _, group = owner.partition("/")
        stream = TopicKeys(walk.namespace, topic).stream
        if not any(_is_there(walk, key) for key in held):
            continue
        known = _groups_of(walk, stream)
        if "orphans" in walk.untold:
            return
        is_fed = known is not None and group.encode() in known
        if not is_fed:
            lost = "the stream of its topic is gone" if known is None else "the stream does not know the group"
            yield _Suspect(owner, stream, held, keys.get("meta"), lost)


def _is_cut_off(walk: _Walk, suspect: _Suspect) -> bool:
    """Look at store and stream at once: the group may go and come again between two looks."""
    told = walk.asker.ask("EVAL", _CUT_OFF, len(suspect.held) + 1, suspect.stream, *suspect.held, suspect.group)
    return isinstance(told, Missing) or told == 1  # who may not run scripts goes by what was seen before


def _groups_of(walk: _Walk, stream: bytes) -> set[bytes] | None:
    """Name the native groups of a stream; None: there is no stream, or it is not told."""
    told = walk.asker.ask("XINFO", "GROUPS", stream)
    if isinstance(told, Missing):
        if "no such key" not in told.reason:
            walk.untold.setdefault("orphans", told)
        return None
    return {dict(zip(row[0::2], row[1::2], strict=True))[b"name"] for row in told}


def _fed_again(walk: _Walk, suspect: _Suspect) -> str:
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


def _look_at_clocks(walk: _Walk, by_owner: Owners, server_us: int) -> None:
    for (family, owner), keys in walk.within(by_owner.items()):
        if family in ("queue", "topic", "group") and "meta" in keys:
            clock = walk.ask("queue-clocks", "HGET", keys["meta"], "clock")
            ahead = (_number(clock) - server_us) / 1_000_000
            if ahead > 0:
                walk.clocks.append(QueueClock(owner, ahead))


def _look_at_expiry(walk: _Walk, by_owner: Owners) -> None:
    passing = [
        (key, _KEPT_MS[tail.partition(":")[0]])
        for keys in by_owner.values()
        for tail, key in keys.items()
        if tail.partition(":")[0] in _KEPT_MS
    ]
    for key, kept in walk.within(passing, _FEW):
        if walk.ask("expiry", "PTTL", key) == -1:
            walk.unexpiring.append((key, kept))


def _look_at_sizes(walk: _Walk, by_owner: Owners) -> None:
    holding = [
        (owner, tail, key)
        for (family, owner), keys in by_owner.items()
        for tail, key in keys.items()
        if family in ("queue", "topic", "group") and not tail.startswith("call:") and tail not in ("wake", "ends")
    ]
    for owner, tail, key in walk.within(holding):
        told = walk.ask("big-keys", "MEMORY", "USAGE", key, "SAMPLES", _SAMPLES)
        if "big-keys" in walk.untold:
            return
        if told is not None:  # it is gone meanwhile
            walk.big.append(BigKey(key, owner, tail, told))


def _silent(walk: _Walk, server_us: int) -> tuple[SilentWorker, ...]:
    """List the workers that are known, with their silence. Who beats is not among them for long."""
    beats = walk.ask("workers", "ZRANGE", workers_key(walk.namespace, "beats"), 0, _FEW - 1, "WITHSCORES")
    page = walk.ask("workers", "HSCAN", workers_key(walk.namespace, "workers"), 0, "COUNT", _FEW)
    if "workers" in walk.untold:
        return ()
    last = {name: _number(score) for name, score in zip(beats[0::2], beats[1::2], strict=True)}
    found = [SilentWorker(name, max((server_us - beat) / 1_000_000, 0)) for name, beat in last.items()]
    rows = page[1][0::2] if len(last) < _FEW else []  # with more beats than were read, a row may have one of the others
    return (*found, *(SilentWorker(name, None) for name in rows if name not in last and _never_beat(walk, name)))


def _never_beat(walk: _Walk, worker: bytes) -> bool:
    """Look again: it may have come, or gone, since the beats were read. Both add and remove beat and row at once."""
    if walk.ask("workers", "ZSCORE", workers_key(walk.namespace, "beats"), worker) is not None:
        return False
    return bool(walk.ask("workers", "HEXISTS", workers_key(walk.namespace, "workers"), worker) == 1)


def _number(text: Any) -> float:
    try:
        return float(text)
    except (TypeError, ValueError):
        return 0.0
