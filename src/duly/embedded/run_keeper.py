"""The program that becomes the keeper; run by path: `python -I -S run_keeper.py DIRECTORY BINARY`.

It stays small by never importing duly/__init__.py, and with it a Redis client. It ends
with 0 once a keeper detached from it holds its lock, with BUSY if another one does.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
import types
from pathlib import Path

BUSY = 3


def main(directory: str, binary: str) -> int:
    """Take the keeper's lock, hand it to a detached child, and return there when the keeper has ended."""
    _name_packages()
    from duly.embedded.home import Home
    from duly.embedded.keeper import take_office

    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # do not inherit what a caller's thread blocks
    keeper = take_office(Home(Path(directory)), binary)
    if keeper is None:
        return BUSY
    # The child inherits the lock, so there is no moment without a holder, and the
    # caller can tell "not there yet" from "ended" when this process has returned.
    if os.fork():
        return 0
    keeper.run()
    return 0


def _name_packages() -> None:
    """Register empty packages under our names, so that their modules load without their __init__."""
    here = Path(__file__).resolve().parent
    for name, folder in (("duly", here.parent), ("duly.embedded", here)):
        package = types.ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules.setdefault(name, package)


if __name__ == "__main__":
    # No clean-up at the end: threads sleep in the kernel, and locks go with the process.
    try:
        code: int = main(*sys.argv[1:])
    except BaseException:  # noqa: BLE001 - reported, and the exit status tells
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)
