"""The registry of workers: heartbeats, departures and removal of silent workers."""

from typing import Any

import pytest

from duly._core import ops
from duly._core.keys import RegistryKeys, queue_pattern
from duly.memory.clock import Clock
from duly.memory.engine import Engine
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Wire

ENOUGH = 1000


class Registry:
    """One registry on a server, and the same in memory: every call must get the same reply."""

    def __init__(self, wire: Wire, namespace: str, clock: ServerClock) -> None:
        self.wire = wire
        self.keys = RegistryKeys(namespace)
        self._clock = clock
        self._engine = Engine(Clock())
        self._engine.clock.freeze()
        self.set_clock(NOW)

    def set_clock(self, us: int) -> None:
        self._clock.freeze(us)
        self._engine.clock.set_us(us)

    def call(self, call: Any) -> Any:
        answer = self.wire.carry(call, b"tests", 1)
        assert answer == self._engine.call(call, b"tests", 1)
        return answer

    def beat(self, consumer: str, info: bytes = b"info", forget_after: float = 60) -> Any:
        return self.call(ops.beat(self.keys, consumer, info, forget_after))

    def rows(self) -> list[tuple[str, int, bytes]]:
        _, *rest = self.call(ops.workers(self.keys))
        return [(c.decode(), at - NOW, info) for c, at, info in zip(rest[0::3], rest[1::3], rest[2::3], strict=True)]

    def key_names(self) -> set[str]:
        prefix = self.keys.prefix
        return {key[len(prefix) :].decode() for key in self.wire.run("KEYS", prefix + b"*")}


@pytest.fixture
def registry(wire: Wire, queue_name: str, clock: ServerClock) -> Registry:
    return Registry(wire, queue_name, clock)


def test_without_workers_there_is_nothing(registry: Registry) -> None:
    assert registry.call(ops.workers(registry.keys)) == [NOW]
    assert registry.key_names() == set()


def test_a_heartbeat_stores_the_report_of_a_worker_and_the_time(registry: Registry) -> None:
    assert registry.beat("a", b"one") == 1
    registry.set_clock(NOW + 5)
    registry.beat("b", b"two")
    registry.set_clock(NOW + 9)
    registry.beat("a", b"three")
    assert registry.rows() == [("a", 9, b"three"), ("b", 5, b"two")]
    assert registry.key_names() == {"workers", "beats"}


def test_a_heartbeat_removes_workers_that_are_silent_for_too_long(registry: Registry) -> None:
    for number, name in enumerate("abc"):
        registry.set_clock(NOW + number)
        registry.beat(name)
    registry.set_clock(NOW + 1 + SECOND)
    registry.beat("d", forget_after=1)
    assert [name for name, _, _ in registry.rows()] == ["d", "c", "b"]


def test_a_heartbeat_does_not_remove_its_own_worker(registry: Registry) -> None:
    registry.beat("a", forget_after=0)
    assert [name for name, _, _ in registry.rows()] == ["a"]


def test_a_heartbeat_removes_a_bounded_number(registry: Registry) -> None:
    for number in range(150):
        registry.beat(f"old{number:03d}")
    registry.set_clock(NOW + 100 * SECOND)
    registry.beat("new")
    assert len(registry.rows()) == 51
    registry.beat("new")
    assert registry.rows() == [("new", 100 * SECOND, b"info")]


def test_a_worker_that_departs_is_gone_and_may_depart_again(registry: Registry) -> None:
    registry.beat("a")
    registry.beat("b")
    assert [registry.call(ops.depart(registry.keys, "a")) for _ in range(2)] == [1, 0]
    assert [name for name, _, _ in registry.rows()] == ["b"]
    registry.call(ops.depart(registry.keys, "b"))
    assert registry.key_names() == set()


def test_a_list_of_workers_is_bounded_and_has_the_newest_first(registry: Registry) -> None:
    for number in range(ENOUGH + 5):
        registry.set_clock(NOW + number)
        registry.beat(f"w{number:04d}")
    rows = registry.rows()
    assert len(rows) == ENOUGH
    assert [rows[0][0], rows[-1][0]] == [f"w{ENOUGH + 4:04d}", "w0005"]


def test_heartbeats_of_one_moment_have_an_order(registry: Registry) -> None:
    for name in ("b", "c", "a"):
        registry.beat(name)
    assert [name for name, _, _ in registry.rows()] == ["c", "b", "a"]


def test_a_beat_without_info_is_shown_as_such(registry: Registry, wire: Wire) -> None:
    registry.beat("a")
    wire.run("HDEL", registry.keys.key("workers"), "a")
    assert wire.carry(ops.workers(registry.keys), b"tests", 1) == [NOW, b"a", NOW, b""]


def test_namespaces_have_a_registry_each(registry: Registry) -> None:
    registry.beat("a")
    other = RegistryKeys(registry.keys.prefix.split(b":")[0].decode() + "-other")
    assert registry.call(ops.workers(other)) == [NOW]


def test_the_registry_is_not_a_queue(registry: Registry, queue_name: str) -> None:
    registry.beat("a")
    assert registry.wire.run("KEYS", queue_pattern(queue_name)) == []
    assert registry._engine.queues(queue_name) == []
