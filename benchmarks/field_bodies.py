"""What do bodies of 100 bytes, 10 KB and 1 MB do to the rates of each party?"""

from benchmarks.contest import Side, figure, in_turn, sides
from benchmarks.peers.brokers import Broker
from benchmarks.rig import Result, Rig

SIZES = {"100 B": 100, "10 KB": 10_000, "1 MB": 1_000_000}
ROUNDS, PEER_ROUNDS = 2, 1
MOST_BYTES = 100_000_000
"""The bytes of all bodies of one fill."""

Rates = dict[str, tuple[float, float]]


def measure(rig: Rig) -> list[Result]:
    """Send one by one and drain, for each size, all sides in turn."""
    rounds = min(ROUNDS, rig.rounds)
    found = in_turn(sides(rig.peers), rounds, lambda side, broker: _rates(rig, side, broker), peer_rounds=PEER_ROUNDS)
    return [
        figure(
            f"{what}, bodies of {size}",
            name,
            "messages/s",
            [each[size][place] for each in rounds],
            higher_is_better=True,
        )
        for place, what in enumerate(("send", "drain"))
        for size in SIZES
        for name, rounds in found.items()
    ]


def _rates(rig: Rig, side: Side, broker: Broker) -> Rates:
    party = side.party(broker.url)
    found: Rates = {}
    for label, size in SIZES.items():
        messages = rig.count(min(party.messages // 4, MOST_BYTES // size, 10_000))
        sent = messages / party.send(messages, size)
        found[label] = (sent, party.drain(messages).rate())
    return found
