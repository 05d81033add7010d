"""The peers that give each message at least once, with the settings that made them drain fastest."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True)
class Peer:
    """What to install, and how it is run."""

    requirements: tuple[str, ...]
    """For pip. The first one is the peer itself."""

    messages: int = 20_000
    """In one drain: some seconds' worth."""

    has_delays: bool = True
    """Whether a message can be sent for a later time, and a worker alone delivers it then."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """For its adapter."""


PEERS: Final[Mapping[str, Peer]] = {
    "repid": Peer(("repid[redis]", "hiredis", "uvloop", "typing_extensions"), has_delays=False),
    "taskiq": Peer(("taskiq", "taskiq-redis", "hiredis", "uvloop", "orjson"), messages=10_000, has_delays=False),
    "arq": Peer(("arq", "hiredis", "uvloop"), messages=8_000, options={"max_jobs": 100, "poll_delay": 0.01}),
    "saq": Peer(
        ("saq", "redis", "hiredis", "uvloop", "typing_extensions"), messages=8_000, options={"concurrency": 50}
    ),
    "dramatiq": Peer(("dramatiq[redis]", "hiredis"), messages=10_000, options={"threads": 8, "prefetch": 100}),
    "streaq": Peer(("streaq", "uvloop"), messages=5_000, options={"concurrency": 32, "prefetch": 64}),
    "celery": Peer(("celery[redis]", "hiredis"), messages=5_000, options={"threads": 10, "prefetch": 10}),
}

USUAL: Final = ("repid", "taskiq", "arq")
"""Measured unless told otherwise: the fastest, the one with the shortest way, and one that has delays."""
