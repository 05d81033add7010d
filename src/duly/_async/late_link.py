"""The link of an app that is connected later. Queues and tasks that were defined before keep it."""

from typing import Any

from duly.errors import UsageError


class AsyncLateLink:
    """Passes everything on to the link of the server, as soon as the app has one. Before that, it raises UsageError."""

    __slots__ = ("_target",)

    def __init__(self) -> None:
        object.__setattr__(self, "_target", None)

    def bind(self, link: Any) -> None:
        """Use this link from now on."""
        object.__setattr__(self, "_target", link)

    def __getattr__(self, name: str) -> Any:
        if self._target is None:
            raise not_connected()
        return getattr(self._target, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._target is None:
            raise not_connected()
        setattr(self._target, name, value)


def not_connected() -> UsageError:
    """Return the error of a call on an app that has no server yet."""
    return UsageError("the app was made with connect=False and has no server yet: call app.connect(url) first")
