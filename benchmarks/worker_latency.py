"""How long after the call of `send` does the handler of an idle worker start?"""

from benchmarks.peers.parties import Party, PartyFailed, duly_party, peer_party
from benchmarks.rig import Result, Rig, alternately, median, percentile

MESSAGES = 200
GAP = 0.01
MOST_PEERS = 2


def measure(rig: Rig) -> list[Result]:
    """Send from one process, a message every 10 ms, to a worker in another; both read the same clock."""
    ours, ours_sync = duly_party(rig.url), duly_party(rig.url, "sync")
    peers = [peer_party(name, rig.url) for name in rig.peers[:MOST_PEERS]]
    found: dict[str, list[float]] = {party.name: [] for party in (ours, ours_sync, *peers)}

    def trickle(party: Party) -> float:
        rig.raw.flushall()
        try:
            hits = party.trickle(MESSAGES, GAP).hits
        except PartyFailed as error:
            if party.adapter == "duly":
                raise
            print(f"     without a figure: {error}", flush=True)
            return 0.0
        latencies = [(hit.moment - hit.stamp) * 1000 for hit in hits]
        found[party.name] += latencies
        return median(latencies)

    alternately(rig.rounds, *[lambda party=party: trickle(party) for party in (ours, ours_sync, *peers)])
    rig.raw.flushall()
    return [
        _result(name, latencies, 0.8 if name == ours.name else None) for name, latencies in found.items() if latencies
    ]


def _result(name: str, latencies: list[float], bar: float | None) -> Result:
    return Result(
        f"idle latency, send to handler, p50, {name}",
        median(latencies),
        "ms",
        bar,
        higher_is_better=False,
        samples=[round(each, 4) for each in latencies],
        beside={"p99 ms": round(percentile(latencies, 0.99), 2), "most ms": round(max(latencies), 2)},
    )
