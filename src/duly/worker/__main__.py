"""`python -m duly.worker`: one child of a supervised worker. Started by `duly worker`, not by people."""

from __future__ import annotations

import functools
import sys

from duly.errors import DulyError, UsageError
from duly.worker import logs, parent_pipe, run
from duly.worker.app_loader import load_app, warn_of_memory
from duly.worker.assignment import Assignment
from duly.worker.event_loop import leave
from duly.worker.refusals import is_refusal
from duly.worker.supervisor import MISUSE, REFUSED
from duly.worker.vitals import VitalsSocket


def main(text: str) -> int:
    """Serve until asked to stop. Return 0: all finished, 1: handlers cut off, 2: misuse, 3: refused by the server."""
    try:
        parent_pipe.accept_signals()
        return _try_to_serve(text)
    except parent_pipe.StoppedEarly:
        return 0
    finally:
        parent_pipe.ignore_signals()


def _try_to_serve(text: str) -> int:
    try:
        return 0 if _serve(Assignment.from_json(text)) else 1
    except DulyError as error:
        print(f"duly: {error}", file=sys.stderr)  # noqa: T201 - as the command `duly` does
        return _status_of(error)


def _status_of(error: DulyError) -> int:
    """Choose the exit status. It shows the parent whether another child would fail in the same way."""
    if isinstance(error, UsageError):
        return MISUSE
    return REFUSED if is_refusal(error) else 1


def _serve(assignment: Assignment) -> bool:
    parent_pipe.follow_parent(assignment.options.grace + parent_pipe.MARGIN)
    app = load_app(assignment.target)
    app.on_start(parent_pipe.mark_running)
    logs.configure(assignment.log_format, assignment.log_level)  # after the import, which may set up its own
    warn_of_memory(app)
    show_vitals = functools.partial(VitalsSocket, assignment.vitals) if assignment.vitals else None
    return run(app, assignment.options, orders=parent_pipe.stop_requests, show_vitals=show_vitals)


if __name__ == "__main__":
    result: int = main(sys.argv[1])
    leave(result)
    sys.exit(result)
