"""What becomes of the queues on a cluster, today and after a move."""

from typing import Final

from duly.doctor.facts import Facts, Missing
from duly.doctor.reading import number
from duly.doctor.report import Finding
from duly.doctor.subject import Subject
from duly.doctor.wording import listed

CLUSTER: Final = Subject(
    "cluster", "This version speaks to one server: it does not follow a queue to the node that has its slot."
)
SLOTS: Final = Subject(
    "slots",
    "On a cluster a command may use keys of one slot. Each queue, topic and lock has its keys in one; commit() that "
    "sends to another queue or changes keys of yours, redrive(to=), and the wait of a worker for several queues span "
    "more, and are refused there.",
)

EVERY_SLOT: Final = 16_384
_ELSEWHERE: Final = "# use a server of its own, with cluster-enabled no"


def cluster(facts: Facts) -> Finding:
    """Look whether it is a node of a cluster, and say what works there."""
    info, told = facts.info, facts.cluster
    if isinstance(info, Missing):
        return CLUSTER.unknown(facts, info)
    if info.get("cluster_enabled", "0") != "1":
        return CLUSTER.ok("off")
    if isinstance(told, Missing):
        return CLUSTER.bad("on; how many nodes share the slots is not told", _ELSEWHERE)
    served, nodes = number(told.get("cluster_slots_assigned")), number(told.get("cluster_size"))
    if told.get("cluster_state") != "ok" or served < EVERY_SLOT:
        return CLUSTER.bad(f"on, and not up: {served:.0f} of {EVERY_SLOT} slots are served; calls fail", _ELSEWHERE)
    if nodes > 1:
        return CLUSTER.bad(
            f"one of {nodes:.0f} nodes: queues whose slot is here work, calls for all others are refused, and lists "
            "name only what is here",
            _ELSEWHERE,
        )
    return CLUSTER.warn(
        "on, with all slots on this node: each queue, topic and lock works; commit() beyond its own queue and "
        "redrive(to=) are refused, and a worker of several queues is not woken by them, so that it is seconds late",
        _ELSEWHERE,
    )


def slots(facts: Facts) -> Finding:
    """Look whether every queue could move to a cluster as it is."""
    keyspace = facts.keys_for(SLOTS.name)
    if isinstance(keyspace, Missing):
        return SLOTS.unknown(facts, keyspace)
    layout = keyspace.layout
    if layout.split:
        return SLOTS.warn(
            f"keys in several slots: {listed(list(layout.split))}",
            "# keep the namespace on a server with cluster-enabled no, where it works; and report it: no key that Duly "
            "names does this",
        )
    if not layout.owners:
        return SLOTS.ok("no keys yet")
    return SLOTS.ok(
        f"each of {layout.owners} queues, topics, locks and the like has its keys in one slot{keyspace.if_partly}"
    )
