"""The registry of workers: beat, depart, workers. It is not a queue, and does not touch one."""

from collections.abc import Callable
from typing import Any, Final

from duly._core.bounds import FORGOTTEN_PER_CALL, SHOWN
from duly.memory.ordered import ScoredIds


class Registry:
    """The workers of a namespace, by the name under which they hold leases."""

    def __init__(self) -> None:
        self.info: dict[bytes, bytes] = {}
        self.beats: ScoredIds = ScoredIds()

    def forget(self, consumer: bytes) -> bool:
        """Remove a worker; return whether it was there."""
        self.info.pop(consumer, None)
        return self.beats.remove(consumer)


def beat(registry: Registry, args: list[bytes], now: int) -> int:
    """Store the heartbeat of a worker, and forget workers that have been silent for too long."""
    consumer, info, forget_after = args
    registry.info[consumer] = info
    registry.beats.put(consumer, now)
    for _, silent in registry.beats.up_to(now - int(forget_after) - 1, FORGOTTEN_PER_CALL):
        registry.forget(silent)
    return 1


def depart(registry: Registry, args: list[bytes], _now: int) -> int:
    """Remove a worker that stops."""
    return int(registry.forget(args[0]))


def workers(registry: Registry, _args: list[bytes], now: int) -> list[Any]:
    """Show the registered workers, the newest heartbeat first."""
    newest = list(registry.beats)[::-1][:SHOWN]
    return [now, *(value for at, consumer in newest for value in (consumer, at, registry.info[consumer]))]


TRANSITIONS: Final[dict[str, Callable[[Registry, list[bytes], int], Any]]] = {
    "beat": beat,
    "depart": depart,
    "workers": workers,
}
"""The function of each script of the registry, by script name."""
