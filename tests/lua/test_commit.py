"""commit: the ack, sends to several queues and effects on keys of the user happen together, or not at all."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from duly._core import ops, replies
from duly._core.effects import Effect, checked_effects
from duly.options import Keep, QueueOptions
from tests.lua.conftest import MakeQueue
from tests.lua.harness import NOW, SECOND, Queue, Refused, State, Wire, fill, free, ids_of
from tests.servers import Server

LOST, DONE, NO_ROOM, IMPOSSIBLE = 0, 1, 2, 3


class Commits:
    """A queue whose messages are committed, others to send to, and keys of the user."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.wire = queue.wire
        self.name = queue.keys.name
        self.targets: list[Queue] = []

    def other(self, word: str, **options: Any) -> Queue:
        """Make a queue to send to."""
        found = Queue(self.wire, f"{self.name}-{word}", **options)
        self.targets.append(found)
        return found

    def key(self, word: str) -> str:
        return f"{self.name}-{word}"

    def effects(self, *commands: Sequence[Any]) -> list[Effect]:
        """Check effects whose keys are words of this test."""
        return checked_effects([(name, self.key(key), *args) for name, key, *args in commands], ["duly"])

    def call(
        self, settle: ops.Settle, sends: Sequence[tuple[Queue, str]] = (), *commands: Sequence[Any], **options: Any
    ) -> Any:
        """Make the call of a commit that sends messages, by their ids, and changes keys."""
        groups: dict[bytes, ops.Target] = {}
        for queue, id_ in sends:
            group = groups.setdefault(queue.keys.prefix, ops.Target(queue.keys, queue.options, []))
            group.messages.append(queue.outgoing(id_, **options))
        targets, effects = list(groups.values()), self.effects(*commands)
        return ops.commit(self.queue.keys, self.queue.options, settle, targets, effects=effects)

    def commit(self, *args: Any, **options: Any) -> Any:
        """Commit and return the raw answer."""
        return self.queue.call(self.call(*args, **options))

    def everything(self) -> dict[Any, Any]:
        """Read all that a commit could change: queues without call records, and the keys of the user."""
        states: dict[Any, Any] = {}
        for queue in (self.queue, *self.targets):
            queue.watch_streams()
            states[queue.keys.name] = queue.dump()
        for key in self.wire.run("KEYS", f"{self.name}-*"):
            states[key] = self.wire.run("DUMP", key)
        return states


@pytest.fixture
def commits(queue: Queue) -> Commits:
    return Commits(queue)


def _codes(*replied: Any) -> list[int]:
    return [reply[0] for reply in replied]


def test_all_happens_together(commits: Commits) -> None:
    """I1, I2."""
    first, second = commits.other("first"), commits.other("second")
    (settle,) = commits.queue.hold("a")
    commits.wire.run("SET", commits.key("stock"), 10)

    reply = commits.commit(
        settle, [(first, "b"), (second, "c"), (first, "d")], ("DECRBY", "stock", 4), ("HSET", "seen", "a", 1)
    )

    assert reply[0] == DONE
    own = commits.queue.dump()
    assert (own.msgs, own.leased, own.leases) == ({}, {}, {})
    assert own.stats["acked"] == 1
    assert own.stats["bytes"] == 0
    assert list(first.dump().waiting[0]) == ["b", "d"]
    assert first.dump().stats["sent"] == 2
    assert list(second.dump().waiting[0]) == ["c"]
    assert (first.dump().wake, second.dump().wake) == (1, 1)
    assert commits.wire.run("GET", commits.key("stock")) == b"6"
    assert commits.wire.run("HGETALL", commits.key("seen")) == [b"a", b"1"]


def test_without_anything_it_is_an_ack(commits: Commits, make_queue: MakeQueue) -> None:
    (settle,) = commits.queue.hold("a")
    other = Queue(commits.wire, f"{commits.name}-other")
    (settle_there,) = other.hold("a")

    assert commits.commit(settle)[0] == DONE

    other.call(ops.ack(other.keys, other.options, [settle_there]))
    assert _without_clock(commits.queue.dump()) == _without_clock(other.dump())


def _without_clock(state: State) -> dict[str, Any]:
    return {**vars(state), "meta": {**state.meta, "clock": ""}, "calls": {}}


