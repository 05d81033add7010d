"""Where a conformance test runs: the address, a clock that can be moved, and access to the server."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import redis
from redis.cluster import RedisCluster

from duly._core.keys import QueueKeys
from duly.memory.clock import clock as memory_clock
from duly.memory.link import engine_for
from duly.memory.topic_state import TopicState
from tests.clock import ServerClock
from tests.scale.cluster import ClusterRig
from tests.scale.nodes import RigNode
from tests.scale.sentinels import SentinelRig


class Place(Protocol):
    """One backend."""

    @property
    def url(self) -> str: ...

    def advance(self, seconds: float) -> None:
        """Let time pass for the queue, not for the test."""

    def reset(self) -> None:
        """Undo all `advance`."""

    def now(self) -> float:
        """Return the time of the queue, in seconds since the epoch."""

    def blocked(self) -> int:
        """Count blocked callers: consumers, and readers of the ends of messages."""

    def keys(self, queue: str, namespace: str = "duly") -> Mapping[str, int]:
        """Name the keys of a queue, or with @ of a topic, with their time to live in milliseconds; -1: no end."""


class MemoryPlace:
    """The engine in this process."""

    def __init__(self, name: str) -> None:
        self.url = f"memory://{name}"
        self._name = name

    def advance(self, seconds: float) -> None:
        memory_clock.advance(seconds)

    def reset(self) -> None:
        memory_clock.reset()

    def now(self) -> float:
        return memory_clock.now_us() / 1_000_000

    def blocked(self) -> int:
        queues = list(engine_for(self._name)._queues.values())
        return sum(len(queue.waiters) + len(queue.end_waiters) for queue in queues)

    def keys(self, queue: str, namespace: str = "duly") -> Mapping[str, int]:
        """There are no keys: each queue, topic and group that holds something counts as one."""
        prefix = QueueKeys(namespace, queue).prefix
        found: dict[str, int] = {}
        for name, known in list(engine_for(self._name)._queues.items()):
            if name.startswith(prefix):
                part, state = name.removeprefix(prefix).decode(), known.state
                found |= {f"{part}meta": -1} if state.is_known else {}
                found |= {f"{part}stream": -1} if isinstance(state, TopicState) and state.stream.is_there else {}
        return found


class ServerPlace:
    """A real server, with its own clock where the shim could be built."""

    def __init__(self, url: str, clock: ServerClock | None) -> None:
        self.url = url
        self._clock = clock
        self._passed = 0.0
        self._client = self.connect()

    def connect(self) -> Any:
        """Return a connection of another program, to be closed by the caller."""
        return redis.Redis.from_url(self.url)

    def in_database(self, number: int) -> str:
        """Return the address of another database of the server."""
        return f"{self.url.removesuffix('/0')}/{number}"

    def advance(self, seconds: float) -> None:
        assert self._clock is not None
        self._clock.step(seconds)
        self._passed += seconds

    def reset(self) -> None:
        if self._clock is not None and self._passed:
            self._clock.step(-self._passed)
            self._passed = 0.0

    def now(self) -> float:
        seconds, us = self._client.time()
        return float(seconds) + float(us) / 1_000_000

    def blocked(self) -> int:
        return int(self._client.info("clients")["blocked_clients"])

    def keys(self, queue: str, namespace: str = "duly") -> Mapping[str, int]:
        prefix = f"{namespace}:{{{queue}}}:"
        found = [key.decode() for key in self._client.scan_iter(match=f"{prefix}*", count=1000)]
        return {key.removeprefix(prefix): int(self._client.pttl(key)) for key in found}

    def all_keys(self) -> set[str]:
        """Name all keys of the server."""
        return {key.decode() for key in self._client.scan_iter(count=10_000)}

    def connections(self) -> int:
        """Count the connections of others."""
        return len(self._client.client_list()) - 1

    def corrupt(self, queue: str, command: str, key: str, *arguments: str) -> None:
        """Write to a key of a queue as a stranger might."""
        self._client.execute_command(command, f"duly:{{{queue}}}:{key}", *arguments)

    def value(self, key: str) -> bytes | str | None:
        """Read a key of the user's own."""
        found: bytes | str | None = self._client.get(key)
        return found

    def forget_scripts(self) -> None:
        """Have the server forget all scripts, so that it knows only those that are called from now on."""
        self._client.script_flush()

    def knows_any(self, hashes: Sequence[str]) -> bool:
        """Return whether one of these scripts was called."""
        return any(self._client.script_exists(*hashes))

    def close(self) -> None:
        self._client.close()


class SentinelPlace(ServerPlace):
    """A primary with replicas, found by its sentinels. It stays the primary."""

    def __init__(self, rig: SentinelRig, clock: ServerClock | None) -> None:
        self._rig = rig
        self._primary = rig.primary
        super().__init__(rig.url, clock)

    def connect(self) -> Any:
        return redis.Redis.from_url(self._primary.url)

    def in_database(self, number: int) -> str:
        return f"{self.url}?db={number}"

    def connections(self) -> int:
        return sum(_count_clients(each) for each in (self._primary, *self._rig.sentinels))


class ClusterPlace(ServerPlace):
    """A cluster. Its slots stay where they are."""

    def __init__(self, rig: ClusterRig, clock: ServerClock | None) -> None:
        self._primaries = rig.primaries
        super().__init__(rig.url, clock)

    def connect(self) -> Any:
        return RedisCluster(*self._primaries[0].node)

    def blocked(self) -> int:
        return sum(int(each.info("clients")["blocked_clients"]) for each in self._primaries)

    def connections(self) -> int:
        return sum(map(_count_clients, self._primaries))

    def knows_any(self, hashes: Sequence[str]) -> bool:
        return any(any(each.run("SCRIPT", "EXISTS", *hashes)) for each in self._primaries)


def _count_clients(node: RigNode) -> int:
    """Count the connections to a node, without those of sentinels, of replicas and of this call."""
    rows = node.run("CLIENT", "LIST", "TYPE", "NORMAL").decode().splitlines()
    return sum(" name=sentinel-" not in row for row in rows) - 1
