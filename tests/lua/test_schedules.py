"""Storing and firing schedules: one message per run, on servers and in memory."""

import itertools
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from duly._core import codec, ops, schedules
from duly._core.call import Call
from duly._core.history import read_sample
from duly._core.keys import QueueKeys, ScheduleKeys, queue_pattern
from duly._core.schedules import NEVER, Choice, Plan, Row
from duly.memory.clock import Clock
from duly.memory.engine import Engine
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Queue, Refused, State, Wire, fill, free

EVERY = 10 * SECOND
"""NOW is a multiple of it."""


class Pair:
    """One queue on a server, and the same in memory: every call must get the same reply and store the same."""

    def __init__(self, queue: Queue, clock: ServerClock) -> None:
        self.queue = queue
        self.keys = queue.keys
        self._clock = clock
        self._engine = Engine(Clock())
        self._engine.clock.freeze()
        self._ids = (f"id{number}" for number in itertools.count())
        self.set_clock(NOW)

    def set_clock(self, us: int) -> None:
        self._clock.freeze(us)
        self._engine.clock.set_us(us)

    def call(self, call: Call[Any], *, stream: bytes = b"tests", sequence: int | None = None) -> Any:
        answer = self.queue.call(call, stream=stream, sequence=sequence)
        in_memory = self._engine.call(call, stream, self.queue.sequence if sequence is None else sequence)
        assert (bool(answer), bool(in_memory)) == (True, True) if call.script.name == "delete" else answer == in_memory
        state, dump = self._engine._queue(self.keys).state, self.queue.dump()
        assert {name.decode(): row for name, row in state.schedules.items()} == dump.schedules
        assert {name.decode(): at for at, name in state.next_runs} == dump.slots
        assert {place.decode(): point for place, point in state.history.items()} == dump.history
        assert {id_.decode(): each.record for id_, each in state.messages.items()} == dump.msgs
        assert str(state.clock) == dump.meta.get("clock", "None")
        assert dump.meta.get("slot") == (str(min(dump.slots.values())) if dump.slots else None)
        return answer

    def plan(self, every: int = EVERY, catch_up: str = "one", body: Any = b"body", **options: Any) -> Plan:
        return Plan(None, every, "UTC", catch_up, bytes(self.queue.outgoing("", body, **options).part))

    def schedule(self, name: str = "report", **options: Any) -> Any:
        return self.call(ops.schedule(self.keys, name, schedules.written_plan(self.plan(**options))))

    def row(self, name: str = "report") -> bytes:
        return self.dump().schedules[name]

    def read(self, name: str = "report") -> Row:
        return schedules.read_row(self.row(name))

    def dump(self) -> State:
        return self.queue.dump()

    def new_id(self) -> str:
        return next(self._ids)

    def firing(self, row: bytes, now: int, name: str = "report") -> Call[bool]:
        """Fire as a consumer does after a claim returned this row at this time."""
        stored = schedules.read_row(row)
        choice = schedules.choose(stored.plan.timetable, stored.plan.catch_up, stored.after, now)
        messages = schedules.messages(name, stored.plan, choice.runs, self.new_id)
        return ops.fire(self.keys, name, row, choice, messages)

    def fire(self, now: int, name: str = "report") -> Any:
        self.set_clock(now)
        return self.call(self.firing(self.row(name), now, name))

    def runs_sent(self) -> list[int]:
        """Read from the headers which runs have messages, in the order of delivery."""
        found = []
        for record in self.dump().msgs.values():
            stored = codec.read_record(record)
            assert stored.envelope.headers is not None
            found.append((stored.due, stored.envelope.headers["duly-slot"]))
        return [schedules.us_of(datetime.fromisoformat(run)) for _, run in sorted(found)]


@pytest.fixture
def pair(queue: Queue, clock: ServerClock) -> Pair:
    return Pair(queue, clock)


# Storing


def test_a_schedule_counts_from_the_time_of_the_server_and_is_due_at_once(pair: Pair) -> None:
    assert pair.schedule() == 1
    assert pair.read() == Row(NOW, NOW, 0, False, pair.plan())
    dump = pair.dump()
    assert (dump.slots, dump.meta["slot"], dump.wake) == ({"report": NOW}, str(NOW), 1)


