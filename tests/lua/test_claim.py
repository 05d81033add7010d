"""claim: which messages are leased and in which order, leases that ran out, and when to claim again."""

from typing import Any

import pytest

from duly._core import codec, ops
from duly.options import Keep
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Queue, bodies_of, ids_of


def test_a_claim_moves_a_message_from_waiting_to_leased_and_stores_the_lease(queue: Queue) -> None:
    queue.send("a")
    before = queue.dump()
    claimed = queue.claim(lease=30, consumer="me")
    after = queue.dump()
    size = len(before.msgs["a"])
    assert (claimed.fence, ids_of(claimed), claimed.counts) == (NOW + 1, ["a"], [b""])
    assert bodies_of(claimed) == {"a": b"body"}
    assert after.waiting == {}
    assert after.leased == {"a": NOW + 1 + 30 * SECOND}
    assert after.leases == {"a": codec.Lease(NOW + 1, size, 0, 0, "me")}
    assert after.msgs == before.msgs
    assert after.stats == {**before.stats, "delivered": 1}
    assert after.meta == {**before.meta, "clock": str(NOW + 1), "lateness": "1"}
    assert (after.counts, after.why, after.wake) == ({}, {}, 1)


def test_a_claim_that_finds_nothing_writes_its_call_record_only(queue: Queue) -> None:
    assert ids_of(queue.claim(then="leave")) == []
    assert queue.key_names() == {"call:tests"}


@pytest.mark.parametrize(("early", "taken"), [(1, []), (0, ["a"])])
def test_nothing_is_delivered_before_its_due_time(
    queue: Queue, clock: ServerClock, early: int, taken: list[str]
) -> None:
    queue.send("a", delay=5)
    clock.freeze(NOW + 5 * SECOND - early)
    assert ids_of(queue.claim()) == taken


def test_higher_priorities_go_first_then_earlier_due_times(queue: Queue, clock: ServerClock) -> None:
    queue.send("late", delay=2)
    queue.send("early", delay=1)
    queue.send("high", delay=3, priority=7)
    clock.freeze(NOW + 10 * SECOND)
    assert ids_of(queue.claim()) == ["high", "early", "late"]


def test_a_claim_leases_no_more_than_its_limit_and_asks_for_another_claim(queue: Queue) -> None:
    queue.send("a", "b", "c")
    claimed = queue.claim(limit=2)
    assert (ids_of(claimed), claimed.next_in) == (["a", "b"], 0)


@pytest.mark.parametrize(
    ("prepare", "next_in"),
    [
        (lambda q: None, None),
        (lambda q: q.send("a", delay=5), 5 - 1e-6),  # a tick of the clock has passed
        (lambda q: (q.send("a", delay=5), q.send("b", delay=2, priority=3)), 2 - 1e-6),
        (lambda q: q.hold("a", lease=7), 7 - 1e-6),
        (lambda q: (q.hold("a", lease=7), q.send("b", delay=3)), 3 - 1e-6),
    ],
    ids=["nothing", "delayed", "the earliest of all priorities", "a lease", "lease and delayed"],
)
def test_a_claim_reports_when_there_may_be_more(queue: Queue, prepare: Any, next_in: float | None) -> None:
    prepare(queue)
    assert queue.claim().next_in == pytest.approx(next_in, abs=3e-6)


@pytest.mark.parametrize(("then", "tokens"), [("watch", 0), ("pass", 1), ("leave", 0)], ids=["watch", "pass", "leave"])
def test_an_empty_claim_takes_or_leaves_the_token(queue: Queue, then: ops.Then, tokens: int) -> None:
    queue.send("a", delay=5)
    queue.wire.run("DEL", queue.keys.key("wake"))
    if then == "watch":
        queue.wire.run("RPUSH", queue.keys.key("wake"), "1")
    queue.claim(then=then)
    assert queue.dump().wake == tokens


TOKEN_AFTER_A_STAY: dict[str, tuple[Any, int, bool]] = {
    # Stored messages, the limit of the claim, and whether a token is left.
    "nothing": (lambda q: None, 5, False),
    "only later ones": (lambda q: q.send("a", delay=5), 5, False),
    "fewer than its limit": (lambda q: q.send("a", "b"), 5, False),
    "fewer than its limit, of two priorities": (lambda q: (q.send("a"), q.send("b", priority=4)), 5, False),
    "just its limit": (lambda q: q.send("a", "b"), 2, True),
    "more than its limit": (lambda q: q.send("a", "b", "c"), 2, True),
    "its limit over two priorities": (lambda q: (q.send("a"), q.send("b", priority=4)), 2, True),
    "more bytes than fit": (lambda q: [q.send(str(n), body=b"." * 1_000_000) for n in range(5)], 10, True),
    "more behind one that was lost": (lambda q: (q.send("a", "b", "c"), q.lose_body("a")), 2, True),
    "fewer than its limit, one of them lost": (lambda q: (q.send("a", "b"), q.lose_body("a")), 5, False),
}


