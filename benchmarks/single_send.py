"""How fast are single sends, compared with a bare EVALSHA of `return 1` with the same keys and arguments?"""

from benchmarks.rig import BODY, Result, Rig, alternately, median, seconds
from duly._core import ops
from duly._core.call import CallStream

CALLS = 300


def measure(rig: Rig) -> list[Result]:
    """Alternate short runs of both, and take the median of the ratios."""
    queue = rig.app.queue("single")
    sha = rig.raw.script_load("return 1")
    message = queue._outgoing(BODY)
    call = ops.send(queue._keys, [message], queue.options, "each")
    command = call.command(b"EVALSHA", sha, CallStream(b"0123456789abcdef", 1))

    def send() -> float:
        return CALLS / seconds(lambda: [queue.send(BODY) for _ in range(CALLS)])

    def bare() -> float:
        return CALLS / seconds(lambda: [rig.raw.execute_command(*command) for _ in range(CALLS)])

    sends, bares = alternately(40, send, bare)
    queue.delete()
    ratios = [ours / theirs for ours, theirs in zip(sends, bares, strict=True)]
    beside = {"send/s": round(median(sends)), "bare EVALSHA/s": round(median(bares))}
    return [
        Result(
            "single send, of a bare EVALSHA",
            median(ratios),
            "ratio",
            0.75,
            higher_is_better=True,
            samples=ratios,
            beside=beside,
        )
    ]
