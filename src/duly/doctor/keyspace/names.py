"""Keys with a name that nothing has, and queues that have lost the key by which they are found."""

from collections.abc import Iterator, Mapping
from typing import Final

from duly.doctor.facts import Orphan
from duly.doctor.keyspace.walking import Walk
from duly.doctor.wording import in_shell, quoted

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
