"""Questions to somebody at a terminal, which Ctrl-C answers, too."""

from __future__ import annotations

import os
import select
import signal
import sys

import typer


def is_confirmed(question: str) -> bool:
    """Ask for yes or no, until it is one of them. No is the answer to no answer."""
    while True:
        typer.echo(f"{question} [y/N]: ", err=True, nl=False)
        _wait_for_a_line()
        line = sys.stdin.readline()
        answer = line.strip().lower()
        if answer in ("y", "yes"):
            return True
        if answer in ("", "n", "no"):
            if not line.endswith("\n"):  # the terminal is at its end, and so is not on a new line
                typer.echo(err=True)
            return False
        typer.echo("Answer y or n.", err=True)


def _wait_for_a_line() -> None:
    """Wait until there is something to read, or a signal, also one that came just before.

    Python looks for signals between its steps. One that comes after the last look and before the system call of a read
    is noticed when that is over, which is when somebody types: so signals write to a pipe, and the wait is for both.
    """
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    before = signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    try:
        select.select([sys.stdin, woken], [], [])
    finally:
        signal.set_wakeup_fd(before)
        os.close(woken)
        os.close(wakes)
