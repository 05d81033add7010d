"""The program that becomes the keeper. It is run by path: `python -I -S run_keeper.py DIRECTORY BINARY`.

It stays small, since it never imports duly/__init__.py and a Redis client. Its exit status is 0 when a detached keeper
holds the lock, and BUSY if another keeper does.
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
    """Take the keeper's lock, and pass it to a detached child. In the child, return when the keeper has ended."""
    _name_packages()
    from duly.embedded.home import Home
    from duly.embedded.keeper import become_keeper

    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # do not inherit the mask of the calling thread
    keeper = become_keeper(Home(Path(directory)), binary)
    if keeper is None:
        return BUSY
    # The child inherits the lock, so that it always has a holder. When this process has
    # ended, an unlocked file means that the keeper has ended, not that it is starting.
    if os.fork():
        return 0
    keeper.run()
    return 0


def _name_packages() -> None:
    """Register empty packages with the names of Duly, so that modules load without their __init__."""
    here = Path(__file__).resolve().parent
    for name, folder in (("duly", here.parent), ("duly.embedded", here)):
        package = types.ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules.setdefault(name, package)


if __name__ == "__main__":
    # No clean-up at the end: threads block in the kernel, and locks end with the process.
    try:
        code: int = main(*sys.argv[1:])
    except BaseException:  # noqa: BLE001 - printed, and reported by the exit status
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)
