"""The memory engine alone. tests/model compares its answers with those of the scripts."""

import threading
from collections.abc import Sequence
from copy import copy
from math import inf
from typing import Any

import pytest

from duly import _lua
from duly._core import codec, ops, replies, views
from duly._core.call import Call
from duly._core.keys import QueueKeys
from duly._core.outgoing import Encoder
from duly.memory import commits, moves, occupancy, registry, wire
from duly.memory.clock import Clock
from duly.memory.engine import TRANSITIONS, Engine, ErrorReply
from duly.message import Message, Stats
from duly.options import Keep, QueueOptions, Send

NOW = 1_790_000_000_000_000
SECOND = 1_000_000


class Queue:
    """One queue on an engine whose clock stands still, and the operations that the tests need."""

    def __init__(self, name: str = "orders", engine: Engine | None = None) -> None:
        self.clock = engine.clock if engine else Clock()
        self.clock.freeze()
        self.clock.set_us(NOW)
        self.engine = engine or Engine(self.clock)
        self.keys = QueueKeys("duly", name)
        self.sequence = 0
        self._viewer = views.Viewer(name, codec.decoder_of(None))

    def run(self, call: Call[Any], stream: bytes = b"s") -> Any:
        self.sequence += 1
        return self.again(call, stream)

    def again(self, call: Call[Any], stream: bytes = b"s", back: int = 0) -> Any:
        return call.decode(self.engine.call(call, stream, self.sequence - back))

    def sending(self, *sends: Send, on_refusal: ops.OnRefusal = "each", **options: Any) -> Call[replies.SendOutcome]:
        chosen = QueueOptions(**options)
        encoder = Encoder("orders", chosen)
        made = [encoder.outgoing(send, f"id-{send.body}", NOW / SECOND) for send in sends]
        return ops.send(self.keys, made, chosen, on_refusal)

    def send(self, *sends: Send | str, on_refusal: ops.OnRefusal = "each", **options: Any) -> replies.SendOutcome:
        given = [send if isinstance(send, Send) else Send(send) for send in sends]
        outcome: replies.SendOutcome = self.run(self.sending(*given, on_refusal=on_refusal, **options))
        return outcome

    def claiming(self, limit: int = 10, lease: float = 30, then: ops.Then = "leave", **options: Any) -> Call[Any]:
        return ops.claim(self.keys, QueueOptions(**options), limit=limit, lease=lease, consumer="worker", then=then)

    def claim(self, limit: int = 10, lease: float = 30, then: ops.Then = "leave", **options: Any) -> replies.Claimed:
        claimed: replies.Claimed = self.run(self.claiming(limit, lease, then, **options))
        return claimed

    def bodies(self, claimed: replies.Claimed) -> list[str]:
        return [codec.read_record(record).envelope.body.decode().strip('"') for record in claimed.records]

    def given_leased(self, *sends: Send | str, lease: float = 30) -> list[ops.Settle]:
        self.send(*sends)
        return self.settles(self.claim(lease=lease))

    def settles(self, claimed: replies.Claimed) -> list[ops.Settle]:
        return [
            ops.Settle(id_.decode(), claimed.fence, codec.read_record(record).priority)
            for id_, record in zip(claimed.ids, claimed.records, strict=True)
        ]

    def ack(self, settles: Sequence[ops.Settle], **options: Any) -> list[int]:
        lost: list[int] = self.run(ops.ack(self.keys, QueueOptions(**options), settles))
        return lost

    def reject(self, settles: Sequence[ops.Settle], *, failed: bool = False, **options: Any) -> list[int]:
        rows = [(settle, "rejected", "boom", "traceback") for settle in settles]
        lost: list[int] = self.run(ops.reject(self.keys, QueueOptions(**options), rows, failed=failed))
        return lost

    def stats(self) -> Stats:
        stats: Stats = self.run(ops.stats(self.keys))
        return stats

    def get(self, id_: str) -> Message | None:
        message: Message | None = self.run(ops.get(self.keys, self._viewer, id_))
        return message

    def page(self, state: str, limit: int = 50, after: Message | str | None = None) -> tuple[list[str], bool]:
        page, is_last = self.run(ops.list_(self.keys, self._viewer, state, limit, after))
        return [message.id for message in page], is_last

    def audit(self, *, repair: bool = False) -> list[str]:
        steps = [self.run(ops.audit_step(self.keys, source, "0", repair=repair)) for source in ops.AUDITED]
        assert {step.cursor for step in steps} == {"0"}
        return sorted({fault.what for step in steps for fault in step.faults})

    def has_something(self) -> bool:
        return self.engine.has_something(self.keys)

    def waiter(self, polls_at: float | None = None) -> list[bool]:
        """Wait for the queue; the list is filled when the waiter is called."""
        called: list[bool] = []
        self.engine.subscribe(self.keys, lambda: called.append(True), polls_at)
        return called


@pytest.fixture
def queue() -> Queue:
    return Queue()


def test_every_script_has_a_transition() -> None:
    known = [
        *TRANSITIONS, *moves.TRANSITIONS, *registry.TRANSITIONS, *commits.TRANSITIONS, *occupancy.TRANSITIONS,
    ]  # fmt: skip
    assert sorted(known) == _lua.names()


