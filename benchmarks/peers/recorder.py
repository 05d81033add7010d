"""The texts of the messages of a contest, and when handlers got them. The processes of all parties use it."""

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

SIZE: Final = 100
"""Bytes of a message's text, unless a question asks for another size."""

_HEAD: Final = 30
"""Characters of a text that are kept: number and stamp."""

WARM_UP: Final = 90_000_000
"""Numbers from here on are not counted."""

_LOOK_EVERY: Final = 0.1
"""Seconds between polls. Each poll takes the interpreter's lock from the event loop for a moment."""

CLOCKS: Final[dict[str, Callable[[], float]]] = {"monotonic": time.monotonic, "wall": time.time}
"""On Linux both are the same in all processes; the server reads the wall clock."""


def text_of(number: int, stamp: float, size: int = SIZE) -> str:
    """Write a message: its number, and when it was sent or is due."""
    return f"{number:08d} {stamp:017.6f} ".ljust(size, "x")


def read_text(text: str) -> tuple[int, float]:
    """Read what `text_of` wrote."""
    number, stamp, _ = text.split(" ", 2)
    return int(number), float(stamp)


class Recorder:
    """Records when handlers start. The handler of every party calls `note`, and does nothing else."""

    def __init__(self, clock: str, out: str, expected: int) -> None:
        self._clock = CLOCKS[clock]
        self._out = Path(out)
        self._expected = expected
        self._hits: list[tuple[float, str]] = []

    def note(self, text: str) -> None:
        """Record that a handler starts."""
        self._hits.append((self._clock(), text[:_HEAD]))

    def watch(self) -> None:
        """Write the record down, from a thread, when all that is expected has come."""
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self._hits:
            time.sleep(_LOOK_EVERY)
        cpu, count = time.process_time(), len(self._hits)
        Path(f"{self._out}.seen").touch()
        while len(self._hits) < self._expected:
            time.sleep(_LOOK_EVERY)
        cpu, count = time.process_time() - cpu, len(self._hits) - count
        hits = [(moment, *read_text(text)) for moment, text in self._hits]
        write(self._out, {"hits": hits, "cpu_us": cpu / count * 1e6 if count else None})


class Journal:
    """Writes each start and end of a handler to a file at once, so that it survives `kill -9`."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, what: str, text: str) -> None:
        """Append a line."""
        os.write(self._file, f"{what} {time.monotonic():.6f} {read_text(text)[0]}\n".encode())


def write(out: Path, found: Any) -> None:
    """Write a JSON file completely or not at all."""
    partial = out.with_suffix(".partial")
    partial.write_text(json.dumps(found))
    partial.rename(out)
