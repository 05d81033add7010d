"""How commands end before they are through: Ctrl-C and SIGTERM, with what is held given back."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

import typer

import duly
from duly.cli import standard_output
from duly.cli.session import PATIENCE

_LONG_PATIENCE: Final = 600.0
"""Seconds that a command which goes on and on, once it has begun, tries to reach the server."""
_STOPS: Final = (signal.SIGINT, signal.SIGTERM)
_TERMINATED: Final = 128 + signal.SIGTERM


@contextmanager
def ended_in_order() -> Iterator[None]:
    """Have SIGTERM do what Ctrl-C does: what is held goes back, what was made for the run is removed."""
    came: list[int] = []

    def leave(number: int, frame: FrameType | None) -> None:
        came.append(number)
        as_ctrl_c = signal.getsignal(signal.SIGINT)  # an event loop has its own
        if not callable(as_ctrl_c):  # ignored, as in the background of a script
            raise KeyboardInterrupt
        as_ctrl_c(signal.SIGINT, frame)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    except (KeyboardInterrupt, typer.Abort):
        if came:
            sys.exit(_TERMINATED)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def until_stopped(app: duly.Duly) -> Iterator[None]:
    """Go on until Ctrl-C or SIGTERM, both of which are the way to end it, and leave in order.

    A restart of the server is outlasted; the library says on standard error that it is away, and that it is back.
    """

    def leave(*_: object) -> None:
        app._link.patience = PATIENCE  # or the way out could take as long
        raise KeyboardInterrupt

    for number in _STOPS:
        signal.signal(number, leave)
    app._link.patience = _LONG_PATIENCE
    try:
        yield
    except KeyboardInterrupt:
        standard_output.abandon()


@contextmanager
def undisturbed(app: duly.Duly) -> Iterator[None]:
    """Have Ctrl-C and SIGTERM wait until this is done; not for long, where the server is away."""
    came: list[int] = []

    def note(number: int, _: object) -> None:
        came.append(number)
        app._link.patience = PATIENCE

    before = [signal.signal(number, note) for number in _STOPS]
    try:
        yield
    finally:
        for number, handler in zip(_STOPS, before, strict=True):
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])