def test_an_unknown_script_is_refused_by_name(queue: Queue) -> None:
    script = _lua.Script("teleport", "", "", ("meta",), ())

    with pytest.raises(ErrorReply, match="teleport"):
        queue.run(Call(script, queue.keys, [], replies.is_one))


# --- sending


def test_messages_of_one_call_are_claimed_in_the_order_sent(queue: Queue) -> None:
    queue.send("c", "a", "b")

    assert queue.bodies(queue.claim()) == ["c", "a", "b"]


def test_each_message_gets_its_own_tick_and_the_clock_never_goes_back(queue: Queue) -> None:
    queue.send("a", "b")
    queue.clock.set_us(NOW - 3600 * SECOND)
    queue.send("c")

    stamps = [codec.read_stamps(record)[0] for record in queue.claim().records]

    assert stamps == [NOW, NOW + 1, NOW + 2]


@pytest.mark.parametrize("verb", ["send", "send_checked", "reschedule"])
def test_a_named_point_in_time_is_not_early_when_the_queue_is_ahead_of_the_server(queue: Queue, verb: str) -> None:
    queue.clock.set_us(NOW + 100 * SECOND)
    queue.send("a", Send("b", delay=500))
    queue.clock.set_us(NOW)
    at = NOW / SECOND + 9
    if verb == "reschedule":
        queue.run(ops.reschedule(queue.keys, "id-b", f"={NOW + 9 * SECOND}"))
    else:
        queue.send(Send("b", at=at, ttl=None if verb == "send" else 60))

    ahead = 100 * SECOND + 2
    assert queue.get("id-b").due_at.timestamp() == pytest.approx((NOW + 9 * SECOND + ahead) / SECOND)  # type: ignore[union-attr]


def test_a_delayed_message_is_not_claimed_early(queue: Queue) -> None:
    queue.send(Send("a", delay=5))
    queue.clock.set_us(NOW + 5 * SECOND - 1)
    early = queue.claim()

    queue.clock.set_us(NOW + 5 * SECOND)

    assert (early.ids, early.next_in) == ([], 1e-6)
    assert queue.bodies(queue.claim()) == ["a"]


def test_messages_of_one_due_time_are_ordered_by_their_ids(queue: Queue) -> None:
    at = NOW / SECOND + 1
    queue.send(*(Send(body, at=at, id=body) for body in ("b", "a", "B", "é")))
    queue.clock.advance(1)

    assert queue.bodies(queue.claim()) == ["B", "a", "b", "é"]


def test_the_highest_priority_goes_first(queue: Queue) -> None:
    queue.send("a", Send("b", priority=9), Send("c", priority=5))

    assert queue.bodies(queue.claim(limit=2)) == ["b", "c"]


def test_a_dedup_value_gives_the_first_id_until_its_window_ends(queue: Queue) -> None:
    queue.send(Send("a", dedup="v", dedup_for=10))
    again = queue.send(Send("b", dedup="v"))
    queue.clock.advance(11)
    later = queue.send(Send("c", dedup="v"))

    assert (again.ids, later.ids) == (["id-a"], ["id-c"])
    assert queue.stats().duplicates == 1


def test_replace_gives_a_waiting_message_another_body_and_due_time(queue: Queue) -> None:
    queue.send(Send("a", dedup="v", delay=2))
    outcome = queue.send(Send("bb", dedup="v", replace=True, delay=5))
    queue.clock.advance(2)
    early = queue.claim()
    queue.clock.advance(4)

    assert (outcome.ids, early.ids) == (["id-a"], [])
    assert queue.bodies(queue.claim()) == ["bb"]
    assert (queue.stats().sent, queue.stats().replaced) == (1, 1)


def test_an_id_of_the_callers_own_is_stored_once_until_it_is_finished(queue: Queue) -> None:
    held = queue.given_leased(Send("a", id="mine"))
    while_leased = queue.send(Send("b", id="mine"))
    queue.ack(held)
    afterwards = queue.send(Send("c", id="mine"))

    assert while_leased.ids == afterwards.ids == ["mine"]
    assert queue.stats().duplicates == 1
    assert queue.bodies(queue.claim()) == ["c"]


def test_a_full_queue_refuses_messages_that_do_not_fit(queue: Queue) -> None:
    each = queue.send("a", "b", "c", max_length=2)
    all_ = queue.send("d", "e", max_length=3, on_refusal="all")

    assert (each.full, all_.full) == ([2], [0, 1])
    assert queue.stats().live == 2


def test_a_full_queue_drops_the_oldest(queue: Queue) -> None:
    queue.send("a", "b", Send("c", priority=9), max_length=3)
    queue.send("d", max_length=3, on_refusal="drop")

    assert queue.bodies(queue.claim()) == ["c", "b", "d"]
    assert queue.stats().dropped == 1


def test_a_message_past_its_ttl_takes_no_room_and_is_counted(queue: Queue) -> None:
    queue.send(Send("a", ttl=1), max_length=1)
    queue.clock.advance(1)
    outcome = queue.send("b", max_length=1)

    assert outcome.full == []
    assert (queue.stats().expired, queue.stats().live) == (1, 1)


