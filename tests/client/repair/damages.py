"""Damage by hand to the keys of a queue or group, and the fault that an audit reports."""

import struct
from typing import Final

from tests.client.repair.judge import LATER, Damage, Healthy


def deleted(key: str) -> Damage:
    return lambda h: h.run("DEL", key)


def overwritten(key: str) -> Damage:
    return lambda h: h.run("SET", key, "something else")


def removed(command: str, key: str, name: str) -> Damage:
    return lambda h: h.run(command, key, h.id(name))


def added(key: str, score: float | str, name: str) -> Damage:
    """Let a message be somewhere, or at another time."""
    return lambda h: h.run("ZADD", key, score, h.id(name))


def written(key: str, name: str, value: bytes | str) -> Damage:
    """Overwrite a row of a message."""
    return lambda h: h.run("HSET", key, h.id(name), value)


def field(name: str, value: str) -> Damage:
    return lambda h: h.run("HSET", "meta", name, value)


def _rows_counted_wrong(h: Healthy) -> None:
    buried, repairs = (h.run("HGET", "meta", name) or b"0" for name in ("buried", "repairs"))
    h.run("HSET", "meta", "dead_why", f"7 {h.run('ZCARD', 'dead')} {int(buried)} {int(repairs)}")


def of_history(name: str, value: str) -> Damage:
    return lambda h: h.run("HSET", "history", name, value)


def lane(key: str, mark: str, name: str) -> Damage:
    return lambda h: h.run("HSET", "lanes", key, mark + h.id(name))


def _unparked(h: Healthy) -> None:
    h.run("ZREM", "parked", h.member("k2"))


def _parked_twice(h: Healthy) -> None:
    member = h.member("k2")
    h.run("ZADD", "parked", 0, member.replace(b"k\0", b"x\0", 1))


def _parked_and_waiting(h: Healthy) -> None:
    h.run("ZADD", "waiting0", 1, h.id("k2"))


def _out_and_parked(h: Healthy) -> None:
    h.run("ZADD", "leased", 9e15, h.id("k2"))


def _leased_and_uncounted(h: Healthy) -> None:
    h.run("ZADD", "leased", 1, h.id("failed"))
    h.run("HDEL", "counts", h.id("failed"))


def _counts_lost_and_a_fraction(h: Healthy) -> None:
    h.run("DEL", "counts")
    h.run("ZINCRBY", "waiting0", 0.25, h.id("failed"))


def _another_progress(h: Healthy) -> None:
    h.run("HSET", "why", h.id("held"), PROGRESS)
    h.run("HSET", "counts", h.id("held"), NO_COUNTS)


def _out_of_order(score: int) -> Damage:
    return lambda h: h.run("ZADD", "parked", score, h.member("k2"))


def renamed(key: str, other: str) -> Damage:
    """Let all that is somewhere be somewhere else, each with the score that it had."""
    return lambda h: h.client.rename(h.prefix + key, h.prefix + other)


def moved(key: str, other: str, name: str, score: float | None = None) -> Damage:
    """Let one message be somewhere else, with the score that it had or another."""

    def move(h: Healthy) -> None:
        had = h.run("ZSCORE", key, h.id(name))
        h.run("ZREM", key, h.id(name))
        h.run("ZADD", other, had if score is None else score, h.id(name))

    return move


def _parked_one_is_finished(h: Healthy) -> None:
    h.run("ZREM", "parked", h.member("k2"))
    h.run("ZADD", "done", 1, h.id("k2"))


def _window_without_an_end(h: Healthy) -> None:
    h.run("HSET", "dedup", "other", "ghost")
    h.run("ZADD", "dedup_ends", "+inf", "other")