@pytest.mark.parametrize(("prepare", "limit", "is_left"), TOKEN_AFTER_A_STAY.values(), ids=list(TOKEN_AFTER_A_STAY))
@pytest.mark.parametrize("token", ["a token was there", "no token was there"])
def test_a_claim_that_stays_leaves_a_token_only_if_there_may_be_more(
    queue: Queue, prepare: Any, limit: int, is_left: bool, token: str
) -> None:
    prepare(queue)
    queue.wire.run("DEL", queue.keys.key("wake"))
    if token == "a token was there":
        queue.wire.run("RPUSH", queue.keys.key("wake"), "1")
    claimed = queue.claim(limit, then="stay")
    assert queue.dump().wake == is_left
    assert (claimed.next_in == 0) == is_left


TOKEN_AFTER_A_CLAIM_BEHIND: dict[str, tuple[Any, list[str], bool]] = {
    # Stored messages, those that a claim of one takes, and whether a token is left.
    "nothing": (lambda q: None, [], False),
    "only a later one": (lambda q: q.send("a", delay=5), [], False),
    "one": (lambda q: q.send("a"), ["a"], False),
    "one, and a later one": (lambda q: (q.send("a"), q.send("b", delay=5)), ["a"], False),
    "two": (lambda q: q.send("a", "b"), ["a"], True),
    "two, of two priorities": (lambda q: (q.send("a"), q.send("b", priority=4)), ["b"], True),
    "two of a key": (lambda q: q.send("a", "b", key="k"), ["a"], True),
    "one behind one that was lost": (lambda q: (q.send("a", "b"), q.lose_body("a")), [], True),
}


@pytest.mark.parametrize(
    ("prepare", "ids", "is_left"), TOKEN_AFTER_A_CLAIM_BEHIND.values(), ids=list(TOKEN_AFTER_A_CLAIM_BEHIND)
)
def test_a_claim_behind_a_block_takes_one_message_and_leaves_a_token_only_if_more_is_due(
    queue: Queue, prepare: Any, ids: list[str], is_left: bool
) -> None:
    prepare(queue)
    claimed = queue.claim(1, then="behind", suspects="none")
    assert ids_of(claimed) == ids
    assert queue.dump().wake == is_left
    assert (claimed.next_in == 0) == is_left


def test_a_claim_behind_a_block_ends_no_lease_and_reports_that_another_claim_should(
    queue: Queue, clock: ServerClock
) -> None:
    queue.hold("a", lease=1)
    queue.send("b")
    clock.freeze(NOW + 10 * SECOND)
    claimed = queue.claim(1, then="behind", suspects="none")
    after = queue.dump()
    assert (ids_of(claimed), claimed.next_in, claimed.reclaimed, after.wake) == (["b"], 0, [], 1)
    assert set(after.leased) == {"a", "b"}
    assert [each.id for each in queue.claim(then="stay").reclaimed] == ["a"]


def test_a_claim_of_no_message_reclaims_leases_and_wakes_a_consumer(queue: Queue, clock: ServerClock) -> None:
    queue.hold("a", lease=1)
    clock.freeze(NOW + 10 * SECOND)
    queue.wire.run("DEL", queue.keys.key("wake"))
    claimed = queue.claim(0, then="leave")
    after = queue.dump()
    assert ([each.id for each in claimed.reclaimed], ids_of(claimed), after.wake) == (["a"], [], 1)
    assert (set(after.waiting[0]), after.leased) == ({"a"}, {})


def test_a_claim_of_no_message_takes_none_and_passes_the_token_on(queue: Queue) -> None:
    assert (queue.claim(0, then="pass").next_in, queue.dump().wake) == (None, 0)
    queue.send("a", delay=5)
    queue.wire.run("DEL", queue.keys.key("wake"))
    assert queue.claim(0, then="pass").next_in == pytest.approx(5, abs=3e-6)
    assert queue.dump().wake == 1
    queue.send("b")
    queue.wire.run("DEL", queue.keys.key("wake"))
    claimed = queue.claim(0, then="pass")
    assert (ids_of(claimed), claimed.next_in, queue.dump().wake) == ([], 0, 1)
    assert queue.dump().leased == {}