@pytest.mark.parametrize("end", ["expired", "dropped"])
def test_a_message_that_ends_undelivered_gives_its_dedup_value_back(queue: Queue, end: str) -> None:
    queue.send(Send("a", dedup="v", ttl=1))
    if end == "expired":
        queue.clock.advance(2)
        queue.claim()
    else:
        queue.send("b", max_length=1, on_refusal="drop")

    assert queue.send(Send("c", dedup="v")).ids == ["id-c"]


def test_an_own_id_past_its_ttl_is_free_before_a_sweep(queue: Queue) -> None:
    queue.send(Send("a", id="mine", ttl=1))
    queue.clock.advance(1)
    outcome = queue.send(Send("b", id="mine"))

    assert (outcome.ids, queue.bodies(queue.claim())) == (["mine"], ["b"])
    stats = queue.stats()
    assert (stats.sent, stats.expired, stats.duplicates, stats.leased) == (2, 1, 0, 1)


def test_a_call_that_is_refused_as_a_whole_still_returns_known_ids(queue: Queue) -> None:
    queue.send(Send("a", id="mine"))
    queue.send(Send("b", dedup="v"))
    sends = [Send("c", id="mine"), Send("d", dedup="v"), Send("e", id="new"), Send("f", id="new")]

    outcome = queue.run(queue.sending(*sends, max_length=2, on_refusal="all"))

    assert (outcome.ids[:2], outcome.full) == (["mine", "id-b"], [2, 3])
    assert queue.stats().live == 2


def test_a_send_drops_a_bounded_number_in_addition_to_its_own(queue: Queue) -> None:
    queue.send(*map(str, range(150)))
    queue.send("new", max_length=1, on_refusal="drop")

    assert (queue.stats().dropped, queue.stats().live) == (101, 50)


def test_messages_of_one_due_time_are_dropped_from_the_highest_priority_on(queue: Queue) -> None:
    at = NOW / SECOND + 9
    queue.send(*(Send(str(priority), at=at, priority=priority) for priority in (0, 9, 5)))
    queue.send("new", max_length=2, on_refusal="drop")

    assert queue.page("delayed") == (["id-0"], True)


# --- claiming


def test_a_lease_that_ran_out_is_a_crash_and_returns_to_its_own_place(queue: Queue) -> None:
    queue.given_leased("a", lease=1)
    queue.send("b")
    queue.clock.advance(2)

    claimed = queue.claim()

    assert queue.bodies(claimed) == ["a", "b"]
    assert [codec.read_counts(row).crashes for row in claimed.counts] == [1, 0]
    assert claimed.reclaimed == [replies.Reclaimed("id-a", "worker", 0.999999, False)]


def test_a_message_is_dead_after_its_last_crash(queue: Queue) -> None:
    queue.given_leased("a", lease=1)
    queue.clock.advance(2)

    claimed = queue.claim(crash_limit=1)

    assert (claimed.ids, claimed.reclaimed[0].is_dead) == ([], True)
    message = queue.get("id-a")
    assert message is not None
    assert (message.state, message.reason, message.crashes) == ("dead", "poison", 1)


def test_a_paused_queue_delivers_nothing(queue: Queue) -> None:
    queue.send("a")
    queue.run(ops.pause(queue.keys, "ops"))
    paused = queue.claim()
    queue.run(ops.resume(queue.keys))

    assert (paused.is_paused, paused.ids, paused.next_in) == (True, [], None)
    assert queue.bodies(queue.claim()) == ["a"]


def test_a_claim_stops_at_its_bytes_and_reports_more(queue: Queue) -> None:
    queue.send(*(Send(letter * 1_000_000) for letter in "abcdef"))

    claimed = queue.claim()

    assert len(claimed.ids) == 4
    assert claimed.next_in == 0


def test_a_claim_takes_the_first_whose_turn_it_is_however_many_wait_for_their_key(queue: Queue) -> None:
    queue.send(*(Send(f"{number:04}", key="k") for number in range(1200)))
    queue.send(Send("other", key="k2"), Send("plain"))

    claimed = queue.claim(limit=3)

    assert claimed.ids == [b"id-0000", b"id-other", b"id-plain"]
    assert queue.stats().parked == 1199


def test_a_claim_passes_over_any_number_of_suspects(queue: Queue) -> None:
    queue.send(*map(str, range(150)))
    queue.claim(limit=150, lease=1)
    queue.send("sound")
    queue.clock.advance(2)
    call = ops.claim(
        queue.keys, QueueOptions(crash_limit=2), limit=5, lease=30, consumer="c", then="leave", suspects="none"
    )

    first, second = queue.run(call), queue.run(call)  # each takes back a hundred leases

    assert [first.ids, second.ids] == [[b"id-sound"], []]
    assert (second.passed_over, second.next_in) == (True, pytest.approx(30, abs=0.001))


def test_a_claim_takes_back_a_bounded_number_of_leases(queue: Queue) -> None:
    queue.send(*map(str, range(150)))
    queue.claim(limit=150, lease=1)
    queue.clock.advance(2)
    queue.run(ops.pause(queue.keys, "ops"))

    first, second = queue.claim(), queue.claim()

    assert (len(first.reclaimed), first.next_in) == (100, 0)
    assert (len(second.reclaimed), second.next_in) == (50, None)


