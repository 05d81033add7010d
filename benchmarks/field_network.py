"""What does a network with a round trip of 1 ms between the parties and their servers change?"""

from benchmarks import slow_network
from benchmarks.contest import Side, figure, in_turn, sides
from benchmarks.peers.brokers import Broker
from benchmarks.rig import Result, Rig, percentile

ROUND_TRIP = 0.001
ROUNDS, PEER_ROUNDS = 2, 1
SINGLES = 200
MOST = 10_000
LATENCIES, GAP = 100, 0.02


def measure(rig: Rig) -> list[Result]:
    """Send, send many, drain, and send to an idle worker, all through a proxy that delays every byte."""
    rounds = min(ROUNDS, rig.rounds)
    found = in_turn(sides(rig.peers), rounds, lambda side, broker: _figures(rig, side, broker), peer_rounds=PEER_ROUNDS)
    questions = {"send": "messages/s", "send many": "messages/s", "drain": "messages/s", "latency, idle, p50": "ms"}
    return [
        figure(
            f"network of 1 ms: {question}", name, unit, [each[place] for each in rounds], higher_is_better=unit != "ms"
        )
        for place, (question, unit) in enumerate(questions.items())
        for name, rounds in found.items()
    ]


def _figures(rig: Rig, side: Side, broker: Broker) -> tuple[float, float, float, float]:
    with slow_network.before(broker, ROUND_TRIP) as url:
        party = side.party(url)
        singles, many = rig.count(SINGLES), rig.count(min(party.messages // 4, MOST))
        sent = singles / party.send(singles)
        party.drain(singles)
        filled = many / party.fill(many)
        drained = party.drain(many).rate()
        latencies = [(hit.moment - hit.stamp) * 1000 for hit in party.trickle(rig.count(LATENCIES), GAP).hits]
    return sent, filled, drained, percentile(latencies, 0.5)
