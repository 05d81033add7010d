"""How soon after `kill -9` of a worker is everything done by another one, and is anything lost?"""

import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

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
    seconds, lost, doubles = (list(each) for each in zip(*found, strict=True))
    return [
        Result(
            f"kill -9, a lease of {LEASE:g} s: all done after",
            max(seconds),
            "s",
            BOUND,
            higher_is_better=False,
            samples=seconds,
            beside={"started twice": max(doubles)},
        ),
        Result("kill -9: lost", sum(lost), "messages", 0, higher_is_better=False, samples=lost),
    ]


def _once(rig: Rig) -> tuple[float, float, float]:
    """Seconds until all was done, how many never were, and how many were begun more than once."""
    rig.raw.flushall()
    with tempfile.TemporaryDirectory() as directory:
        journal = Path(directory) / "journal"
        party = duly_party(rig.url, "slow", lease=LEASE, journal=str(journal))
        party.fill(MESSAGES)
        journal.write_text("")  # producers open it, too
        with party.working() as worker:
            _until(lambda: len(_ended(journal)) >= MESSAGES * 0.3, 30)
            worker.kill()
            killed_at = time.monotonic()
        with party.working():
            _until(lambda: len(_ended(journal)) >= MESSAGES, 3 * BOUND)
            _until(lambda: rig.app.queue(QUEUE).stats().leased == 0, 1)
        ended, started = _ended(journal), _lines(journal, "start")
    doubles = sum(count > 1 for count in Counter(number for _, number in started).values())
    done_at = max(ended.values())
    return done_at - killed_at, float(MESSAGES - len(ended)), float(doubles)


def _lines(journal: Path, what: str) -> list[tuple[float, int]]:
    rows = [line.split() for line in journal.read_text().splitlines()]
    return [(float(row[1]), int(row[2])) for row in rows if len(row) == 3 and row[0] == what]


def _ended(journal: Path) -> dict[int, float]:
    """When each message was done first."""
    moments: dict[int, float] = {}
    for moment, number in _lines(journal, "end"):
        moments.setdefault(number, moment)
    return moments


def _until(holds: Callable[[], bool], seconds: float) -> None:
    """Wait until something holds, or time is up: the figures tell."""
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