def test_a_message_whose_body_was_lost_is_dead(queue: Queue) -> None:
    queue.send("a", "b")
    queue.engine.lose_body(queue.keys, "id-a")

    assert queue.bodies(queue.claim()) == ["b"]
    message = queue.get("id-a")
    assert message is not None
    assert (message.state, message.reason, message.body) == ("dead", "body lost", None)


def test_lateness_is_the_greatest_of_the_priorities_and_knows_of_a_retry(queue: Queue) -> None:
    queue.send("a", Send("b", priority=9))
    queue.clock.advance(1)
    held = queue.settles(queue.claim())
    first = queue.stats().lateness
    queue.run(ops.retry(queue.keys, [(settle, 50, "", "") for settle in held]))
    queue.clock.advance(52)
    queue.claim()

    assert first == pytest.approx(1)
    assert queue.stats().lateness == pytest.approx(2, abs=0.001)


# --- flawed records

DAMAGES = (b"short", b"." * 40, b"\0" * 17 + b"\1\0cut off")


def flaw(queue: Queue, id_: str, damage: bytes | None) -> str:
    if damage is None:
        queue.engine.lose_body(queue.keys, id_)
        return "body lost"
    queue.engine.damage(queue.keys, id_, damage)
    return "damaged"


every_flaw = pytest.mark.parametrize("damage", [None, *DAMAGES], ids=["lost", "short", "overwritten", "cut off"])


@every_flaw
def test_a_flawed_message_becomes_a_dead_letter_and_the_others_are_delivered(
    queue: Queue, damage: bytes | None
) -> None:
    queue.send(Send("a", ttl=5), "b")
    reason = flaw(queue, "id-a", damage)
    queue.clock.advance(9)

    assert queue.bodies(queue.claim()) == ["b"]
    message = queue.get("id-a")
    assert message is not None
    assert (message.state, message.reason) == ("dead", reason)
    assert queue.stats().dead_bytes == len(damage or b"")


@every_flaw
@pytest.mark.parametrize("verb", ["retry", "defer", "release", "recycle", "crash"])
def test_a_flawed_message_that_is_given_back_becomes_a_dead_letter(
    queue: Queue, damage: bytes | None, verb: str
) -> None:
    (held,) = queue.given_leased("a", lease=1)
    reason = flaw(queue, "id-a", damage)
    queue.clock.advance(2)
    calls: dict[str, Call[Any]] = {
        "retry": ops.retry(queue.keys, [(held, 0, "boom", "")]),
        "defer": ops.defer(queue.keys, [(held, 0, "")]),
        "release": ops.release(queue.keys, [held]),
        "recycle": ops.recycle(queue.keys, [(held, 0, b"")]),
        "crash": queue.claiming(),
    }
    queue.run(calls[verb])

    message = queue.get("id-a")
    assert message is not None
    assert (message.state, message.reason) == ("dead", reason)
    assert (queue.stats().bytes, queue.stats().dead_bytes) == (0, len(damage or b""))


@every_flaw
def test_a_rejected_message_keeps_its_reason_unless_its_body_is_lost(queue: Queue, damage: bytes | None) -> None:
    held = queue.given_leased("a")
    reason = flaw(queue, "id-a", damage)
    queue.reject(held)

    message = queue.get("id-a")
    assert message is not None
    assert message.reason == (reason if damage is None else "rejected")
    assert queue.stats().bytes == 0


@every_flaw
@pytest.mark.parametrize("place", ["waiting", "leased", "dead"])
def test_an_own_id_is_known_in_every_state_of_its_record(queue: Queue, damage: bytes | None, place: str) -> None:
    queue.send(Send("a", id="mine", priority=5))
    if place != "waiting":
        held = queue.settles(queue.claim())
        if place == "dead":
            queue.reject(held)
    flaw(queue, "mine", damage)

    assert queue.send(Send("b", id="mine")).ids == ["mine"]
    assert queue.stats().duplicates == 1


@every_flaw
@pytest.mark.parametrize("place", ["waiting", "leased", "dead"])
def test_a_flawed_message_is_found_and_can_be_cancelled(queue: Queue, damage: bytes | None, place: str) -> None:
    queue.send(Send("a", priority=5, dedup="v"))
    if place != "waiting":
        held = queue.settles(queue.claim())
        if place == "dead":
            queue.reject(held)
    flaw(queue, "id-a", damage)

    message = queue.get("id-a")
    assert message is not None
    assert message.state == ("ready" if place == "waiting" else place)
    assert queue.run(ops.reschedule(queue.keys, "id-a", "+1")) is False
    assert queue.run(ops.cancel(queue.keys, "id-a", running=True)) is True
    assert queue.get("id-a") is None


@every_flaw
def test_redrive_leaves_a_flawed_letter(queue: Queue, damage: bytes | None) -> None:
    queue.reject(queue.given_leased("a", "b"))
    flaw(queue, "id-a", damage)

    assert queue.run(ops.redrive(queue.keys, 1)) == (1, 1)
    assert queue.page("dead") == (["id-a"], True)


