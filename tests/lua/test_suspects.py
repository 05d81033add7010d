"""Suspects: a message whose next crash would be its last runs alone, so that no other message crashes with it."""

from collections.abc import Callable
from typing import Any

import pytest

from duly._core import codec, ops, replies
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Queue, ids_of

MakeSuspects = Callable[..., None]
LOOKED_PAST = 100


@pytest.fixture
def queue(make_queue: Any) -> Queue:
    made: Queue = make_queue(crash_limit=2)
    return made


@pytest.fixture
def suspect(queue: Queue, clock: ServerClock) -> MakeSuspects:
    """Send messages into an empty queue, and let each crash once: at a limit of 2 the next crash is the last."""

    def make(*ids: str, **options: Any) -> None:
        queue.hold(*ids, lease=1, **options)
        clock.freeze(queue.dump().leased[ids[0]] + 1)
        while queue.claim(suspects="none").reclaimed:
            pass
        assert {queue.dump().counts[id_].crashes for id_ in ids} == {1}

    return make


@pytest.mark.parametrize(
    ("suspects", "first", "second"),
    [
        ("with", ["s1", "s2", "a", "b"], []),
        ("none", ["a", "b"], []),
        ("alone", ["s1"], ["s2"]),
    ],
    ids=["with", "none", "alone"],
)
def test_a_claim_gets_suspects_as_it_asks(
    queue: Queue, suspect: MakeSuspects, suspects: ops.Suspects, first: list[str], second: list[str]
) -> None:
    suspect("s1", "s2")
    queue.send("a", "b")
    assert ids_of(queue.claim(suspects=suspects)) == first
    assert ids_of(queue.claim(suspects=suspects)) == second


@pytest.mark.parametrize("suspects", ["none", "alone"])
def test_skipped_suspects_stay_where_they_are(queue: Queue, suspect: MakeSuspects, suspects: ops.Suspects) -> None:
    suspect("s")
    queue.send("a", "b", priority=3)  # they come first
    before = queue.dump()
    claimed = queue.claim(suspects=suspects)
    after = queue.dump()
    assert (ids_of(claimed), claimed.passed_over, claimed.is_paused) == (["a", "b"], True, False)
    assert after.waiting[0] == before.waiting[0]
    assert (after.counts, after.stats["delivered"]) == (before.counts, before.stats["delivered"] + 2)


def test_a_suspect_that_is_delivered_alone_is_not_reported_as_skipped(queue: Queue, suspect: MakeSuspects) -> None:
    suspect("s1", "s2")
    claimed = queue.claim(suspects="alone")
    assert (ids_of(claimed), claimed.passed_over, claimed.next_in) == (["s1"], False, 0)


@pytest.mark.parametrize("then", ["watch", "pass", "leave", "stay"])
@pytest.mark.parametrize("others", [[], ["a"]], ids=["nothing taken", "one taken"])
def test_a_claim_that_skips_a_suspect_leaves_a_token(
    queue: Queue, suspect: MakeSuspects, then: ops.Then, others: list[str]
) -> None:
    suspect("s")
    if others:
        queue.send(*others)
    queue.wire.run("DEL", queue.keys.key("wake"))
    claimed = queue.claim(suspects="none", then=then)
    assert (ids_of(claimed), claimed.passed_over, queue.dump().wake) == (others, True, 1)


def test_a_claim_of_a_suspect_leaves_a_token_even_if_it_would_stay(queue: Queue, suspect: MakeSuspects) -> None:
    suspect("s")
    queue.wire.run("DEL", queue.keys.key("wake"))
    assert ids_of(queue.claim(suspects="alone", then="stay")) == ["s"]
    assert queue.dump().wake == 1


@pytest.mark.parametrize(
    ("prepare", "next_in"),
    [
        (lambda q: None, None),
        (lambda q: q.send("later", delay=5), 5),
        (lambda q: (q.send("later", delay=5), q.send("sooner", delay=2, priority=9)), 2),
        (lambda q: q.send("taken"), 30),
        (lambda q: (q.send("taken"), q.send("later", delay=8)), 8),
    ],
    ids=["nothing else", "one later", "one sooner", "its own lease", "later than its own lease"],
)
def test_a_skipped_suspect_does_not_ask_for_another_claim_at_once(
    queue: Queue, suspect: MakeSuspects, prepare: Any, next_in: float | None
) -> None:
    suspect("s")
    prepare(queue)
    claimed = queue.claim(suspects="none", then="stay")
    assert claimed.passed_over
    assert claimed.next_in == (None if next_in is None else pytest.approx(next_in, abs=5e-6))


def test_a_claim_at_its_limit_asks_for_another_claim_even_after_skipping_suspects(
    queue: Queue, suspect: MakeSuspects
) -> None:
    suspect("s")
    queue.send("a", "b", "c")
    claimed = queue.claim(limit=2, suspects="none", then="stay")
    assert (ids_of(claimed), claimed.passed_over, claimed.next_in) == (["a", "b"], True, 0)
    claimed = queue.claim(limit=2, suspects="none", then="stay")
    assert (ids_of(claimed), claimed.passed_over) == (["c"], True)
    assert claimed.next_in is not None
    assert claimed.next_in > 0