def test_the_same_again_changes_nothing(pair: Pair) -> None:
    pair.schedule()
    pair.fire(NOW + EVERY)
    before = pair.dump()
    pair.set_clock(NOW + 55 * SECOND)
    assert pair.schedule() == 0
    after = pair.dump()
    assert before.differences(after) == ["calls"]


@pytest.mark.parametrize("change", [{"every": 5 * SECOND}, {"catch_up": "all"}, {"body": b"other"}, {"priority": 3}])
def test_a_changed_schedule_starts_over(pair: Pair, change: dict[str, Any]) -> None:
    pair.schedule()
    pair.fire(NOW + EVERY)
    later = NOW + 55 * SECOND
    pair.set_clock(later)
    assert pair.schedule(**change) == 1
    assert pair.read() == Row(later, later, 0, False, pair.plan(**change))
    assert pair.dump().slots == {"report": later}


def test_the_field_slot_has_the_earliest_run_of_all_schedules(pair: Pair) -> None:
    pair.schedule("a", every=EVERY)
    pair.schedule("b", every=3 * EVERY)
    pair.fire(NOW + 1, "a")
    pair.fire(NOW + 2, "b")
    assert pair.dump().slots == {"a": NOW + EVERY, "b": _multiple(3 * EVERY, NOW)}
    assert pair.dump().meta["slot"] == str(min(pair.dump().slots.values()))
    pair.call(ops.unschedule(pair.keys, "a"))
    assert pair.dump().meta["slot"] == str(_multiple(3 * EVERY, NOW))
    pair.call(ops.unschedule(pair.keys, "b"))
    assert "slot" not in pair.dump().meta


def test_a_removed_schedule_leaves_nothing(pair: Pair) -> None:
    pair.schedule()
    assert [pair.call(ops.unschedule(pair.keys, "report")) for _ in range(2)] == [1, 0]
    assert pair.queue.key_names() == {"meta", "call:tests"}


def test_messages_that_were_sent_stay_when_their_schedule_is_removed(pair: Pair) -> None:
    pair.schedule()
    pair.fire(NOW + EVERY)
    pair.call(ops.unschedule(pair.keys, "report"))
    assert pair.runs_sent() == [NOW + EVERY]
    assert pair.dump().wake == 1


def test_schedules_are_listed_by_name_or_read_one_by_one(pair: Pair) -> None:
    for name in ("a", "b"):
        pair.schedule(name)
    now, cursor, *rows = pair.call(ops.schedules(pair.keys))
    assert (now, cursor) == (NOW + 2, b"0")
    assert dict(zip(rows[0::2], rows[1::2], strict=True)) == {b"a": pair.row("a"), b"b": pair.row("b")}
    assert pair.call(ops.schedules(pair.keys, name="b")) == [NOW + 2, b"0", b"b", pair.row("b")]
    assert pair.call(ops.schedules(pair.keys, name="c")) == [NOW + 2, b"0"]


def test_many_schedules_are_shown_page_by_page(queue: Queue) -> None:
    wanted = {f"schedule{number:04d}" for number in range(1500)}
    for name in wanted:
        queue.call(ops.schedule(queue.keys, name, b"plan"))
    found, cursor, pages = set[str](), "0", 0
    while pages == 0 or cursor != "0":
        page = schedules.page(queue.call(ops.schedules(queue.keys, cursor=cursor)))
        assert len(page.rows) < 500
        found |= set(page.rows)
        cursor, pages = page.cursor, pages + 1
    assert found == wanted


# Pausing


def test_a_paused_schedule_is_not_due(pair: Pair) -> None:
    pair.schedule()
    assert [pair.call(ops.pause_schedule(pair.keys, "report")) for _ in range(2)] == [1, 1]
    dump = pair.dump()
    assert (dump.slots, dump.meta.get("slot"), dump.wake) == ({}, None, 0)
    assert pair.read() == Row(NOW, NOW, 0, True, pair.plan())


