"""The server that the histories of a test share, and the check that ends a history."""

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.binaries import Kind
from tests.clock import ServerClock
from tests.lua.harness import Wire
from tests.servers import Server


class Broken(AssertionError):
    """The real queue did what it must not."""


class Accident(Exception):
    """A script failed: that proves nothing about the checks of the machine."""


def check(is_kept: bool, what: str, *seen: object) -> None:
    if not is_kept:
        raise Broken(f"{what}: {', '.join(map(repr, seen))}")


@dataclass
class World:
    """The real server that all examples share, and its clock."""

    server: Server
    clock: ServerClock
    wire: Wire
    numbers: Iterator[int] = field(default_factory=itertools.count)


@contextmanager
def started_world(kind: Kind = "valkey", texts: Mapping[str, str] = {}) -> Iterator[World]:
    """Start a server whose clock stands still. `texts` are scripts that differ from ours."""
    with (
        ServerClock() as clock,
        Server(kind, environment=clock.environment()) as server,
        Wire(server, texts) as wire,
    ):
        yield World(server, clock, wire)
