"""A queue on a server and in the memory engine, with the checks that follow every step.

After every step both must have answered the same, and the state of the real queue is checked against the invariants of
docs/protocol.md and the table of moves. Both clocks stand still and are moved by the test.
"""

import itertools
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from hypothesis.stateful import RuleBasedStateMachine, invariant

from duly._core import codec, ops, replies, views
from duly._core.call import Call
from duly._core.verbs import MOVES
from duly.memory.clock import Clock
from duly.memory.engine import Engine, ErrorReply
from duly.message import Audit
from duly.options import QueueOptions, interval_of
from tests.lua.harness import NOW, SECOND, Queue, State
from tests.model import alike, copies, following, tokens
from tests.model.callers import Caller, Follow, Made, Outcome
from tests.model.journal import Journal
from tests.model.world import Accident, Broken, World, check

STREAMS: Final = (b"one", b"two")
FORESEEN: Final = 60.0
"""Seconds of the forecast that is compared: as long as most delays."""
CALLS_FORGOTTEN: Final = 3600 * SECOND
"""After this long a call is no longer known, and a repeat of it is a new one."""

VERBS: Final[Mapping[str, frozenset[str]]] = {
    "send": frozenset({"send"}),
    "send_checked": frozenset({"send", "expire", "drop", "trim", "hand on"}),
    "claim": frozenset({"claim", "crash", "expire", "trim", "hand on"}),
    "ack": frozenset({"ack"}),
    "finish": frozenset({"ack", "trim", "hand on"}),
    "commit": frozenset({"ack", "send", "recycle", "expire", "drop", "trim", "hand on"}),  # recycle: its own id again
    "reject": frozenset({"reject", "trim", "hand on"}),
    "tidy": frozenset({"expire", "trim", "hand on"}),
    # Calls that give back pass a lane on if the body was lost in the meantime.
    **{verb: frozenset({verb, "hand on"}) for verb in ("retry", "defer", "release", "recycle")},
    **{verb: frozenset({verb, "hand on"}) for verb in ("cancel", "reschedule", "redrive", "purge")},
    "extend": frozenset({"extend"}),
    "progress": frozenset({"progress"}),
    "keep_result": frozenset(),
    "measure": frozenset(),
}
"""The moves that each script may make; time passes in all of them."""

NEW_LIFE: Final = frozenset({"send", "send_checked", "commit", "recycle", "redrive", "cancel", "purge"})
"""After these a message may have fewer attempts than before."""


CRASH_LIMIT: Final = 2
PARKED_PER_CALL: Final = 1000
MOST_LOST: Final = 8
"""The most calls that a fail-over loses."""


class Receipt(NamedTuple):
    """A delivery that was made at some time: it may be settled, rightly or too late."""

    id: str
    fence: int
    has_key: bool


class Moment(NamedTuple):
    """The queue on both sides, and the machine's record of it. A fail-over returns to it.

    The knowledge of the clients is not in it: their numbers, the calls that they have made, and their receipts.
    """

    stored: Sequence[Sequence[Any]]
    in_memory: bytes
    state: State
    journal: Journal
    lost_bodies: frozenset[str]
    carried_out: int
    has_room: bool


