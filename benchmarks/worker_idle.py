"""What does an idle worker cost?"""

import time
from collections.abc import Mapping

from benchmarks.peers.parties import duly_party
from benchmarks.rig import Result, Rig
from duly._core import patience

WINDOW = 15.0
"""Seconds: three times the interval in which an idle worker polls."""

BEAT_EVERY, TIDY_EVERY = 5.0, 60.0
BUNDLE = 64
"""Queues that share a blocking call, and a poll in each interval."""
OURS = ("info", "config|resetstat")


def measure(rig: Rig) -> list[Result]:
    """Count calls and commands, and the processor time, of workers for one queue and for a hundred."""
    return [result for queues in (1, 100) for result in _with(rig, queues)]


def _with(rig: Rig, queues: int) -> list[Result]:
    rig.raw.flushall()
    with duly_party(rig.url, queues=queues).working() as worker:
        while not rig.app.workers():
            time.sleep(0.05)
        time.sleep(2.0)  # for the first claims
        before, cpu, server = _calls(rig), worker.cpu(), rig.server_cpu()
        time.sleep(WINDOW)
        after = _calls(rig)
        worker_part, server_part = (worker.cpu() - cpu) / WINDOW * 100, (rig.server_cpu() - server) / WINDOW * 100
    calls = {name: count - before.get(name, 0) for name, count in after.items()}
    # Scripts call commands: only the scripts and the blocking call go over the wire.
    trips = sum(count for name, count in calls.items() if name.startswith(("eval", "bl", "bz", "ping")))
    period = patience.looking_period(30.0)
    asked = 2 * -(-queues // BUNDLE) / period + 1 / BEAT_EVERY + queues / TIDY_EVERY
    of = "1 queue" if queues == 1 else f"{queues} queues"
    beside = {"commands/s, scripts' included": round(sum(calls.values()) / WINDOW, 1)}
    return [
        Result(
            f"idle, {of}: calls",
            trips / WINDOW,
            "calls/s",
            round(asked * 1.15, 2),
            higher_is_better=False,
            beside=beside,
        ),
        Result(
            f"idle, {of}: CPU of the worker",
            worker_part,
            "% of a core",
            0.5 if queues == 1 else 3.0,
            higher_is_better=False,
            beside={"server's, %": round(server_part, 2)},
        ),
    ]


def _calls(rig: Rig) -> Mapping[str, int]:
    """Count commands by name, except failed ones: the first call of a script fails, and is then sent with its text."""
    names = {
        name.removeprefix("cmdstat_"): figures["calls"] - figures["failed_calls"]
        for name, figures in rig.raw.info("commandstats").items()
    }
    return {name: count for name, count in names.items() if name not in OURS}
