"""How late are delayed messages of each party, spread over time and due at one moment, and is any early?"""

from benchmarks.contest import Side, figure, in_turn, of_best_peer, sides
from benchmarks.peers.brokers import Broker
from benchmarks.peers.catalog import PEERS
from benchmarks.rig import Result, Rig, percentile

SPREAD, SPREAD_OVER = 200, 5.0
BURST = 5_000
DUE_IN = 8.0
"""Seconds. All messages of a burst are sent by then."""

BARS = {"5,000 due at once, the last one": 60}
EARLIEST = "delayed, the earliest"

ROUNDS = 2
"""Rounds of a burst for peers: they are far from Duly."""


def measure(rig: Rig) -> list[Result]:
    """Let messages fall due while a worker waits. Handlers read the clock that the server reads."""
    able = [side for side in sides(rig.peers) if side.name not in PEERS or PEERS[side.name].has_delays]
    rounds = min(ROUNDS, rig.rounds)
    spreads = in_turn(able, rounds, lambda side, broker: _late(side, broker, rig.count(SPREAD), 2.0, SPREAD_OVER))
    bursts = in_turn(
        able, rounds, lambda side, broker: _late(side, broker, rig.count(BURST), DUE_IN, 0.0), peer_rounds=1
    )
    results = []
    for name in dict.fromkeys([*spreads, *bursts]):
        spread, burst = spreads.get(name, []), bursts.get(name, [])
        columns = {
            "delayed over 5 s, late, p50": [percentile(found, 0.5) for found in spread],
            "delayed over 5 s, late, p99": [percentile(found, 0.99) for found in spread],
            "5,000 due at once, the last one": [max(found) for found in burst],
        }
        results += [
            figure(question, name, "ms", samples, higher_is_better=False, bar=BARS.get(question))
            for question, samples in columns.items()
            if samples
        ]
        earliest = [min(found) for found in (*spread, *burst)]
        results.append(figure(EARLIEST, name, "ms", earliest, higher_is_better=True, bar=0, of_all=min))
    on_time = _without_early(results)
    for question in ("delayed over 5 s, late, p50", "delayed over 5 s, late, p99"):
        results += of_best_peer(question, on_time, bar=1)
    return results


def _without_early(results: list[Result]) -> list[Result]:
    """Leave out peers that deliver before the due time: their small lateness would not be comparable."""
    early = {result.party for result in results if result.question == EARLIEST and result.value < 0}
    return [result for result in results if result.party not in early - {"duly"}]


def _late(side: Side, broker: Broker, messages: int, due_in: float, spread: float) -> list[float]:
    """Milliseconds after the due time, of each message."""
    record = side.party(broker.url).delayed(messages, due_in=due_in, spread=spread)
    return [(hit.moment - hit.stamp) * 1000 for hit in record.hits]
