"""How commands end before they are through: what Ctrl-C, SIGTERM and a terminal that is closed do, and when."""

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
"""Seconds that a command which goes on and on, once it has begun, tries to reach the server."""
_STOPS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TERMINATED: Final = 128 + signal.SIGTERM


@contextmanager
def ended_in_order() -> Iterator[None]:
    """Have SIGTERM do what Ctrl-C does: what is held goes back, what was made for the run is removed."""
    came: list[int] = []

    def leave(number: int, frame: FrameType | None) -> None:
        came.append(number)
        as_ctrl_c = signal.getsignal(signal.SIGINT)  # an event loop has its own
        assert callable(as_ctrl_c)
        as_ctrl_c(signal.SIGINT, frame)

    with _ctrl_c_handled():
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
def _ctrl_c_handled() -> Iterator[None]:
    """Have a handler for Ctrl-C in any case: only over that one event loops put theirs, which SIGTERM needs.

    Where Ctrl-C is ignored, as in the background of a script, it still does nothing: it is kept off the process.
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


class Stops:
    """Signals to stop, which wait in a `with` block until it is done, but for what it says it does at once.

    Only the first one counts: nobody stops what brings the rest in order. Where the server hangs that takes as long as
    a call is tried, some seconds for each.
    """

    def __init__(self, *apps: duly.Duly | duly.AsyncDuly) -> None:
        self.came: signal.Signals | None = None
        self._apps = apps
        self._at_once: Callable[[], object] | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        heard = [number for number in _STOPS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup, background
        self._before = {number: signal.signal(number, self._note) for number in heard}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.came is not None:
            return
        self.came = signal.Signals(number)
        for app in self._apps:
            app._link.patience = PATIENCE
        if self._at_once is not None:
            self._at_once()

    @contextmanager
    def at_once(self, act: Callable[[], object]) -> Iterator[None]:
        """Have a stop do this, also one that came already."""
        self._at_once = act
        try:
            if self.came is not None:
                act()
            yield
        finally:
            self._at_once = None

    def show_stored(self, session: Session, value: Any, text: str, told: str) -> None:
        """Print what was stored, or where a stop ends that, tell it elsewhere.

        Printing may wait for a reader for ever. So the next stop cuts it, and after one that waited for the server it
        is not even begun where it would wait.
        """
        try:
            with self._cut_by_the_next():
                if self.came is not None and not _is_output_ready():
                    interrupt()
                session.show_stored(value, text, told)
        except KeyboardInterrupt:
            stdio.abandon()
            self.note(session, f"{told}, though it was stopped before that was printed")

    def note(self, session: Session, text: str) -> None:
        """Say something in the block to standard error, which the next stop cuts as well."""
        with suppress(KeyboardInterrupt), self._cut_by_the_next():
            session.note(text)

    @contextmanager
    def _cut_by_the_next(self) -> Iterator[None]:
        with Stops() as following:
            try:
                with following.at_once(interrupt):
                    yield
            finally:
                self.came = self.came or following.came

    def leave(self) -> None:
        """After the block: end the command if there was a stop."""
        if self.came is not None:
            signal.raise_signal(self.came)


def _is_output_ready() -> bool:
    return bool(select.select([], [sys.stdout], [], 0)[1])


def interrupt() -> NoReturn:
    """Do what Ctrl-C does: for what may be cut anywhere."""
    raise KeyboardInterrupt


@contextmanager
def going_on(*apps: duly.Duly | duly.AsyncDuly) -> Iterator[Stops]:
    """Go on until a stop, which is the way to end it.

    It outlasts a restart of the server. Standard error says that the server does not answer, and when it does again.
    """
    for app in apps:
        app._link.patience = _LONG_PATIENCE
        show_return(app)
    try:
        with Stops(*apps) as stops:
            yield stops
    except KeyboardInterrupt:
        stdio.abandon()


def show_return(app: duly.Duly | duly.AsyncDuly) -> None:
    """Print when the server answers again. The library logs it as information, and commands show warnings only."""
    shown = app._address.shown
    app._link.on_return = lambda: print(f"{shown} answers again", file=sys.stderr)


@contextmanager
def until_stopped(app: duly.Duly) -> Iterator[None]:
    """Go on with what may be cut anywhere: a look holds nothing."""
    with going_on(app) as stops, stops.at_once(interrupt):
        yield
