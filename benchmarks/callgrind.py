"""Counts the instructions of a process with callgrind while a function runs. It has no question: others use it."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

_TOTAL: Final = re.compile(r"^summary: (\d+)", re.MULTILINE)


class NoCallgrind(Exception):
    """Valgrind is not installed, or did not answer."""


class Counted:
    """A process under callgrind. Nothing is counted until `count` is called."""

    def __init__(self, process: Any, directory: Path) -> None:
        self.process = process
        self._directory = directory

    def count(self, act: Callable[[], object]) -> int:
        """Return the instructions that the process executes while `act` runs."""
        known = set(self._directory.glob("count.*"))
        self._control("--instr=on")
        self._control("--zero")
        act()
        self._control("--dump")
        self._control("--instr=off")
        (dump,) = set(self._directory.glob("count.*")) - known
        found = _TOTAL.search(dump.read_text())
        if found is None:
            raise NoCallgrind(f"{dump} has no total")
        return int(found[1])

    def _control(self, option: str) -> None:
        command = ["callgrind_control", option, str(self.process.pid)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or "OK" not in done.stdout:
            raise NoCallgrind(f"{' '.join(command)}: {done.stdout}{done.stderr}")


@contextmanager
def counted(command: Sequence[str], **settings: object) -> Iterator[Counted]:
    """Run a command under callgrind, and end it."""
    if shutil.which("valgrind") is None:
        raise NoCallgrind("valgrind is not installed")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        tool = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={directory}/count"]
        with (directory / "output").open("wb") as output:
            process = subprocess.Popen(  # type: ignore[call-overload]
                [*tool, *command],
                **{"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output, **settings},
            )
        try:
            yield Counted(process, directory)
        finally:
            process.kill()
            process.wait()
