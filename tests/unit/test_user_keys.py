"""Keys of the user on memory://: read, written, and ended by the clock."""

from typing import Any

import pytest

import duly
from duly.testing import clock, user_keys


@pytest.mark.parametrize(
    ("commands", "held"),
    [
        ([], None),
        ([("SET", "k", 5), ("INCRBY", "k", 2)], b"7"),
        ([("INCRBYFLOAT", "k", 0.1), ("INCRBYFLOAT", "k", 0.2)], b"0.3"),
        ([("INCRBYFLOAT", "k", -1.5), ("INCRBYFLOAT", "k", 1.5)], b"0"),
        ([("APPEND", "k", "a"), ("APPEND", "k", b"b")], b"ab"),
        ([("HSET", "k", "f", "v"), ("HINCRBY", "k", "n", 2), ("HDEL", "k", "f")], {b"n": b"2"}),
        ([("SADD", "k", "a", "b"), ("SREM", "k", "a")], {b"b"}),
        ([("ZADD", "k", 1, "a"), ("ZINCRBY", "k", 0.5, "a")], {b"a": 1.5}),
        ([("RPUSH", "k", "a", "b"), ("LPUSH", "k", "c", "d")], [b"d", b"c", b"a", b"b"]),
        ([("RPUSH", "k", "a", "b", "a", "a"), ("LREM", "k", -2, "a")], [b"a", b"b"]),
        ([("RPUSH", "k", "a", "b", "c"), ("LTRIM", "k", 1, -1)], [b"b", b"c"]),
        ([("PFADD", "k", "a", "b", "a")], {b"a", b"b"}),
        ([("SADD", "k", "a"), ("SREM", "k", "a")], None),
        ([("SET", "k", 1), ("DEL", "k")], None),
        ([("SET", "k", 1), ("SET", "k", 2, "NX")], b"1"),
        ([("SET", "k", 2, "XX")], None),
    ],
)
def test_a_key_holds_the_result_of_its_commands(commands: list[tuple[Any, ...]], held: Any) -> None:
    with duly.Duly("memory://") as app:
        keys = user_keys(app)
        for command in commands:
            keys.run(*command)

        assert keys.get("k") == held


def test_a_stream_is_a_list_of_ids_and_fields() -> None:
    with duly.Duly("memory://") as app:
        keys = user_keys(app)
        for number in range(3):
            keys.run("XADD", "k", "MAXLEN", 2, "*", "n", number)

        (first, fields), (second, _) = keys.get("k")

        assert fields == {b"n": b"1"}
        assert [int(part) for part in first.split(b"-")] < [int(part) for part in second.split(b"-")]


@pytest.mark.parametrize(
    ("command", "left"),
    [(("SETEX", "k", 10, "v"), None), (("SET", "k", "v", "PX", 30_000), b"v"), (("PERSIST", "k"), b"old")],
)
def test_a_key_ends_by_the_clock(command: tuple[Any, ...], left: Any) -> None:
    with duly.Duly("memory://") as app:
        keys = user_keys(app)
        keys.run("SET", "k", "old", "EX", 15)
        keys.run(*command)
        try:
            clock.advance(20)

            assert keys.get("k") == left
        finally:
            clock.reset()


def test_a_value_that_is_read_is_a_copy() -> None:
    with duly.Duly("memory://") as app:
        keys = user_keys(app)
        keys.run("RPUSH", "k", "a")

        keys.get("k").append(b"b")

        assert keys.get("k") == [b"a"]


def test_a_command_that_does_not_fit_its_key_is_refused() -> None:
    with duly.Duly("memory://") as app:
        keys = user_keys(app)
        keys.run("SADD", "k", "a")

        with pytest.raises(duly.UsageError, match="it holds a set"):
            keys.run("INCR", "k")
        with pytest.raises(duly.UsageError, match="cannot use this command"):
            keys.run("FLUSHALL", "k")


def test_an_app_and_its_async_counterpart_share_user_keys() -> None:
    with duly.Duly("memory://") as app:
        user_keys(app).run("SET", "k", 1)

        assert user_keys(app.aio).get("k") == b"1"


def test_a_real_server_is_for_redis_py() -> None:
    with duly.Duly("redis://localhost:1") as app, pytest.raises(duly.UsageError, match="redis-py"):
        user_keys(app)
