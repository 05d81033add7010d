"""How long after its due time does the handler of a delayed message start, and is it ever early?"""

from benchmarks.peers.parties import Party, PartyFailed, duly_party, peer_party
from benchmarks.rig import Result, Rig, median, percentile

SPREAD, SPREAD_OVER = 200, 5.0
BURST = 5_000


def measure(rig: Rig) -> list[Result]:
    """Let 200 messages fall due over 5 s, and 5,000 at one moment. Handlers read the clock that the server reads."""
    results = _results(rig, duly_party(rig.url), rig.rounds)
    for name in rig.peers:
        party = peer_party(name, rig.url)
        if party.has_delays:
            try:
                results += _results(rig, party, 1)  # they are far from ours
            except PartyFailed as error:
                print(f"     without a figure: {error}", flush=True)
    rig.raw.flushall()
    return results


def _results(rig: Rig, party: Party, rounds: int) -> list[Result]:
    spreads, bursts = [], []
    for _ in range(rounds):
        spreads.append(_lateness(rig, party, SPREAD, SPREAD_OVER))
        bursts.append(_lateness(rig, party, BURST, 0.0))
    whole = [late for found in spreads for late in found]
    earliest = [min(found) for found in (*spreads, *bursts)]
    lasts = [max(found) for found in bursts]
    is_ours = party.adapter == "duly"

    def result(question: str, value: float, bar: float, samples: list[float], *, higher: bool = False) -> Result:
        kept = [round(sample, 3) for sample in samples]
        return Result(f"{question}, {party.name}", value, "ms", bar if is_ours else None, higher, kept)

    spread = f"{SPREAD} due over {SPREAD_OVER:g} s, late"
    return [
        result(f"{spread}, p50", median(whole), 2, [median(found) for found in spreads]),
        result(f"{spread}, p99", percentile(whole, 0.99), 6, [percentile(found, 0.99) for found in spreads]),
        result(f"{BURST:,} due at once, the last one", median(lasts), 300, lasts),
        result("delayed, the earliest of all", min(earliest), 0, earliest, higher=True),
    ]


def _lateness(rig: Rig, party: Party, messages: int, spread: float) -> list[float]:
    """Milliseconds after the due time, of each message."""
    rig.raw.flushall()
    due_in = 2.0 if spread else 5.0 if party.adapter == "duly" else 10.0  # all are sent by then
    hits = party.delayed(messages, due_in=due_in, spread=spread).hits
    return [(hit.moment - hit.stamp) * 1000 for hit in hits]
