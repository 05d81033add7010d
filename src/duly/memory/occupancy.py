"""Reads many queues at once: which of them have something now, or anything to come."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from duly.memory.calls import Kept
from duly.memory.state import QueueState


def prefixes(keys: Sequence[bytes]) -> list[bytes]:
    """Return the queues of some keys, each once, by the prefix of its keys."""
    return list(dict.fromkeys(key[: key.rindex(b":") + 1] for key in keys))


def take_tokens(queues: Sequence[QueueState], args: list[bytes]) -> Kept:
    """Find the queues in which a claim may find something now, up to a limit."""
    found = [position for position, queue in enumerate(queues, 1) if queue.has_something]
    return Kept(found[: int(args[0])])


def occupied(queues: Sequence[QueueState], _args: list[bytes]) -> list[int]:
    """Find the queues that have anything to come. Dead and finished messages do not count."""
    return [position for position, queue in enumerate(queues, 1) if queue.count_live() or queue.next_runs]


TRANSITIONS: Final[dict[str, Callable[[Sequence[QueueState], list[bytes]], Any]]] = {
    "take_tokens": take_tokens,
    "occupied": occupied,
}
"""The function of each script, by script name."""
