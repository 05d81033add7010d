"""The registry of workers: beat, depart, workers. It is no queue, and touches none."""

from collections.abc import Callable
from typing import Any, Final

from duly._core.bounds import FORGOTTEN_A_CALL, SHOWN
from duly.memory.ordered import ScoredIds


class Registry:
    """The workers of a namespace, by the name under which they hold leases."""

    def __init__(self) -> None:
        self.info: dict[bytes, bytes] = {}
        self.beats = ScoredIds()

    def forget(self, consumer: bytes) -> bool:
        """Remove a worker; tell whether it was there."""
        self.info.pop(consumer, None)
        return self.beats.remove(consumer)


def beat(registry: Registry, args: list[bytes], now: int) -> int:
    """Note that a worker lives, and forget others that are silent for too long."""
    consumer, info, forget_after = args
    registry.info[consumer] = info
    registry.beats.put(consumer, now)
    for _, silent in registry.beats.up_to(now - int(forget_after) - 1, FORGOTTEN_A_CALL):
        registry.forget(silent)
    return 1


def depart(registry: Registry, args: list[bytes], _now: int) -> int:
    """Note that a worker is gone."""
    return int(registry.forget(args[0]))


def workers(registry: Registry, _args: list[bytes], now: int) -> list[Any]:
    """Show who beats, the newest beat first."""
    newest = list(registry.beats)[::-1][:SHOWN]
    return [now, *(value for at, consumer in newest for value in (consumer, at, registry.info[consumer]))]


TRANSITIONS: Final[dict[str, Callable[[Registry, list[bytes], int], Any]]] = {
    "beat": beat,
    "depart": depart,
    "workers": workers,
}
"""What each script of the registry does, by its name."""