def test_a_resumed_one_counts_from_then_on(pair: Pair) -> None:
    pair.schedule()
    pair.fire(NOW + EVERY)
    pair.call(ops.pause_schedule(pair.keys, "report"))
    later = NOW + 10 * EVERY
    pair.set_clock(later)
    assert pair.call(ops.resume_schedule(pair.keys, "report")) == 1
    assert pair.read() == Row(NOW, later, NOW + EVERY, False, pair.plan())
    assert (pair.dump().slots, pair.dump().wake) == ({"report": later}, 1)


def test_a_schedule_that_is_not_paused_is_not_changed_by_a_resume(pair: Pair) -> None:
    pair.schedule()
    before = pair.dump()
    pair.set_clock(NOW + EVERY)
    assert pair.call(ops.resume_schedule(pair.keys, "report")) == 1
    assert before.differences(pair.dump()) == ["calls"]


def test_an_unknown_schedule_cannot_be_paused_or_resumed(pair: Pair) -> None:
    assert pair.call(ops.pause_schedule(pair.keys, "report")) == 0
    assert pair.call(ops.resume_schedule(pair.keys, "report")) == 0
    assert pair.queue.key_names() == {"call:tests"}


@pytest.mark.parametrize("change", [{}, {"every": 5 * SECOND}])
def test_a_paused_one_that_is_declared_again_stays_paused(pair: Pair, change: dict[str, Any]) -> None:
    pair.schedule()
    pair.call(ops.pause_schedule(pair.keys, "report"))
    assert pair.schedule(**change) == int(bool(change))
    assert pair.read().is_paused
    assert pair.read().plan == pair.plan(**change)
    assert pair.dump().slots == {}


# Firing


def test_a_due_run_is_sent(pair: Pair) -> None:
    pair.schedule(priority=3, ttl=60)
    now = NOW + EVERY + 7
    assert pair.fire(now) == 1
    dump = pair.dump()
    ((id_, record),) = dump.msgs.items()
    stored = codec.read_record(record)
    assert (stored.sent, stored.due, stored.priority) == (now, now, 3)  # never before it was sent
    assert dump.waiting == {3: {id_: now}}
    assert dump.expires == {id_: now + 60 * SECOND}
    assert dump.stats == {"sent": 1, "bytes": len(record)}
    assert dump.meta["priorities"] == "30"
    assert dump.wake == 1
    assert pair.read() == Row(NOW, NOW + EVERY, NOW + EVERY, False, pair.plan(priority=3, ttl=60))
    assert dump.slots == {"report": NOW + 2 * EVERY}


def test_without_a_run_only_the_next_time_is_stored(pair: Pair) -> None:
    pair.schedule()
    assert pair.fire(NOW + 5) == 1
    assert pair.read() == Row(NOW, NOW, 0, False, pair.plan())
    dump = pair.dump()
    assert (dump.msgs, dump.stats, dump.slots) == ({}, {}, {"report": NOW + EVERY})
    assert dump.wake == 1  # a consumer must watch it


def test_a_schedule_without_a_next_run_is_not_due_any_more(pair: Pair) -> None:
    pair.schedule()
    pair.call(ops.fire(pair.keys, "report", pair.row(), Choice([], NOW, NEVER), []))
    assert pair.dump().slots == {}
    assert "slot" not in pair.dump().meta


def test_many_consumers_that_find_the_same_runs_send_for_each_once(pair: Pair) -> None:
    """Like I4: all consumers have read the same row before the first of them fires."""
    pair.schedule(catch_up="all")
    for step in range(1, 6):
        now = NOW + step * 3 * EVERY
        pair.set_clock(now)
        row = pair.row()
        calls = [pair.firing(row, now) for _ in range(10)]
        answers = [pair.call(call, stream=b"consumer%d" % number) for number, call in enumerate(calls)]
        assert answers == [1] + [0] * 9
    assert pair.runs_sent() == [NOW + number * EVERY for number in range(1, 16)]
    assert pair.dump().stats["sent"] == 15


