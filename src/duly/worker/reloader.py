"""`duly worker --reload`, for development: children are replaced when a source file changes."""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from duly.worker.logs import event
from duly.worker.supervisor import ChildRecord, Supervisor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

INTERVAL: Final = 0.5
"""Seconds between two scans of the files."""

MOST_FILES: Final = 10_000

_SKIPPED: Final = frozenset({"node_modules", "__pycache__"})
_LOG: Final = logging.getLogger("duly.worker")

Stamp = tuple[int, int, int]


class SourceFiles:
    """The .py files below a directory, and their changes. Hidden directories and virtual environments are skipped."""

    def __init__(self, directory: Path, most: int = MOST_FILES) -> None:
        self._directory = directory
        self._most = most
        self._has_warned = False
        self._stamps = self._scan()

    def find_change(self) -> Path | None:
        """Return one file that was changed, added or removed since the last call."""
        before, self._stamps = self._stamps, self._scan()
        changed = dict(before.items() ^ self._stamps.items())
        return min(changed, default=None)

    def _scan(self) -> dict[Path, Stamp]:
        found: dict[Path, Stamp] = {}
        for path in self._walk():
            if len(found) >= self._most:
                self._warn_too_many()
                break
            try:
                state = path.stat()
            except OSError:  # removed since it was listed
                continue
            found[path] = (state.st_mtime_ns, state.st_size, state.st_ino)
        return found

    def _walk(self) -> Iterator[Path]:
        for directory, below, files in os.walk(self._directory):
            below[:] = sorted(name for name in below if not _is_skipped(directory, name))
            yield from (Path(directory, name) for name in sorted(files) if name.endswith(".py"))

    def _warn_too_many(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            event(_LOG, logging.WARNING, "reload.too_many_files", watched=self._most, directory=self._directory)


def _is_skipped(directory: str, name: str) -> bool:
    return name.startswith(".") or name in _SKIPPED or Path(directory, name, "pyvenv.cfg").exists()


class Reloader(Supervisor):
    """A supervisor that replaces its children after a change. A child that fails is replaced after the next change."""

    def __init__(self, command: Sequence[str], processes: int, grace: float, directory: Path | None = None) -> None:
        super().__init__(command, processes, grace)
        self._directory = Path.cwd() if directory is None else directory
        self._files = SourceFiles(self._directory)
        self._scan_at = time.monotonic() + INTERVAL

    def _find_pause(self) -> float | None:
        pause = super()._find_pause()
        until_scan = max(self._scan_at - time.monotonic(), 0.0)
        return until_scan if pause is None else min(pause, until_scan)

    def _on_wakeup(self) -> None:
        if self._is_stopping or time.monotonic() < self._scan_at:
            return
        changed = self._files.find_change()
        if changed is not None:
            self._log(logging.INFO, "reload.file_changed", path=changed.relative_to(self._directory))
            self._replace_all()
        self._scan_at = time.monotonic() + INTERVAL

    def _replace_all(self) -> None:
        for record in self._records:
            if record.child is None:
                record.start_at = time.monotonic()
            elif record.child.kill_at is None:  # not asked to stop yet: a second signal would cut off its handlers
                record.child.ask_to_stop(signal.SIGTERM, self._patience)

    def _would_fail_again(self, status: int) -> bool:  # noqa: ARG002 - the next change may fix it
        return False

    def _plan_restart(self, record: ChildRecord, lived: float) -> dict[str, Any]:  # noqa: ARG002
        return {"restart": "upon the next change"}
