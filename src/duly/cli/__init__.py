"""The command `duly`: its start and its exit status. `app.py` registers the commands."""

from __future__ import annotations

import os
import sys

from duly.errors import DulyError, UsageError

_STOPPED = (130, 143)
"""Exit status after Ctrl-C and after SIGTERM."""


def main() -> None:
    """Run the command line: exit status 0 done, 1 failed, 2 misuse, 130 or 143 stopped."""
    try:
        _run()
    except KeyboardInterrupt:  # before the first command: there is nothing to clean up
        sys.exit(130)


def _run() -> None:
    _drop_invalid_sizes()
    try:
        from duly.cli.app import command_line  # here, because typer is an extra
    except ImportError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit('duly: the command line needs its extra: pip install "duly[cli]"')
    from duly.cli import stdio

    first_word = next(iter(sys.argv[1:]), None)
    is_worker = first_word == "worker"
    stdio.install_errors(is_plain=is_worker)
    stdio.install_output(is_plain=is_worker)  # the handlers of a worker may print
    try:
        if not is_worker:
            _check_output()
        command_line(first_word)(prog_name="duly")
    except SystemExit as end:
        if end.code in _STOPPED:
            stdio.abandon()
        raise
    except UsageError as error:
        _fail(error, 2)
    except stdio.Unwritable as error:
        stdio.abandon()
        _fail(error, 1)
    except DulyError as error:
        _fail(error, 1)


def _check_output() -> None:
    """Refuse to start without standard output, since messages would be acked without being printed."""
    if sys.stdout is None:
        raise UsageError("standard output is closed: redirect it, for example to /dev/null")


def _drop_invalid_sizes() -> None:
    """Remove invalid sizes of the terminal. A width of 0 would be used, and nothing would be printed."""
    for name in ("COLUMNS", "LINES"):
        size = os.environ.get(name, "1")
        if not (size.isascii() and size.isdecimal() and int(size)):
            del os.environ[name]


def _fail(error: DulyError, status: int) -> None:
    from duly.cli.output import visible_lines

    print(f"duly: {visible_lines(str(error))}", file=sys.stderr)
    sys.exit(status)
