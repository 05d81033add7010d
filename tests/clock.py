"""A wall clock that a test can move, for a server that the test has started."""

import atexit
import functools
import mmap
import os
import shutil
import struct
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

import pytest

_SETTING = struct.Struct("=qq")  # shift and frozen time, in microseconds, as clock_shim.c reads them


class ServerClock:
    """Shifts the time of day of every server started with `environment()`. Monotonic clocks stay true."""

    def __init__(self) -> None:
        self._library = _compiled_shim()
        handle, name = tempfile.mkstemp(prefix="duly-clock-")
        self._file = Path(name)
        os.write(handle, _SETTING.pack(0, 0))
        self._memory = mmap.mmap(handle, _SETTING.size)
        os.close(handle)

    def environment(self) -> dict[str, str]:
        """Return what a server needs in its environment to follow this clock."""
        return {"LD_PRELOAD": str(self._library), "DULY_CLOCK_FILE": str(self._file)}

    def step(self, seconds: float) -> None:
        """Move the clock forward, or back, and return when the server must have seen it."""
        shift, frozen = _SETTING.unpack(self._memory[:])
        self._memory[:] = _SETTING.pack(shift + round(seconds * 1_000_000), frozen)
        # Valkey reads the clock once per millisecond and counts on from there with the processor's counter.
        time.sleep(0.002)

    def freeze(self, us: int) -> None:
        """Stop the clock at this time, in microseconds since the epoch."""
        shift, _ = _SETTING.unpack(self._memory[:])
        self._memory[:] = _SETTING.pack(shift, us)

    def close(self) -> None:
        self._memory.close()
        self._file.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def miss_the_shim() -> None:
    """Leave a test out that needs the shim where it cannot be built, but not unseen: CI has to have gcc."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)("no gcc for the clock shim: `make servers`")


@functools.cache
def _compiled_shim() -> Path:
    if not shutil.which("gcc"):
        miss_the_shim()
    directory = Path(tempfile.mkdtemp(prefix="duly-shim-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    library = directory / "clock_shim.so"
    source = Path(__file__).with_name("clock_shim.c")
    subprocess.run(["gcc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, source], check=True)
    return library
