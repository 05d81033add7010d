"""How many messages of a worker that is killed with -9 are lost or handled twice, and how long does the rest take?"""

from benchmarks import kill
from benchmarks.contest import Side, figure, in_turn, sides
from benchmarks.kill import Recovery
from benchmarks.peers.brokers import Broker
from benchmarks.rig import Result, Rig

MESSAGES = 2_000
WAIT = 30.0
"""Seconds after which a message counts as lost."""

BARS = {"kill -9: lost": 0, "kill -9: the last one done after": 6.5}
"""1.2 leases of 5 s, and 0.5 s."""

ROUNDS = 2
"""Rounds of peers: those that lose messages take the whole wait."""


def measure(rig: Rig) -> list[Result]:
    """Kill a worker in the middle of 2,000 messages, and start another one at once."""
    rounds = min(ROUNDS, rig.rounds)
    found = in_turn(sides(rig.peers), rounds, lambda side, broker: _once(rig, side, broker), peer_rounds=1)
    results = []
    for name, recoveries in found.items():
        columns = {
            "kill -9: lost": ("messages", [each.lost for each in recoveries]),
            "kill -9: started twice": ("messages", [each.doubled for each in recoveries]),
            "kill -9: the last one done after": ("s", [each.seconds for each in recoveries]),
        }
        results += [
            figure(question, name, unit, samples, higher_is_better=False, bar=BARS.get(question), of_all=max)
            for question, (unit, samples) in columns.items()
        ]
    return results


def _once(rig: Rig, side: Side, broker: Broker) -> Recovery:
    return kill.once(
        lambda journal: side.party_that_recovers(broker.url, journal), messages=rig.count(MESSAGES), limit=WAIT
    )