def test_with_keep_the_message_is_kept(make_queue: MakeQueue) -> None:
    commits = Commits(make_queue(done=Keep(count=1)))
    first, second = commits.queue.hold("a", "b")

    commits.commit(first)
    commits.commit(second)

    state = commits.queue.dump()
    assert list(state.done) == ["b"]
    assert state.stats["done_trimmed"] == 1
    assert state.stats["done_bytes"] == len(state.msgs["b"])


def test_earlier_failures_are_cleared(commits: Commits) -> None:
    (settle,) = commits.queue.hold("a")
    commits.queue.call(ops.retry(commits.queue.keys, [(settle, 0, "boom", "trace")]))
    fence = commits.queue.claim().fence

    assert commits.commit(ops.Settle("a", fence, 0))[0] == DONE

    assert commits.queue.key_names() <= {"meta", "call:tests"}


def test_a_message_whose_body_was_lost_is_finished(make_queue: MakeQueue) -> None:
    commits = Commits(make_queue(done=Keep(count=5)))
    (settle,) = commits.queue.hold("a")
    commits.queue.lose_body("a")

    assert commits.commit(settle)[0] == DONE

    assert commits.queue.dump().done == {}


@pytest.mark.parametrize("how", ["stale", "gone", "never"])
def test_a_lost_lease_changes_nothing(commits: Commits, how: str) -> None:
    """I5."""
    other = commits.other("other")
    (settle,) = commits.queue.hold("a")
    if how == "gone":
        commits.queue.call(ops.cancel(commits.queue.keys, "a", running=True))
    else:
        commits.queue.call(ops.release(commits.queue.keys, [settle]))
    if how == "stale":
        commits.queue.claim()
    before = commits.everything()

    assert commits.commit(settle, [(other, "b")], ("INCR", "n")) == [LOST]

    assert commits.everything() == before


def test_a_lease_past_its_deadline_is_valid_until_a_claim_reclaims_it(commits: Commits, clock: Any) -> None:
    (settle,) = commits.queue.hold("a", lease=1)
    clock.freeze(NOW + 5 * SECOND)

    assert commits.commit(settle)[0] == DONE


def test_a_repeat_is_answered_again_and_does_nothing(commits: Commits) -> None:
    """I6."""
    other = commits.other("other")
    other.send("first", dedup="x")
    (settle,) = commits.queue.hold("a")
    call = commits.call(settle, [(other, "b"), (other, "c")], ("INCR", "n"), dedup="x")
    reply = commits.queue.call(call, sequence=100)
    after = commits.everything()

    assert reply == [DONE, [1, replies.DUPLICATE, b"first", 2, replies.DUPLICATE, b"first"], [], [1]]
    assert commits.queue.call(call, sequence=100) == reply
    assert commits.everything() == after
    assert call.decode(reply).sent == ["first", "first"]


@pytest.mark.parametrize("refusal", [NO_ROOM, IMPOSSIBLE])
def test_a_late_copy_of_a_refused_one_does_nothing_when_it_could(commits: Commits, refusal: int) -> None:
    """I6."""
    other = commits.other("other", max_length=1)
    (settle,) = commits.queue.hold("a")
    if refusal == NO_ROOM:
        other.send("there")
    else:
        commits.wire.run("SET", commits.key("n"), "text")
    call = commits.call(settle, [(other, "b")], ("INCR", "n"))
    reply = commits.queue.call(call, sequence=100)
    assert reply[0] == refusal
    other.call(ops.cancel(other.keys, "there"))
    commits.wire.run("DEL", commits.key("n"))

    assert commits.queue.call(call, sequence=100) == reply

    assert commits.queue.dump().places("a") == ["leased"]


def test_sends_go_by_all_rules_of_sends(commits: Commits) -> None:
    other = commits.other("other")
    other.send("own", own=True)
    (settle,) = commits.queue.hold("a")
    messages = [
        other.outgoing("later", delay=5, priority=7),
        other.outgoing("short", ttl=60),
        other.outgoing("own", b"again", own=True),
        other.outgoing("keyed", key="k"),
        other.outgoing("deduped", dedup="v"),
        other.outgoing("instead", b"new", dedup="v", replace=True),
    ]
    call = ops.commit(commits.queue.keys, QueueOptions(), settle, [ops.Target(other.keys, other.options, messages)])

    outcome = call.decode(commits.queue.call(call))

    assert outcome.sent == ["later", "short", "own", "keyed", "deduped", "deduped"]
    state = other.dump()
    assert set(state.waiting) == {0, 7}
    assert set(state.waiting[0]) == {"own", "short", "keyed", "deduped"}
    assert set(state.expires) == {"short"}
    assert state.dedup == {"v": "deduped"}
    assert state.stats["duplicates"] == 1
    assert state.stats["replaced"] == 1


