"""How many messages per second do one to eight worker processes handle, on the cores of this machine?"""

import os
import time
from contextlib import ExitStack

from benchmarks.peers.adapters.duly import QUEUE
from benchmarks.peers.parties import PartyFailed, duly_party
from benchmarks.rig import Result, Rig, median

PROCESSES = (1, 2, 4, 8)
MESSAGES = 200_000
LOOK_EVERY = 0.02
FROM, UNTIL = 0.1, 0.9
"""The parts of all messages between which the rate is taken: the start of processes does not count."""


def measure(rig: Rig) -> list[Result]:
    """Drain a queue with more and more worker processes, in turn."""
    found: dict[int, list[float]] = {processes: [] for processes in PROCESSES}
    for _ in range(rig.rounds):
        for processes in PROCESSES:
            found[processes].append(_rate(rig, processes))
    rig.raw.flushall()
    return [
        Result(
            f"drain, {processes} worker process{'es' if processes > 1 else ''}",
            median(samples),
            "messages/s",
            None,
            higher_is_better=True,
            samples=[round(sample) for sample in samples],
            beside={"processes": processes, "cores": float(os.cpu_count() or 0)},
        )
        for processes, samples in found.items()
    ]


def _rate(rig: Rig, processes: int) -> float:
    rig.raw.flushall()
    party, messages = duly_party(rig.url), rig.count(MESSAGES)
    party.fill(messages)
    queue, first, deadline = rig.app.queue(QUEUE), None, time.monotonic() + 120
    with ExitStack() as stack:
        for _ in range(processes):
            stack.enter_context(party.working())
        while True:
            acked, now = queue.stats().acked, time.monotonic()
            if first is None and acked >= messages * FROM:
                first = (acked, now)
            elif first is not None and acked >= messages * UNTIL:
                return (acked - first[0]) / (now - first[1])
            if now > deadline:
                raise PartyFailed(f"{processes} workers acked {acked} of {messages} messages in 120 s")
            time.sleep(LOOK_EVERY)
