"""The scripts of locks, on servers and in memory alike: one holder, growing fences, calls that may be repeated."""

from collections.abc import Callable
from typing import Any

import pytest
from redis.crc import key_slot

from duly import _lua
from duly._core import ops
from duly._core.keys import LockKeys, OnceKeys, QueueKeys, queue_pattern
from duly.memory.clock import Clock
from duly.memory.engine import Engine, ErrorReply
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Refused, Wire, fill

HOUR = 3600 * SECOND
TTL = 30
KEPT = 120.0


class Lock:
    """One lock on a server, and the same in memory: every call must get the same reply."""

    def __init__(self, wire: Wire, name: str, clock: ServerClock) -> None:
        self.wire = wire
        self.keys = LockKeys("duly", name)
        self._clock = clock
        self._engine = Engine(Clock())
        self._engine.clock.freeze()
        self.set_clock(NOW)
        self.sequence = 0

    def set_clock(self, us: int) -> None:
        self._clock.freeze(us)
        self._engine.clock.set_us(us)

    def call(self, call: Any, sequence: int | None = None, stream: bytes = b"tests") -> Any:
        if sequence is None:
            self.sequence += 1
            sequence = self.sequence
        try:
            answer = self.wire.carry(call, stream, sequence)
        except Refused:
            with pytest.raises(ErrorReply):
                self._engine.call(call, stream, sequence)
            raise
        assert answer == self._engine.call(call, stream, sequence)
        return answer

    def take(self, token: str, ttl: float = TTL, by: str = "me", **options: Any) -> Any:
        return self.call(ops.lock(self.keys, token, ttl, by, KEPT), **options)

    def free(self, token: str, **options: Any) -> Any:
        return self.call(ops.unlock(self.keys, token, KEPT), **options)

    def prolong(self, token: str, ttl: float, **options: Any) -> Any:
        return self.call(ops.prolong(self.keys, token, ttl, KEPT), **options)

    def token_is_there(self) -> bool:
        return bool(self.wire.run("LLEN", self.keys.key("wake")))

    def holder(self) -> dict[bytes, bytes]:
        flat = self.wire.run("HGETALL", self.keys.key("holder"))
        return dict(zip(flat[0::2], flat[1::2], strict=True))

    def key_names(self) -> set[str]:
        prefix = self.keys.prefix
        found = {key[len(prefix) :].decode() for key in self.wire.run("KEYS", prefix + b"*")}
        return {name for name in found if not name.startswith("call:")}


@pytest.fixture
def lock(wire: Wire, queue_name: str, clock: ServerClock) -> Lock:
    return Lock(wire, queue_name, clock)


def test_the_record_of_a_call_is_kept_as_long_as_the_caller_requests(lock: Lock) -> None:
    def left() -> int:
        (record,) = lock.wire.run("KEYS", lock.keys.prefix + b"call:*")
        milliseconds: int = lock.wire.run("PTTL", record)
        lock.wire.run("PERSIST", record)  # so that each call must set it again
        return milliseconds

    lock.take("a")
    kept = [left()]
    for call in (lock.take, lock.free):
        call("a")
        kept.append(left())
    lock.free("a", sequence=lock.sequence)  # a repeat
    kept.append(left())
    lock.take("b")
    lock.prolong("b", 60)
    kept.append(left())

    assert all(0 < each <= KEPT * 1000 for each in kept), kept


# Holding


def test_a_free_lock_is_taken(lock: Lock) -> None:
    assert lock.take("a", by="me") == [NOW, TTL * SECOND, b"me"]
    assert lock.holder() == {
        b"token": b"a", b"until": b"%d" % (NOW + TTL * SECOND), b"fence": b"%d" % NOW, b"by": b"me",
    }  # fmt: skip


def test_a_held_lock_is_refused_with_its_holder_and_its_remaining_time(lock: Lock) -> None:
    lock.take("a", by="me")
    lock.set_clock(NOW + 12 * SECOND)
    before = lock.holder()

    assert lock.take("b", by="you") == [0, 18 * SECOND, b"me"]

    assert lock.holder() == before


def test_the_lock_token_of_the_holder_gets_the_lock_again(lock: Lock) -> None:
    """For example, the call was repeated on another connection."""
    lock.take("a")
    lock.set_clock(NOW + SECOND)

    assert lock.take("a", stream=b"other") == [NOW, 29 * SECOND, b"me"]


def test_a_freed_lock_may_be_taken_by_another(lock: Lock) -> None:
    lock.take("a")

    assert lock.free("a") == 1

    assert set(lock.holder()) == {b"fence"}
    assert lock.take("b")[0] > NOW


