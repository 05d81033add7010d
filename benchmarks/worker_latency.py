"""How long after the call of `send` does the handler of an idle worker start?"""

from benchmarks.peers.parties import Party, PartyFailed, duly_party, peer_party
from benchmarks.rig import Result, Rig, median, percentile

MESSAGES = 200
GAP = 0.01
MOST_PEERS = 2


def measure(rig: Rig) -> list[Result]:
    """Send from one process, a message every 10 ms, to a worker in another; both read the same clock. All in turn."""
    ours = duly_party(rig.url)
    parties = [ours, duly_party(rig.url, "sync"), *(peer_party(name, rig.url) for name in rig.peers[:MOST_PEERS])]
    rounds: dict[str, list[list[float]]] = {}
    for _ in range(rig.rounds):
        for party in parties:
            if latencies := _latencies(rig, party):
                rounds.setdefault(party.name, []).append(latencies)
    rig.raw.flushall()
    return [_result(name, found, 0.8 if name == ours.name else None) for name, found in rounds.items()]


def _latencies(rig: Rig, party: Party) -> list[float]:
    """Milliseconds, of each message; nothing of a peer that failed."""
    rig.raw.flushall()
    try:
        hits = party.trickle(MESSAGES, GAP).hits
    except PartyFailed as error:
        if party.adapter == "duly":
            raise
        print(f"     without a figure: {error}", flush=True)
        return []
    return [(hit.moment - hit.stamp) * 1000 for hit in hits]


def _result(name: str, rounds: list[list[float]], bar: float | None) -> Result:
    latencies = [latency for found in rounds for latency in found]
    return Result(
        f"idle latency, send to handler, p50, {name}",
        median(latencies),
        "ms",
        bar,
        higher_is_better=False,
        samples=[round(median(found), 3) for found in rounds],
        beside={"p99 ms": round(percentile(latencies, 0.99), 2), "most ms": round(max(latencies), 2)},
    )
