"""How many messages per second does each party send and handle, and what does a message cost?"""

from dataclasses import dataclass

from benchmarks.contest import Side, figure, in_turn, of_best_peer, sides
from benchmarks.peers.brokers import Broker
from benchmarks.rig import Result, Rig

ROUNDS, PEER_ROUNDS = 3, 2
SINGLES = 4_000


@dataclass(frozen=True)
class Rates:
    """The results of a party in one round."""

    send: float
    bulk: float
    drain: float
    send_cpu: float
    drain_cpu: float
    worker_cpu: float | None
    """None for a drain that was too short to measure."""
    memory: float

    @property
    def overlap(self) -> float | None:
        """The wall time of a message, of the larger CPU time: 1 if worker and server never wait for each other."""
        return None if self.worker_cpu is None else 1e6 / self.drain / max(self.worker_cpu, self.drain_cpu)


DRAIN = "drain, one worker process"
WORKER_CPU = "worker CPU of a message"
OVERLAP = "drain: wall time of a message, of the larger CPU time"
COLUMNS = {
    "send, one after another": ("send", "messages/s", True),
    "send, many at once": ("bulk", "messages/s", True),
    DRAIN: ("drain", "messages/s", True),
    "server CPU of a send": ("send_cpu", "us", False),
    "server CPU of a drained message": ("drain_cpu", "us", False),
    WORKER_CPU: ("worker_cpu", "us", False),
    "memory of a waiting message": ("memory", "bytes", False),
    OVERLAP: ("overlap", "ratio", False),
}
BARS = {OVERLAP: 1.15, WORKER_CPU: 5}


def measure(rig: Rig) -> list[Result]:
    """Send one by one, send many, drain both: each side in turn."""
    rounds = min(ROUNDS, rig.rounds)
    found = in_turn(sides(rig.peers), rounds, lambda side, broker: _rates(rig, side, broker), peer_rounds=PEER_ROUNDS)
    results = []
    for question, (field, unit, higher) in COLUMNS.items():
        for name, rounds in found.items():
            values = [getattr(rates, field) for rates in rounds]
            if samples := [value for value in values if value is not None]:
                bar = BARS.get(question)
                results.append(figure(question, name, unit, samples, higher_is_better=higher, bar=bar))
    return results + of_best_peer(DRAIN, results, bar=15)


def _rates(rig: Rig, side: Side, broker: Broker) -> Rates:
    party = side.party(broker.url)
    singles, many = rig.count(min(party.messages, SINGLES)), rig.count(party.messages)
    cpu = broker.cpu()
    sending = party.send(singles)
    send_cpu = broker.cpu() - cpu
    party.drain(singles)
    memory = broker.memory()
    filling = party.fill(many)
    memory = broker.memory() - memory
    cpu = broker.cpu()
    record = party.drain(many)
    return Rates(
        send=singles / sending,
        bulk=many / filling,
        drain=record.rate(),
        send_cpu=send_cpu / singles * 1e6,
        drain_cpu=(broker.cpu() - cpu) / many * 1e6,
        worker_cpu=record.cpu_us,
        memory=memory / many,
    )
