"""All looks at the keys of a namespace, one after another."""

from duly.doctor.asking import Asker
from duly.doctor.facts import Keyspace, Missing
from duly.doctor.keyspace.clocks import clocks_ahead
from duly.doctor.keyspace.expiry import unexpiring, vanishing
from duly.doctor.keyspace.groups import groups_cut_off
from duly.doctor.keyspace.names import names_unknown, queues_nameless
from duly.doctor.keyspace.sizes import sizes
from duly.doctor.keyspace.slots import layout
from duly.doctor.keyspace.walking import MOST_KEYS, walk_through
from duly.doctor.keyspace.workers import silent_workers


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
