"""Random effects on random keys: a commit is refused and changes nothing, or does what the commands do by hand.

The memory engine is held to the same answers and the same keys.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from duly._core import ops
from duly._core.effects import Effect, checked_effects
from duly.errors import UsageError
from duly.memory.trial import Trial
from duly.memory.user_keys import HyperLogLog, UserKeys
from tests.lua.harness import NOW, Queue, Refused, State, Wire
from tests.servers import Server

EXAMPLES: Final = 300
KEYS: Final = ("k1", "k2")
MAY_EMPTY: Final = ("SREM", "HDEL", "ZREM", "LREM", "LTRIM")
CAUTIOUS: Final = ("not known beforehand", "might", "surely")
"""Texts of refusals that are only precautions."""
LARGE: Final = 2**62
NUMBER: Final = re.compile(rb"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")

HUGE: Final = "9" * 19
WHOLE: Final = ("0", "1", "7", "00", "01", "10", "", HUGE, "9" * 310, "0x1f", "inf", "nan")
FRACTIONS: Final = ("", "", "", ".0", ".5", ".", "." + "0" * 390 + "1")
EXPONENTS: Final = ("", "", "", "e3", "E+2", "e-2", "e-310", "e-400", "e-5000", "e400", "e" + HUGE, "e-" + HUGE)

numbers = st.tuples(*map(st.sampled_from, (("", "", "-", "+", " "), WHOLE, FRACTIONS, EXPONENTS, ("", "", " ", "\0"))))
odd = numbers.map("".join) | st.sampled_from(["-0", "-0.0", "1e-400", "1e-5000", "0e-5000", "01", "+1", " 1", "1 "])
"""Texts that servers, Lua and Python might read as different numbers."""

members = st.sampled_from(["a", "b", "1", "x y"])
texts = (
    st.sampled_from(["", "5", "-7", "007", "abc", "1.5", "1e3", str(2**63 - 1), str(-LARGE), "inf", " 1", "+1"]) | odd
)
integers = st.sampled_from([0, 1, -1, 10, LARGE, -LARGE, 2**63 - 1]) | odd
floats = st.sampled_from([0, 1, -1.5, 0.25, "1e3", "10.50", 1e15]) | odd
scores = st.sampled_from([0, -1, 1.5, "2"]) | odd


def _command(name: str, *parts: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(st.just(name), st.sampled_from(KEYS), *parts)


def _words(*words: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(words)


commands = st.one_of(
    _command("SET", texts),
    _command("SET", texts, _words("NX", "XX")),
    _command("SET", texts, st.just("EX"), _words(10, 60)),
    _command("SET", texts, st.just("PX"), st.just(5000), _words("nx", "xx")),
    _command("SETEX", st.just(60) | odd, texts),
    _command("PSETEX", st.just(6000), texts),
    _command("DEL"),
    _command("UNLINK"),
    _command("INCR"),
    _command("DECR"),
    _command("INCRBY", integers),
    _command("DECRBY", integers),
    _command("INCRBYFLOAT", floats),
    _command("APPEND", texts),
    _command("EXPIRE", st.just(100) | odd),
    _command("PEXPIRE", st.just(10_000)),
    _command("PERSIST"),
    _command("HSET", members, texts),
    _command("HSET", members, texts, members, texts),
    _command("HDEL", members, members),
    _command("HINCRBY", members, integers),
    _command("HINCRBYFLOAT", members, floats),
    _command("SADD", members, members),
    _command("SREM", members),
    _command("ZADD", scores, members, scores, members),
    _command("ZREM", members),
    _command("ZINCRBY", scores, members),
    _command("LPUSH", members, members),
    _command("RPUSH", members),
    _command("LREM", _words(0, 1, -1, 2) | odd, members),
    _command("LTRIM", _words(0, 1, -1, -2, 5) | odd, _words(0, 1, -1, -2, -5) | odd),
    _command("XADD", st.just("*"), members, texts),
    _command("XADD", st.just("MAXLEN"), _words("~", "="), _words(0, 1, 100), st.just("*"), members, texts),
    _command("XADD", st.just("MAXLEN"), _words(0, 1) | odd, st.just("*"), members, texts),
    _command("PFADD", members, members),
)
lists_of_commands = st.lists(commands, min_size=1, max_size=8)


def _sums(store: str, field: tuple[str, ...], adders: dict[str, Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    """Store a text, then add to it: random effects would rarely do both to one key."""
    fixed = [st.just(word) for word in field]
    adding = [st.tuples(st.just(name), st.just("k1"), *fixed, *added) for name, added in adders.items()]
    return st.tuples(st.tuples(st.just(store), st.just("k1"), *fixed, odd), st.one_of(adding))


sums = st.one_of(
    _sums("SET", (), {"INCR": (), "DECRBY": (integers,), "INCRBYFLOAT": (floats,)}),
    _sums("HSET", ("a",), {"HINCRBY": (integers,), "HINCRBYFLOAT": (floats,)}),
)


class World:
    """One queue whose messages are committed, the same keys in another database, and in memory."""

    def __init__(self, wire: Wire, by_hand: Wire, name: str) -> None:
        self.wire = wire
        self.by_hand = by_hand
        self.queue = Queue(wire, name)
        self.serial = count()
        self.name = name

    def run_by_hand(self, effects: list[Effect]) -> list[Any] | None:
        """Run commands in the other database and return their replies; None: one was refused."""
        try:
            return [self.by_hand.run(effect.name, effect.key, *effect.args) for effect in effects]
        except Refused:
            return None

    def dump(self, wire: Wire, keys: list[bytes]) -> list[Any]:
        """Read keys as they are stored, with the time they have left."""
        return wire.post([["DUMP", key] for key in keys] + [["PTTL", key] for key in keys])

    def look(self) -> State:
        """Read the queue without the records of calls."""
        self.queue.watch_streams()
        return self.queue.dump()

    def forget(self, keys: list[bytes]) -> None:
        self.wire.run("DEL", *keys)
        self.by_hand.run("DEL", *keys)


@pytest.fixture
def world(wire: Wire, still_server: tuple[Server, Any], queue_name: str) -> Iterator[World]:
    server, _ = still_server
    with Wire(server) as by_hand:
        by_hand.run("SELECT", 1)
        yield World(wire, by_hand, queue_name)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    prior=st.lists(commands, max_size=4),
    wanted=lists_of_commands,
    sum_=st.none() | sums,
    is_stored_before=st.booleans(),
)
def test_effects_happen_as_by_the_commands_or_not_at_all(
    world: World, prior: list[Any], wanted: list[Any], sum_: tuple[Any, Any] | None, is_stored_before: bool
) -> None:
    serial = next(world.serial)
    if sum_ is not None:
        store, add = sum_
        prior = [*prior, store] if is_stored_before else prior
        wanted = [add, *wanted] if is_stored_before else [store, add, *wanted]

    def named(given: list[Any]) -> list[Effect]:
        return [effect for name, key, *args in given for effect in _taken(name, f"{world.name}-{serial}-{key}", *args)]

    keys = [f"{world.name}-{serial}-{key}".encode() for key in KEYS]
    memory, now_ms = UserKeys(), NOW // 1000
    before_it, effects = named(prior), named(wanted)
    for effect in before_it:
        if Trial(memory, now_ms).problem(effect) is None:
            assert world.run_by_hand([effect]) is not None
            world.wire.run(effect.name, effect.key, *effect.args)
            memory.run(effect, now_ms)
    id_ = f"m{serial}"
    (settle,) = world.queue.hold(id_)
    before, queue_before = world.dump(world.wire, keys), world.look()

    call = ops.commit(world.queue.keys, world.queue.options, settle, effects=effects)
    code, *rest = world.queue.call(call)

    trial = Trial(memory, now_ms)
    problems = [(at, problem) for at, effect in enumerate(effects, 1) if (problem := trial.problem(effect))]
    if code == 3:
        position, why = rest[0], rest[1].decode()
        event("refused")
        assert world.dump(world.wire, keys) == before
        assert world.look() == queue_before
        assert (position, why) == problems[0]
        _check_refusal(world, effects[:position], why)
        assert world.queue.call(ops.commit(world.queue.keys, world.queue.options, settle))[0] == 1
    else:
        event("done")
        assert code == 1
        assert problems == []
        answers = call.decode([code, *rest]).replies
        assert answers == world.run_by_hand(effects)
        assert world.dump(world.wire, keys) == world.dump(world.by_hand, keys)
        ours = [memory.run(effect, now_ms) for effect in effects]
        _check_replies(effects, answers, ours, _noise(before_it + effects))
        for key in keys:
            _check_memory(world.wire, key, memory, now_ms, _noise(before_it + effects))
        assert world.queue.dump().places(id_) == []
    world.forget(keys)


def _taken(*effect: Any) -> list[Effect]:
    """Check an effect; return nothing for one that the client refuses."""
    try:
        return checked_effects([effect], ["duly"])
    except UsageError:
        event("refused by its form")
        return []


def _noise(effects: list[Effect]) -> float:
    """Return by how much sums may differ: a server adds long doubles, the memory engine decimal numbers."""
    if not any("FLOAT" in effect.name for effect in effects):
        return 0.0
    words = (word for effect in effects for word in effect.args if NUMBER.fullmatch(word))
    return 1e-16 + sum(size for word in words if (size := abs(float(word))) <= 1e300) * 2**-60


def _check_refusal(world: World, effects: list[Effect], why: str) -> None:
    """Fail if an effect that would have succeeded was refused without a reason."""
    if "HyperLogLog" in why:  # a damaged one can crash an old server
        return
    if world.run_by_hand(effects) is None:
        return
    last = effects[-1].key
    was_emptied = any(effect.name in MAY_EMPTY and effect.key == last for effect in effects)
    is_cautious = any(word in why for word in CAUTIOUS)
    assert is_cautious or was_emptied or "number" in why, (effects, why)


def _check_replies(effects: list[Effect], answers: Sequence[Any], ours: list[Any], noise: float) -> None:
    """Fail unless the memory engine answers the same. A HyperLogLog is its own, and so is its length."""
    for effect, answer, our in zip(effects, answers, ours, strict=True):
        if isinstance(answer, bytes) and NUMBER.fullmatch(answer):
            assert _is_same(answer, our, noise or 1e-12), effect
        elif effect.name not in ("PFADD", "APPEND"):
            assert answer == our, effect


def _check_memory(wire: Wire, key: bytes, memory: UserKeys, now_ms: int, noise: float) -> None:
    """Fail unless the memory engine holds the same."""
    kind = wire.run("TYPE", key)
    value = memory.find(key, now_ms)
    if value is None:
        assert kind == b"none"
        return
    assert value.kind.encode() == kind
    left = wire.run("PTTL", key)
    assert left == (-1 if value.ends is None else value.ends - now_ms)
    if kind == b"string" and not isinstance(value.content, HyperLogLog):
        assert _is_same(wire.run("GET", key), value.content, noise)
    elif kind == b"hash":
        flat = wire.run("HGETALL", key)
        fields = dict(zip(flat[0::2], flat[1::2], strict=True))
        assert fields.keys() == value.content.keys()
        assert all(_is_same(text, value.content[field], noise) for field, text in fields.items())
    elif kind == b"set":
        assert set(wire.run("SMEMBERS", key)) == value.content
    elif kind == b"zset":
        flat = wire.run("ZRANGE", key, 0, -1, "WITHSCORES")
        assert {m: float(s) for m, s in zip(flat[0::2], flat[1::2], strict=True)} == value.content
    elif kind == b"list":
        assert wire.run("LRANGE", key, 0, -1) == value.content
    elif kind == b"stream":
        rows = [dict(zip(row[1][0::2], row[1][1::2], strict=True)) for row in wire.run("XRANGE", key, "-", "+")]
        ours = [fields for _, fields in value.content]
        assert rows[len(rows) - len(ours) :] == ours  # MAXLEN ~ may keep more


def _is_same(text: bytes, ours: bytes, noise: float) -> bool:
    """Compare texts; numbers may differ by noise, and a HyperLogLog is its own."""
    if text == ours or ours.startswith(b"HYLL"):
        return True
    are_numbers = NUMBER.fullmatch(text) and NUMBER.fullmatch(ours)
    return bool(are_numbers) and abs(float(text) - float(ours)) <= noise