def test_a_claim_that_stays_knows_when_its_own_leases_run_out(queue: Queue) -> None:
    queue.send("a")
    assert queue.claim(lease=7, then="stay").next_in == 7
    queue.send("b", delay=3)
    assert queue.claim(lease=7, then="stay").next_in == pytest.approx(3, abs=3e-6)


def test_a_claim_that_stays_with_too_many_leases_to_take_back_leaves_a_token(queue: Queue, clock: ServerClock) -> None:
    queue.hold(*(f"a{n:03d}" for n in range(101)), lease=1)
    queue.call(ops.pause(queue.keys, "me"))
    clock.freeze(NOW + 10 * SECOND)
    assert (queue.claim(then="stay").next_in, queue.dump().wake) == (0, 1)
    assert (queue.claim(then="stay").next_in, queue.dump().wake) == (None, 0)


def test_a_send_after_a_claim_that_stayed_wakes_it(queue: Queue) -> None:
    queue.send("a")
    queue.claim(then="stay")
    assert queue.dump().wake == 0
    queue.send("b")
    assert queue.dump().wake == 1


def test_a_paused_queue_delivers_nothing_and_reports_it(queue: Queue) -> None:
    queue.send("a")
    queue.call(ops.pause(queue.keys, "me"))
    claimed = queue.claim(then="pass")
    assert (claimed.is_paused, ids_of(claimed), claimed.next_in) == (True, [], None)


def test_a_lease_that_ran_out_is_a_crash_and_the_message_is_redelivered(queue: Queue, clock: ServerClock) -> None:
    (old,) = queue.hold("a", lease=30)
    deadline = queue.dump().leased["a"]
    clock.freeze(deadline + 7)
    claimed = queue.claim(consumer="next")
    state = queue.dump()
    assert ids_of(claimed) == ["a"]
    assert claimed.fence > old.fence
    assert claimed.reclaimed == [("a", "c", 7e-6, False)]
    assert state.counts == {"a": codec.Counts(crashes=1)}
    assert state.stats["crashed"] == 1
    assert state.leases["a"].consumer == "next"


def test_a_lease_holds_until_its_deadline(queue: Queue, clock: ServerClock) -> None:
    queue.hold("a", lease=30)
    clock.freeze(queue.dump().leased["a"] - 1)
    assert ids_of(queue.claim()) == []


@pytest.mark.parametrize(("late_by", "reclaimed"), [(0, 1), (1, 0)])
def test_a_late_claim_reclaims_no_leases(queue: Queue, clock: ServerClock, late_by: int, reclaimed: int) -> None:
    """The server stood still: the claim runs first, and the renewal of the holder has arrived as well."""
    (held,) = queue.hold("a", lease=30)
    queue.send("b")
    clock.freeze(NOW + 31 * SECOND)
    claimed = queue.claim_by(NOW + 31 * SECOND - late_by)
    lost = queue.call(ops.extend(queue.keys, [(held, 30)]))

    assert len(claimed.reclaimed) == reclaimed
    assert ids_of(claimed) == ["a", "b"][: 2 * reclaimed]
    assert len(lost) == reclaimed
    assert queue.dump().stats.get("crashed", 0) == reclaimed


def test_a_late_claim_asks_for_another_one_at_once(queue: Queue, clock: ServerClock) -> None:
    queue.hold("a", lease=30)
    clock.freeze(NOW + 31 * SECOND)

    assert queue.claim_by(NOW).next_in == 0
    assert ids_of(queue.claim()) == ["a"]


def test_a_queue_whose_clock_is_ahead_makes_no_claim_late(queue: Queue, clock: ServerClock) -> None:
    queue.hold("a", lease=30)
    clock.freeze(NOW + 40 * SECOND)
    queue.send("b")
    clock.freeze(NOW)

    assert len(queue.claim_by(NOW + SECOND).reclaimed) == 1


def test_a_crashed_message_returns_to_its_own_place(queue: Queue, clock: ServerClock) -> None:
    queue.hold("a", lease=30)
    queue.send("b")
    clock.freeze(NOW + 60 * SECOND)
    assert ids_of(queue.claim()) == ["a", "b"]


