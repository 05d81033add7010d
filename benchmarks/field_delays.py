"""How late are delayed messages of each party, spread over time and due at one moment, and is any early?"""

from benchmarks.contest import Side, figure, in_turn, sides
from benchmarks.peers.brokers import Broker
from benchmarks.peers.catalog import PEERS
from benchmarks.rig import Result, Rig, percentile

SPREAD, SPREAD_OVER = 200, 5.0
BURST = 5_000
DUE_IN = 10.0
"""Seconds. All messages of a burst are sent by then."""

ROUNDS = 2
"""Each takes half a minute a party."""


def measure(rig: Rig) -> list[Result]:
    """Let messages fall due while a worker waits. Handlers read the clock that the server reads."""
    able = [side for side in sides(rig) if side.name not in PEERS or PEERS[side.name].has_delays]
    found = in_turn(able, min(ROUNDS, rig.rounds), lambda side, broker: _lateness(rig, side, broker))
    results = []
    for name, rounds in found.items():
        columns = {
            "delayed over 5 s, late, p50": [percentile(spread, 0.5) for spread, _ in rounds],
            "delayed over 5 s, late, p99": [percentile(spread, 0.99) for spread, _ in rounds],
            "5,000 due at once, the last one": [max(burst) for _, burst in rounds],
            "delayed, the earliest": [min(*spread, *burst) for spread, burst in rounds],
        }
        results += [
            figure(question, name, "ms", samples, higher_is_better="earliest" in question)
            for question, samples in columns.items()
        ]
    return results


def _lateness(rig: Rig, side: Side, broker: Broker) -> tuple[list[float], list[float]]:
    """Milliseconds after the due time: of messages spread over time, and of those due at one moment."""
    party = side.party(broker.url)
    found = [
        party.delayed(rig.count(SPREAD), due_in=2.0, spread=SPREAD_OVER),
        party.delayed(rig.count(BURST), due_in=DUE_IN, spread=0.0),
    ]
    spread, burst = ([(hit.moment - hit.stamp) * 1000 for hit in record.hits] for record in found)
    return spread, burst
