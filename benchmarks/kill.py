"""Kills a worker with -9 in the middle of its messages, and starts another one. It has no question: others use it."""

import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.parties import Party


@dataclass(frozen=True)
class Recovery:
    """How the messages ended."""

    seconds: float
    """From the kill until the last message that was handled at all."""
    lost: float
    doubled: float
    """Messages whose handler started more than once."""


def once(
    party_with: Callable[[str], Party],
    *,
    messages: int,
    limit: float,
    is_settled: Callable[[], bool] = lambda: True,
) -> Recovery:
    """Kill the worker when it has done some. `party_with` gets the path of the journal."""
    with tempfile.TemporaryDirectory() as directory:
        journal = Path(directory) / "journal"
        party = party_with(str(journal))
        party.fill(messages)
        journal.write_text("")  # producers open it as well
        with party.working() as worker:
            _until(lambda: len(_ended(journal)) >= messages * 0.3, 60)
            worker.kill()
            killed_at = time.monotonic()
        with party.working():
            _until(lambda: len(_ended(journal)) >= messages, limit)
            _until(is_settled, 1)
        ended, started = _ended(journal), _lines(journal, "start")
    doubled = sum(count > 1 for count in Counter(number for _, number in started).values())
    last = max(killed_at, *ended.values())  # all may have been done before the kill
    return Recovery(last - killed_at, float(messages - len(ended)), float(doubled))


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
    """Wait until a condition holds, or time is up: the figures show which."""
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
