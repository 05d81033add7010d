"""How many messages a second does one worker process handle, beside other queues?"""

from benchmarks.peers.parties import Party, PartyFailed, Record, duly_party, peer_party
from benchmarks.rig import Result, Rig, alternately, median

MESSAGES = 100_000
SYNC_MESSAGES = 40_000


def measure(rig: Rig) -> list[Result]:
    """Fill a queue, start a worker with handlers that do nothing; all in turn."""
    ours, ours_sync = duly_party(rig.url, messages=MESSAGES), duly_party(rig.url, "sync", messages=SYNC_MESSAGES)
    peers = [peer_party(name, rig.url) for name in rig.peers]
    records: dict[str, list[Record]] = {}
    server_us: dict[str, list[float]] = {}

    def drain(party: Party) -> float:
        rig.raw.flushall()
        party.fill(party.messages)
        before = rig.server_cpu()
        record = party.drain(party.messages)
        records.setdefault(party.name, []).append(record)
        server_us.setdefault(party.name, []).append((rig.server_cpu() - before) / party.messages * 1e6)
        return record.rate()

    def drain_peer(party: Party) -> float:
        try:
            return drain(party)
        except PartyFailed as error:
            print(f"     without a figure: {error}", flush=True)
            return 0.0

    rates, sync_rates, lists, *others = alternately(
        rig.rounds,
        lambda: drain(ours),
        lambda: drain(ours_sync),
        lambda: rig.calibration()["pipelined LPUSH/s"],
        *[lambda party=party: drain_peer(party) for party in peers],
    )
    rig.raw.flushall()

    def costs(party: Party) -> dict[str, float]:
        return {
            "worker CPU us": round(median([record.cpu_us or 0.0 for record in records[party.name]]), 2),
            "server CPU us": round(median(server_us[party.name]), 2),
        }

    beside = {f"{party.name}/s": round(median(found)) for party, found in zip(peers, others, strict=True)}
    results = [
        Result(
            "drain, one worker, async handler",
            median(rates),
            "messages/s",
            80_000,
            higher_is_better=True,
            samples=rates,
            beside={**costs(ours), **beside, "pipelined LPUSH/s": median(lists)},
        ),
        Result(
            "drain, one worker, sync handler",
            median(sync_rates),
            "messages/s",
            20_000,
            higher_is_better=True,
            samples=sync_rates,
            beside=costs(ours_sync),
        ),
    ]
    if any(beside.values()):
        fastest = max(others, key=median)
        ratios = [mine / theirs for mine, theirs in zip(rates, fastest, strict=True) if theirs]
        name = peers[others.index(fastest)].name
        results.append(
            Result(
                f"drain, async, of the fastest peer ({name})",
                median(ratios),
                "ratio",
                10,
                higher_is_better=True,
                samples=ratios,
            )
        )
    for party, found in zip(peers, others, strict=True):
        results.append(
            Result(f"drain, {party.name}", median(found), "messages/s", None, higher_is_better=True, samples=found)
        )
    return results
