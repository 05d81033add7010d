"""How much does the history of a queue cost the server: processor time of a message, and memory?

The same client runs the scripts as they are and without the lines that take a point of the history:
`python -m benchmarks.history_cost URL whole|cut BATCH` prints the server's microseconds for a message.
"""

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Final

import redis

import duly
from benchmarks.rig import BODY, Result, Rig, alternately, median
from duly import _lua
from duly._core import ops

MESSAGES: Final = {1: 4_000, 100: 30_000}
"""Messages of a sample, by how many a call has."""
POINT: Final = re.compile(r"^-- The first (?:send|claim) of a minute.*?^end\n", re.MULTILINE | re.DOTALL)
RINGS: Final = {"m": 60, "t": 144, "h": 168}
BUCKETS: Final = 16
MEASURED: Final = "9000000000," + ",".join(["70000"] * BUCKETS)
"""The sums of a busy worker: microseconds in total, and a number for each bucket."""


def measure(rig: Rig) -> list[Result]:
    """Compare both kinds of scripts, for single messages and for batches, and fill a history."""
    return [*(_cpu(rig, batch) for batch in MESSAGES), _memory(rig)]


def _cpu(rig: Rig, batch: int) -> Result:
    whole, cut = alternately(9, _life_in_a_process(rig.url, "whole", batch), _life_in_a_process(rig.url, "cut", batch))
    return Result(
        f"server CPU of a message's life with history / without, batches of {batch}",
        median(whole) / median(cut),
        "x",
        1.02,
        higher_is_better=False,
        samples=[one / other for one, other in zip(whole, cut, strict=True)],
        beside={"with us": round(median(whole), 2)},
    )


def _life_in_a_process(url: str, scripts: str, batch: int) -> Callable[[], float]:
    command = [sys.executable, "-m", "benchmarks.history_cost", url, scripts, str(batch)]
    return lambda: float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _memory(rig: Rig) -> Result:
    """Fill all rings with points like those of a queue that is busy all week."""
    queue = rig.app.queue("history")
    for _ in range(2):  # a queue without points has no history
        queue.send(BODY)
        queue.ack_many(queue.receive(wait=0))
    rig.app._link.run(ops.measure(queue._keys, MEASURED, MEASURED))
    key = next(rig.raw.scan_iter("duly:{history}:history*"))
    point = rig.raw.hget(key, next(field for field in rig.raw.hkeys(key) if field.startswith(b"m")))
    counts, sums = [b"10000000"] * 7, [MEASURED.encode()] * 2
    busy = b" ".join([point.split()[0], *counts, b"100000", b"60000000", *sums])
    rig.raw.hset(key, mapping={f"{ring}{at}": busy for ring, size in RINGS.items() for at in range(size)})
    size = rig.raw.memory_usage(key, samples=0)
    queue.delete()
    return Result(
        "memory of the history of a queue that is busy all week", size, "bytes", None, higher_is_better=False,
        samples=[float(size)], beside={"points": float(sum(RINGS.values()))},
    )  # fmt: skip


def life(url: str, batch: int, *, has_points: bool) -> float:
    """Send, claim and ack, and return the server's microseconds for a message."""
    with duly.Duly(url) as app, redis.Redis.from_url(url) as raw:
        queue = app.queue("history-cost")

        def pass_through(messages: int) -> None:
            for _ in range(messages // batch):
                queue.send_many([BODY] * batch)
            while deliveries := queue.receive(limit=batch, wait=0):
                queue.ack_many(deliveries)

        def spent() -> float:
            info = raw.info("cpu")
            return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])

        pass_through(batch * 5)  # it loads the scripts
        before = spent()
        pass_through(MESSAGES[batch])
        used = spent() - before
        if raw.hexists(f"duly:{{{queue.name}}}:meta", "point") != has_points:
            raise RuntimeError("the scripts do not have the lines that this question cuts")
        queue.delete()
    return used / MESSAGES[batch] * 1e6


def without_points(read: Callable[[str], str]) -> Callable[[str], str]:
    """Read scripts without the lines that take a point."""
    return lambda path: POINT.sub("", read(path))


if __name__ == "__main__":
    is_whole = sys.argv[2] == "whole"
    if not is_whole:
        _lua._read = without_points(_lua._read)  # type: ignore[assignment]
    print(life(sys.argv[1], int(sys.argv[3]), has_points=is_whole))