def test_a_few_suspects_at_the_head_do_not_hide_the_rest(queue: Queue, suspect: MakeSuspects) -> None:
    suspect(*(f"s{n:03d}" for n in range(LOOKED_PAST)))
    queue.send("a", "b", "c")
    assert ids_of(queue.claim(limit=2, suspects="none")) == ["a", "b"]


def test_a_claim_skips_a_bounded_number_of_suspects_and_does_not_spin(queue: Queue, suspect: MakeSuspects) -> None:
    suspect(*(f"s{n:03d}" for n in range(LOOKED_PAST + 2)))
    queue.send("hidden", "too")
    claimed = queue.claim(limit=2, suspects="none")
    assert (ids_of(claimed), claimed.passed_over, claimed.next_in) == ([], True, None)
    assert ids_of(queue.claim(suspects="alone")) == ["s000"]  # the head moves on
    assert ids_of(queue.claim(limit=2, suspects="none")) == ["hidden"]
    assert ids_of(queue.claim(limit=2, suspects="none")) == ["too"]


def test_more_may_be_due_when_all_messages_read_are_used_up(queue: Queue, suspect: MakeSuspects) -> None:
    suspect(*(f"s{n:03d}" for n in range(LOOKED_PAST + 1)))
    queue.send("a", "b", "c")
    claimed = queue.claim(limit=3, suspects="none")  # reads 103, of which two are not suspects
    assert (ids_of(claimed), claimed.next_in) == (["a", "b"], 0)


def test_priorities_go_before_suspects(queue: Queue, suspect: MakeSuspects) -> None:
    suspect("s")
    queue.send("low")
    queue.send("high", priority=7)
    assert ids_of(queue.claim(suspects="alone")) == ["high", "low"]
    assert ids_of(queue.claim(suspects="alone")) == ["s"]


def test_a_suspect_of_a_higher_priority_goes_alone_before_the_rest(queue: Queue, suspect: MakeSuspects) -> None:
    suspect("s", priority=5)
    queue.send("low")
    assert ids_of(queue.claim(suspects="alone")) == ["s"]
    assert ids_of(queue.claim(suspects="alone")) == ["low"]


def test_a_suspect_after_a_lost_message_asks_for_another_claim(queue: Queue, suspect: MakeSuspects) -> None:
    suspect("s")
    queue.send("a", priority=3)
    queue.send("b", delay=0)
    queue.lose_body("a")
    queue.lose_body("b")
    first, second = queue.claim(suspects="alone"), queue.claim(suspects="alone")
    assert (ids_of(first), ids_of(second)) == (["s"], [])


def test_a_lost_message_before_a_suspect_of_its_priority_asks_for_another_claim(
    queue: Queue, suspect: MakeSuspects, clock: ServerClock
) -> None:
    suspect("s")
    queue.send("lost")
    queue.call(ops.reschedule(queue.keys, "s", "+1"))  # after the other, and still a suspect
    clock.freeze(NOW + 100 * SECOND)
    queue.lose_body("lost")
    first = queue.claim(suspects="alone", then="stay")
    assert (ids_of(first), first.passed_over, first.next_in) == ([], True, 0)
    assert ids_of(queue.claim(suspects="alone", then="stay")) == ["s"]


def test_bytes_of_skipped_suspects_do_not_count(queue: Queue, suspect: MakeSuspects) -> None:
    suspect("s1", "s2", body=b"." * 1_000_000)
    for number in range(4):
        queue.send(f"a{number}", body=b"." * 1_000_000)
    assert len(queue.claim(suspects="none").ids) == 4


def test_a_message_that_failed_is_not_a_suspect(queue: Queue) -> None:
    settles = queue.hold("a")
    queue.call(ops.retry(queue.keys, [(settle, 0, "boom", "") for settle in settles]))
    queue.send("b")
    claimed = queue.claim(suspects="none")
    assert (sorted(ids_of(claimed)), claimed.passed_over) == (["a", "b"], False)
    assert codec.Counts(failures=1, due=claimed.fence - 2) in map(codec.read_counts, claimed.counts)


@pytest.mark.parametrize(("crash_limit", "is_suspect"), [(1, False), (2, True), (3, False)])
def test_the_limit_of_the_caller_decides_which_messages_are_suspects(
    queue: Queue, suspect: MakeSuspects, crash_limit: int, is_suspect: bool
) -> None:
    suspect("s")
    other = Queue(queue.wire, queue.keys.name, crash_limit=crash_limit)
    other.sequence = queue.sequence
    claimed = other.claim(suspects="none")
    assert (ids_of(claimed), claimed.passed_over) == (([], True) if is_suspect else (["s"], False))
    counts = codec.Counts(crashes=1)
    assert replies.is_suspect(counts, crash_limit) is is_suspect