def would_expire(key: str) -> Damage:
    """Let the server remove a key before the retried message is due."""
    return lambda h: h.run("EXPIRE", key, LATER // 2)


def _lease_of_another_key(h: Healthy) -> None:
    h.run("HSET", "leases", h.id("k1"), h.run("HGET", "leases", h.id("held")))


def _later(seconds: int) -> Damage:
    return lambda h: h.run("ZINCRBY", "waiting0", seconds * 1_000_000, h.id("failed"))


def _counts_of_another(h: Healthy) -> None:
    """Give a row a time half an hour before its place."""
    row = h.run("HGET", "counts", h.id("failed"))
    due = struct.unpack(">Q", row[6:14])[0] if row[5:6] == b"\xcf" else None
    assert due is not None, row
    h.run("HSET", "counts", h.id("failed"), row[:6] + struct.pack(">Q", due - LATER * 1_000_000 // 2) + row[14:])


def _with_a_byte_more(key: str, name: str, byte: bytes) -> Damage:
    return lambda h: h.run("HSET", key, h.id(name), h.run("HGET", key, h.id(name)) + byte)


NOT_TEXT: Final = b"\x9b\xa0\0\0\0\0\x90\0\x91\x95\1\xa5retry\xa1\xff\0\xa0\0\xa0\0"
"""A row of `why` whose consumer is not UTF-8."""
MAP: Final = b"\x85" + b"".join(bytes([at, 0]) for at in range(1, 6))
NO_COUNTS: Final = b"\x97" + b"\0" * 7
PROGRESS: Final = b"\x9b\xa0\0\0\0\0\x90\0\x90\0\xaap1 1 0.5 x\0"
"""The row of `why` of a message whose only holder had the fence 1."""
GONE: Final = "body without a place"
TWICE: Final = "in two places: "

DAMAGES: Final[dict[str, tuple[Damage, str]]] = {
    # bodies without an index
    "a place is removed": (removed("ZREM", "leased", "held"), GONE),
    "a retry is removed": (removed("ZREM", "waiting0", "failed"), GONE),
    "a parked one is removed": (_unparked, GONE),
    "a dead letter is removed": (removed("ZREM", "dead", "dead"), GONE),
    "all that wait are removed": (deleted("waiting0"), GONE),
    "all that are leased are removed": (deleted("leased"), GONE),
    "all that are parked are removed": (deleted("parked"), GONE),
    "all dead letters are removed": (deleted("dead"), GONE),
    # an id in two places
    "leased and waiting": (added("waiting0", 1, "held"), TWICE + "leased and waiting"),
    "leased and dead": (added("dead", 1, "held"), TWICE + "leased and dead"),
    "leased and done": (added("done", 1, "held"), TWICE + "leased and done"),
    "parked and leased": (_out_and_parked, TWICE + "parked and leased"),
    "waiting and leased": (added("leased", 1, "failed"), TWICE + "waiting and leased"),
    "waiting and leased, and not counted": (_leased_and_uncounted, TWICE + "waiting and leased"),
    "waiting and parked": (_parked_and_waiting, TWICE + "waiting and parked"),
    "waiting and dead": (added("dead", 1, "failed"), TWICE + "waiting and dead"),
    "waiting and done": (added("done", 1, "failed"), TWICE + "waiting and done"),
    "under two priorities": (added("waiting7", 1, "failed"), TWICE + "waiting and misplaced"),
    "dead and done": (added("done", 1, "dead"), TWICE + "dead and done"),
    "dead and waiting": (added("waiting0", 1, "dead"), TWICE + "dead and waiting"),
    "dead and leased": (added("leased", "+inf", "dead"), TWICE + "dead and leased"),
    "parked twice": (_parked_twice, "parked where it does not belong"),
    # a place that the rows rule out
    "dead letters wait": (renamed("dead", "waiting0"), TWICE + "dead and waiting"),
    "dead letters wait under another priority": (renamed("dead", "waiting9"), TWICE + "dead and misplaced"),
    "dead letters are leased": (renamed("dead", "leased"), TWICE + "dead and leased"),
    "dead letters are finished": (renamed("dead", "done"), TWICE + "dead and done"),
    "a dead letter waits at some time": (moved("dead", "waiting9", "dead", 7), TWICE + "dead and misplaced"),
    "a dead letter was finished before it was due": (moved("dead", "done", "dead", 1), TWICE + "dead and done"),
    "one that is out is dead": (moved("leased", "dead", "k1"), TWICE + "leased and dead"),
    "one that is out died at no time": (moved("leased", "dead", "held", 1), TWICE + "leased and dead"),
    "one that waits is dead": (moved("waiting0", "dead", "failed"), TWICE + "waiting and dead"),
    "a parked one is finished": (_parked_one_is_finished, "finished by nobody"),
    # leases
    "a lease is removed": (removed("HDEL", "leases", "held"), "leased to nobody"),
    "all leases are removed": (deleted("leases"), "leased to nobody"),
    "a lease is cut off": (written("leases", "held", "short"), "a lease that cannot be read"),
    "a lease is one of another key": (_lease_of_another_key, "a lease that cannot be read"),
    "a lease never ends": (added("leased", "+inf", "held"), "a lease without an end"),
    "a lease ends in two centuries": (added("leased", 9e15, "held"), "a lease without an end"),
    "a lease of one that waits": (written("leases", "failed", "." * 70), "a lease, but not leased"),
    "a lease of one that is dead": (written("leases", "dead", "." * 70), "a lease, but not leased"),
    "a lease without a message": (lambda h: h.run("HSET", "leases", "ghost", "x"), "row in leases of no message"),
    # lanes
    "a lost head of one that is out": (lambda h: h.run("HDEL", "lanes", "k"), "in work without its lane"),
    "a lost head of one that is retried": (lambda h: h.run("HDEL", "lanes", "r"), "in work without its lane"),
    "a lost head of one that is next": (lambda h: h.run("HDEL", "lanes", "n"), "parked behind nobody"),
    "all lanes are lost": (deleted("lanes"), "parked behind nobody"),
    "a lane of a finished one": (lane("n", "+", "n1"), "the lane n belongs to nobody"),
    "a lane of a parked one": (lane("k", "+", "k2"), "in work without its lane"),
    "a lane of another key": (lane("r", "-", "k1"), "the lane r belongs to nobody"),
    "a lane that knows of none behind": (lane("k", "-", "k1"), "parked behind one that does not know"),
    "a lane without a mark": (lane("r", "?", "r1"), "the lane r has no mark"),
    "a parked one is nonsense": (lambda h: h.run("ZADD", "parked", 0, "nonsense"), "parked where it does not belong"),
    "a parked one comes too late": (_out_of_order(1), "parked out of its order"),
    "a parked one comes too early": (_out_of_order(-1), "parked out of its order"),
    "those that wait are finished": (renamed("waiting0", "done"), "finished by nobody"),
    "those that are out are finished": (renamed("leased", "done"), "finished by nobody"),
    "lanes without their pillar": (lambda h: h.run("HDEL", "lanes", ""), "without its pillar"),
    "leases without their pillar": (lambda h: h.run("ZREM", "leased", b"\1" * 65), "without its pillar"),
    # times
    "a retry is early": (added("waiting0", 1, "failed"), "waits for a wrong time"),
    "a retry never comes": (added("waiting0", "+inf", "failed"), "waits for a wrong time"),
    "the head of a lane is early": (added("waiting0", 1, "r1"), "waits for a wrong time"),
    "a dead letter of no time": (added("dead", "+inf", "dead"), "over since no time"),
    "one without a ttl expires": (added("expires", 1, "failed"), "in expires, but without a ttl"),
    "one that is out expires": (added("expires", 1, "held"), "in expires, but not waiting"),
    "nothing expires": (lambda h: h.run("ZADD", "expires", 1, "ghost"), "row in expires of no message"),
    "a retry is a second late": (_later(1), "waits for another time than it counts"),
    "counts are those of another one": (_counts_of_another, "waits for another time than it counts"),
    # rows
    "counts are removed": (deleted("counts"), "troubled, but not counted"),
    "counts are nonsense": (written("counts", "r1", "\xff"), "counts that cannot be read"),
    "counts are nothing": (written("counts", "failed", NO_COUNTS), "troubled, but not counted"),
    "counts have a byte too many": (_with_a_byte_more("counts", "failed", b"z"), "counts that cannot be read"),
    "counts have nil behind them": (_with_a_byte_more("counts", "r1", b"\xc0"), "counts that cannot be read"),
    "a past has a byte too many": (_with_a_byte_more("why", "failed", b"z"), "a past that cannot be read"),
    "counts are not an array": (written("counts", "failed", MAP), "counts that cannot be read"),
    "counts of the head of a lane are nothing": (written("counts", "r1", NO_COUNTS), "troubled, but not counted"),
    "counts are removed and a retry has a fraction": (_counts_lost_and_a_fraction, "troubled, but not counted"),
    "counts of a dead letter": (written("counts", "dead", NO_COUNTS), "counts of a message that is over"),
    "counts without a message": (lambda h: h.run("HSET", "counts", "ghost", NO_COUNTS), "row in counts of no message"),
    "the past is removed": (deleted("why"), "dead without a reason"),
    "a past is not text": (written("why", "failed", NOT_TEXT), "a past that cannot be read"),
    "a past is nonsense": (written("why", "r1", "\xff"), "a past that cannot be read"),
    "the past of a dead letter is nonsense": (written("why", "dead", b"\xc1"), "a past that cannot be read"),
    "progress of no delivery": (written("why", "failed", PROGRESS), "progress of a delivery that is over"),
    "progress of another delivery": (_another_progress, "progress of a delivery that is over"),
    "a history without a message": (lambda h: h.run("HSET", "why", "ghost", "x"), "row in why of no message"),
    # meta
    "meta is removed": (deleted("meta"), "accounts"),
    "bytes are wrong": (field("bytes", "-5"), "counts wrong bytes"),
    "bytes of dead letters are wrong": (field("dead_bytes", "7"), "counts wrong bytes"),
    "bytes of rows are wrong": (_rows_counted_wrong, "counts wrong bytes"),
    "a counter is wrong": (field("sent", "1000"), "accounts"),
    "a counter is gone": (lambda h: h.run("HDEL", "meta", "sent"), "accounts"),
    "a counter is below zero": (field("acked", "-3"), "a counter below zero"),
    "a counter is not a number": (field("acked", "many"), "a field of meta that cannot be read"),
    "a counter is too large": (field("retried", "9" * 30), "a field of meta that cannot be read"),
    "the clock is not a number": (field("clock", "noon"), "a field of meta that cannot be read"),
    "the clock is ahead forever": (field("clock", "9e18"), "a field of meta that cannot be read"),
    "the rate is not a number": (field("tat", "soon"), "a field of meta that cannot be read"),
    "a limit is not a number": (field("limited", "x"), "a field of meta that cannot be read"),
    "the end of a minute is not a number": (field("point", "soon"), "a field of meta that cannot be read"),
    "a point is nonsense": (of_history("m7", "x"), "a history that cannot be read"),
    "a sum of times is nonsense": (of_history("lateness", "x"), "a history that cannot be read"),
    "a point has no place": (of_history("m60", "1"), "a history that cannot be read"),
    "the history has another type": (overwritten("history"), "a key of another type"),
    "the history would never expire": (lambda h: h.run("PERSIST", "history"), "a key that would never expire"),
    "lateness is not a number": (field("lateness", "x"), "a field of meta that cannot be read"),
    "priorities are nonsense": (field("priorities", "x"), "a priority that no claim looks at"),
    # schedules
    "a slot of no schedule": (lambda h: h.run("ZADD", "slots", 1, "ghost"), "a slot of no schedule"),
    "a next slot that is none": (field("slot", "1"), "the next slot is noted wrong"),
    # times to live
    **{
        f"{key} would expire": (would_expire(key), "a key that would expire")
        for key in ("msgs", "waiting0", "leased", "leases", "counts", "why", "dead", "lanes", "parked", "meta")
    },
    # other types
    **{
        f"{key} is overwritten": (overwritten(key), "a key of another type")
        for key in (
            "waiting0", "waiting9", "leased", "leases", "counts", "why", "expires", "dead", "done", "dedup",
            "dedup_ends", "lanes", "parked", "schedules", "slots", "awaited", "ends", "wake", "meta",
        )
    },
}  # fmt: skip
"""By name: the damage, and the fault that an audit reports. None removes a body."""

OF_QUEUES: Final[dict[str, tuple[Damage, str]]] = {
    "done and waiting": (added("waiting0", 1, "done"), TWICE + "done and waiting"),
    "done and leased": (added("leased", 1, "done"), TWICE + "done and leased"),
    "done and dead": (added("dead", 1, "done"), TWICE + "done and dead"),
    "finished ones wait": (renamed("done", "waiting0"), TWICE + "done and waiting"),
    "finished ones wait under another priority": (renamed("done", "waiting9"), TWICE + "done and misplaced"),
    "finished ones are leased": (renamed("done", "leased"), TWICE + "done and leased"),
    "finished ones are dead": (renamed("done", "dead"), TWICE + "done and dead"),
    "a finished one waits at some time": (moved("done", "waiting9", "done", 7), TWICE + "done and misplaced"),
    "keys are not known": (lambda h: h.run("HDEL", "meta", "keyed"), "a field of meta that is missing"),
    "a finished one is removed": (removed("ZREM", "done", "done"), GONE),
    "all finished ones are removed": (deleted("done"), GONE),
    "an urgent one is removed": (removed("ZREM", "waiting5", "urgent"), GONE),
    "all urgent ones are removed": (deleted("waiting5"), GONE),
    "a delayed one is removed": (removed("ZREM", "waiting0", "delayed"), GONE),
    "a delayed one is early": (added("waiting0", 1, "delayed"), "waits for a wrong time"),
    "priorities are removed": (lambda h: h.run("HDEL", "meta", "priorities"), "a priority that no claim looks at"),
    "priorities are in a wrong order": (field("priorities", "05"), "priorities out of order"),
    "a ttl is not watched": (deleted("expires"), "a ttl that nobody watches"),
    "a ttl ends early": (added("expires", 1, "mortal"), "a ttl that is watched at a wrong time"),
    "a dedup value without an end": (deleted("dedup_ends"), "half a dedup window"),
    "an end without a dedup value": (deleted("dedup"), "half a dedup window"),
    "a dedup value without a message": (lambda h: h.run("HSET", "dedup", "other", "ghost"), "half a dedup window"),
    "a dedup value of no text": (lambda h: h.run("HSET", "dedup", "once", b"\xff"), "half a dedup window"),
    "a dedup window never ends": (_window_without_an_end, "a dedup window without an end"),
    "a dedup window ends in two centuries": (
        lambda h: h.run("ZADD", "dedup_ends", 9e15, "once"),
        "a dedup window without an end",
    ),
    "dedup values would stay": (lambda h: h.run("PERSIST", "dedup"), "a key that would never expire"),
    "ends of windows would stay": (lambda h: h.run("PERSIST", "dedup_ends"), "a key that would never expire"),
    **{
        f"{key} would expire": (would_expire(key), "a key that would expire")
        for key in ("waiting5", "expires", "done", "dedup", "dedup_ends")
    },
}