# --- To the same queue


def test_a_message_may_be_followed_by_another_in_its_own_queue(commits: Commits) -> None:
    (settle,) = commits.queue.hold("a")

    assert commits.commit(settle, [(commits.queue, "b")])[0] == DONE

    state = commits.queue.dump()
    assert set(state.msgs) == {"b"}
    assert state.wake == 1
    assert ids_of(commits.queue.claim()) == ["b"]


@pytest.mark.parametrize("bound", [{"max_length": 1}, {"max_bytes": 60}], ids=str)
def test_the_room_of_the_finished_message_is_free_for_the_messages_it_sends(make_queue: MakeQueue, bound: Any) -> None:
    commits = Commits(make_queue(**bound))
    (settle,) = commits.queue.hold("a", body=b"." * 20)

    assert commits.commit(settle, [(commits.queue, "b"), (commits.queue, "c")], body=b"." * 20)[0] == NO_ROOM
    assert commits.commit(settle, [(commits.queue, "b")], body=b"." * 20)[0] == DONE

    assert set(commits.queue.dump().msgs) == {"b"}


@pytest.mark.parametrize("done", [None, Keep(count=5)])
def test_the_id_of_the_finished_message_may_be_used_again(make_queue: MakeQueue, done: Keep | None) -> None:
    commits = Commits(make_queue(done=done))
    commits.queue.send("a", own=True)
    fence = commits.queue.claim().fence

    reply = commits.commit(ops.Settle("a", fence, 0), [(commits.queue, "a")], own=True, body=b"anew")

    assert reply[0] == DONE
    state = commits.queue.dump()
    assert state.places("a") == ["waiting0"]
    assert state.msgs["a"].endswith(b"anew")
    assert state.stats["bytes"] == len(state.msgs["a"])
    assert state.stats.get("done_bytes", 0) == 0


# --- Refused


def test_one_full_queue_refuses_everything(commits: Commits) -> None:
    free, full = commits.other("free"), commits.other("full", max_length=1)
    full.send("there")
    (settle,) = commits.queue.hold("a")
    before = commits.everything()

    assert commits.commit(settle, [(free, "b"), (full, "c")], ("INCR", "n")) == [NO_ROOM, 2]

    assert commits.everything() == before


def test_a_refused_commit_does_not_even_drop_expired_messages(commits: Commits, clock: Any) -> None:
    full = commits.other("full", max_length=1)
    full.send("there")
    full.options = QueueOptions()
    full.send("over", ttl=1)
    full.options = QueueOptions(max_length=1)
    clock.freeze(NOW + 5 * SECOND)
    (settle,) = commits.queue.hold("a")
    before = commits.everything()

    assert commits.commit(settle, [(full, "c")]) == [NO_ROOM, 1]

    assert commits.everything() == before


def test_expired_messages_hold_no_room(commits: Commits, clock: Any) -> None:
    other = commits.other("other", max_length=1)
    other.send("over", ttl=1, dedup="x")
    clock.freeze(NOW + 5 * SECOND)
    (settle,) = commits.queue.hold("a")

    assert commits.commit(settle, [(other, "b")], dedup="x")[0] == DONE

    assert set(other.dump().msgs) == {"b"}
    assert other.dump().stats["expired"] == 1


def test_the_oldest_are_dropped_if_the_sender_asks_for_it(commits: Commits) -> None:
    other = commits.other("other", max_length=2, on_full="drop_oldest")
    other.send("one", "two", on_refusal="drop")
    (settle,) = commits.queue.hold("a")

    assert commits.commit(settle, [(other, "three")])[0] == DONE

    assert set(other.dump().msgs) == {"two", "three"}
    assert other.dump().stats["dropped"] == 1


