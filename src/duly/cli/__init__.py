"""The command `duly`: how it starts and how it ends. The commands are put together in `app.py`."""

from __future__ import annotations

import io
import sys

from duly.errors import DulyError, UsageError


def main() -> None:
    """Run the command line: exit status 0 done, 1 failed, 2 misuse."""
    try:
        from duly.cli.app import app  # here, because typer is an extra
    except ImportError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit('duly: the command line needs its extra: pip install "duly[cli]"')
    if isinstance(sys.stdout, io.TextIOWrapper):  # what a terminal of another encoding lacks is escaped
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="duly")
    except UsageError as error:
        _fail(error, 2)
    except DulyError as error:
        _fail(error, 1)


def _fail(error: DulyError, status: int) -> None:
    from duly.cli.output import visible_lines

    print(f"duly: {visible_lines(str(error))}", file=sys.stderr)
    sys.exit(status)
