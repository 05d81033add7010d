"""How long does a message take from the call of send to the handler of an idle worker, and at half load?"""

from dataclasses import dataclass

from benchmarks.contest import Side, figure, in_turn, of_best_peer, sides
from benchmarks.peers.brokers import Broker
from benchmarks.peers.parties import Party, Record
from benchmarks.rig import Result, Rig, percentile

ROUNDS, PEER_ROUNDS = 3, 2
MESSAGES = 500
"""Per round. With 200, the second slowest message alone decides p99."""
GAP = 0.01
LOAD_SECONDS = 1.5
TRIAL = 1_000
"""Messages that show the rate of a party, before it gets half of it."""


@dataclass(frozen=True)
class Latencies:
    """Milliseconds of an idle worker and of one at half load, and that load."""

    idle: list[float]
    loaded: list[float]
    rate: float


def measure(rig: Rig) -> list[Result]:
    """Send from one process to a worker in another, all sides in turn; both processes read the same clock."""
    found = in_turn(
        sides(rig.peers),
        min(ROUNDS, rig.rounds),
        lambda side, broker: _latencies(rig, side, broker),
        peer_rounds=PEER_ROUNDS,
    )
    results = []
    for name, rounds in found.items():
        for load, waits in (
            ("idle", [each.idle for each in rounds]),
            ("half load", [each.loaded for each in rounds]),
        ):
            for what, part in (("p50", 0.5), ("p99", 0.99)):
                samples = [percentile(each, part) for each in waits]
                results.append(figure(f"latency, {load}, {what}", name, "ms", samples, higher_is_better=False))
        rates = [each.rate for each in rounds]
        results.append(figure("half load", name, "messages/s", rates, higher_is_better=True))
    for question in ("latency, idle, p50", "latency, idle, p99"):
        results += of_best_peer(question, results, bar=1)
    return results


def _latencies(rig: Rig, side: Side, broker: Broker) -> Latencies:
    party = side.party(broker.url)
    rate = _half_of(rig, party)
    idle = _milliseconds(party.trickle(rig.count(MESSAGES), GAP))
    loaded = _milliseconds(party.paced(rig.count(int(rate * LOAD_SECONDS)), rate))
    return Latencies(idle, loaded, rate)


def _half_of(rig: Rig, party: Party) -> float:
    """Half of the rate at which a party sends one by one, or handles, whichever is smaller."""
    trial = rig.count(TRIAL)
    sent = trial / party.send(trial)
    return min(sent, party.drain(trial).rate()) / 2


def _milliseconds(record: Record) -> list[float]:
    return [(hit.moment - hit.stamp) * 1000 for hit in record.hits]
