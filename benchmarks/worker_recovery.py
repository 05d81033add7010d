"""How soon after `kill -9` of a worker is everything done by another one, and is anything lost?"""

from benchmarks import kill
from benchmarks.kill import Recovery
from benchmarks.peers.adapters.duly import QUEUE
from benchmarks.peers.parties import duly_party
from benchmarks.rig import Result, Rig

MESSAGES = 2_000
LEASE = 5.0
BOUND = 1.2 * LEASE + 0.5
ROUNDS = 2


def measure(rig: Rig) -> list[Result]:
    """Kill a worker with 100 handlers of 5 ms when it has done some, and start another one at once."""
    found = [_once(rig) for _ in range(min(ROUNDS, rig.rounds))]
    rig.raw.flushall()
    seconds = [each.seconds for each in found]
    lost = [each.lost for each in found]
    return [
        Result(
            f"kill -9, a lease of {LEASE:g} s: all done after",
            max(seconds),
            "s",
            BOUND,
            higher_is_better=False,
            samples=seconds,
            beside={"started twice": max(each.doubled for each in found)},
        ),
        Result("kill -9: lost", sum(lost), "messages", 0, higher_is_better=False, samples=lost),
    ]


def _once(rig: Rig) -> Recovery:
    rig.raw.flushall()
    return kill.once(
        lambda journal: duly_party(rig.url, "slow", lease=LEASE, journal=journal),
        messages=rig.count(MESSAGES),
        limit=3 * BOUND,
        is_settled=lambda: rig.app.queue(QUEUE).stats().leased == 0,
    )
