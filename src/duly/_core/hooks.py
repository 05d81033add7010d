"""Hooks: the user's functions for events of a worker, in the order of registration."""

import inspect
from collections.abc import Callable
from typing import Any, Final

from duly._core import signatures
from duly.errors import UsageError

Hook = Callable[..., Any]

_TAKES: Final = {
    "on_start": (),
    "on_stop": (),
    "before": ("d",),
    "after": ("d", "outcome"),
    "on_error": ("d", "error"),
    "on_dead": ("message",),
}
_WITH_THE_HANDLER: Final = ("before", "after", "on_error")
"""These run in the handler's thread or task."""


class Hooks:
    """The hooks of an app. All but `before`, `after` and `on_error` may be `async def`."""

    def __init__(self) -> None:
        self.on_start: list[Hook] = []
        """Before the first message is fetched."""
        self.on_stop: list[Hook] = []
        """After the last handler has ended."""
        self.before: list[Hook] = []
        """Before each handler."""
        self.after: list[Hook] = []
        """After each handler, with the outcome of the message."""
        self.on_error: list[Hook] = []
        """When a handler has raised."""
        self.on_dead: list[Hook] = []
        """When a message of any queue is dead."""

    def add(self, occasion: str, function: Any) -> None:
        """Add a function to the end."""
        functions: list[Hook] = getattr(self, occasion)
        functions.append(checked_hook(occasion, function))


def checked_hook(occasion: str, function: Any) -> Hook:
    """Raise if the function could not be called as a hook."""
    hook = signatures.checked_function(function, occasion)
    if occasion in _WITH_THE_HANDLER and signatures.is_async(hook):
        raise UsageError(
            f"{occasion} {signatures.name_of(hook)} must be a plain function: it runs in the handler's "
            "thread or task, where nothing awaits it"
        )
    names = _TAKES[occasion]
    try:
        inspect.signature(hook).bind(*names)
    except TypeError as error:
        raise UsageError(f"{occasion} {signatures.name_of(hook)} must take ({', '.join(names)}): {error}") from error
    except ValueError:  # written in C, without a signature
        pass
    return hook