def test_a_finished_message_without_a_body_is_not_kept(queue: Queue) -> None:
    held = queue.given_leased("a", "b")
    queue.engine.lose_body(queue.keys, "id-a")
    queue.ack(held, done=Keep())

    assert queue.page("done") == (["id-b"], True)
    assert (queue.stats().acked, queue.stats().bytes) == (2, 0)


@pytest.mark.parametrize("verb", ["cancel", "purge"])
def test_a_leased_message_counts_the_bytes_that_were_delivered(queue: Queue, verb: str) -> None:
    queue.given_leased("a")
    queue.engine.lose_body(queue.keys, "id-a")
    calls: dict[str, Call[Any]] = {
        "cancel": ops.cancel(queue.keys, "id-a", running=True),
        "purge": ops.purge(queue.keys, "leased", 9),
    }
    queue.run(calls[verb])

    assert queue.stats().bytes == 0


def test_a_message_without_a_body_holds_room_until_it_is_dropped(queue: Queue) -> None:
    queue.send("a")
    queue.engine.lose_body(queue.keys, "id-a")

    assert queue.send("b", max_length=1).full == [0]
    assert queue.send("b", max_length=1, on_refusal="drop").full == []


def test_an_audit_finds_damage_and_letters_whose_body_went_later(queue: Queue) -> None:
    queue.reject(queue.given_leased("a"))
    queue.send("b")
    queue.engine.lose_body(queue.keys, "id-a")
    queue.engine.damage(queue.keys, "id-b", DAMAGES[0])

    assert queue.audit(repair=True) == ["damaged", "dead without a body"]
    assert queue.audit() == []
    assert queue.page("dead") == (["id-a", "id-b"], True)


def test_a_record_that_can_be_delivered_must_keep_its_head(queue: Queue) -> None:
    queue.send("a", Send("b", priority=5))
    record = {message.id: wire.record(message) for message in queue.engine._queue(queue.keys).state.messages.values()}

    queue.engine.damage(queue.keys, "id-a", record[b"id-a"][:-1])
    with pytest.raises(ValueError, match="priority"):
        queue.engine.damage(queue.keys, "id-a", record[b"id-b"])


# --- settling


def test_a_stale_fence_changes_nothing(queue: Queue) -> None:
    stale = queue.given_leased("a", lease=1)
    queue.clock.advance(2)
    fresh = queue.settles(queue.claim())

    assert queue.ack(stale) == [0]
    assert queue.ack(fresh) == []
    assert queue.stats().acked == 1


def test_a_late_settle_is_accepted_until_another_consumer_takes_over(queue: Queue) -> None:
    held = queue.given_leased("a", lease=1)
    queue.clock.advance(60)

    assert queue.ack(held) == []


def test_an_id_given_twice_is_settled_once(queue: Queue) -> None:
    held = queue.given_leased("a")

    assert queue.ack(held * 2) == [1]


def test_retry_counts_keeps_the_errors_and_waits(queue: Queue) -> None:
    held = queue.given_leased("a")
    queue.run(ops.retry(queue.keys, [(held[0], 5, "boom", "traceback")]))

    message = queue.get("id-a")

    assert message is not None
    assert (message.state, message.failures, message.errors[0].error) == ("delayed", 1, "boom")
    assert queue.claim().next_in == pytest.approx(5, abs=0.001)


def test_only_the_last_errors_are_kept(queue: Queue) -> None:
    queue.send("a")
    for number in range(7):
        held = queue.settles(queue.claim())
        queue.run(ops.retry(queue.keys, [(held[0], 0, f"error {number}", "")]))
        queue.clock.advance(1)

    message = queue.get("id-a")

    assert message is not None
    assert [fault.error for fault in message.errors] == [f"error {number}" for number in range(2, 7)]


@pytest.mark.parametrize(("failed", "counted"), [(True, (1, 0)), (False, (0, 1))])
def test_a_last_attempt_that_failed_is_a_failure_and_giving_up_is_a_reject(
    queue: Queue, failed: bool, counted: tuple[int, int]
) -> None:
    queue.reject(queue.given_leased("a"), failed=failed)

    message = queue.get("id-a")
    assert message is not None
    assert (message.failures, message.rejects) == counted


def test_release_returns_a_message_to_its_own_place(queue: Queue) -> None:
    queue.send("a", "b")
    held = queue.settles(queue.claim(limit=1))
    queue.run(ops.release(queue.keys, held))

    assert queue.bodies(queue.claim()) == ["a", "b"]


def test_recycle_starts_over_with_another_body(queue: Queue) -> None:
    queue.send("a", "b")
    claimed = queue.claim(limit=1)
    part = Encoder("orders", QueueOptions()).with_body(claimed.records[0], "aa")
    queue.run(ops.recycle(queue.keys, [(queue.settles(claimed)[0], 0, part)]))

    assert queue.bodies(queue.claim()) == ["b", "aa"]


def test_a_ttl_ends_a_message_that_is_given_back_and_not_a_lease(queue: Queue) -> None:
    held = queue.given_leased(Send("a", ttl=1))
    queue.clock.advance(2)
    empty = queue.claim()
    queue.run(ops.release(queue.keys, held))

    assert empty.ids == queue.claim().ids == []
    assert queue.stats().expired == 1


