"""Runs `duly` in processes of their own that have Python and all imports behind them: most of what a start costs.

As a script it imports once, and forks for each line of a request. Each command is a process with its own arguments,
variables, directory and standard streams, and ends as Python ends.
"""

import gc
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any


class Preloaded:
    """The side that asks."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve())], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(
        self,
        words: list[str],
        environment: Mapping[str, str],
        place: Path,
        stdin: bytes,
        on_start: Callable[[int], object] = lambda _pid: None,
    ) -> tuple[int, bytes, bytes]:
        """Run `duly` with these words to its end, and give status, output and errors. `on_start` hears of its pid."""
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder) / name for name in ("stdin", "stdout", "stderr")]
            files[0].write_bytes(stdin)
            request = {"words": words, "env": dict(environment), "cwd": str(place), "files": [str(f) for f in files]}
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            on_start(int(self._process.stdout.readline()))
            status = int(self._process.stdout.readline())
            return status, files[1].read_bytes(), files[2].read_bytes()

    def close(self) -> None:
        self._process.communicate(timeout=60)


def become(request: dict[str, Any]) -> None:
    """Be the process of one command."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    for number, file in enumerate(request["files"]):
        os.dup2(os.open(file, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT, 0o600), number)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.argv = ["duly", *request["words"]]


def tell(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def serve() -> None:
    from duly.cli import main

    sys.argv = ["duly", "acl", "--role", "producer", "--server", "valkey-9.1"]  # needs no server
    with suppress(SystemExit), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        main()  # imports all that it ever needs, before the forks
    gc.freeze()  # a child that ends need not look through what it has inherited
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            become(json.loads(line))
            main()
            return
        tell(pid)
        _, status = os.waitpid(pid, 0)
        tell(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    serve()