def test_at_the_crash_limit_a_message_is_dead(make_queue: Any, clock: ServerClock) -> None:
    queue: Queue = make_queue(crash_limit=2)
    (first,) = queue.hold("a")
    clock.freeze(NOW + 60 * SECOND)
    second = queue.claim()
    assert ids_of(second) == ["a"]
    clock.freeze(NOW + 120 * SECOND)
    claimed = queue.claim()
    state = queue.dump()
    assert ids_of(claimed) == []
    assert claimed.reclaimed[0].is_dead
    assert state.places("a") == ["dead"]
    crashes = [(second.now, first.fence), (claimed.now, second.fence)]
    timeline = [codec.Event(at, "crash", "c", since, "") for at, since in crashes]
    assert state.why["a"] == codec.Why("poison", 0, 2, 0, 0, [], timeline=timeline)
    assert (state.stats["crashed"], state.stats["buried"], state.stats["bytes"]) == (2, 1, 0)
    assert state.stats["dead_bytes"] == len(state.msgs["a"])
    assert (state.counts, state.leases, state.leased) == ({}, {}, {})


def test_a_message_past_its_ttl_is_dropped_and_counted(queue: Queue, clock: ServerClock) -> None:
    queue.send("a", "b", ttl=5, priority=2)
    clock.freeze(NOW + 6 * SECOND)
    assert ids_of(queue.claim()) == []
    state = queue.dump()
    assert (state.msgs, state.waiting, state.expires) == ({}, {}, {})
    assert (state.stats["expired"], state.stats["bytes"]) == (2, 0)


def test_a_leased_message_does_not_expire(queue: Queue, clock: ServerClock) -> None:
    (settle,) = queue.hold("a", ttl=5, lease=30)
    assert queue.dump().expires == {}
    clock.freeze(NOW + 6 * SECOND)
    queue.claim()
    assert queue.call(ops.ack(queue.keys, queue.options, [settle])) == []


def test_a_crashed_message_past_its_ttl_expires(queue: Queue, clock: ServerClock) -> None:
    queue.hold("a", ttl=5, lease=30)
    clock.freeze(NOW + 31 * SECOND)
    claimed = queue.claim()
    assert (len(claimed.reclaimed), ids_of(claimed)) == (1, [])
    assert queue.dump().stats["expired"] == 1


def test_a_message_whose_body_was_lost_is_a_dead_letter(queue: Queue) -> None:
    queue.send("a", "b")
    queue.lose_body("a")
    assert ids_of(queue.claim()) == ["b"]
    state = queue.dump()
    assert state.places("a") == ["dead"]
    assert state.why["a"].reason == "body lost"


def test_a_leased_message_whose_body_was_lost_is_a_dead_letter_when_its_lease_runs_out(
    queue: Queue, clock: ServerClock
) -> None:
    queue.hold("a")
    queue.lose_body("a")
    clock.freeze(NOW + 60 * SECOND)
    assert ids_of(queue.claim()) == []
    state = queue.dump()
    assert state.why["a"].reason == "body lost"
    assert state.stats["bytes"] == 0


def test_a_damaged_record_becomes_a_dead_letter_that_can_be_inspected(queue: Queue) -> None:
    queue.send("a")
    queue.wire.run("HSET", queue.keys.key("msgs"), "a", "short")
    assert ids_of(queue.claim()) == []
    state = queue.dump()
    assert state.why["a"].reason == "damaged"
    assert state.msgs["a"] == b"short"


def test_a_claim_stops_at_four_megabytes_and_always_takes_one(queue: Queue) -> None:
    for number in range(6):
        queue.send(f"a{number}", body=b"." * 1_000_000)
    first = queue.claim()
    assert (len(first.ids), first.next_in) == (4, 0)
    assert len(queue.claim().ids) == 2


def test_dead_letters_are_trimmed_as_they_come(make_queue: Any, clock: ServerClock) -> None:
    queue: Queue = make_queue(crash_limit=1, dead=Keep(count=2))
    for number in range(4):
        queue.hold(f"a{number}", lease=1)
        clock.freeze(NOW + (number + 1) * 10 * SECOND)
    queue.claim()
    state = queue.dump()
    assert list(state.dead) == ["a2", "a3"]
    assert state.stats["trimmed"] == 2
    assert set(state.msgs) == set(state.why) == {"a2", "a3"}
    assert state.stats["dead_bytes"] == sum(map(len, state.msgs.values()))
