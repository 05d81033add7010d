"""The supervising parent of `duly worker --processes N`.

It never imports the user's code: an error there ends a child, not the parent.
"""

from __future__ import annotations

import logging
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from duly.worker.child import Child, describe_status
from duly.worker.logs import event
from duly.worker.parent_pipe import MARGIN
from duly.worker.restart_backoff import RestartBackoff
from duly.worker.signal_pipe import SignalPipe
from duly.worker.vitals import Vitals, read_vitals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from duly.worker.assignment import Assignment

MISUSE: Final = 2
"""The exit status of a child that would fail again in the same way."""
REFUSED: Final = 3
"""The exit status of a child that the server has refused since it started."""

_SERVING: Final = 10.0
"""Seconds after which a running child counts as one that serves."""

_NOT_RUNNING: Final = Vitals(0, "the process is not running")

_LOG: Final = logging.getLogger("duly.worker")


class ChildRecord:
    """One of the N processes: its child, or the time to start the next one."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.child: Child | None = None
        self.start_at: float | None = 0.0
        """None: no start is planned."""
        self.restarts: RestartBackoff = RestartBackoff()


class Supervisor:
    """Keeps N children running until a signal stops it."""

    def __init__(self, command: Sequence[str], processes: int, grace: float, margin: float = MARGIN) -> None:
        self._command = command
        self._records = [ChildRecord(number) for number in range(1, processes + 1)]
        self._patience = grace + margin
        self._margin = margin
        self._is_stopping = False
        self._was_misused = False
        self._lost = 0
        """Children that did not end in order during the shutdown."""

    def run(self) -> int:
        """Return the exit status. 0: every child ended in order, 1: one did not, 2: the children cannot be run."""
        with SignalPipe() as wakeups:
            while not self._is_over():
                self._start_due()
                for number in wakeups.wait(self._find_pause()):
                    self._stop(number)
                self._collect()
                self._kill_overdue()
                self._on_wakeup()
        status = MISUSE if self._was_misused else int(self._lost > 0)
        self._log(logging.INFO, "supervisor.stopped", status=status)
        return status

    def vitals(self, directory: str) -> list[Vitals]:
        """Read the state of all children, which show it in a directory. Any thread may call this."""
        children = [record.child for record in self._records]
        return [_NOT_RUNNING if child is None else read_vitals(directory, child.pid) for child in children]

    def _is_over(self) -> bool:
        return self._is_stopping and not self._children()

    def _children(self) -> list[Child]:
        return [record.child for record in self._records if record.child is not None]

    def _find_pause(self) -> float | None:
        """Return the seconds until the next start or kill. None: none is planned."""
        moments = [child.kill_at for child in self._children()]
        moments += [record.start_at for record in self._records if record.child is None and not self._is_stopping]
        return min((moment - time.monotonic() for moment in moments if moment is not None), default=None)

    def _start_due(self) -> None:
        for record in self._records:
            is_due = record.start_at is not None and record.start_at <= time.monotonic()
            if record.child is None and is_due and not self._is_stopping:
                self._start(record)

    def _start(self, record: ChildRecord) -> None:
        record.start_at = None
        try:
            record.child = Child(self._command)
        except OSError as error:  # out of memory or processes, which may be temporary
            plan = self._plan_restart(record, 0.0)
            self._log(logging.ERROR, "process.not_started", number=record.number, error=error, **plan)
        else:
            self._log(logging.INFO, "process.started", number=record.number, pid=record.child.pid)

    def _plan_restart(self, record: ChildRecord, lived: float) -> dict[str, Any]:
        """Decide when to replace a child that ended on its own. Return fields for the log."""
        pause = record.restarts.pause_after(lived)
        record.start_at = time.monotonic() + pause
        return {"restart_in": pause}

    def _stop(self, number: int) -> None:
        """Forward a signal to all children. After the second one they have no grace."""
        name = signal.Signals(number).name
        self._log(logging.INFO, "supervisor.stopping", signal=name, at_once=self._is_stopping)
        self._stop_all(number, self._margin if self._is_stopping else self._patience)

    def _stop_all(self, number: int, patience: float) -> None:
        if not self._is_stopping:
            self._lost += sum(record.child is None for record in self._records)
        self._is_stopping = True
        for child in self._children():
            child.ask_to_stop(number, patience)

    def _collect(self) -> None:
        for record in self._records:
            child = record.child
            status = None if child is None else child.poll()
            if child is not None and status is not None:
                record.child = None
                self._note_end(record, child, status)

    def _note_end(self, record: ChildRecord, child: Child, status: int) -> None:
        fields = {"number": record.number, "pid": child.pid, **describe_status(status), "lived": round(child.lived, 3)}
        if self._is_stopping:
            self._was_misused |= status == MISUSE
            self._lost += int(status != 0)
            self._log(logging.INFO if status == 0 else logging.WARNING, "process.ended", **fields)
        elif child.kill_at is not None:  # asked to stop, to be replaced
            record.start_at = time.monotonic()
            self._log(logging.INFO, "process.ended", **fields)
        elif self._would_fail_again(status):
            self._was_misused |= status == MISUSE
            self._log(logging.ERROR, "process.ended", **fields, reason="it cannot be run like this; stopping")
            self._stop_all(signal.SIGTERM, self._patience)
        else:
            self._log(logging.WARNING, "process.ended", **fields, **self._plan_restart(record, child.lived))

    def _would_fail_again(self, status: int) -> bool:
        """Return whether another child would fail in the same way.

        Not while others serve: then the code has changed since they started, and may change again.
        """
        return status in (MISUSE, REFUSED) and not any(child.lived >= _SERVING for child in self._children())

    def _kill_overdue(self) -> None:
        for child in self._children():
            if child.kill_at is not None and child.kill_at <= time.monotonic() and not child.was_killed:
                child.kill()
                self._log(logging.ERROR, "process.killed", pid=child.pid, reason="it did not stop in time")

    def _on_wakeup(self) -> None:
        """Run further checks each time that the parent wakes up. For subclasses."""

    @staticmethod
    def _log(level: int, name: str, **fields: Any) -> None:
        event(_LOG, level, name, **fields)


def child_command(assignment: Assignment) -> list[str]:
    """Return the command line of a child."""
    return [sys.executable, "-m", "duly.worker", assignment.to_json()]
