"""A terminal of a given size that runs a command, and the text on its screen."""

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import pexpect  # type: ignore[import-untyped]
import pyte

from tests.cli.shell import DEADLINE, Shell


class Terminal:
    """Runs `duly ...` in a terminal of `columns` x `rows`. Standard error may be redirected."""

    def __init__(
        self,
        shell: Shell,
        *words: str,
        columns: int = 80,
        rows: int = 24,
        errors: Path = Path("/dev/tty"),
        **variables: str,
    ) -> None:
        self.screen = pyte.Screen(columns, rows)
        self.raw = b""
        self._stream = pyte.ByteStream(self.screen)
        self.process = pexpect.spawn(
            "/bin/sh",
            ["-c", 'exec "$@" 2>"$0"', str(errors), *shell.words(*words)],
            env=shell.environment(**variables),
            cwd=str(shell.place),
            dimensions=(rows, columns),
        )

    @property
    def lines(self) -> list[str]:
        """The lines of the screen that are not empty."""
        return [line.rstrip() for line in self.screen.display if line.strip()]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < deadline, f"waited {DEADLINE} s until {what}:\n{self.text}"
            assert self._read() or condition(), f"it ended before {what}:\n{self.text}"

    def wait_for(self, text: str) -> None:
        self.wait_until(lambda: text in self.text, f"the screen has {text!r}")

    def wait_end(self) -> int:
        """Read to the end, and return the exit status."""
        while self._read():
            pass
        self.process.wait()
        assert self.process.exitstatus is not None, f"it was ended by signal {self.process.signalstatus}"
        status: int = self.process.exitstatus
        return status

    def _read(self) -> bool:
        try:
            got: bytes = self.process.read_nonblocking(65536, timeout=0.1)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self.raw += got
        self._stream.feed(got)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.process.close(force=True)
