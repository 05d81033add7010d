"""How long after its due time does the handler of a delayed message start, and is it ever early?"""

from benchmarks.peers.parties import Party, PartyFailed, duly_party, peer_party
from benchmarks.rig import Result, Rig, median, percentile

SPREAD, SPREAD_OVER = 200, 5.0
BURST = 5_000


def measure(rig: Rig) -> list[Result]:
    """Let 200 messages fall due over 5 s, and 5,000 at one moment. Handlers read the clock that the server reads."""
    ours = duly_party(rig.url)
    spread, lasts = [], []
    for _ in range(rig.rounds):
        spread += _lateness(rig, ours, SPREAD, SPREAD_OVER)
        lasts.append(_lateness(rig, ours, BURST, 0.0))
    burst = [late for each in lasts for late in each]
    results = [
        _lower(f"{SPREAD} delayed over {SPREAD_OVER:g} s, late, p50", median(spread), 2, spread),
        _lower(f"{SPREAD} delayed over {SPREAD_OVER:g} s, late, p99", percentile(spread, 0.99), 6, []),
        Result("delayed, the earliest of all", min(spread + burst), "ms", 0, higher_is_better=True),
        _lower(
            f"{BURST:,} due at once, the last one",
            median([max(each) for each in lasts]),
            300,
            [max(each) for each in lasts],
        ),
    ]
    for name in rig.peers:
        party = peer_party(name, rig.url)
        if party.has_delays:
            results += _of_peer(rig, party)
    rig.raw.flushall()
    return results


def _lateness(rig: Rig, party: Party, messages: int, spread: float) -> list[float]:
    """Milliseconds after the due time, of each."""
    rig.raw.flushall()
    hits = party.delayed(messages, due_in=2.0 if spread else 5.0, spread=spread).hits
    return [(hit.moment - hit.stamp) * 1000 for hit in hits]


def _of_peer(rig: Rig, party: Party) -> list[Result]:
    """Once: they are far from ours."""
    try:
        spread, burst = _lateness(rig, party, SPREAD, SPREAD_OVER), _lateness(rig, party, BURST, 0.0)
    except PartyFailed as error:
        print(f"     without a figure: {error}", flush=True)
        return []
    beside = {"p99 ms": round(percentile(spread, 0.99), 1), "earliest ms": round(min(spread), 1)}
    return [
        _lower(
            f"{SPREAD} delayed over {SPREAD_OVER:g} s, late, p50, {party.name}", median(spread), None, spread, beside
        ),
        _lower(
            f"{BURST:,} due at once, the last one, {party.name}",
            max(burst),
            None,
            [max(burst)],
            {"earliest ms": round(min(burst), 1)},
        ),
    ]


def _lower(
    question: str, value: float, bar: float | None, samples: list[float], beside: dict[str, float] | None = None
) -> Result:
    kept = [round(each, 3) for each in samples]
    return Result(question, value, "ms", bar, higher_is_better=False, samples=kept, beside=beside or {})