def test_extend_restarts_a_lease(queue: Queue) -> None:
    held = queue.given_leased("a", lease=1)
    queue.clock.advance(0.5)
    queue.run(ops.extend(queue.keys, [(held[0], 2)]))
    queue.clock.advance(1.9)

    assert queue.claim().reclaimed == []


def test_dead_letters_are_kept_within_their_bounds(queue: Queue) -> None:
    for body in "abc":
        queue.reject(queue.given_leased(body), dead=Keep(count=2))
        queue.clock.advance(1)

    assert queue.page("dead") == (["id-b", "id-c"], True)
    assert queue.stats().trimmed == 1


def test_finished_messages_are_kept_when_asked_for(queue: Queue) -> None:
    queue.ack(queue.given_leased("a"), done=Keep(age=10))
    queue.clock.advance(10)
    queue.ack(queue.given_leased("b"), done=Keep(age=10))

    assert queue.page("done") == (["id-b"], True)
    assert (queue.stats().done_trimmed, queue.stats().bytes) == (1, 0)


@pytest.mark.parametrize("verb", ["extend", "reject", "ack", "redrive", "crash"])
def test_no_recorded_time_is_in_the_future_after_the_servers_clock_steps_back(queue: Queue, verb: str) -> None:
    (held,) = queue.given_leased("a", lease=1)
    if verb == "redrive":
        queue.reject([held])
    queue.clock.advance(60)
    calls: dict[str, Call[Any]] = {
        "extend": ops.extend(queue.keys, [(held, 30)]),
        "reject": ops.reject(queue.keys, QueueOptions(), [(held, "", "", "")]),
        "ack": ops.ack(queue.keys, QueueOptions(done=Keep()), [held]),
        "redrive": ops.redrive(queue.keys, 1),
        "crash": queue.claiming(crash_limit=1),
    }
    queue.run(calls[verb])
    queue.clock.set_us(NOW)

    assert queue.claim().now == NOW + 60 * SECOND + 1


# --- repeats: I6


def test_a_repeated_send_stores_nothing_even_when_the_first_was_consumed(queue: Queue) -> None:
    call = queue.sending(Send("a"))
    queue.run(call)
    queue.engine.call(queue.claiming(), b"other", 1)

    assert queue.again(call).ids == ["id-a"]
    assert queue.stats().sent == 1


def test_a_repeated_claim_gives_the_same_messages_without_those_settled_since(queue: Queue) -> None:
    queue.send("a", "b")
    call = queue.claiming()
    first = queue.run(call)
    settle = ops.ack(queue.keys, QueueOptions(), queue.settles(first)[:1])
    queue.engine.call(settle, b"other", 1)

    second = queue.again(call)

    assert (second.fence, second.ids) == (first.fence, [b"id-b"])


def test_a_repeated_empty_claim_takes_nothing(queue: Queue) -> None:
    call = queue.claiming()
    queue.run(call)
    queue.engine.call(queue.sending(Send("a")), b"other", 1)

    assert queue.again(call).ids == []
    assert queue.stats().ready == 1


def test_calls_that_changed_nothing_are_known_as_well(queue: Queue) -> None:
    calls: list[Call[Any]] = [
        ops.cancel(queue.keys, "mine"),
        queue.sending(Send("a"), Send("b"), max_length=1, on_refusal="all"),
        ops.resume(queue.keys),
        ops.delete(queue.keys),
    ]
    for call in calls:
        queue.run(call)
        queue.engine.call(queue.sending(Send("a", id="mine")), b"other", queue.sequence)
        queue.engine.call(ops.pause(queue.keys, "ops"), b"third", queue.sequence)
        before = queue.stats()
        queue.sequence -= 1
        queue.again(call)

        assert queue.stats() == before


def test_a_plain_send_is_answered_with_one_number(queue: Queue) -> None:
    call = queue.sending(Send("a"), Send("b"))

    answers = [queue.engine.call(call, b"s", 1) for _ in range(2)]

    assert (call.script.name, answers) == ("send", [1, 1])


@pytest.mark.parametrize(("late", "is_known"), [(Send("late"), True), (Send("late", ttl=9), False)])
def test_an_overtaken_plain_send_keeps_the_answer_of_its_successor_for_longer(
    queue: Queue, late: Send, is_known: bool
) -> None:
    queue.sequence = 1
    call = queue.sending(Send("a", id="mine"))
    queue.run(call)
    queue.clock.advance(3000)
    with pytest.raises(ErrorReply, match="OVERTAKEN"):
        queue.again(queue.sending(late), back=1)
    queue.clock.advance(3000)
    queue.again(call)

    assert queue.stats().duplicates == (0 if is_known else 1)


def test_a_call_that_arrives_after_its_successor_is_refused(queue: Queue) -> None:
    first = queue.sending(Send("a"))
    queue.run(first)
    queue.send("b")

    with pytest.raises(ErrorReply, match="OVERTAKEN call 1 of a stream that is at 2"):
        queue.again(first, back=1)


