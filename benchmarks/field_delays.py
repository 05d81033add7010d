"""How late are delayed messages of each party, spread over time and due at one moment, and is any early?"""

from benchmarks.contest import Side, figure, in_turn, of_best_peer, sides
from benchmarks.peers.brokers import Broker
from benchmarks.peers.catalog import PEERS
from benchmarks.rig import Result, Rig, percentile

SPREAD, SPREAD_OVER = 200, 5.0
BURST = 5_000
QUEUES, MIXED = 10, 400
"""Messages of many queues, with delays of 2 to 7 s that are not sent in the order in which they end."""
DUE_IN = 8.0
"""Seconds. All messages of a burst are sent by then."""

BARS = {"5,000 due at once, the last one": 60}
LATE = [f"delayed{where}, late, {part}" for where in (" over 5 s", ", 10 queues") for part in ("p50", "p99")]
EARLIEST = "delayed, the earliest"

WITH_QUEUES = ("duly", "duly-always", "celery")
"""The sides that are measured with many queues: Duly, and the peer whose messages are least late."""

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
    with_queues = [side for side in able if side.name in WITH_QUEUES]
    mixes = in_turn(with_queues, rounds, lambda side, broker: _late_of_queues(side, broker, rig.count(MIXED)))
    results = []
    for name in dict.fromkeys([*spreads, *bursts]):
        spread, burst, mix = spreads.get(name, []), bursts.get(name, []), mixes.get(name, [])
        columns = {
            "delayed over 5 s, late, p50": [percentile(found, 0.5) for found in spread],
            "delayed over 5 s, late, p99": [percentile(found, 0.99) for found in spread],
            "5,000 due at once, the last one": [max(found) for found in burst],
            "delayed, 10 queues, late, p50": [percentile(found, 0.5) for found in mix],
            "delayed, 10 queues, late, p99": [percentile(found, 0.99) for found in mix],
        }
        results += [
            figure(question, name, "ms", samples, higher_is_better=False, bar=BARS.get(question))
            for question, samples in columns.items()
            if samples
        ]
        earliest = [min(found) for found in (*spread, *burst, *mix)]
        results.append(figure(EARLIEST, name, "ms", earliest, higher_is_better=True, bar=0, of_all=min))
    on_time = _without_early(results)
    for question in LATE:
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


def _late_of_queues(side: Side, broker: Broker, messages: int) -> list[float]:
    """Milliseconds after the due time, of messages of many queues in mixed order."""
    party = side.party(broker.url).given(queues=QUEUES)
    return [
        (hit.moment - hit.stamp) * 1000
        for hit in party.delayed(messages, due_in=2.0, spread=SPREAD_OVER, is_mixed=True).hits
    ]