class CheckedQueue(RuleBasedStateMachine):
    """One queue, twice. Subclasses add the rules and the world."""

    world: ClassVar[World]
    caller: ClassVar[type[Caller]] = Caller

    def __init__(self) -> None:
        super().__init__()
        world = self.world
        self.queue = Queue(world.wire, f"model{next(world.numbers)}", crash_limit=CRASH_LIMIT)
        self.keys = self.queue.keys
        self.counted = b"counted-of-" + self.keys.name.encode()
        self.copied = copies.Copied(self.keys, self.counted)
        self.engine = Engine(Clock())
        self.engine.clock.freeze()
        self.now = NOW
        self.earliest = 0
        """The clock of a new primary never shows a time that was shown before, or fences would not grow."""
        self.callers = {stream: self.caller(stream) for stream in STREAMS}
        self.carried_out: list[Made] = []
        """The numbered calls in the history of the queue, by the machine's record."""
        self.moments: deque[Moment] = deque(maxlen=MOST_LOST)
        """Each is the moment before a call, the latest last."""
        self.may_fail_over = True
        """Whether moments are kept, which makes a history a third slower."""
        self.receipts: list[Receipt] = []
        self.ids: list[str] = []
        self.lost_bodies: set[str] = set()
        self.journal = Journal()
        self.numbers = itertools.count()
        self.is_full = False
        self.has_room = False
        """Whether leases have ended since the last claim."""
        self._set_clocks(NOW)
        world.wire.post([("CONFIG", "SET", "maxmemory", "0")])
        self.queue.watch_streams(*STREAMS)
        self.state, self.last_now = self._looked()

    def teardown(self) -> None:
        self.world.wire.post([("CONFIG", "SET", "maxmemory", "0")])
        self.is_full = False
        try:
            self._drain()
        finally:
            self.queue.wire.carry(ops.delete(self.keys), b"teardown", 1)
            self.copied.put_back(self.queue.wire, ())

    # A step.

    def _do(self, call: Call[Any], stream: bytes, follow: Follow = lambda _: None) -> Any:
        """Make a new call on both sides; compare, dump, check. An error is returned as its text.

        `follow` is called with the outcome: now, and once more if a fail-over undoes the call and it is repeated.
        """
        caller = self.callers[stream]
        made = caller.make(call, follow)
        answer = self._attempt(caller, made)
        if made in self.carried_out:
            caller.made.append(made)
        return answer

    def _attempt(self, caller: Caller, made: Made) -> Any:
        """Make a call for the first time, or once more."""
        call, (stream, sequence) = made.call, caller.numbered(made)
        wire = self.world.wire
        is_refused = self.is_full and call.script.name in ("send", "send_checked")
        # An overtaken send is refused either way, by the shorter script for want of memory.
        is_refused = is_refused and not self._is_known(stream, sequence, or_later=call.script.name != "send")
        before, before_now, blocking = self.state, self.last_now, frozenset(self.journal.blocking)
        copying = [self.copied.spelled(wire)] if self.may_fail_over else []
        *stored, answer, dump, stats = wire.post(
            [
                *copying,
                wire.spelled(call, stream, sequence),
                self.queue.spelled_dump(),
                wire.spelled(ops.stats(self.keys), b"", 0),
            ]
        )
        self.moments.extend(map(self._moment, stored))
        self.state, self.last_now = self.queue.read_dump(dump), stats[0]
        if is_refused:
            check("OOM" in str(answer), "a full server took a send", answer)
            check(self.state == before, "a refused send changed", *self.state.differences(before))
            return str(answer)
        answer = self._same_answer(call, answer, stream, sequence, before)
        is_repeat = made in self.carried_out
        self._check_token(call, answer, before, is_new=not is_repeat)
        is_claim = (
            not is_repeat and call.script.name == "claim" and int(str(call.args[1])) > 0
        )  # others change no limit
        self.has_room = not is_claim and (self.has_room or bool(set(before.leased) - set(self.state.leased)))
        self._same_stats(stats)
        self._same_state()
        self._check_moves(call.script.name, before, before_now)
        self._check_attempts(call.script.name, before)
        self.journal.ended(_live_ids(self.state), set(self.state.dead))
        if is_repeat:
            check(self.state == before, "I6 a call was carried out twice", call, *self.state.differences(before))
        elif not isinstance(answer, str):
            if call.writes:
                self.carried_out.append(made)
            made.follow(Outcome(answer, before, before_now, before_now - self.now, blocking))
        return answer

    def _moment(self, stored: Sequence[Sequence[Any]]) -> Moment:
        """Make the moment of now. `stored` is a copy of the queue on the server."""
        return Moment(
            stored,
            copies.copy_of(self.engine),
            self.state,
            self.journal.copy(),
            frozenset(self.lost_bodies),
            len(self.carried_out),
            self.has_room,
        )

    def _set_back(self, moment: Moment) -> None:
        """Set the queue back to a moment on both sides. Time does not go back."""
        shown = self.last_now
        self._restore(moment)
        copies.put_back_in(self.engine, moment.in_memory)
        self.journal = moment.journal.copy()
        self.lost_bodies = set(moment.lost_bodies)
        del self.carried_out[moment.carried_out :]
        self.has_room = moment.has_room
        self.state, self.last_now = self._looked()
        self._same_state()
        self._check_same_as(moment.state)
        self.earliest = max(shown, self.earliest)
        self._move_clocks(max(self.earliest - self.now, 0))

    def _check_same_as(self, earlier: State) -> None:
        """Check that the queue is in an earlier state, but for keys that have expired since."""
        fading = ("calls", "dedup", "dedup_ends")
        changed = [name for name in self.state.differences(earlier) if name not in fading]
        check(not changed, "the new primary differs in", *changed)
        for name in fading:
            mine, theirs = getattr(self.state, name), getattr(earlier, name)
            check(mine.items() <= theirs.items(), f"the new primary differs in {name}", mine, theirs)

    def _reconnect(self) -> None:
        """Connect all clients to the new primary. They keep what they know."""
        for caller in self.callers.values():
            caller.reconnect()

    def _restore(self, moment: Moment) -> None:
        """Make the server one that is at a moment."""
        wire = self.world.wire
        wire.run("CONFIG", "SET", "maxmemory", "0")
        self.copied.put_back(wire, moment.stored)
        wire.run("CONFIG", "SET", "maxmemory", "1" if self.is_full else "0")

    def _check_token(self, call: Call[Any], answer: Any, before: State, *, is_new: bool) -> None:
        """Check that a consumer that blocks is woken when it must be."""
        if call.script.name != "claim":
            fault = tokens.fault(call.script.name, before, self.state, self.last_now)
        elif is_new and not isinstance(answer, str):
            fault = tokens.fault_of_claim(call.args, answer, before, self.state)
        else:
            return
        check(not fault, fault, call.script.name, answer, self.state.wake)

    def _same_answer(self, call: Call[Any], answer: Any, stream: bytes, sequence: int, before: State) -> Any:
        if isinstance(answer, Exception):
            answer = str(answer)
            if "OVERTAKEN" not in answer and "OOM" not in answer:
                raise Accident(f"{call.script.name}: {answer}")
        try:
            done = following.Done(answer, before, self.state)
            expected = following.call(self.engine, call, stream, sequence, done)
        except ErrorReply as error:
            expected = str(error)
        check(answer == expected, f"the engines differ on {call.script.name}", answer, expected)
        return answer

    def _same_stats(self, answer: list[Any]) -> None:
        expected = self.engine.call(ops.stats(self.keys), b"", 0)
        mine, theirs = (alike.without_lateness(each) for each in (answer, expected))
        check(mine[:12] == theirs[:12], "the engines differ on stats", mine[:12], theirs[:12])
        check(views.stats(mine) == views.stats(theirs), "the engines differ on counters", mine, theirs)
        self.stats = views.stats(answer)

    def _same_state(self) -> None:
        found = alike.differences(self.state, alike.stored(self.engine, self.keys), has_room=self.has_room)
        check(not found, "the engines differ on their state", *found)

    def _looked(self) -> tuple[State, int]:
        wire = self.world.wire
        forecast = ops.forecast(self.keys, FORESEEN)
        dump, stats, due = wire.post(
            [self.queue.spelled_dump(), *(wire.spelled(call, b"", 0) for call in (ops.stats(self.keys), forecast))]
        )
        self._same_stats(stats)
        expected = self.engine.call(forecast, b"", 0)
        check(due == expected, "the engines differ on forecast", due, expected)
        return self.queue.read_dump(dump), stats[0]

    def _set_clocks(self, us: int) -> None:
        self.now = us
        self.world.clock.freeze(us)
        self.engine.clock.set_us(us)

    def _move_clocks(self, us: int) -> None:
        self._set_clocks(self.now + us)
        if us >= CALLS_FORGOTTEN:
            for caller in self.callers.values():
                caller.made.clear()
        self.state, self.last_now = self._looked()

    def _is_known(self, stream: bytes, sequence: int, *, or_later: bool = False) -> bool:
        stored = self.state.calls.get(stream)
        last = sequence_of(stored) if stored else -1
        return last >= sequence if or_later else last == sequence

    # Invariants.

    @invariant()
    def check_i1_conservation(self) -> None:
        audit = Audit("", self.stats, 0, (), repaired=False)
        check(audit.difference == 0, "I1 the accounts are wrong by", audit.difference)
        if not self.lost_bodies:
            state = self.state
            over = {*state.dead, *state.done}
            sizes = [
                sum(len(state.msgs[id_]) for id_ in ids) for ids in (set(state.msgs) - over, state.dead, state.done)
            ]
            counted = [self.stats.bytes, self.stats.dead_bytes, self.stats.done_bytes]
            check(sizes == counted, "I1 bytes", sizes, counted)
        self._check_bytes_of_rows()

    def _check_bytes_of_rows(self) -> None:
        """Check that each script has counted the rows that it changed: `stats` would count them again."""
        state, stats = self.state, self.stats
        for field, ids, grows, counted in (
            ("dead_why", state.dead, "buried", stats.dead_why_bytes),
            ("done_why", state.done, "done_trimmed", stats.done_why_bytes),
        ):
            right = f"{counted} {len(ids)} {state.stats.get(grows, 0)} {state.stats.get('repairs', 0)}"
            check(not ids or state.meta.get(field) == right, "I1 bytes of rows", field, state.meta.get(field), right)

    @invariant()
    def check_i2_one_place(self) -> None:
        state = self.state
        for id_ in _all_ids(state):
            check(len(state.places(id_)) == 1, "I2 not in exactly one place", id_, state.places(id_))
        placed = {*_live_ids(state), *state.dead, *state.done}
        check(placed - set(state.msgs) <= self.lost_bodies, "I2 a place without a body", placed - set(state.msgs))
        check(
            set(state.counts) <= placed - set(state.dead) - set(state.done), "I2 counts without a message", state.counts
        )
        check(set(state.why) <= placed, "I2 why without a message", state.why)
        check({*state.dead, *state.done} <= set(state.why), "I2 over, without a reason", state.why)
        check(set(state.why) & _live_ids(state) <= set(state.counts), "I2 why without counts", state.why)
        waiting = {*_waiting_ids(state), *state.parked_ids()}
        with_ttl = {id_ for id_ in waiting if id_ in state.msgs and state.msgs[id_][17] & codec.FLAG_TTL}
        check(with_ttl <= set(state.expires), "I2 a ttl that is not watched", with_ttl, state.expires)
        check(
            set(state.expires) - with_ttl <= self.lost_bodies, "I2 expires without a message", state.expires, with_ttl
        )

    @invariant()
    def check_i4_one_lease(self) -> None:
        check(set(self.state.leases) == set(self.state.leased), "I4 leases and leased", self.state.leases)

    @invariant()
    def check_i7_lanes(self) -> None:
        """One of a key is out; who is parked has one in front that is out, may be out, or is dead and waited for."""
        state, journal = self.state, self.journal
        keys = [journal.key_of(id_) for id_ in state.leased]
        out = [key for key in keys if key is not None]
        check(len(out) == len(set(out)), "I7 two of a key are out", state.leased)
        lanes = {key: (lane[:1], lane[1:]) for key, lane in state.lanes.items() if key}
        for id_ in state.parked_ids():
            mark, owner = lanes.get(journal.key_of(id_) or "", ("", ""))
            check(mark == "+" and owner not in ("", id_), "I7 parked behind no message", id_, state.lanes)
        for key, (_, owner) in lanes.items():
            if owner in self.lost_bodies:
                continue
            place = (state.places(owner) or ["nowhere"])[0]
            is_waited_for = place == "dead" and owner in journal.blocking
            check(
                journal.key_of(owner) == key and (place == "leased" or place.startswith("waiting") or is_waited_for),
                "I7 a lane without a message",
                key,
                owner,
                place,
            )
        for id_ in state.leased:
            own = journal.key_of(id_)
            check(own is None or lanes.get(own, ("", ""))[1] == id_, "I7 out without its lane", id_, state.lanes)

    @invariant()
    def check_i8_limits(self) -> None:
        state = self.state
        for id_, counts in state.counts.items():
            check(counts.crashes < CRASH_LIMIT, "I8 alive beyond the crash limit", id_, counts)
        for id_ in state.dead:
            why = state.why[id_]
            check(why.reason != "poison" or why.crashes >= CRASH_LIMIT, "I8 dead before the crash limit", id_, why)

    @invariant()
    def check_i9_no_leftovers(self) -> None:
        state = self.state
        check(set(state.dedup) == set(state.dedup_ends), "I9 half a dedup window", state.dedup)
        if not _all_ids(state):
            left = (state.leases, state.counts, state.why, state.expires)
            check(not any(left), "I9 an empty queue left", left)
            check(not state.lanes or bool(self.lost_bodies), "I9 an empty queue left lanes", state.lanes)

    def _check_moves(self, script: str, before: State, before_now: int) -> None:
        verbs = VERBS.get(script, frozenset())
        after = self.state
        for id_ in {*_all_ids(before), *_all_ids(after)}:
            old, new = _state_of(before, id_, before_now), _state_of(after, id_, self.last_now)
            reachable = _reachable(old, verbs, is_lost=id_ in self.lost_bodies)
            check(new in reachable, f"no move of {script} leads there", id_, old, new)

    def _check_attempts(self, script: str, before: State) -> None:
        if script in NEW_LIFE:
            return
        for id_, counts in before.counts.items():
            now = self.state.counts.get(id_) or self.state.why.get(id_)
            if now and id_ not in self.state.done:
                is_less = now.failures < counts.failures or now.crashes < counts.crashes
                check(not is_less, "I8 attempts fell", id_, counts, now)
            elif id_ in _live_ids(self.state):
                raise Broken(f"I8 attempts were forgotten: {id_!r}")

    def _drain(self) -> None:
        """Finish everything, and see that nothing is left behind (I9)."""
        stream = STREAMS[0]
        self._do(ops.resume(self.keys), stream)
        self._set_clocks(max(self.now, int(self.state.meta.get("clock", 0))) + 200 * SECOND)
        for _ in range(100):
            self._consume(stream)
            for state in ("dead", "done"):
                self._do(ops.purge(self.keys, state, 1000), stream)
            if self.lost_bodies:
                self._audit("lanes")  # a lane waits for a lost message: only an audit finds it
            if not _live_ids(self.state):
                break
        else:
            raise Broken(f"the queue cannot be drained: {self.state}")
        self._do(ops.claim(self.keys, self.queue.options, limit=1, lease=30, consumer="drain", then="watch"), stream)
        left = {name for name in self.queue.key_names() if not name.startswith("call:")}
        allowed = {"meta", "dedup", "dedup_ends"}
        check(left <= allowed, "I9 left behind", left - allowed)

    def _consume(self, stream: bytes) -> None:
        """Finish all that can be had: of a lane, one at a time."""
        for _ in range(2 * len(_live_ids(self.state)) + 100):
            call = ops.claim(self.keys, self.queue.options, limit=1000, lease=30, consumer="drain", then="watch")
            claimed = replies.claimed(self._do(call, stream))
            if claimed.ids:
                settles = [ops.Settle(id_.decode(), claimed.fence) for id_ in claimed.ids]
                self._do(ops.ack(self.keys, self.queue.options, settles), stream)
            elif claimed.next_in is None:
                return
            else:
                self._move_clocks(round(claimed.next_in * SECOND))
        raise Broken(f"there is no end to it: {self.state}")

    def _audit(self, source: str) -> None:
        """Repair one key on both sides, which must find the same."""
        call = ops.audit_step(self.keys, source, "0", repair=True)
        answer, expected = self.world.wire.run(*self.world.wire.spelled(call, b"", 0)), self.engine.call(call, b"", 0)
        mine, theirs = call.decode(answer), call.decode(expected)
        is_same = sorted(map(repr, mine.faults)) == sorted(map(repr, theirs.faults)) and mine[:3] == theirs[:3]
        check(is_same, "the engines differ on an audit", mine, theirs)
        self.state, self.last_now = self._looked()
        self._same_state()

    def _check_audit(self) -> None:
        """Check that an audit finds no fault, unless a body was lost."""
        if self.lost_bodies:
            return
        wire = self.world.wire
        calls = [ops.audit_step(self.keys, source, "0", repair=False) for source in ("keys", *ops.AUDITED)]
        answers = wire.post([wire.spelled(call, b"", 0) for call in calls])
        for call, answer in zip(calls, answers, strict=True):
            found = call.decode(answer).faults
            check(not found, "an audit found", *found)

    # Claims.

    def _check_claim(self, before: State, claimed: replies.Claimed) -> None:
        taken = [id_.decode() for id_ in claimed.ids]
        latest = max((receipt.fence for receipt in self.receipts), default=0)
        check(not taken or claimed.fence > latest, "I4 a fence that does not grow", claimed.fence, latest)
        reclaimed = {row.id for row in claimed.reclaimed}
        for id_ in taken:
            is_free = id_ not in before.leased or id_ in reclaimed
            check(is_free, "I4 delivered while another consumer held it", id_)
            check(self.journal.not_before(id_) <= claimed.now, "I3 early", id_, claimed.now)
        for id_ in reclaimed:
            check(before.leased[id_] <= claimed.now, "I4 taken back before its deadline", id_)
            had = before.counts.get(id_, codec.Counts()).crashes
            after = self.state
            has = after.counts[id_].crashes if id_ in after.counts else None
            if id_ in after.why and id_ in after.dead:
                has = after.why[id_].crashes
            gone = not after.places(id_)  # past its ttl, or trimmed
            check(gone or has == had + 1, "I8 a crash that was not counted", id_, had, has)

    def _check_lanes(self, before: State, claimed: replies.Claimed) -> None:
        """Check the order of lanes (I7) by sends and deliveries, not by the lanes of the queue."""
        journal = self.journal
        for id_ in [id_.decode() for id_ in claimed.ids]:
            key = journal.key_of(id_)
            if key is None:
                continue
            others = {other for other in _live_ids(self.state) if journal.key_of(other) == key and other != id_}
            check(not others & journal.begun, "I7 delivered before another of its key was over", id_, others)
            waited_for = {other for other in journal.blocking & set(self.state.dead) if journal.key_of(other) == key}
            check(waited_for <= self.lost_bodies, "I7 delivered behind a dead letter", id_, waited_for)
            if id_ not in journal.begun | journal.promised:
                self._check_turn(before, id_, others, claimed.now)
            journal.begun.add(id_)

    def _check_turn(self, before: State, id_: str, others: set[str], now: int) -> None:
        """Check that a message that begins is the first of its key by priority, unless its lane was promised before."""
        was_free = self.journal.key_of(id_) not in before.lanes
        mine, my_due = self.journal.priority_of(id_), self._asked_due(id_)
        for other in others - self.lost_bodies:
            theirs, due = self.journal.priority_of(other), self._asked_due(other)
            if due > now or (theirs != mine and not was_free):
                continue
            check((-mine, my_due, id_) < (-theirs, due, other), "I7 delivered before an earlier one", id_, other)

    def _asked_due(self, id_: str) -> int:
        return codec.read_stamps(self.state.msgs[id_])[1]

    def _check_limits(self, before: State, claimed: replies.Claimed, options: QueueOptions) -> None:
        most = options.max_in_flight
        if most is not None:
            out = len(self.state.leased)
            check(out <= max(most, len(before.leased)), "more in flight than allowed", out, most)
            check(not claimed.ids or out <= most, "delivered beyond max_in_flight", out, most)
        if options.rate is not None:
            was_kept = before.meta.get("limited", "0") != "0"
            is_kept = self.journal.delivered(
                claimed.now, len(claimed.ids), interval_of(options.rate), was_kept=was_kept
            )
            check(is_kept, "delivered faster than the rate", claimed, options.rate)
        is_due = any(due <= claimed.now for ids in self.state.waiting.values() for due in ids.values())
        if claimed.is_limited:
            check(is_due and (options.rate is not None or most is not None), "limited by nothing", claimed)
        elif options.rate is None and most is None and not claimed.is_paused and not claimed.passed_over:
            check(claimed.next_in == 0 or not is_due, "left due messages without reporting more", claimed)

    def _check_suspects(self, claimed: replies.Claimed, suspects: ops.Suspects) -> None:
        """No message is in danger to be counted for its last time because of another (I8)."""
        taken = [id_.decode() for id_ in claimed.ids]
        suspected = [id_ for id_ in taken if self._is_suspect(id_)]
        if suspects == "none":
            check(not suspected, "I8 a suspect went to a caller that holds something", suspected)
        if suspects == "alone":
            check(not suspected or len(taken) == 1, "I8 a suspect went out with others", suspected, taken)
        left = [id_ for id_ in _waiting_ids(self.state) if self._is_suspect(id_) and self.state.due(id_) <= claimed.now]
        if claimed.passed_over:
            check(bool(left), "a suspect was passed over that is not there", claimed)
        elif suspects != "with" and claimed.next_in != 0 and not claimed.is_paused and not claimed.is_limited:
            check(not left, "a suspect was passed over without a word", left)

    def _check_look_ahead(
        self, before: State, claimed: replies.Claimed, options: QueueOptions, limit: int, suspects: ops.Suspects
    ) -> None:
        """Check that a claim stops before its limit, and reports more, only where it may.

        It reads ahead by a bounded number. So it may stop behind messages that it could not deliver, and behind a
        suspect that goes alone. Skipped suspects are not a reason, or the caller would spin. Behind messages
        that it parked, it may stop when it has half of what it may take, or has parked all that a call may. When it had
        to search for suspects, it may stop with the messages that it read, or with those that a limit allows.
        """
        after, taken = self.state, {id_.decode() for id_ in claimed.ids}
        if claimed.next_in != 0 or len(taken) == limit:
            return
        is_alone = suspects == "alone" and len(taken) == 1 and all(map(self._is_suspect, taken))
        dead_or_gone = _live_ids(before) - _live_ids(after)
        owners = {lane[1:] for key, lane in after.lanes.items() if before.lanes.get(key, lane)[1:] != lane[1:]}
        came_last = owners & _waiting_ids(after)  # the end of a dead letter has let it in
        has_expired = any(each <= claimed.now for each in after.leased.values())  # a claim behind a block leaves it
        if is_alone or dead_or_gone or came_last or has_expired:
            return
        parked = len(set(after.parked_ids()) - set(before.parked_ids()))
        check(parked <= PARKED_PER_CALL, "I11 parked too many", parked)
        has_limit = options.rate is not None or options.max_in_flight is not None
        if suspects != "with" and (before.counts or after.counts) and (parked or has_limit):
            return
        may_stop = has_limit or 2 * len(taken) >= limit or parked == PARKED_PER_CALL
        check(parked > 0 and may_stop, "stopped for no reason", claimed, limit)

    def _check_lateness(self, claimed: replies.Claimed) -> None:
        """Check that the lateness is that of a claimed message: of the first, or of one that is later."""
        rows = zip(claimed.ids, claimed.records, strict=True)
        late = [claimed.now - (self._counted_due(id_.decode()) or codec.read_stamps(record)[1]) for id_, record in rows]
        lateness = int(self.state.meta.get("lateness", 0))
        check(not late or late[0] <= lateness <= max(late), "the lateness is", lateness, late)

    def _counted_due(self, id_: str) -> int:
        return self.state.counts.get(id_, codec.Counts()).due

    def _is_suspect(self, id_: str) -> bool:
        return self.state.counts.get(id_, codec.Counts()).crashes >= CRASH_LIMIT - 1

    # Settling.

    def _check_settle(self, before: State, settles: Sequence[ops.Settle], answer: Any) -> None:
        seen: set[str] = set()
        lost = []
        for position, settle in enumerate(settles, 1):
            lease = before.leases.get(settle.id)
            if lease and lease.fence == settle.fence and settle.id not in seen:
                seen.add(settle.id)
            else:
                lost.append(position)
        check(answer == lost, "I5 the wrong ones were reported as lost", answer, lost)
        if not seen:
            check(self.state == before, "I5 a stale fence changed", *self.state.differences(before))
        for settle in settles:
            # A parked message may get a lane from another settle of the call.
            is_apart = before.places(settle.id) != ["parked"] and settle.id not in self.trimmed(before)
            if settle.id not in seen and is_apart:
                rows = [
                    (s.places(settle.id), s.leases.get(settle.id), s.counts.get(settle.id))
                    for s in (before, self.state)
                ]
                check(rows[0] == rows[1], "I5 a stale fence changed a message", settle.id, *rows)

    def trimmed(self, before: State) -> set[str]:
        """Name the messages that were dead or finished before, and are gone."""
        return {id_ for id_ in (*before.dead, *before.done) if not self.state.places(id_)}