@pytest.mark.parametrize("key", ["wake", "meta", "msgs", "dedup_ends", "waiting4"])
def test_a_key_that_was_overwritten_refuses_everything(commits: Commits, key: str) -> None:
    other = commits.other("other")
    (settle,) = commits.queue.hold("a")
    commits.wire.run("SET", other.keys.key(key), "vandal")

    with pytest.raises(Refused, match="WRONGTYPE"):
        commits.commit(settle, [(other, "b")], ("INCR", "n"))

    assert commits.queue.dump().places("a") == ["leased"]
    assert commits.wire.run("EXISTS", commits.key("n")) == 0


# --- Effects

PRIOR = [
    ("SET", "text", "abc"),
    ("SET", "five", "5"),
    ("SET", "float", "1.5"),
    ("SET", "largest", str(2**63 - 1)),
    ("SET", "zeros", "007"),
    ("SET", "empty", ""),
    ("SET", "minus", "-0"),
    ("SET", "plus", "+1"),
    ("SET", "space", " 1"),
    ("SET", "tiny", "1e-5000"),
    ("SET", "infinite", "inf"),
    ("SET", "small", "1e-310"),
    ("SET", "zero", "0e-5000"),
    ("HSET", "hash", "n", "5", "t", "abc", "f", "2.5", "minus", "-0", "tiny", "1e-5000"),
    ("SADD", "set", "m"),
    ("ZADD", "zset", "1", "m"),
    ("RPUSH", "list", "x", "y", "x"),
    ("XADD", "stream", "*", "f", "v"),
    ("PFADD", "log", "a", "b"),
]

IMPOSSIBLE_EFFECTS = [
    ([("INCR", "text")], "does not hold an integer"),
    ([("INCR", "empty")], "does not hold an integer"),
    ([("DECR", "zeros")], "does not hold an integer"),
    ([("INCR", "float")], "does not hold an integer"),
    ([("INCR", "largest")], "does not hold an integer"),
    ([("INCRBY", "five", 2**63 - 1)], "leave 64 bits"),
    ([("DECRBY", "five", 2**63 - 1)], "leave 64 bits"),
    ([("INCRBYFLOAT", "text", "1")], "does not hold a number"),
    ([("INCRBYFLOAT", "none", "1e300"), ("INCRBYFLOAT", "none", "1e300")], "too large"),
    ([("INCR", "minus")], "does not hold an integer"),
    ([("INCR", "plus")], "does not hold an integer"),
    ([("DECRBY", "space", 1)], "does not hold an integer"),
    ([("INCRBYFLOAT", "plus", "1")], "does not hold a number"),
    ([("INCRBYFLOAT", "space", "1")], "does not hold a number"),
    ([("INCRBYFLOAT", "empty", "1")], "does not hold a number"),
    ([("INCRBYFLOAT", "tiny", "1")], "does not hold a number"),
    ([("INCRBYFLOAT", "infinite", "1")], "does not hold a number"),
    ([("SET", "none", "1e-5000"), ("INCRBYFLOAT", "none", "1")], "does not hold a number"),
    ([("SET", "none", "1e400"), ("INCRBYFLOAT", "none", "1")], "does not hold a number"),
    ([("SET", "none", "1." + "0" * 6000), ("INCRBYFLOAT", "none", "1")], "does not hold a number"),
    ([("SET", "none", "-0"), ("INCR", "none")], "does not hold an integer"),
    ([("HINCRBY", "hash", "minus", 1)], "does not hold an integer"),
    ([("HINCRBYFLOAT", "hash", "tiny", "1")], "does not hold a number"),
    ([("HSET", "none", "f", "1e-5000"), ("HINCRBYFLOAT", "none", "f", "1")], "does not hold a number"),
    ([("INCR", "hash")], "it holds a hash, not a string"),
    ([("APPEND", "list", "x")], "it holds a list, not a string"),
    ([("HSET", "five", "f", "v")], "it holds a string, not a hash"),
    ([("HINCRBY", "hash", "t", 1)], "does not hold an integer"),
    ([("HINCRBY", "hash", "f", 1)], "does not hold an integer"),
    ([("HINCRBY", "hash", "n", 2**63 - 1)], "leave 64 bits"),
    ([("HINCRBYFLOAT", "hash", "t", "1")], "does not hold a number"),
    ([("SADD", "zset", "m")], "it holds a zset, not a set"),
    ([("ZADD", "set", 1, "m")], "it holds a set, not a zset"),
    ([("ZINCRBY", "set", 1, "m")], "it holds a set"),
    ([("LPUSH", "stream", "x")], "it holds a stream"),
    ([("LTRIM", "set", 0, 1)], "it holds a set"),
    ([("XADD", "list", "*", "f", "v")], "it holds a list"),
    ([("PFADD", "text", "x")], "HyperLogLog"),
    ([("PFADD", "hash", "x")], "it holds a hash"),
    ([("SET", "none", "x"), ("INCR", "none")], "does not hold an integer"),
    ([("SET", "none", "x"), ("PFADD", "none", "y")], "HyperLogLog"),
    ([("SET", "hash", "1"), ("HSET", "hash", "f", "v")], "it holds a string"),
    ([("HSET", "none", "f", "v"), ("INCR", "none")], "it holds a hash"),
    ([("HSET", "none", "f", "v"), ("HINCRBY", "none", "f", 1)], "does not hold an integer"),
    ([("HINCRBY", "none", "f", 2**62), ("HINCRBY", "none", "f", 2**62)], "leave 64 bits"),
    ([("INCRBY", "none", 2**62), ("INCRBY", "none", 2**62)], "leave 64 bits"),
    ([("APPEND", "five", "0"), ("INCR", "five")], "after APPEND"),
    ([("INCRBYFLOAT", "five", "1"), ("INCR", "five")], "after INCRBYFLOAT"),
    ([("PFADD", "none", "x"), ("INCRBYFLOAT", "none", "1")], "after PFADD"),
    ([("APPEND", "log", "x"), ("PFADD", "log", "y")], "HyperLogLog"),
    ([("SREM", "set", "m"), ("INCR", "set")], "it holds a set"),
    ([("SREM", "set", "m"), ("SET", "set", "x", "NX")], "whether the key is still there"),
    ([("SET", "five", "x", "NX"), ("HSET", "five", "f", "v")], "it holds a string"),
    ([("SET", "none", "x", "NX"), ("INCR", "none")], "does not hold an integer"),
]