def test_streams_of_calls_and_queues_have_separate_numbers(queue: Queue) -> None:
    other = Queue("other", queue.engine)
    queue.sequence = 5
    queue.send("a")
    other.send("b")
    queue.engine.call(queue.sending(Send("c")), b"another stream", 1)

    assert (queue.stats().sent, other.stats().sent) == (2, 1)


def test_an_answer_is_forgotten_after_an_hour(queue: Queue) -> None:
    call = queue.sending(Send("a", id="mine"))
    queue.run(call)
    queue.ack(queue.settles(queue.run(queue.claiming(), b"other")))
    queue.clock.advance(3601)
    queue.sequence = 1

    assert queue.again(call).ids == ["mine"]
    assert queue.stats().sent == 2


# --- inspection and management


def test_list_continues_behind_a_message_that_has_moved_on(queue: Queue) -> None:
    queue.send(*(Send(body, priority=priority) for body, priority in (("a", 0), ("b", 0), ("c", 9), ("d", 0))))
    page, is_last = queue.run(ops.list_(queue.keys, queue._viewer, "ready", 2, None))
    queue.run(ops.cancel(queue.keys, page[-1].id))

    assert ([message.id for message in page], is_last) == (["id-c", "id-a"], False)
    assert queue.page("ready", after=page[-1]) == (["id-b", "id-d"], True)


def test_cancel_ends_a_message_and_frees_its_dedup_value(queue: Queue) -> None:
    queue.send(Send("a", dedup="v"))

    assert queue.run(ops.cancel(queue.keys, "id-a")) is True
    assert queue.run(ops.cancel(queue.keys, "id-a")) is False
    assert queue.send(Send("b", dedup="v")).ids == ["id-b"]


def test_promote_and_reschedule_move_waiting_messages(queue: Queue) -> None:
    queue.send(Send("a", delay=60), "b")
    queue.run(ops.reschedule(queue.keys, "id-a", "0"))
    queue.run(ops.reschedule(queue.keys, "id-b", f"+{60 * SECOND}"))

    assert queue.bodies(queue.claim()) == ["a"]
    assert queue.run(ops.reschedule(queue.keys, "id-a", "0")) is False


def test_redrive_puts_dead_letters_back_as_new(queue: Queue) -> None:
    queue.reject(queue.given_leased("a", "b"))
    queue.engine.lose_body(queue.keys, "id-a")

    assert queue.run(ops.redrive(queue.keys, 10)) == (1, 1)
    message = queue.get("id-b")
    assert message is not None
    assert (message.state, message.failures, message.errors) == ("ready", 0, ())


def test_purge_is_bounded_and_returns_the_rest(queue: Queue) -> None:
    queue.send("a", "b", Send("c", delay=9))

    assert queue.run(ops.purge(queue.keys, "ready", 1)) == (1, 1)
    assert queue.run(ops.purge(queue.keys, "delayed", 9)) == (1, 0)
    assert (queue.stats().purged, queue.stats().ready) == (2, 1)


def test_a_state_that_does_not_exist_is_refused(queue: Queue) -> None:
    for call in (ops.purge(queue.keys, "elsewhere", 1), ops.list_(queue.keys, queue._viewer, "elsewhere", 1, None)):
        with pytest.raises(ErrorReply, match="elsewhere"):
            queue.run(call)


def test_delete_leaves_nothing(queue: Queue) -> None:
    queue.send(Send("a", ttl=5, dedup="v"))
    queue.run(ops.delete(queue.keys))

    assert (queue.engine.queues("duly"), queue.stats().sent) == ([], 0)
    assert queue.send(Send("b", dedup="v")).ids == ["id-b"]


def test_queues_are_named_once_they_were_used(queue: Queue) -> None:
    Queue("zebra", queue.engine).send("a")
    Queue("empty", queue.engine).claim()
    queue.run(ops.pause(queue.keys, "ops"))

    assert queue.engine.queues("duly") == ["orders", "zebra"]
    assert queue.engine.queues("elsewhere") == []


def test_pending_shows_the_holder_of_each_message(queue: Queue) -> None:
    queue.given_leased("a", "b")

    rows = queue.run(ops.pending(queue.keys, 1, 10))

    assert [(row.id, row.consumer, row.deadline_in) for row in rows] == [("id-b", "worker", pytest.approx(30, abs=1))]


def test_an_audit_finds_nothing_but_a_lost_body_and_repairs_it(queue: Queue) -> None:
    queue.send("a", Send("b", ttl=9, dedup="v"), Send("c", delay=3))
    queue.reject(queue.settles(queue.claim(limit=1)))
    clean = queue.audit()
    queue.engine.lose_body(queue.keys, "id-b")

    assert clean == []
    assert queue.audit(repair=True) == ["place without a body"]
    assert queue.audit() == []


def test_correct_adds_to_counters(queue: Queue) -> None:
    queue.send("a")
    queue.run(ops.correct(queue.keys, {"sent": 2, "corrected": 1}))

    assert (queue.stats().sent, queue.stats().corrected) == (3, 1)


# --- waiting


def test_a_claim_may_find_due_messages_and_none_while_paused(queue: Queue) -> None:
    nothing = queue.has_something()
    queue.send("a")
    ready = queue.has_something()
    queue.run(ops.pause(queue.keys, "ops"))

    assert (nothing, ready, queue.has_something()) == (False, True, False)