def test_a_lock_ends_at_its_time_and_not_before(lock: Lock) -> None:
    lock.take("a")
    lock.set_clock(NOW + TTL * SECOND - 1)
    assert lock.take("b")[:2] == [0, 1]
    lock.set_clock(NOW + TTL * SECOND)
    assert lock.take("b")[0] == NOW + TTL * SECOND


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_lock_that_ran_out_is_lost_to_its_holder(lock: Lock, is_taken: bool) -> None:
    lock.take("a")
    lock.set_clock(NOW + TTL * SECOND)
    if is_taken:
        lock.take("b")
    before = lock.holder()

    assert lock.free("a") == 0
    assert lock.prolong("a", 60) == 0

    assert lock.holder() == before
    assert not lock.token_is_there()


def test_a_stale_or_strange_token_changes_nothing(lock: Lock) -> None:
    lock.take("a")
    lock.free("a")
    lock.take("b")
    before = lock.holder()

    for token in ("a", "", "never"):
        assert lock.free(token) == 0
        assert lock.prolong(token, 60) == 0

    assert lock.holder() == before


def test_a_prolonged_lock_ends_its_ttl_after_the_call(lock: Lock) -> None:
    lock.take("a")
    lock.set_clock(NOW + 10 * SECOND)

    assert lock.prolong("a", 60) == 1

    assert lock.take("b")[:2] == [0, 60 * SECOND]


# Fences


def test_fences_grow_with_every_holding_while_the_clock_stands_still(lock: Lock) -> None:
    fences = []
    for number in range(5):
        fences.append(lock.take(str(number))[0])
        lock.free(str(number))

    assert fences == [NOW, NOW + 1, NOW + 2, NOW + 3, NOW + 4]


def test_fences_grow_after_a_lock_ran_out(lock: Lock) -> None:
    first = lock.take("a", ttl=0.000001)[0]
    lock.set_clock(NOW + 1)
    second = lock.take("b", ttl=0.000001)[0]

    assert second > first