POSSIBLE_EFFECTS = [
    [("INCR", "five"), ("INCRBY", "five", 10), ("DECR", "five"), ("DECRBY", "five", 3)],
    [("INCR", "none"), ("APPEND", "none", "x")],
    [("INCRBYFLOAT", "float", "0.25"), ("INCRBYFLOAT", "float", 1)],
    [("INCR", "five"), ("INCRBYFLOAT", "five", 0.5)],
    [("INCRBYFLOAT", "minus", "-0.0"), ("INCRBYFLOAT", "small", "0e999"), ("INCRBYFLOAT", "zero", "1e-300")],
    [("ZADD", "zset", "-0", "m", "1e-300", "n", "0e-5000", "o"), ("ZINCRBY", "zset", "0.000e-999", "m")],
    [("DEL", "hash"), ("INCR", "hash")],
    [("UNLINK", "text"), ("RPUSH", "text", "x")],
    [("SET", "hash", "7"), ("INCR", "hash")],
    [("SET", "none", "7", "NX", "EX", 60), ("INCR", "none")],
    [("SET", "none", "x", "XX"), ("SADD", "none", "m")],
    [("SET", "five", "x", "NX"), ("INCR", "five")],
    [("SETEX", "text", 60, "1"), ("INCR", "text"), ("PERSIST", "text")],
    [("PSETEX", "text", 60_000, "1")],
    [("EXPIRE", "hash", 60), ("PEXPIRE", "none", 60_000)],
    [("HINCRBY", "hash", "n", 2), ("HINCRBY", "hash", "n", 2), ("HINCRBYFLOAT", "hash", "f", 0.25)],
    [("HSET", "hash", "t", "1"), ("HINCRBY", "hash", "t", 1)],
    [("HDEL", "hash", "t"), ("HINCRBY", "hash", "t", 1)],
    [("SADD", "set", "a", "b"), ("SREM", "set", "a", "m")],
    [("ZADD", "zset", 2, "a", 3, "b"), ("ZINCRBY", "zset", 1.5, "m"), ("ZREM", "zset", "a")],
    [("LPUSH", "list", "a", "b"), ("RPUSH", "list", "c"), ("LREM", "list", -1, "x"), ("LTRIM", "list", 0, -2)],
    [("SREM", "set", "m"), ("SADD", "set", "n")],
    [("SREM", "set", "m"), ("SADD", "set", "n"), ("SET", "set", "x", "NX")],
    [("XADD", "stream", "*", "f", "v"), ("XADD", "stream", "MAXLEN", "~", 10, "*", "f", "w")],
    [("XADD", "none", "MAXLEN", 1, "*", "f", "v")],
    [("PFADD", "log", "c"), ("PFADD", "log", "d"), ("PFADD", "none", "x")],
    [("DEL", "none"), ("HDEL", "none", "f"), ("SREM", "none", "m"), ("LTRIM", "none", 0, 1), ("INCR", "none")],
]


