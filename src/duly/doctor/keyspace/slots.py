"""In which slots of a cluster the keys lie, or would lie. Nothing is asked: a slot follows from the key's name."""

from collections import defaultdict

from redis.crc import key_slot

from duly.doctor.facts import Layout
from duly.doctor.keyspace.walking import Owners, Walk


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
