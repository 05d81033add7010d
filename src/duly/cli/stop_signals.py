"""Handling of Ctrl-C, SIGTERM and SIGHUP in commands."""

from __future__ import annotations

import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any, Final, NoReturn, Self

import typer

import duly
from duly.cli import stdio
from duly.cli.session import PATIENCE, Session

_LONG_PATIENCE: Final = 600.0
"""Seconds that a running long command tries to reach the server."""
_STOPS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TERMINATED: Final = 128 + signal.SIGTERM


@contextmanager
def graceful_stop() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C: release messages and remove temporary data before the exit."""
    received: list[int] = []

    def leave(number: int, frame: FrameType | None) -> None:
        received.append(number)
        as_ctrl_c = signal.getsignal(signal.SIGINT)  # an event loop installs its own handler
        assert callable(as_ctrl_c)
        as_ctrl_c(signal.SIGINT, frame)

    with _with_interrupt_handler():
        before = signal.signal(signal.SIGTERM, leave)
        try:
            yield
        except (KeyboardInterrupt, typer.Abort):
            if received:
                sys.exit(_TERMINATED)
            raise
        finally:
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _with_interrupt_handler() -> Iterator[None]:
    """Install a handler for Ctrl-C. Event loops replace only an existing handler, and SIGTERM calls it.

    If Ctrl-C is ignored, as in the background of a script, the signal is blocked, and still does nothing.
    """
    if callable(signal.getsignal(signal.SIGINT)):
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class StopSignals:
    """Stop signals, deferred until the end of a `with` block. `on_stop` names an action to run at once.

    Only the first signal counts, so that the clean-up is not interrupted. If the server hangs, each call of the
    clean-up takes some seconds.
    """

    def __init__(self, *apps: duly.Duly | duly.AsyncDuly) -> None:
        self.signal: signal.Signals | None = None
        self._apps = apps
        self._on_stop: Callable[[], object] | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        handled = [number for number in _STOPS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup, background
        self._before = {number: signal.signal(number, self._note) for number in handled}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.signal is not None:
            return
        self.signal = signal.Signals(number)
        for app in self._apps:
            app._link.patience = PATIENCE
        if self._on_stop is not None:
            self._on_stop()

    @contextmanager
    def on_stop(self, act: Callable[[], object]) -> Iterator[None]:
        """Run an action on a stop, or now if there was one already."""
        self._on_stop = act
        try:
            if self.signal is not None:
                act()
            yield
        finally:
            self._on_stop = None

    def show_stored(self, session: Session, value: Any, text: str, notice: str) -> None:
        """Print the result of a send. If a stop prevents that, print the notice on standard error.

        Printing may block forever on a slow reader, so the next stop interrupts it. After a stop, it is not started if
        it would block.
        """
        try:
            with self._interruptible():
                if self.signal is not None and not _is_output_ready():
                    interrupt()
                session.show_stored(value, text, notice)
        except KeyboardInterrupt:
            stdio.abandon()
            self.note(session, f"{notice}, but the command was stopped before this was printed")

    def note(self, session: Session, text: str) -> None:
        """Print a note on standard error. The next stop interrupts it."""
        with suppress(KeyboardInterrupt), self._interruptible():
            session.note(text)

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        with StopSignals() as following:
            try:
                with following.on_stop(interrupt):
                    yield
            finally:
                self.signal = self.signal or following.signal

    def exit_if_stopped(self) -> None:
        """Exit after the block, if there was a stop."""
        if self.signal is not None:
            signal.raise_signal(self.signal)


def _is_output_ready() -> bool:
    return bool(select.select([], [sys.stdout], [], 0)[1])


def interrupt() -> NoReturn:
    """Interrupt like Ctrl-C. For code that may be interrupted anywhere."""
    raise KeyboardInterrupt


@contextmanager
def long_running(*apps: duly.Duly | duly.AsyncDuly) -> Iterator[StopSignals]:
    """Run until a stop, which is a normal end.

    The command survives a restart of the server. Standard error shows when the server is lost and when it answers.
    """
    for app in apps:
        app._link.patience = _LONG_PATIENCE
        print_reconnects(app)
    try:
        with StopSignals(*apps) as stops:
            yield stops
    except KeyboardInterrupt:
        stdio.abandon()


def print_reconnects(app: duly.Duly | duly.AsyncDuly) -> None:
    """Print when the server answers again. The library logs it at level INFO, and commands show only warnings."""
    shown = app._address.shown
    app._link.on_return = lambda: print(f"{shown} answers again", file=sys.stderr)


@contextmanager
def until_stopped(app: duly.Duly) -> Iterator[None]:
    """Run read-only code until a stop, which may interrupt it anywhere."""
    with long_running(app) as stops, stops.on_stop(interrupt):
        yield
