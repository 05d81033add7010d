"""Questions on a terminal, which Ctrl-C interrupts."""

from __future__ import annotations

import os
import select
import signal
import sys

import typer


def is_confirmed(question: str) -> bool:
    """Ask until the answer is yes or no. Empty input means no."""
    while True:
        typer.echo(f"{question} [y/N]: ", err=True, nl=False)
        _wait_for_input()
        line = sys.stdin.readline()
        answer = line.strip().lower()
        if answer in ("y", "yes"):
            return True
        if answer in ("", "n", "no"):
            if not line.endswith("\n"):  # end of input: the cursor is not on a new line
                typer.echo(err=True)
            return False
        typer.echo("Answer y or n.", err=True)


def _wait_for_input() -> None:
    """Wait until there is input or a signal, including a signal that has just arrived.

    Python handles signals between instructions. A signal between the last check and the system call of a read would be
    handled only after the read, which is after the next key press. So signals write to a pipe, and this waits for both.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        select.select([sys.stdin, reader], [], [])
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)