def test_a_paused_queue_reports_that_it_is_paused(queue: Queue, suspect: MakeSuspects) -> None:
    suspect("s")
    queue.call(ops.pause(queue.keys, "me"))
    claimed = queue.claim(suspects="none", then="stay")
    assert (claimed.is_paused, claimed.passed_over, claimed.next_in) == (True, False, None)


def test_an_expired_suspect_is_dropped_and_not_skipped(queue: Queue, suspect: MakeSuspects, clock: ServerClock) -> None:
    suspect("s", ttl=60)
    clock.freeze(NOW + 100 * SECOND)
    claimed = queue.claim(suspects="none")
    assert (claimed.passed_over, queue.dump().stats["expired"]) == (False, 1)


def test_without_counts_a_claim_runs_the_same_commands_for_any_value_of_suspects(queue: Queue) -> None:
    asked = []
    for suspects in ("with", "none", "alone"):
        queue.send("a", "b", "c")
        queue.claim(1, suspects="with")  # so that the scripts are loaded
        queue.wire.run("CONFIG", "RESETSTAT")
        queue.claim(suspects=suspects)
        asked.append(_commands(queue))
        queue.call(ops.delete(queue.keys))
    assert asked[0] == asked[1] == asked[2]
    assert asked[0][b"hmget"] == 2  # meta and the records


def _commands(queue: Queue) -> dict[bytes, int]:
    lines = queue.wire.run("INFO", "commandstats").splitlines()
    rows = [line.removeprefix(b"cmdstat_").split(b":calls=") for line in lines if line.startswith(b"cmdstat_")]
    return {name: int(rest.split(b",")[0]) for name, rest in rows if not name.startswith((b"config", b"info"))}


class Worker:
    """A process that claims as the runtime does, and crashes at a poison message with all messages that it holds."""

    def __init__(self, queue: Queue, clock: ServerClock, poisons: set[str], hands: int, *, isolates: bool) -> None:
        self.queue = queue
        self.clock = clock
        self.poisons = poisons
        self.hands = hands
        self.isolates = isolates
        self.deaths = 0

    def live(self) -> bool:
        """Claim and process messages; False: there were none."""
        claimed = self._claim("alone")
        held = ids_of(claimed)
        if not held:
            return False
        fences = dict.fromkeys(held, claimed.fence)
        is_alone = replies.is_suspect(codec.read_counts(claimed.counts[0]), self.queue.options.crash_limit)
        assert not (is_alone and self.isolates and len(held) > 1)
        if not is_alone and len(held) < self.hands:
            more = self._claim("none")
            fences |= dict.fromkeys(ids_of(more), more.fence)
        if self.poisons & set(fences):
            self.deaths += 1
            self.clock.freeze(max(self.queue.dump().leased.values()) + 1)
        else:
            settles = [ops.Settle(id_, fence, 0) for id_, fence in fences.items()]
            assert self.queue.call(ops.ack(self.queue.keys, self.queue.options, settles)) == []
        return True

    def _claim(self, suspects: ops.Suspects) -> replies.Claimed:
        return self.queue.claim(self.hands, then="stay", suspects=suspects if self.isolates else "with")


@pytest.mark.parametrize("crash_limit", [2, 3, 5])
@pytest.mark.parametrize("hands", [1, 7, 20])
def test_of_twenty_with_one_poison_one_dies_and_nineteen_are_done(
    make_queue: Any, clock: ServerClock, crash_limit: int, hands: int
) -> None:
    queue: Queue = make_queue(crash_limit=crash_limit)
    queue.send(*(f"m{n:02d}" for n in range(20)))
    worker = Worker(queue, clock, {"m07"}, hands, isolates=True)
    while worker.live():
        pass
    state = queue.dump()
    assert list(state.dead) == ["m07"]
    assert (state.stats["acked"], state.stats["buried"]) == (19, 1)
    assert state.why["m07"].crashes == crash_limit
    assert worker.deaths == crash_limit


def test_of_twenty_with_three_poisons_three_die(make_queue: Any, clock: ServerClock) -> None:
    queue: Queue = make_queue(crash_limit=3)
    queue.send(*(f"m{n:02d}" for n in range(20)))
    poisons = {"m00", "m11", "m19"}
    worker = Worker(queue, clock, poisons, 20, isolates=True)
    while worker.live():
        pass
    state = queue.dump()
    assert (set(state.dead), state.stats["acked"]) == (poisons, 17)


def test_without_isolation_one_poison_takes_all_twenty_with_it(make_queue: Any, clock: ServerClock) -> None:
    queue: Queue = make_queue(crash_limit=2)
    queue.send(*(f"m{n:02d}" for n in range(20)))
    worker = Worker(queue, clock, {"m07"}, 20, isolates=False)
    while worker.live():
        pass
    assert len(queue.dump().dead) == 20