@pytest.fixture
def prior(commits: Commits) -> Commits:
    """Store keys of every type."""
    for name, key, *args in PRIOR:
        commits.wire.run(name, commits.key(key), *args)
    return commits


@pytest.mark.parametrize(("commands", "why"), IMPOSSIBLE_EFFECTS, ids=str)
def test_an_effect_that_would_fail_refuses_everything(prior: Commits, commands: Any, why: str) -> None:
    other = prior.other("other")
    (settle,) = prior.queue.hold("a")
    before = prior.everything()

    code, position, problem = prior.commit(settle, [(other, "b")], ("SET", "fresh", 1), *commands)

    assert (code, position) == (IMPOSSIBLE, len(commands) + 1)
    assert why in problem.decode()
    assert prior.everything() == before


@pytest.mark.parametrize("commands", POSSIBLE_EFFECTS, ids=str)
def test_effects_change_keys_like_the_commands(prior: Commits, commands: Any) -> None:
    (settle,) = prior.queue.hold("a")
    by_hand = Commits(Queue(prior.wire, f"{prior.name}-hand"))
    for name, key, *args in PRIOR:
        prior.wire.run(name, by_hand.key(key), *args)
    for name, key, *args in commands:
        prior.wire.run(name, by_hand.key(key), *args)

    assert prior.commit(settle, [], *commands)[0] == DONE

    for key in {key for _, key, *_ in (*PRIOR, *commands)}:
        ours, theirs = ((c.wire.run("DUMP", c.key(key)), c.wire.run("PTTL", c.key(key))) for c in (prior, by_hand))
        assert ours == theirs, key


def test_a_command_that_is_not_for_commits_is_refused(commits: Commits) -> None:
    """The script does not rely on its caller."""
    (settle,) = commits.queue.hold("a")
    effect = Effect("FLUSHALL", b"any", ())
    call = ops.commit(commits.queue.keys, commits.queue.options, settle, effects=[effect])

    assert commits.queue.call(call)[0] == IMPOSSIBLE


def test_a_stream_at_its_last_id_is_refused(commits: Commits) -> None:
    (settle,) = commits.queue.hold("a")
    last = "18446744073709551615-18446744073709551615"
    commits.wire.run("XADD", commits.key("stream"), last, "f", "v")

    assert commits.commit(settle, [], ("XADD", "stream", "*", "f", "v"))[0] == IMPOSSIBLE


@pytest.mark.parametrize("damage", [b"HYLL\x01" + b"\0" * 11, b"HYLL\x00" + b"\0" * 50, b"HYLL\x02" + b"\0" * 50])
def test_a_damaged_hyperloglog_is_refused(commits: Commits, damage: bytes) -> None:
    (settle,) = commits.queue.hold("a")
    commits.wire.run("SET", commits.key("log"), damage)

    assert commits.commit(settle, [], ("PFADD", "log", "x"))[0] == IMPOSSIBLE


@pytest.mark.parametrize("count", [1, 20_000], ids=["sparse", "dense"])
def test_a_hyperloglog_of_either_form_is_taken(commits: Commits, count: int) -> None:
    (settle,) = commits.queue.hold("a")
    for first in range(0, count, 1000):
        commits.wire.run("PFADD", commits.key("log"), *range(first, min(first + 1000, count)))

    assert commits.commit(settle, [], ("PFADD", "log", "one more"))[0] == DONE


# --- Outcomes that are not known beforehand


@pytest.fixture
def strict(own_wire: Callable[..., tuple[Server, Wire]], queue_name: str) -> Commits:
    """Start a server that refuses texts of over 1 MiB, which a script cannot check, and store one of that length."""
    _, wire = own_wire(proto_max_bulk_len="1mb")
    commits = Commits(Queue(wire, queue_name))
    wire.run("SET", commits.key("long"), b"." * (1 << 20))
    return commits