def test_waiters_are_called_one_by_one_first_come_first_served(queue: Queue) -> None:
    first, second = queue.waiter(), queue.waiter()

    queue.send("a")
    assert (first, second) == ([True], [])
    queue.claim(limit=1)  # the second does not know of the deadline of the lease

    assert (first, second) == ([True], [True])


def test_a_message_that_is_there_calls_a_waiter_at_once(queue: Queue) -> None:
    queue.send("a")

    assert queue.waiter() == [True]


def test_a_message_that_a_claim_leaves_calls_the_next_waiter(queue: Queue) -> None:
    first, second = queue.waiter(), queue.waiter()
    queue.send("a", "b")

    queue.claim(limit=1)

    assert (first, second) == ([True], [True])


def test_a_waiter_that_polls_in_time_is_not_called(queue: Queue) -> None:
    queue.send(Send("a", delay=5))
    waiter = queue.waiter()

    queue.send(Send("b", delay=60))
    assert waiter == []
    queue.send(Send("c", delay=1))

    assert waiter == [True]


def test_a_waiter_that_would_poll_too_late_is_called_at_once(queue: Queue) -> None:
    queue.send(Send("a", delay=5))

    assert queue.waiter(polls_at=NOW + 4 * SECOND) == []
    assert queue.waiter(polls_at=NOW + 60 * SECOND) == [True]


def test_a_waiter_that_has_polled_is_called_for_a_later_message(queue: Queue) -> None:
    """A worker keeps its waiter when it polls at a due time. It used to miss the next delayed message."""
    queue.send(Send("a", delay=5))
    waiter = queue.waiter(polls_at=NOW + 5 * SECOND)
    queue.clock.set_us(NOW + 6 * SECOND)
    queue.ack(queue.settles(queue.claim()))

    queue.send(Send("b", delay=1))

    assert waiter == [True]


def test_the_end_of_a_wait_is_the_next_due_time(queue: Queue) -> None:
    forever = queue.engine.subscribe(queue.keys, lambda: None)
    queue.send(Send("a", delay=5))

    assert forever == inf
    assert queue.engine.subscribe(queue.keys, lambda: None) == pytest.approx(5, abs=0.001)


def test_a_waiter_that_leaves_is_not_called(queue: Queue) -> None:
    called: list[bool] = []
    callback = lambda: called.append(True)  # noqa: E731
    queue.engine.subscribe(queue.keys, callback)

    left, again = queue.engine.unsubscribe(queue.keys, callback), queue.engine.unsubscribe(queue.keys, callback)
    queue.send("a")

    assert (left, again, called) == (True, False, [])


def test_a_waiter_that_was_called_passes_on(queue: Queue) -> None:
    first, second = queue.waiter(), queue.waiter()
    queue.send("a")

    queue.run(ops.wake(queue.keys))

    assert (first, second) == ([True], [True])


@pytest.mark.parametrize("verb", ["release", "ack", "cancel"])
def test_room_in_flight_calls_a_waiter(queue: Queue, verb: str) -> None:
    queue.send("a", "b")
    held = queue.claim(limit=1, max_in_flight=1)
    assert queue.claim(limit=1, max_in_flight=1).is_limited
    waiter = queue.waiter()
    assert not queue.has_something()

    settle = ops.Settle(held.ids[0].decode(), held.fence)
    calls: dict[str, Call[Any]] = {
        "release": ops.release(queue.keys, [settle]),
        "ack": ops.ack(queue.keys, QueueOptions(), [settle]),
        "cancel": ops.cancel(queue.keys, settle.id, running=True),
    }
    queue.run(calls[verb])

    assert waiter == [True]


def test_a_schedule_calls_a_waiter_until_a_claim_has_named_it(queue: Queue) -> None:
    waiter = queue.waiter()

    queue.run(ops.schedule(queue.keys, "report", b"a plan that this process cannot read"))
    assert waiter == [True]
    queue.claim()

    assert not queue.has_something()
    assert queue.waiter() == []


def test_threads_share_an_engine() -> None:
    queue = Queue()

    def send_some(thread: int) -> None:
        for number in range(50):
            queue.engine.call(queue.sending(Send(f"{thread}-{number}")), str(thread).encode(), number + 1)

    threads = [threading.Thread(target=send_some, args=[thread]) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(queue.claim(limit=1000).ids)) == 200


# --- inspection of many queues at once


def given_queues(queue: Queue, *names: str) -> list[QueueKeys]:
    """Name queues of the same engine, of which those in capitals have a message."""
    found = [QueueKeys("duly", name) for name in names]
    for keys in found:
        if keys.name.isupper():
            other = copy(queue)
            other.keys = keys
            other.send("a")
    return found


def test_queues_that_have_something_are_found_up_to_a_limit(queue: Queue) -> None:
    queues = given_queues(queue, "a", "B", "c", "D", "E")
    wakes = [keys.key("wake") for keys in queues]
    assert queue.run(ops.take_tokens(queue.keys, wakes, 2)) == [1, 3]


def test_occupied_queues_are_found(queue: Queue) -> None:
    assert queue.run(ops.occupied(given_queues(queue, "a", "B", "c", "D"))) == [1, 3]