def test_a_consumer_that_finds_runs_later_sends_only_the_rest(pair: Pair) -> None:
    pair.schedule(catch_up="all")
    early = pair.row()
    pair.fire(NOW + 2 * EVERY)
    pair.set_clock(NOW + 4 * EVERY)
    assert pair.call(pair.firing(early, NOW + 4 * EVERY)) == 0
    assert pair.fire(NOW + 4 * EVERY) == 1
    assert pair.runs_sent() == [NOW + number * EVERY for number in range(1, 5)]


def test_a_long_absence_is_caught_up_in_bounded_steps(pair: Pair) -> None:
    pair.schedule(catch_up="all")
    now = NOW + 250 * EVERY
    looks = 0
    while not looks or pair.dump().slots["report"] <= now:
        assert pair.fire(now) == 1
        looks += 1
    assert looks == 3
    assert pair.runs_sent() == [NOW + number * EVERY for number in range(1, 251)]


CHANGES: dict[str, Callable[[Pair], object]] = {
    "removed": lambda pair: pair.call(ops.unschedule(pair.keys, "report")),
    "paused": lambda pair: pair.call(ops.pause_schedule(pair.keys, "report")),
    "another": lambda pair: pair.schedule(body=b"other"),
    "removed and declared again": lambda pair: (pair.call(ops.unschedule(pair.keys, "report")), pair.schedule()),
    "paused and resumed": lambda pair: (
        pair.call(ops.pause_schedule(pair.keys, "report")),
        pair.call(ops.resume_schedule(pair.keys, "report")),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_schedule_that_changed_between_claim_and_fire_is_not_fired(pair: Pair, change: str) -> None:
    pair.schedule()
    firing = pair.firing(pair.row(), NOW + EVERY)
    pair.set_clock(NOW + EVERY)
    CHANGES[change](pair)
    before = pair.dump()
    assert pair.call(firing) == 0
    assert before.differences(pair.dump()) == ["calls"]
    assert before.msgs == {}


def test_a_repeated_firing_sends_once(pair: Pair) -> None:
    pair.schedule()
    pair.set_clock(NOW + EVERY)
    call = pair.firing(pair.row(), NOW + EVERY)
    assert [pair.call(call, sequence=100) for _ in range(3)] == [1, 1, 1]
    assert pair.runs_sent() == [NOW + EVERY]


def test_a_late_copy_of_a_firing_that_lost_does_nothing(pair: Pair) -> None:
    pair.schedule()
    lost = pair.firing(pair.row(), NOW + EVERY)
    pair.fire(NOW + EVERY)
    assert [pair.call(lost, stream=b"slow", sequence=1) for _ in range(2)] == [0, 0]
    assert pair.runs_sent() == [NOW + EVERY]


def test_a_clock_that_steps_back_neither_repeats_nor_hurries_a_run(pair: Pair) -> None:
    """I3: the queue's clock stands nearly still until the server's has caught up."""
    pair.schedule()
    pair.fire(NOW + EVERY)
    pair.set_clock(NOW - 5 * SECOND)
    now = pair.call(ops.schedules(pair.keys))[0]
    assert now == NOW + EVERY + 1
    stored = pair.read()
    assert schedules.choose(stored.plan.timetable, "one", stored.after, now).runs == []


def test_schedules_send_into_a_queue_that_is_paused(pair: Pair) -> None:
    pair.call(ops.pause(pair.keys, "somebody"))
    pair.schedule()
    assert pair.fire(NOW + EVERY) == 1
    assert pair.runs_sent() == [NOW + EVERY]


def test_a_damaged_row_stops_no_script(queue: Queue) -> None:
    queue.wire.run("HSET", queue.keys.key("schedules"), "report", "short")
    assert queue.call(ops.pause_schedule(queue.keys, "report")) == 0
    assert queue.call(ops.resume_schedule(queue.keys, "report")) == 0
    row = bytes(25) + schedules.written_plan(Plan(None, EVERY, "UTC", "one", b""))
    assert queue.call(ops.fire(queue.keys, "report", row, Choice([], NOW, NOW + 1), [])) == 0
    assert queue.call(ops.schedule(queue.keys, "report", b"plan")) == 1
    assert len(queue.dump().schedules["report"]) == 25 + len(b"plan")


def test_the_accounts_are_right(pair: Pair) -> None:
    """I1 and I2: a message of a schedule is like any other."""
    pair.schedule()
    pair.fire(NOW + EVERY)
    claimed = pair.queue.claim()
    assert [id_.decode() for id_ in claimed.ids] == ["id0"]
    pair.queue.call(ops.ack(pair.keys, pair.queue.options, [ops.Settle("id0", claimed.fence, 0)]))
    stats = pair.dump().stats
    assert (stats["sent"], stats["acked"], stats["bytes"]) == (1, 1, 0)


# Found by claims


def due_in(answer: list[Any]) -> dict[str, bytes]:
    """Read the schedules in the reply of a claim."""
    return {name.decode(): row for name, row in zip(answer[8][0::2], answer[8][1::2], strict=True)}


def test_a_claim_names_the_schedules_whose_run_has_come(pair: Pair) -> None:
    for name, every in (("a", EVERY), ("b", 3 * EVERY), ("c", EVERY)):
        pair.schedule(name, every=every)
        pair.fire(NOW + 5, name)
    pair.call(ops.pause_schedule(pair.keys, "c"))
    assert due_in(pair.call(pair.queue.claim_call())) == {}
    pair.set_clock(NOW + EVERY)
    assert due_in(pair.call(pair.queue.claim_call())) == {"a": pair.row("a")}
    pair.fire(NOW + EVERY, "a")
    assert due_in(pair.call(pair.queue.claim_call())) == {}


def test_a_claim_names_a_bounded_number_of_schedules(pair: Pair) -> None:
    for number in range(15):
        pair.schedule(f"report{number:02d}")
    answer = pair.call(pair.queue.claim_call())
    first = answer[1] % 15
    assert list(due_in(answer)) == [f"report{number % 15:02d}" for number in range(first, first + 10)]


@pytest.mark.parametrize("unreadable", [10, 11, 40])
def test_many_schedules_that_are_never_fired_hide_no_other(pair: Pair, unreadable: int) -> None:
    """Every claim returns others, and a caller that could fire none of them claims again within a second."""
    for number in range(unreadable):
        pair.call(ops.schedule(pair.keys, f"newer{number}", b"\xff?"))
    pair.schedule("good")
    found: list[str] = []
    for microsecond in range(unreadable + 1):
        pair.set_clock(NOW + SECOND + microsecond)
        answer = pair.call(pair.queue.claim_call())
        assert len(due_in(answer)) == 10
        assert answer[2] == SECOND
        found += due_in(answer)
    assert {name: found.count(name) for name in found} == dict.fromkeys(pair.dump().schedules, 10)


def test_more_schedules_than_a_claim_names_do_not_hide_the_next_run(pair: Pair) -> None:
    for number in range(11):
        pair.call(ops.schedule(pair.keys, f"newer{number}", b"\xff?"))
    pair.schedule("good")
    pair.fire(NOW + EVERY - SECOND // 2, "good")
    assert pair.call(pair.queue.claim_call())[2] == SECOND // 2 - 1


def test_a_claim_counts_the_time_to_the_next_run(pair: Pair) -> None:
    pair.schedule("a", every=EVERY)
    pair.schedule("b", every=60 * EVERY)
    pair.fire(NOW + SECOND, "a")
    pair.fire(NOW + 2 * SECOND, "b")
    assert pair.call(pair.queue.claim_call())[2] == 8 * SECOND - 1  # each claim is a tick later


def test_a_schedule_that_is_never_fired_hides_no_other(pair: Pair) -> None:
    """It stays due: a claim that counted the time to it would let its caller spin."""
    pair.call(ops.schedule(pair.keys, "newer", b"\xff?"))
    pair.schedule("a")
    pair.fire(NOW + SECOND, "a")
    answer = pair.call(pair.queue.claim_call())
    assert list(due_in(answer)) == ["newer"]
    assert answer[2] == EVERY - SECOND - 1
    pair.call(ops.unschedule(pair.keys, "a"))
    assert pair.call(pair.queue.claim_call())[2] == -1


def test_a_run_to_come_is_watched(pair: Pair) -> None:
    """The token of a queue that holds nothing is kept as long as a schedule sends to it."""
    pair.schedule()
    pair.fire(NOW + SECOND)
    pair.call(pair.queue.claim_call(then="leave"))
    assert pair.dump().wake == 1
    pair.call(pair.queue.claim_call(then="watch"))
    assert pair.dump().wake == 0  # this consumer has seen it, and watches
    pair.call(ops.wake(pair.keys))
    assert pair.dump().wake == 1  # the consumer stops waiting
    pair.call(ops.unschedule(pair.keys, "report"))
    pair.call(ops.wake(pair.keys))
    assert pair.dump().wake == 0


def test_a_repeated_claim_names_no_schedules(pair: Pair) -> None:
    pair.schedule()
    assert list(due_in(pair.call(pair.queue.claim_call(), sequence=100))) == ["report"]
    assert pair.call(pair.queue.claim_call(), sequence=100)[2] == 0  # so the caller claims again
    assert pair.call(pair.queue.claim_call(), sequence=100)[8] == []


def test_a_deleted_queue_takes_its_schedules_with_it(pair: Pair) -> None:
    pair.schedule()
    pair.call(ops.delete(pair.keys))
    assert pair.queue.key_names() == {"call:tests"}


# A full server


@pytest.fixture
def full(fillable: Wire, queue_name: str) -> Queue:
    return Queue(fillable, queue_name)


def test_a_full_server_takes_schedules(full: Queue) -> None:
    """Programs that declare schedules when they start can start, even with a changed plan."""
    call = ops.schedule(full.keys, "report", b"plan")
    assert full.call(call) == 1
    fill(full.wire)
    assert full.call(call) == 0
    assert full.call(ops.schedule(full.keys, "report", b"other")) == 1
    assert full.call(ops.schedule(full.keys, "a new one", b"plan")) == 1


def test_a_full_server_refuses_a_firing_and_the_run_is_sent_later(full: Queue) -> None:
    part = bytes(full.outgoing("", b"body").part)
    full.call(ops.schedule(full.keys, "report", schedules.written_plan(Plan(None, EVERY, "UTC", "one", part))))
    row = full.dump().schedules["report"]
    stored = schedules.read_row(row)
    run = stored.after // EVERY * EVERY + EVERY
    messages = schedules.messages("report", stored.plan, [run], lambda: "a")
    call = ops.fire(full.keys, "report", row, Choice([run], run, run + EVERY), messages)
    fill(full.wire)
    with pytest.raises(Refused, match="OOM"):
        full.call(call)
    assert full.dump().schedules == {"report": row}
    assert full.dump().msgs == {}
    free(full.wire)
    assert full.call(call) == 1
    assert set(full.dump().msgs) == {"a"}


# The registry


class Registry:
    """The registry of a namespace on a server, and the same in memory."""

    def __init__(self, wire: Wire, namespace: str, clock: ServerClock) -> None:
        self.wire = wire
        self.namespace = namespace
        self.keys = ScheduleKeys(namespace)
        self._clock = clock
        self.engine = Engine(Clock())
        self.engine.clock.freeze()
        self._sequence = 0
        self.set_clock(NOW)

    def set_clock(self, us: int) -> None:
        self._clock.freeze(us)
        self.engine.clock.set_us(us)

    def call(self, call: Call[Any], sequence: int | None = None) -> Any:
        self._sequence += 1
        number = self._sequence if sequence is None else sequence
        answer = self.wire.carry(call, b"tests", number)
        assert answer == self.engine.call(call, b"tests", number)
        return call.decode(answer)

    def entries(self) -> dict[str, schedules.Entry | None]:
        page = self.call(ops.schedules(self.keys))
        return {name: schedules.read_entry(entry) for name, entry in page.rows.items()}


@pytest.fixture
def registry(wire: Wire, queue_name: str, clock: ServerClock) -> Registry:
    return Registry(wire, queue_name, clock)


def test_the_registry_knows_to_which_queue_a_schedule_belongs_and_since_when(registry: Registry) -> None:
    assert registry.call(ops.register(registry.keys, "report", "orders")) is None
    registry.set_clock(NOW + 5)
    assert registry.call(ops.register(registry.keys, "report", "mails")) == (NOW, "orders")
    assert registry.entries() == {"report": (NOW + 5, "mails")}


def test_an_entry_is_removed_unless_it_is_another_by_now(registry: Registry) -> None:
    registry.call(ops.register(registry.keys, "report", "orders"))
    entry = registry.call(ops.schedules(registry.keys, name="report")).rows["report"]
    registry.set_clock(NOW + 5)
    registry.call(ops.register(registry.keys, "report", "orders"))
    assert registry.call(ops.unregister(registry.keys, "report", entry)) is False
    newer = registry.call(ops.schedules(registry.keys, name="report")).rows["report"]
    assert registry.call(ops.unregister(registry.keys, "report", newer)) is True
    assert registry.call(ops.unregister(registry.keys, "report", newer)) is False
    assert registry.entries() == {}


@pytest.mark.parametrize("verb", ["register", "unregister"])
def test_repeats_and_late_copies_are_recognised(registry: Registry, verb: str) -> None:
    registry.call(ops.register(registry.keys, "old", "orders"))
    entry = registry.call(ops.schedules(registry.keys, name="old")).rows["old"]
    call = (
        ops.register(registry.keys, "new", "x") if verb == "register" else ops.unregister(registry.keys, "old", entry)
    )
    answer = None if verb == "register" else True
    assert [registry.call(call, 100), registry.call(call, 100)] == [answer, answer]
    registry.call(ops.register(registry.keys, "other", "orders"), 101)
    with pytest.raises(Refused, match="OVERTAKEN"):
        registry.wire.carry(call, b"tests", 100)


def test_the_registry_of_schedules_is_not_a_queue(registry: Registry) -> None:
    registry.call(ops.register(registry.keys, "report", "orders"))
    assert registry.wire.run("KEYS", queue_pattern(registry.namespace)) == []
    assert registry.engine.queues(registry.namespace) == []


def test_namespaces_have_a_registry_each() -> None:
    assert ScheduleKeys("a").key("schedules") == b"a:{~schedules}:schedules"
    assert QueueKeys("a", "orders").key("schedules") == b"a:{orders}:schedules"


def _multiple(every: int, after: int) -> int:
    return after // every * every + every


# History


def test_the_first_run_of_a_minute_takes_a_point_before_its_effects(pair: Pair) -> None:
    """I9: a schedule may fire when no claim has taken the point of the minute."""
    pair.schedule()
    pair.fire(NOW + EVERY)
    first = {place: value for place, value in pair.dump().history.items() if place.startswith("m")}
    assert [value.split()[1] for value in first.values()] == [b"0"]
    pair.fire(NOW + 6 * EVERY)
    points = {place: value for place, value in pair.dump().history.items() if place.startswith("m")}
    assert len(points) == 2
    (second,) = (value.split() for place, value in points.items() if place not in first)
    assert second[1] == b"1"
    assert pair.dump().meta["point"] == str((NOW + 6 * EVERY) // (60 * SECOND) * 60 * SECOND + 60 * SECOND)


def test_a_run_knows_the_backlog_of_all_priorities_and_keys(pair: Pair) -> None:
    for number, priority in enumerate((0, 5, 9)):
        options = {"key": "k"} if priority == 9 else {}
        message = pair.queue.outgoing(f"m{number}", priority=priority, **options)
        pair.call(ops.send(pair.keys, [message], pair.queue.options, "each"))
    pair.schedule(priority=5)
    assert pair.fire(NOW + 60 * SECOND) == 1
    point = read_sample(pair.dump().history["m1"])
    assert point is not None
    assert (point.depth, point.oldest_age) == (3, 60 * SECOND)