def test_when_the_first_effect_fails_after_all_nothing_has_happened(strict: Commits) -> None:
    other = strict.other("other")
    (settle,) = strict.queue.hold("a")
    call = strict.call(settle, [(other, "b")], ("APPEND", "long", "x"), ("INCR", "n"))
    before = _without_clock(strict.queue.dump())

    code, position, why = strict.queue.call(call, sequence=100)

    assert (code, position) == (IMPOSSIBLE, 1)
    assert b"the server replied" in why
    assert strict.queue.call(call, sequence=100) == [code, position, why]
    assert _without_clock(strict.queue.dump()) == before
    assert other.dump().msgs == {}
    assert strict.wire.run("STRLEN", strict.key("long")) == 1 << 20
    assert strict.wire.run("EXISTS", strict.key("n")) == 0
    assert strict.queue.call(strict.call(settle, [], ("INCR", "n")), sequence=101)[0] == DONE


def test_the_error_reports_a_later_effect_that_fails_after_all(strict: Commits) -> None:
    other = strict.other("other")
    (settle,) = strict.queue.hold("a")
    commands = [("INCR", "n"), ("APPEND", "long", "x"), ("INCR", "m")]

    with pytest.raises(Refused, match="HALF DONE: effect 2, APPEND, failed after the effects before it"):
        strict.commit(settle, [(other, "b")], *commands)

    assert strict.wire.run("GET", strict.key("n")) == b"1"
    assert strict.wire.run("EXISTS", strict.key("m")) == 0
    assert strict.queue.dump().places("a") == ["leased"]
    assert other.dump().msgs == {}


# --- A full server, a user with few permissions


@pytest.fixture
def full(fillable: Wire, queue_name: str) -> Commits:
    return Commits(Queue(fillable, queue_name))


@pytest.mark.parametrize(
    ("sends", "commands"),
    [(["b"], []), ([], [("INCR", "n")]), (["b"], [("DEL", "n")]), ([], [("DEL", "n"), ("SADD", "s", "m")])],
    ids=str,
)
def test_a_full_server_refuses_commits_that_add_data(full: Commits, sends: list[str], commands: Any) -> None:
    other = full.other("other", max_length=10)
    other.send("over", ttl=0.000001)
    (settle,) = full.queue.hold("a")
    full.wire.run("SET", full.key("n"), 5)
    fill(full.wire)
    before = full.everything()
    call = full.call(settle, [(other, id_) for id_ in sends], *commands)

    with pytest.raises(Refused, match="OOM"):
        full.queue.call(call, sequence=100)

    assert full.everything() == before
    free(full.wire)
    assert full.queue.call(call, sequence=100)[0] == DONE  # the first call stored nothing


@pytest.mark.parametrize("commands", [[], [("DEL", "n")], [("HDEL", "h", "f"), ("EXPIRE", "h", 60)]], ids=str)
def test_a_full_server_accepts_commits_that_add_no_data(full: Commits, commands: Any) -> None:
    (settle,) = full.queue.hold("a")
    full.wire.run("SET", full.key("n"), 5)
    full.wire.run("HSET", full.key("h"), "f", 1, "g", 2)
    fill(full.wire)
    call = full.call(settle, [], *commands)

    assert full.queue.call(call, sequence=100)[0] == DONE
    assert full.queue.call(call, sequence=100)[0] == DONE

    assert full.queue.dump().msgs == {}


def test_a_command_that_the_user_may_not_run_refuses_everything(
    own_wire: Callable[..., tuple[Server, Wire]], queue_name: str
) -> None:
    """Redis 6.2 cannot check permissions beforehand: there only the first effect may fail."""
    server, master = own_wire()
    earlier = [] if server.kind == "redis6" else [("SET", "n", 1)]
    commits = Commits(Queue(master, queue_name))
    (settle,) = commits.queue.hold("a")
    master.run("ACL", "SETUSER", "u", "reset", "on", "nopass", "~*", "+@all", "-incr")
    call = commits.call(settle, [], *earlier, ("INCR", "n"))
    with Wire(server) as wire:
        wire.run("AUTH", "u", "any")

        code, position, why = wire.carry(call, b"another", 1)

    assert (code, position) == (IMPOSSIBLE, len(earlier) + 1)
    assert b"may not" in why or b"can't run this command" in why
    assert commits.queue.dump().places("a") == ["leased"]
    assert master.run("EXISTS", commits.key("n")) == 0
