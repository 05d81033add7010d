"""How long does a command of `duly` take from its start to its end, and how long does an empty Python program take?"""

import os
import subprocess
import sys
from collections.abc import Callable

from benchmarks.rig import BODY, Result, Rig, alternately, median, seconds

COMMANDS = {"queues": ["queues"], "list": ["list", "start", "ready"], "stats": ["stats"], "version": ["--version"]}
"""Some commands that people and scripts call often."""
TIMES = 11


def measure(rig: Rig) -> list[Result]:
    """Run each command as a process on a server that answers at once, all of them in turn."""
    rig.app.queue("start").send(BODY)
    environment = {**os.environ, "DULY_URL": rig.url}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode

    def run(*words: str) -> None:
        subprocess.run([sys.executable, *words], env=environment, stdout=subprocess.DEVNULL, check=True)

    def timed(*words: str) -> Callable[[], float]:
        return lambda: seconds(lambda: run(*words))

    for words in COMMANDS.values():  # write the bytecode
        run("-m", "duly", *words)
    programs = [timed("-m", "duly", *words) for words in COMMANDS.values()]
    bare, *found = alternately(TIMES, timed("-c", ""), *programs)
    rig.app.queue("start").delete()
    return [
        Result(
            f"duly {command}, from start to end", median(samples), "s", 0.25, higher_is_better=False, samples=samples,
            beside={"an empty Python program, s": round(median(bare), 3)},
        )
        for command, samples in zip(COMMANDS, found, strict=True)
    ]  # fmt: skip
