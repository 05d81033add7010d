"""How long after the call of `send` does the handler of an idle worker start?"""

import time

from benchmarks.peers.parties import Party, PartyFailed, duly_party, peer_party
from benchmarks.rig import Result, Rig, median, percentile, seconds

MESSAGES = 200
GAP = 0.01
MOST_PEERS = 2


def measure(rig: Rig) -> list[Result]:
    """Send from one process, a message every 10 ms, to a worker in another; both read the same clock. All in turn."""
    ours = duly_party(rig.url)
    parties = [ours, duly_party(rig.url, "sync"), *(peer_party(name, rig.url) for name in rig.peers[:MOST_PEERS])]
    rounds: dict[str, list[list[float]]] = {}
    trips: list[float] = []
    for _ in range(rig.rounds):
        trips += _idle_trips(rig)
        for party in parties:
            if latencies := _latencies(rig, party):
                rounds.setdefault(party.name, []).append(latencies)
    rig.raw.flushall()
    results = [_result(name, found, 0.8 if name == ours.name else None) for name, found in rounds.items()]
    results[0].beside["an idle PING, p50 ms"] = round(median(trips), 3)
    return results


def _idle_trips(rig: Rig) -> list[float]:
    """Milliseconds of a PING by redis-py at the same pace: the time of one trip when all processes have to wake up."""
    trips = []
    for _ in range(MESSAGES // 2):
        time.sleep(GAP)
        trips.append(seconds(rig.raw.ping) * 1000)
    return trips


def _latencies(rig: Rig, party: Party) -> list[float]:
    """Milliseconds of each message; none for a peer that failed."""
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