def sequence_of(stored: bytes) -> int:
    return int(struct.unpack_from("<d", stored)[0])


def _waiting_ids(state: State) -> set[str]:
    return {id_ for ids in state.waiting.values() for id_ in ids}


def _live_ids(state: State) -> set[str]:
    return {*state.leased, *_waiting_ids(state), *state.parked_ids()}


def _all_ids(state: State) -> set[str]:
    return {*state.msgs, *state.dead, *state.done, *_live_ids(state)}


def _state_of(state: State, id_: str, now: int) -> str | None:
    for place in state.places(id_):
        if place.startswith("waiting"):
            return "ready" if state.due(id_) <= now else "delayed"
        return place
    return None


_EDGES: Final[dict[tuple[str | None, str], set[str | None]]] = {}
for _old, _verb, _new in MOVES:
    _EDGES.setdefault((_old, _verb), set()).add(_new)

_SEEN: dict[tuple[str | None, frozenset[str], bool], set[str | None]] = {}


def _reachable(old: str | None, verbs: frozenset[str], *, is_lost: bool) -> set[str | None]:
    """Follow rows of MOVES from a state, as far as these verbs and time lead."""
    key = (old, verbs, is_lost)
    if key not in _SEEN:
        found: set[str | None] = {old}
        frontier = [old]
        while frontier:
            state = frontier.pop()
            steps: set[str | None] = set()
            for verb in (*verbs, "wait"):
                steps |= _EDGES.get((state, verb), set())
            if is_lost and state == "leased" and verbs & {"retry", "defer", "release", "recycle"}:
                steps.add("dead")  # it cannot be delivered again
            frontier += steps - found
            found |= steps
        _SEEN[key] = found
    return _SEEN[key]
