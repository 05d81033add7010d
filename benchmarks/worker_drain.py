"""How many messages per second does one worker process handle, compared with other queues?"""

from benchmarks.peers.parties import Party, PartyFailed, duly_party, peer_party
from benchmarks.rig import Result, Rig, alternately, median

MESSAGES = 100_000
SYNC_MESSAGES = 40_000


class Side:
    """One party's drains."""

    def __init__(self, rig: Rig, party: Party) -> None:
        self._rig = rig
        self.party = party
        self.worker_us: list[float] = []
        self.server_us: list[float] = []
        self.rates: list[float] = []

    def drain(self) -> float:
        """Fill a queue, start a worker with a handler that does nothing, and return its rate; 0 if a peer fails."""
        rig, party = self._rig, self.party
        rig.raw.flushall()
        try:
            party.fill(party.messages)
            before = rig.server_cpu()
            record = party.drain(party.messages)
        except PartyFailed as error:
            if party.adapter == "duly":
                raise
            print(f"     without a figure: {error}", flush=True)
            return 0.0
        self.server_us.append((rig.server_cpu() - before) / party.messages * 1e6)
        self.worker_us.append(record.cpu_us or 0.0)
        return record.rate()

    def result(self, bar: float | None) -> Result:
        """Put the rate and what a message costs together."""
        costs = {"worker CPU us": self.worker_us, "server CPU us": self.server_us}
        return Result(
            f"drain, one worker, {self.party.name}",
            median(self.rates),
            "messages/s",
            bar,
            higher_is_better=True,
            samples=[round(rate) for rate in self.rates],
            beside={name: round(median(found), 2) for name, found in costs.items() if found},
        )


def measure(rig: Rig) -> list[Result]:
    """Drain all sides in turn, and calibrate in between."""
    ours = Side(rig, duly_party(rig.url, messages=MESSAGES))
    ours_sync = Side(rig, duly_party(rig.url, "sync", messages=SYNC_MESSAGES))
    peers = [Side(rig, peer_party(name, rig.url)) for name in rig.peers]
    sides = [ours, ours_sync, *peers]
    *rates, lists = alternately(
        rig.rounds, *[side.drain for side in sides], lambda: rig.calibration()["pipelined LPUSH/s"]
    )
    for side, found in zip(sides, rates, strict=True):
        side.rates = found
    rig.raw.flushall()
    results = [ours.result(80_000), ours_sync.result(20_000), *_ratio(ours, peers)]
    results += [side.result(None) for side in peers]
    results[0].beside["pipelined LPUSH/s"] = median(lists)
    return results


def _ratio(ours: Side, peers: list[Side]) -> list[Result]:
    """Compare with the fastest peer, round by round."""
    fastest = max(peers, key=lambda side: median(side.rates), default=None)
    if fastest is None or not any(fastest.rates):
        return []
    pairs = zip(ours.rates, fastest.rates, strict=True)
    ratios = [round(mine / theirs, 2) for mine, theirs in pairs if theirs]
    name = f"drain, {ours.party.name}, of the fastest peer ({fastest.party.name})"
    return [Result(name, median(ratios), "ratio", 10, higher_is_better=True, samples=ratios)]
