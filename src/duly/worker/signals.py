"""Signal handlers: the first SIGTERM or SIGINT stops a worker in order, the second stops it at once."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

# A signal goes to the process: all workers of an event loop are notified.
_listeners: Final[list[Callable[[str], None]]] = []
_previous: Final[dict[signal.Signals, Any]] = {}
_forking: Final = threading.local()
"""The signal mask of this thread before it forked."""


@contextmanager
def handled(on_signal: Callable[[str], None]) -> Iterator[None]:
    """Call `on_signal` with the name of each signal. Python allows this in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    if not _listeners:
        _install(loop)
    _listeners.append(on_signal)
    try:
        yield
    finally:
        if on_signal in _listeners:  # otherwise this is a child process
            _listeners.remove(on_signal)
            if not _listeners:
                _uninstall(loop)


def _install(loop: asyncio.AbstractEventLoop) -> None:
    for number in _SIGNALS:
        _previous[number] = signal.getsignal(number)
        loop.add_signal_handler(number, _notify_all, number.name)


def _uninstall(loop: asyncio.AbstractEventLoop) -> None:
    for number in _SIGNALS:
        loop.remove_signal_handler(number)
    _restore()


def _restore() -> None:
    for number, handler in _previous.items():
        signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _notify_all(name: str) -> None:
    for listener in tuple(_listeners):  # a listener may remove itself
        listener(name)


def _block_before_fork() -> None:
    """Block signals for a new process until it has removed the worker's handlers."""
    if _listeners:
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def _unblock_after_fork() -> None:
    mask = _forking.__dict__.pop("mask", None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _forget_after_fork() -> None:
    """Restore signal handling in a forked process. Otherwise its signals would be sent to the worker's event loop."""
    if _listeners:
        _listeners.clear()
        signal.set_wakeup_fd(-1)
        _restore()
    _unblock_after_fork()


os.register_at_fork(before=_block_before_fork, after_in_parent=_unblock_after_fork, after_in_child=_forget_after_fork)