def test_fences_grow_although_the_clock_steps_back(lock: Lock) -> None:
    fences = []
    for number in range(5):
        lock.set_clock(NOW - number * HOUR // 10)
        fences.append(lock.take(str(number))[0])
        lock.free(str(number))

    assert fences == sorted(set(fences))


def test_after_a_step_back_a_lock_is_held_still(lock: Lock) -> None:
    lock.take("a")
    lock.set_clock(NOW - SECOND)

    assert lock.take("b")[:2] == [0, 31 * SECOND]
    assert lock.free("a") == 1


# Leftovers


def test_a_free_lock_is_forgotten_after_an_hour(lock: Lock) -> None:
    lock.take("a", ttl=10)
    assert _left(lock, "holder") == pytest.approx(3_610_000, abs=5_000)
    lock.prolong("a", 100)
    assert _left(lock, "holder") == pytest.approx(3_700_000, abs=5_000)
    lock.free("a")
    assert _left(lock, "holder") == pytest.approx(3_600_000, abs=5_000)
    assert _left(lock, "wake") == pytest.approx(60_000, abs=5_000)
    assert lock.key_names() == {"holder", "wake"}


def test_a_held_lock_is_one_key(lock: Lock) -> None:
    lock.take("a")

    assert lock.key_names() == {"holder"}


def test_a_refused_call_leaves_nothing(lock: Lock) -> None:
    lock.free("never")
    lock.prolong("never", 5)

    assert lock.key_names() == set()


def _left(lock: Lock, key: str) -> int:
    left: int = lock.wire.run("PTTL", lock.keys.key(key))
    return left


# Waking


def test_unlock_leaves_one_token_and_lock_removes_it(lock: Lock) -> None:
    lock.take("a")
    assert not lock.token_is_there()
    lock.free("a")
    assert lock.token_is_there()
    lock.take("b")
    assert not lock.token_is_there()


@pytest.mark.parametrize(("ttl", "wakes"), [(10, True), (60, False)])
def test_an_earlier_end_leaves_a_token(lock: Lock, ttl: float, wakes: bool) -> None:
    lock.take("a")
    lock.prolong("a", ttl)

    assert lock.token_is_there() is wakes


def test_a_consumer_that_leaves_early_passes_the_wake_token_on(lock: Lock) -> None:
    for _ in range(2):
        assert lock.call(ops.wake(lock.keys)) == 1

    assert lock.wire.run("LLEN", lock.keys.key("wake")) == 1
    assert _left(lock, "wake") > 0
    assert lock.token_is_there()


# Repeats


def test_a_repeated_take_gets_the_same_reply_even_after_the_lock_was_freed(lock: Lock) -> None:
    first = lock.take("a", sequence=10)
    lock.free("a", stream=b"other", sequence=1)
    before = lock.holder()

    assert lock.take("a", sequence=10) == first

    assert lock.holder() == before


def test_a_late_copy_of_a_take_that_found_it_busy_does_not_take_it(lock: Lock) -> None:
    lock.take("a", stream=b"other", sequence=1)
    busy = lock.take("b", sequence=10)
    lock.free("a", stream=b"other", sequence=2)

    assert lock.take("b", sequence=10) == busy

    assert set(lock.holder()) == {b"fence"}


def test_a_repeated_unlock_succeeds_and_frees_no_other_holding(lock: Lock) -> None:
    lock.take("a")
    lock.free("a", sequence=10)
    lock.take("b", stream=b"other", sequence=1)
    before = lock.holder()

    assert lock.free("a", sequence=10) == 1

    assert lock.holder() == before
    assert not lock.token_is_there()


def test_a_repeated_prolong_is_a_success_and_counts_from_the_first(lock: Lock) -> None:
    lock.take("a")
    lock.prolong("a", 60, sequence=10)
    before = lock.holder()
    lock.set_clock(NOW + 10 * SECOND)

    assert lock.prolong("a", 60, sequence=10) == 1

    assert lock.holder() == before


@pytest.mark.parametrize("verb", ["take", "free", "prolong"])
def test_a_call_that_was_overtaken_is_refused(lock: Lock, verb: str) -> None:
    lock.take("a", sequence=10)
    before = lock.holder()
    calls: dict[str, Callable[[], Any]] = {
        "take": lambda: lock.take("b", sequence=9),
        "free": lambda: lock.free("a", sequence=9),
        "prolong": lambda: lock.prolong("a", 60, sequence=9),
    }

    with pytest.raises(Refused, match="OVERTAKEN"):
        calls[verb]()

    assert lock.holder() == before


# Keys


@pytest.mark.parametrize("name", ["stock:42", "a{b}c", "}", "{}", "%7D", "a b", "\N{SNOWMAN}", "x" * 200])
@pytest.mark.parametrize("make", [LockKeys, OnceKeys])
def test_all_keys_of_a_lock_or_an_effect_are_in_one_slot(make: Callable[..., QueueKeys], name: str) -> None:
    keys = make("duly", name)
    tag = keys.prefix[len("duly:{") : -len("}:")]

    assert not set(tag) & set(b"{}")
    for script in ("lock", "unlock", "prolong", "wake_lock", "once"):
        named = [*keys.of_script(_lua.script(script), ""), keys.call(b"stream")]
        assert {key_slot(key) for key in named} == {key_slot(tag)}


def test_different_names_have_different_keys() -> None:
    names = ["a", "%61", "{", "}", "%7B", "%7D", "%257B", "%"]

    assert len({LockKeys("duly", name).prefix for name in names}) == len(names)
    assert LockKeys("duly", "a").prefix != OnceKeys("duly", "a").prefix


def test_a_lock_is_not_a_queue(lock: Lock) -> None:
    lock.take("a")
    lock.free("a")
    queues = lock.wire.run("KEYS", queue_pattern("duly"))

    assert [key for key in queues if b"~lock" in key] == []
    assert lock._engine.queues("duly") == []


# A full server


def test_a_full_server_takes_and_frees_locks(fillable: Wire, queue_name: str) -> None:
    """Handlers need them to drain it."""
    wire = fillable
    keys = LockKeys("duly", queue_name)
    wire.carry(ops.lock(keys, "a", 30, "me", KEPT), b"tests", 1)
    fill(wire)

    assert wire.carry(ops.prolong(keys, "a", 60, KEPT), b"tests", 2) == 1
    assert wire.carry(ops.unlock(keys, "a", KEPT), b"tests", 3) == 1
    assert wire.run("LLEN", keys.key("wake")) == 1
    wire.run("DEL", keys.key("wake"))
    assert wire.carry(ops.wake(keys), b"tests", 4) == 1
    assert wire.carry(ops.lock(keys, "b", 30, "me", KEPT), b"tests", 5)[0] > 0
    effect, asking = OnceKeys("duly", queue_name), ops.Asking("orders", "id", 1, 2, 1, 0, 0)
    assert [wire.carry(ops.once(effect, asking, 60), b"tests", n) for n in (6, 6, 7)] == [1, 1, 0]
