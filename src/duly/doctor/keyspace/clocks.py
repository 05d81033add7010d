"""Queues whose clock is ahead of the server's."""

from collections.abc import Iterator

from duly.doctor.facts import QueueClock
from duly.doctor.keyspace.walking import HOLDING, Walk
from duly.doctor.reading import number


def clocks_ahead(walk: Walk, server_us: int) -> Iterator[QueueClock]:
    """Compare the clock that each queue, topic and group keeps with the server's."""
    for (family, owner), keys in walk.within(walk.owners.items()):
        if family in HOLDING and "meta" in keys:
            clock = walk.ask("queue-clocks", "HGET", keys["meta"], "clock")
            ahead = (number(clock) - server_us) / 1_000_000
            if ahead > 0:
                yield QueueClock(owner, ahead)
