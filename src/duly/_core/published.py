"""The options of queues, as workers publish them with their heartbeats: for display, never as configuration.

Options are not stored with a queue, so a tool that only reads the server would not know them.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol

import msgspec

from duly.errors import UsageError
from duly.options import Keep, QueueOptions, Retry, TopicOptions

Published = Mapping[str, str | int | float | None]
"""The options of a queue that differ from the defaults, by name."""

_MOST_BYTES: Final = 16_384
"""A heartbeat is sent every five seconds, so that of a worker with very many queues leaves options out."""
_USABLE: Final = frozenset(
    each.name for each in dataclasses.fields(QueueOptions) if each.name not in ("type", "retry", "dead", "done")
)
"""Options that are published as values. The others are published as text."""


def published(options: Mapping[str, QueueOptions | TopicOptions]) -> dict[str, Published]:
    """Return the options of queues and groups, by name, that differ from the defaults."""
    found: dict[str, Published] = {}
    size = 0
    for name, each in options.items():
        if changed := _changed(each):
            size += len(msgspec.json.encode({name: changed}))
            if size > _MOST_BYTES:
                break
            found[name] = changed
    return found


def _changed(options: Any) -> dict[str, str | int | float | None]:
    default = type(options)()
    values = {each.name: getattr(options, each.name) for each in dataclasses.fields(options) if each.name != "type"}
    return {name: _written(value) for name, value in values.items() if value != getattr(default, name)}


def _written(value: Any) -> str | int | float | None:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value if value is None or isinstance(value, str | int | float) else _described(value)


def _described(value: Any) -> str:
    """Describe a value in the same way in every process: functions and classes by their names."""
    if isinstance(value, Retry | Keep):
        default = type(value)()
        shown = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        changed = [f"{name}={_described(each)}" for name, each in shown.items() if each != getattr(default, name)]
        return f"{type(value).__name__}({', '.join(changed)})"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_described, value))}]"
    name: str | None = getattr(value, "__qualname__", None)
    return repr(value) if name is None else name


class Serving(Protocol):
    """A worker: its queues, and the options that it publishes for them."""

    @property
    def queues(self) -> Sequence[str]:
        """The names of its queues and groups."""

    @property
    def options(self) -> Mapping[str, Published]:
        """The options, by queue or group."""


def of_queue(workers: Iterable[Serving], name: str) -> list[Published]:
    """Return the different options that workers have for a queue or group. None of them, or one, if they agree."""
    found: list[Published] = []
    for worker in workers:
        if name in worker.queues and (options := worker.options.get(name, {})) not in found:
            found.append(options)
    return found


def usable(views: Sequence[Published]) -> dict[str, Any]:
    """Return the options that workers agree on and a tool can use. None, if this version rejects their values."""
    agreed = {name: value for view in views[:1] for name, value in view.items() if name not in _differing(views)}
    found: dict[str, Any] = {name: value for name, value in agreed.items() if name in _USABLE}
    try:
        QueueOptions(**found)
    except UsageError:  # of a worker of another version
        return {}
    return found


def differing(workers: Iterable[Serving]) -> dict[str, list[str]]:
    """Return the queues and groups for which live workers have different options, with the names of these options."""
    listed = list(workers)
    names = dict.fromkeys(name for worker in listed for name in worker.queues)
    found: dict[str, list[str]] = {}
    for name in names:
        if fields := _differing(of_queue(listed, name)):
            found[name] = fields
    return found


def with_differences(sentence: str, views: Sequence[Published]) -> str:
    """Add to an explanation which options workers do not agree on: it was made with their defaults."""
    fields = _differing(views)
    if not fields:
        return sentence
    return f"{sentence} Its workers have different options, which this leaves out: {', '.join(fields)}."


def _differing(views: Sequence[Published]) -> list[str]:
    """Name the options that are not the same in all views."""
    return sorted({field for view in views for field in view if len({repr(each.get(field)) for each in views}) > 1})
