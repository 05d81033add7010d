"""Helpers for tests of code that uses Duly.

`clock.advance(3600)` moves the clock of all `memory://` apps of the process. `work_off(app)` runs the handlers of all
messages that are due, and `work_off(app, advance=3600)` those of the next hour. `user_keys(app)` reads and writes the
keys that commits of a `memory://` app change. `empty(app)` removes its data. `duly.testing.plugin` has pytest fixtures.
"""

from typing import TYPE_CHECKING, Any

from duly.memory.clock import Clock, clock
from duly.testing.memory_store import UserKeys, empty, user_keys

if TYPE_CHECKING:
    from duly.testing.shift import Handled
    from duly.testing.valkey_server import ServerApp
    from duly.testing.worker_steps import awork_off, work_off

__all__ = ["Clock", "Handled", "ServerApp", "UserKeys", "awork_off", "clock", "empty", "user_keys", "work_off"]

_LATER = {"Handled": "shift", "ServerApp": "valkey_server", "awork_off": "worker_steps", "work_off": "worker_steps"}
"""Imported when asked for: pytest loads this package in every run, also of those who test nothing of Duly."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return globals().setdefault(name, getattr(import_module(f"duly.testing.{_LATER[name]}"), name))
