"""The whole field: Duly and all peers by the same rules, each on a separate server that is started for it.

It has no question. The questions `field_*` use it.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from benchmarks.peers.brokers import Broker, BrokerMissing, running
from benchmarks.peers.catalog import AT_LEAST_ONCE, PEERS, Peer
from benchmarks.peers.parties import Party, PartyFailed, duly_party, peer_party
from benchmarks.rig import Result, median

T = TypeVar("T")

DULY_MESSAGES: Final = 100_000


@dataclass(frozen=True)
class Side:
    """A party, its server, and the guarantee for its messages."""

    name: str
    broker: str
    guarantee: str
    keeps: str
    settings: str

    def party(self, url: str) -> Party:
        """Name the party against a server."""
        return peer_party(self.name, url) if self.name in PEERS else duly_party(url, messages=DULY_MESSAGES)

    def party_that_recovers(self, url: str, journal: str) -> Party:
        """Name the party with handlers that take 5 ms, and with leases of 5 s or the nearest that it supports."""
        if self.name in PEERS:
            return self.party(url).given(**PEERS[self.name].after_kill, journal=journal)
        return duly_party(url, "slow", lease=5.0, journal=journal)


OURS: Final = (
    Side("duly", "valkey", AT_LEAST_ONCE, "in memory", "100 handlers, lease of 30 s"),
    Side("duly-always", "valkey-always", AT_LEAST_ONCE, "on disk, synced before each reply", "appendfsync always"),
)


def sides(peers: Iterable[str]) -> list[Side]:
    """List Duly and the peers that are measured with it."""
    return [*OURS, *(_of_peer(name) for name in peers)]


def _of_peer(name: str) -> Side:
    peer = PEERS[name]
    return Side(name, peer.broker, peer.guarantee, peer.keeps, peer.settings)


def in_turn(
    taking_part: Iterable[Side],
    rounds: int,
    measure: Callable[[Side, Broker], T],
    *,
    peer_rounds: int | None = None,
) -> dict[str, list[T]]:
    """Measure all sides in turn, each on a separate server, and return the results of each.

    A peer that fails has no figure in that round. Duly may not fail. `peer_rounds` are fewer rounds for peers that are
    far from Duly.
    """
    found: dict[str, list[T]] = {}
    entrants = everyone = list(taking_part)
    began = time.monotonic()
    for number in range(rounds):
        if number == peer_rounds:
            entrants = [side for side in everyone if side in OURS]
        for side in entrants[:: -1 if number % 2 else 1]:  # none is always measured after the same one
            try:
                with running(side.broker) as broker:
                    found.setdefault(side.name, []).append(measure(side, broker))
            except (PartyFailed, BrokerMissing) as error:
                if side in OURS:
                    raise
                print(f"     {side.name} without a figure: {error}", flush=True)
        elapsed = time.monotonic() - began
        left = f"{elapsed:.0f} s, about {elapsed / (number + 1) * (rounds - number - 1):.0f} s left"
        print(f"     round {number + 1} of {rounds}: {left}", flush=True)
    return {side.name: found[side.name] for side in everyone if found.get(side.name)}


def figure(
    question: str,
    party: str,
    unit: str,
    samples: list[float],
    *,
    higher_is_better: bool,
    bar: float | None = None,
    of_all: Callable[[list[float]], float] = median,
) -> Result:
    """Return one value of all samples of a side. Only Duly has a target."""
    kept = [float(f"{sample:.6g}") for sample in samples]
    asked = bar if party == OURS[0].name else None
    return Result(question, of_all(kept), unit, asked, higher_is_better=higher_is_better, samples=kept, party=party)


def of_best_peer(question: str, results: Iterable[Result], *, bar: float) -> list[Result]:
    """Compare Duly with the best peer that delivers at least once on the same server, round by round."""
    asked = {result.party: result for result in results if result.question == question}
    rivals = [result for name, result in asked.items() if name in PEERS and _is_rival(PEERS[name])]
    if OURS[0].name not in asked or not rivals:
        return []
    ours = asked[OURS[0].name]
    best = max(rivals, key=lambda rival: rival.value if ours.higher_is_better else -rival.value)
    ratios = [round(mine / theirs, 3) for mine, theirs in zip(ours.samples, best.samples, strict=False) if theirs]
    name = f"{question}: Duly, of the best peer on Valkey ({best.party})"
    return [Result(name, median(ratios), "ratio", bar, ours.higher_is_better, ratios)] if ratios else []


def _is_rival(peer: Peer) -> bool:
    return peer.broker == "valkey" and peer.guarantee == AT_LEAST_ONCE
