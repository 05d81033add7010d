"""The same calls on the real scripts and on the memory engine, in random histories.

After every step both must have answered the same, and what the real queue holds is checked against the
invariants of docs/protocol.md and the table of moves. Both clocks stand still and are moved by the machine.
"""

import itertools
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from duly._core import codec, ops, replies, views
from duly._core.call import Call
from duly._core.effects import Effect
from duly._core.outgoing import Outgoing
from duly._core.verbs import MOVES
from duly.memory.clock import Clock
from duly.memory.engine import Engine, ErrorReply
from duly.message import Audit
from duly.options import Keep, OnDead, QueueOptions, interval_of
from tests.binaries import Kind
from tests.clock import ServerClock
from tests.lua.harness import NOW, SECOND, Queue, State, Wire
from tests.model import alike, following, tokens
from tests.model.journal import Journal
from tests.servers import Server

STREAMS: Final = (b"one", b"two")
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
    # Those that give back hand a lane on when the body was lost meanwhile.
    **{verb: frozenset({verb, "hand on"}) for verb in ("retry", "defer", "release", "recycle")},
    **{verb: frozenset({verb, "hand on"}) for verb in ("cancel", "reschedule", "redrive", "purge")},
    "extend": frozenset({"extend"}),
    "progress": frozenset({"progress"}),
    "keep_result": frozenset(),
}
"""What each script may do to messages; time passes in all of them."""

NEW_LIFE: Final = frozenset({"send", "send_checked", "commit", "recycle", "redrive", "cancel", "purge"})
"""After these a message may have fewer attempts than before."""


CRASH_LIMIT: Final = 2
PARKED_PER_CALL: Final = 1000


class Broken(AssertionError):
    """The real queue did what it must not."""


class Accident(Exception):
    """A script failed: that tells nothing about the machine's judgement."""


def check(is_kept: bool, what: str, *seen: object) -> None:
    if not is_kept:
        raise Broken(f"{what}: {', '.join(map(repr, seen))}")


@dataclass
class World:
    """The real server that all examples share, and its clock."""

    server: Server
    clock: ServerClock
    wire: Wire
    numbers: Iterator[int] = field(default_factory=itertools.count)


@contextmanager
def started_world(kind: Kind = "valkey", texts: Mapping[str, str] = {}) -> Iterator[World]:
    """Start a server whose clock stands still. `texts` are scripts that differ from ours."""
    with (
        ServerClock() as clock,
        Server(kind, environment=clock.environment()) as server,
        Wire(server, texts) as wire,
    ):
        yield World(server, clock, wire)


class Receipt(NamedTuple):
    """A delivery that was made at some time: it may be settled, rightly or too late."""

    id: str
    fence: int
    has_key: bool


class Draft(NamedTuple):
    """What the machine draws for a message."""

    size: int
    when: Any
    priority: int
    ttl: float | None
    own: int | None
    dedup: str | None
    replace: bool
    key: str | None = None


drafts = st.builds(
    Draft,
    size=st.sampled_from((0, 10, 200)),
    when=st.sampled_from((None, None, None, 0, 0.5, 20, ("at", -5), ("at", 3), ("at", 40))),
    priority=st.sampled_from((0, 0, 0, 5, 9)),
    ttl=st.sampled_from((None, None, None, 2, 60)),
    own=st.sampled_from((None, None, 0, 1)),
    dedup=st.sampled_from((None, None, "x", "y")),
    replace=st.booleans(),
    key=st.sampled_from((None, None, "k", "k", "k2")),
)
picks = st.integers(0, 997)
choices = st.lists(st.tuples(st.sampled_from((True, True, True, False)), picks), min_size=1, max_size=3)
"""Whether a lease that is out, or any that ever was; and which."""
streams = st.sampled_from(STREAMS)
bounds = st.sampled_from(({}, {}, {"max_length": 3}, {"max_length": 6}, {"max_bytes": 400}))
keeps = st.sampled_from((Keep(), Keep(), Keep(count=0), Keep(count=2), Keep(age=10), Keep(bytes=300)))
delays = st.sampled_from((0, 0, 0.000001, 1, 25))
on_deads: st.SearchStrategy[OnDead] = st.sampled_from(("continue", "block"))
limits = st.sampled_from(
    ({}, {}, {}, {"rate": "2/s"}, {"rate": "30/s"}, {"max_in_flight": 1}, {"max_in_flight": 3},
     {"rate": "20/s", "max_in_flight": 2})
)  # fmt: skip
states = st.sampled_from(("ready", "delayed", "parked", "parked", "leased", "dead", "done"))


class QueueMachine(RuleBasedStateMachine):
    """One queue, twice. Subclasses give the world."""

    world: ClassVar[World]

    def __init__(self) -> None:
        super().__init__()
        world = self.world
        self.queue = Queue(world.wire, f"model{next(world.numbers)}", crash_limit=CRASH_LIMIT)
        self.keys = self.queue.keys
        self.counted = b"counted-of-" + self.keys.name.encode()
        self.engine = Engine(Clock())
        self.engine.clock.freeze()
        self.now = NOW
        self.sequences = dict.fromkeys(STREAMS, 0)
        self.history: dict[bytes, list[tuple[Call[Any], int]]] = {stream: [] for stream in STREAMS}
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
            streams = (*STREAMS, b"teardown")
            self.queue.wire.post([("UNLINK", self.counted, *(self.keys.call(stream) for stream in streams))])

    # Sending.

    @initialize(batch=st.lists(drafts, min_size=1, max_size=4))
    def begin(self, batch: list[Draft]) -> None:
        self._send(STREAMS[0], batch, {}, "each")

    @rule(
        stream=streams,
        batch=st.lists(drafts, min_size=1, max_size=4),
        bound=bounds,
        on_refusal=st.sampled_from(("each", "all", "drop")),
    )
    def send(self, stream: bytes, batch: list[Draft], bound: dict[str, int], on_refusal: ops.OnRefusal) -> None:
        self._send(stream, batch, bound, on_refusal)

    @rule(stream=streams, count=st.integers(1, 5), is_repeated=st.booleans())
    def send_plain(self, stream: bytes, count: int, is_repeated: bool) -> None:
        plain = Draft(10, None, 0, None, None, None, replace=False)
        self._send(stream, [plain] * count, {}, "each")
        if is_repeated:
            self.lose_a_reply_and_repeat(stream)

    @rule(stream=streams, count=st.integers(2, 5), key=st.sampled_from(("k", "k2")), priority=st.sampled_from((0, 5)))
    def send_in_a_lane(self, stream: bytes, count: int, key: str, priority: int) -> None:
        self._send(stream, [Draft(10, None, priority, None, None, None, replace=False, key=key)] * count, {}, "each")

    def _send(self, stream: bytes, batch: list[Draft], bound: dict[str, int], on_refusal: ops.OnRefusal) -> None:
        messages = [self._outgoing(draft) for draft in batch]
        options = type(self.queue.options)(crash_limit=CRASH_LIMIT, **bound)  # type: ignore[arg-type]
        self.ids += [message.id for message in messages if message.id not in self.ids]
        now, ahead = self.last_now, self.last_now - self.now
        answer = self._do(ops.send(self.keys, messages, options, on_refusal), stream)
        if not isinstance(answer, str):
            self.journal.sent(messages, answer, now, ahead)

    def _outgoing(self, draft: Draft) -> Outgoing:
        own = None if draft.own is None else f"own-{draft.own}"
        options: dict[str, Any] = {
            "priority": draft.priority, "ttl": draft.ttl, "dedup": draft.dedup, "key": draft.key
        }  # fmt: skip
        if draft.dedup:
            options |= {"replace": draft.replace, "dedup_for": 30}
        if isinstance(draft.when, tuple):
            options["at"] = self.now / SECOND + draft.when[1]
        else:
            options["delay"] = draft.when
        return self.queue.outgoing(own or f"m{next(self.numbers)}", b"." * draft.size, own=own is not None, **options)

    # Consuming.

    @rule(
        stream=streams,
        limit=st.integers(1, 6),
        lease=st.sampled_from((0.5, 30, 30)),
        then=st.sampled_from(("watch", "stay", "stay", "pass", "leave")),
        suspects=st.sampled_from(("with", "with", "none", "alone", "alone")),
        dead=keeps,
        on_dead=on_deads,
        limited=limits,
    )
    def claim(
        self,
        stream: bytes,
        limit: int,
        lease: float,
        then: ops.Then,
        suspects: ops.Suspects,
        dead: Keep,
        on_dead: OnDead = "continue",
        limited: Mapping[str, Any] = {},
    ) -> None:
        options = QueueOptions(crash_limit=CRASH_LIMIT, dead=dead, on_dead=on_dead, **limited)
        call = ops.claim(
            self.keys, options, limit=limit, lease=lease, consumer=stream.decode(), then=then, suspects=suspects
        )
        before = self.state
        answer = self._do(call, stream)
        claimed = replies.claimed(answer)
        self._check_claim(before, claimed)
        self._check_lanes(before, claimed)
        self._check_limits(before, claimed, options)
        self._check_suspects(claimed, suspects)
        self._check_look_ahead(before, claimed, options, limit, suspects)
        self._check_lateness(claimed)
        if on_dead == "block":
            self.journal.block(row.id for row in claimed.reclaimed if row.is_dead and row.id in self.state.msgs)
        for id_, record in zip(claimed.ids, claimed.records, strict=True):
            self.receipts.append(Receipt(id_.decode(), claimed.fence, codec.has_key(record)))

    def _check_claim(self, before: State, claimed: replies.Claimed) -> None:
        taken = [id_.decode() for id_ in claimed.ids]
        latest = max((receipt.fence for receipt in self.receipts), default=0)
        check(not taken or claimed.fence > latest, "I4 a fence that does not grow", claimed.fence, latest)
        reclaimed = {row.id for row in claimed.reclaimed}
        for id_ in taken:
            is_free = id_ not in before.leased or id_ in reclaimed
            check(is_free, "I4 handed out while somebody held it", id_)
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
        """See that lanes are kept (I7), by what was sent and handed out, not by what the queue says of lanes."""
        journal = self.journal
        for id_ in [id_.decode() for id_ in claimed.ids]:
            key = journal.key_of(id_)
            if key is None:
                continue
            others = {other for other in _live_ids(self.state) if journal.key_of(other) == key and other != id_}
            check(not others & journal.begun, "I7 handed out before another of its key was over", id_, others)
            waited_for = {other for other in journal.blocking & set(self.state.dead) if journal.key_of(other) == key}
            check(waited_for <= self.lost_bodies, "I7 handed out behind a dead letter", id_, waited_for)
            if id_ not in journal.begun | journal.promised:
                self._check_turn(before, id_, others, claimed.now)
            journal.begun.add(id_)

    def _check_turn(self, before: State, id_: str, others: set[str], now: int) -> None:
        """See that a message that begins is the first of its key: by priority, unless its lane was promised before."""
        was_free = self.journal.key_of(id_) not in before.lanes
        mine, my_due = self.journal.priority_of(id_), self._asked_due(id_)
        for other in others - self.lost_bodies:
            theirs, due = self.journal.priority_of(other), self._asked_due(other)
            if due > now or (theirs != mine and not was_free):
                continue
            check(
                (-mine, my_due, id_) < (-theirs, due, other), "I7 handed out before one that is before it", id_, other
            )

    def _asked_due(self, id_: str) -> int:
        return codec.read_stamps(self.state.msgs[id_])[1]

    def _check_limits(self, before: State, claimed: replies.Claimed, options: QueueOptions) -> None:
        most = options.max_in_flight
        if most is not None:
            out = len(self.state.leased)
            check(out <= max(most, len(before.leased)), "more in flight than allowed", out, most)
            check(not claimed.ids or out <= most, "handed out beyond max_in_flight", out, most)
        if options.rate is not None:
            was_kept = before.meta.get("limited", "0") != "0"
            is_kept = self.journal.delivered(
                claimed.now, len(claimed.ids), interval_of(options.rate), was_kept=was_kept
            )
            check(is_kept, "handed out faster than the rate", claimed, options.rate)
        is_due = any(due <= claimed.now for ids in self.state.waiting.values() for due in ids.values())
        if claimed.is_limited:
            check(is_due and (options.rate is not None or most is not None), "limited by nothing", claimed)
        elif options.rate is None and most is None and not claimed.is_paused and not claimed.passed_over:
            check(claimed.next_in == 0 or not is_due, "left what is due without a word", claimed)

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
        """See that a claim stops before its limit, and says that there may be more, only where it may.

        It looks ahead by a bounded number. So it may stop behind messages that it could not deliver, and behind a
        suspect that goes alone. Suspects that were passed over are no reason, or the caller would spin. Behind messages
        that it parked, it may stop when it has half of what it may take, or has parked all that a call may. When it had
        to look for suspects, it may stop with what it looked at, or with what a limit allows.
        """
        after, taken = self.state, {id_.decode() for id_ in claimed.ids}
        if claimed.next_in != 0 or len(taken) == limit:
            return
        is_alone = suspects == "alone" and len(taken) == 1 and all(map(self._is_suspect, taken))
        dead_or_gone = _live_ids(before) - _live_ids(after)
        owners = {lane[1:] for key, lane in after.lanes.items() if before.lanes.get(key, lane)[1:] != lane[1:]}
        came_last = owners & _waiting_ids(after)  # the end of a dead letter has let it in
        if is_alone or dead_or_gone or came_last:
            return
        parked = len(set(after.parked_ids()) - set(before.parked_ids()))
        check(parked <= PARKED_PER_CALL, "I11 parked too many", parked)
        has_limit = options.rate is not None or options.max_in_flight is not None
        if suspects != "with" and (before.counts or after.counts) and (parked or has_limit):
            return
        may_stop = has_limit or 2 * len(taken) >= limit or parked == PARKED_PER_CALL
        check(parked > 0 and may_stop, "stopped for no reason", claimed, limit)

    def _check_lateness(self, claimed: replies.Claimed) -> None:
        """See that it is that of a message which was taken: of the first of them, or of a later one that is later."""
        rows = zip(claimed.ids, claimed.records, strict=True)
        late = [claimed.now - (self._counted_due(id_.decode()) or codec.read_stamps(record)[1]) for id_, record in rows]
        lateness = int(self.state.meta.get("lateness", 0))
        check(not late or late[0] <= lateness <= max(late), "the lateness is", lateness, late)

    def _counted_due(self, id_: str) -> int:
        return self.state.counts.get(id_, codec.Counts()).due

    def _is_suspect(self, id_: str) -> bool:
        return self.state.counts.get(id_, codec.Counts()).crashes >= CRASH_LIMIT - 1

    @rule(
        stream=streams,
        count=st.integers(1, 4),
        ttl=st.sampled_from((None, 40)),
        lease=st.sampled_from((0.5, 30)),
        has_keys=st.booleans(),
    )
    def deliver(self, stream: bytes, count: int, ttl: float | None, lease: float, has_keys: bool) -> None:
        """Send and claim; with keys, they are of one lane, and but one of them is out."""
        key = "k" if has_keys else None
        self._send(stream, [Draft(10, None, 9, ttl, None, None, replace=False, key=key)] * count, {}, "each")
        self.claim(stream, count, lease, "leave", "with", Keep())

    @rule(
        stream=streams,
        count=st.integers(1, 3),
        ends=st.lists(
            st.tuples(
                st.sampled_from(("ack", "retry", "defer", "release", "recycle", "reject", "reject", "cancel", "crash")),
                st.integers(1, 3),
                st.booleans(),
            ),
            min_size=1,
            max_size=3,
        ),
        on_dead=on_deads,
        wait=st.sampled_from((0, 0, SECOND)),
    )
    def work_in_lanes(
        self, stream: bytes, count: int, ends: list[tuple[str, int, bool]], on_dead: OnDead, wait: int
    ) -> None:
        """Fill two lanes, and end deliveries of them in all ways, one after the other."""
        batch = [Draft(10, None, 0, None, None, None, replace=False, key=key) for key in ("k", "k2")]
        self._send(stream, [*batch * count, batch[0]._replace(priority=5, ttl=3)], {}, "each")
        for verb, limit, is_kept in ends:
            self.claim(stream, limit, 0.5 if verb == "crash" else 30, "leave", "with", Keep(), on_dead)
            if wait or verb == "crash":
                self._move_clocks(wait or SECOND)
            out = [ops.Settle(*receipt) for receipt in self.receipts[-2:] if self._is_live(receipt)]
            if verb == "cancel":
                for settle in out:
                    self._cancel(stream, settle.id, running=is_kept)
            elif out and verb != "crash":
                self._settle(stream, verb, out, 0, Keep(), is_kept=is_kept, on_dead=on_dead)

    @rule(
        stream=streams,
        count=st.integers(2, 6),
        limited=limits.filter(bool),
        times=st.integers(1, 3),
        then=st.sampled_from(("watch", "stay", "pass", "leave")),
        us=st.sampled_from((0, 10_000, SECOND // 10, SECOND)),
        verb=st.sampled_from(("ack", "retry", "reject", "cancel", "send")),
    )
    def meet_a_limit(
        self, stream: bytes, count: int, limited: dict[str, Any], times: int, then: ops.Then, us: int, verb: str
    ) -> None:
        """Claim more than a limit allows; then let time pass, or make room."""
        plain = Draft(10, None, 0, None, None, None, replace=False)
        self._send(stream, [plain] * count, {}, "each")
        for _ in range(times):
            self.claim(stream, 5, 30, then, "with", Keep(), "continue", limited)
            self._move_clocks(us)
        out = [ops.Settle(*receipt) for receipt in self.receipts[-1:] if self._is_live(receipt)]
        if verb == "send":
            self._send(stream, [plain], {}, "each")
        elif out and verb == "cancel":
            self._cancel(stream, out[0].id, running=True)
        elif out:
            self._settle(stream, verb, out, 0, Keep(), is_kept=False)

    @rule(
        stream=streams, others=st.integers(0, 3), limit=st.integers(1, 4), suspects=st.sampled_from(("none", "alone"))
    )
    def meet_suspects(self, stream: bytes, others: int, limit: int, suspects: ops.Suspects) -> None:
        """Let all leases run out, so that there are suspects, and claim past them."""
        if others:
            self._send(stream, [Draft(10, None, 0, None, None, None, replace=False)] * others, {}, "each")
        self._move_clocks(31 * SECOND)
        self.claim(stream, limit, 30, "stay", suspects, Keep())

    @precondition(lambda self: self.receipts)
    @rule(stream=streams, chosen=choices, keep=keeps, is_kept=st.booleans(), is_overtaken=st.booleans())
    def ack(self, stream: bytes, chosen: list[tuple[bool, int]], keep: Keep, is_kept: bool, is_overtaken: bool) -> None:
        self._settle(stream, "ack", self._chosen(chosen), 0, keep, is_kept=is_kept)
        if is_overtaken and self.history[stream]:
            late, sequence = self.history[stream][-1]
            self._do(ops.correct(self.keys, {"corrected": 0}), stream)
            self._arrive_late(late, stream, sequence)

    @precondition(lambda self: self.receipts)
    @rule(
        stream=streams,
        verb=st.sampled_from(("retry", "retry", "defer", "release", "recycle", "recycle")),
        chosen=choices,
        delay=delays,
        is_kept=st.booleans(),
    )
    def give_back(self, stream: bytes, verb: str, chosen: list[tuple[bool, int]], delay: float, is_kept: bool) -> None:
        self._settle(stream, verb, self._chosen(chosen), delay, Keep(), is_kept=is_kept)

    @precondition(lambda self: self.receipts and not self.is_full)
    @rule(
        stream=streams,
        chosen=choices,
        batch=st.lists(drafts, max_size=3),
        bound=bounds,
        on_full=st.sampled_from(("raise", "drop_oldest")),
        keep=st.one_of(st.none(), keeps),
        number=st.sampled_from((1, 2**62)),
        result_in=st.sampled_from((0, 30)),
    )
    def commit(
        self,
        stream: bytes,
        chosen: list[tuple[bool, int]],
        batch: list[Draft],
        bound: dict[str, int],
        on_full: Any,
        keep: Keep | None,
        number: int,
        result_in: int,
    ) -> None:
        """Finish a message, send others to its own queue and change a key, together."""
        settle = self._chosen(chosen)[0]
        messages = [self._outgoing(draft) for draft in batch]
        self.ids += [message.id for message in messages if message.id not in self.ids]
        options = type(self.queue.options)(crash_limit=CRASH_LIMIT, done=keep, on_full=on_full, **bound)  # type: ignore[arg-type]
        targets = [ops.Target(self.keys, options, messages)] if messages else []
        effect = Effect("INCRBY", self.counted, (b"%d" % number,))
        before, now, ahead = self.state, self.last_now, self.last_now - self.now
        is_held = settle.id in before.leases and before.leases[settle.id].fence == settle.fence
        answer = self._do(
            ops.commit(self.keys, options, settle, targets, effects=[effect], result_in=result_in), stream
        )
        check((answer == [replies.COMMIT_LOST]) != is_held, "I5 a commit without the lease, or the reverse", answer)
        if answer[0] in (replies.COMMIT_NO_ROOM, replies.COMMIT_IMPOSSIBLE):
            changed = [name for name in self.state.differences(before) if name != "calls"]
            check(not changed, "a refused commit changed", *changed)
        elif is_held:
            self.journal.sent(messages, [0, *answer[1]], now, ahead)

    @precondition(lambda self: self.receipts)
    @rule(stream=streams, chosen=choices, result=st.sampled_from(("", "j1")))
    def keep_result(self, stream: bytes, chosen: list[tuple[bool, int]], result: str) -> None:
        """Bring what handlers returned, of deliveries that may have committed."""
        settles, before = self._chosen(chosen), self.state
        lost = self._do(ops.keep_results(self.keys, [(settle, result) for settle in settles]), stream)
        due = [self._awaits_result(before, settle) for settle in settles]
        ids = [settle.id for settle in settles]
        kept = [is_due and ids.index(id_) == at for at, (is_due, id_) in enumerate(zip(due, ids, strict=True))]
        check(
            lost == [at for at, is_kept in enumerate(kept, 1) if not is_kept],
            "I5 the wrong results were lost",
            lost,
            kept,
        )
        for id_ in (id_ for id_, is_kept in zip(ids, kept, strict=True) if is_kept):
            check((self.state.why[id_].result, self.state.why[id_].result_until) == (result, 0), "a result", id_)

    @staticmethod
    def _awaits_result(state: State, settle: ops.Settle) -> bool:
        """Whether this delivery has committed, and its result may still come."""
        why = state.why.get(settle.id)
        is_open = settle.id in state.done and why is not None and why.result_until > 0
        return is_open and why is not None and why.timeline[-1].since == settle.fence

    @precondition(lambda self: self.receipts)
    @rule(stream=streams, chosen=choices, keep=keeps, is_failure=st.booleans(), on_dead=on_deads)
    def reject(
        self, stream: bytes, chosen: list[tuple[bool, int]], keep: Keep, is_failure: bool, on_dead: OnDead
    ) -> None:
        self._settle(stream, "reject", self._chosen(chosen), 0, keep, is_kept=is_failure, on_dead=on_dead)

    @precondition(lambda self: self.receipts)
    @rule(stream=streams, chosen=choices, delay=delays)
    def extend(self, stream: bytes, chosen: list[tuple[bool, int]], delay: float) -> None:
        self._settle(stream, "extend", self._chosen(chosen), delay, Keep(), is_kept=False)

    @precondition(lambda self: self.receipts)
    @rule(stream=streams, chosen=choices)
    def progress(self, stream: bytes, chosen: list[tuple[bool, int]]) -> None:
        self._settle(stream, "progress", self._chosen(chosen), 0, Keep(), is_kept=False)

    @precondition(lambda self: self.receipts)
    @rule(stream=streams, verb=st.sampled_from(("ack", "retry", "release", "reject")), pick=picks)
    def settle_late(self, stream: bytes, verb: str, pick: int) -> None:
        """Settle a delivery of long ago once more."""
        settle = ops.Settle(*self.receipts[pick % len(self.receipts)])
        self._settle(stream, verb, [settle], 0, Keep(), is_kept=False)

    @precondition(lambda self: self.receipts)
    @rule(
        stream=streams,
        chosen=choices,
        verb=st.sampled_from(("retry", "defer", "release")),
        late=st.sampled_from(("ack", "retry", "defer", "release", "recycle", "reject", "extend", "progress")),
    )
    def hand_on(self, stream: bytes, chosen: list[tuple[bool, int]], verb: str, late: str) -> None:
        """Give messages back, let them be taken again, and have the first holder settle them, too late."""
        settles = self._chosen(chosen)
        self._settle(stream, verb, settles, 0, Keep(), is_kept=True)
        self.claim(stream, 6, 30, "leave", "with", Keep())
        self._settle(stream, late, settles, 0, Keep(), is_kept=False)

    def _chosen(self, chosen: list[tuple[bool, int]]) -> list[ops.Settle]:
        live = [receipt for receipt in self.receipts if self._is_live(receipt)]
        settles = []
        for is_live, pick in chosen:
            among = live if is_live and live else self.receipts
            settles.append(ops.Settle(*among[pick % len(among)]))
        return settles

    def _settle(
        self,
        stream: bytes,
        verb: str,
        settles: list[ops.Settle],
        delay: float,
        keep: Keep,
        *,
        is_kept: bool,
        on_dead: OnDead = "continue",
    ) -> None:
        options = QueueOptions(crash_limit=CRASH_LIMIT, dead=keep, done=keep if is_kept else None, on_dead=on_dead)
        results = itertools.cycle(('1{"total": 7}', "", "0\u00e9"))
        call: Call[Any] = {
            "ack": lambda: (
                ops.finish(self.keys, options, [(s, next(results)) for s in settles])
                if is_kept
                else ops.ack(self.keys, options, settles)
            ),
            "retry": lambda: ops.retry(self.keys, [(s, delay, "boom" if is_kept else "", "trace") for s in settles]),
            "defer": lambda: ops.defer(self.keys, [(s, delay, "") for s in settles]),
            "release": lambda: ops.release(self.keys, settles),
            "recycle": lambda: ops.recycle(self.keys, [(s, delay, self._recycled(s, is_kept)) for s in settles]),
            "reject": lambda: ops.reject(
                self.keys,
                options,
                [(s, "bad " * 60, "b\u00e9\u00e9m" * 40 if is_kept else "", "trace") for s in settles],
            ),
            "extend": lambda: ops.extend(self.keys, [(s, delay + 0.1) for s in settles]),
            "progress": lambda: ops.of_rows("progress", self.keys, [(s, "0.4", "load\u00efng") for s in settles]),
        }[verb]()
        before, now = self.state, self.last_now
        answer = self._do(call, stream)
        self._check_settle(before, settles, answer)
        for id_ in {settle.id for settle in settles if before.leases.get(settle.id, _NOBODY).fence == settle.fence}:
            if verb in ("retry", "defer", "recycle"):
                self.journal.due(id_, now + round(delay * SECOND))
            if verb == "recycle":
                self.journal.begun.discard(id_)
            if verb == "reject" and on_dead == "block" and id_ in self.state.msgs:
                self.journal.block([id_])

    def _check_settle(self, before: State, settles: Sequence[ops.Settle], answer: Any) -> None:
        seen: set[str] = set()
        lost = []
        for position, settle in enumerate(settles, 1):
            lease = before.leases.get(settle.id)
            if lease and lease.fence == settle.fence and settle.id not in seen:
                seen.add(settle.id)
            else:
                lost.append(position)
        check(answer == lost, "I5 the wrong ones were said to be lost", answer, lost)
        if not seen:
            check(self.state == before, "I5 a stale fence changed", *self.state.differences(before))
        for settle in settles:
            # What is parked may be handed a lane by another settle of the call.
            is_apart = before.places(settle.id) != ["parked"] and settle.id not in self.trimmed(before)
            if settle.id not in seen and is_apart:
                rows = [
                    (s.places(settle.id), s.leases.get(settle.id), s.counts.get(settle.id))
                    for s in (before, self.state)
                ]
                check(rows[0] == rows[1], "I5 a stale fence changed a message", settle.id, *rows)

    def trimmed(self, before: State) -> set[str]:
        """Name what was dead or finished before, and is gone."""
        return {id_ for id_ in (*before.dead, *before.done) if not self.state.places(id_)}

    def _recycled(self, settle: ops.Settle, is_new: bool) -> bytes:
        return self._rewritten(settle.id) if is_new else b""

    def _rewritten(self, id_: str) -> bytes:
        record = self.state.msgs.get(id_)
        if record is None:
            return b""
        old = codec.read_record(record)
        return codec.written_part(
            codec.Envelope(codec.CONTENT_BYTES, b"a recycled body"),
            flags=old.flags,
            priority=old.priority,
            ttl=old.ttl,
            dedup_for=old.dedup_for,
            dedup=(old.dedup or "").encode(),
            key=(old.key or "").encode(),
        )

    def _is_live(self, receipt: Receipt) -> bool:
        lease = self.state.leases.get(receipt.id)
        return lease is not None and lease.fence == receipt.fence

    # Steering.

    @precondition(lambda self: self.ids)
    @rule(stream=streams, pick=picks, running=st.booleans())
    def cancel(self, stream: bytes, pick: int, running: bool) -> None:
        self._cancel(stream, self.ids[pick % len(self.ids)], running=running)

    def _cancel(self, stream: bytes, id_: str, *, running: bool) -> None:
        before = self.state
        is_over = self._do(ops.cancel(self.keys, id_, running=running), stream)
        places = before.places(id_)
        stay = (["done"],) if running else (["done"], ["leased"])
        if id_ not in self.lost_bodies:
            check(is_over == (1 if places and places not in stay else 0), "cancel said", is_over, places)
        if is_over:
            check(not self.state.places(id_), "cancelled, but still there", id_)
            check(running or id_ not in before.leases, "cancel took a message from its holder", id_)
        else:
            check(self.state.places(id_) == places, "cancel said False and ended it", id_, places)

    @precondition(lambda self: self.ids)
    @rule(stream=streams, pick=picks, when=st.sampled_from(("0", "+0", "+500000", "+20000000", "=5", "@")))
    def reschedule(self, stream: bytes, pick: int, when: str) -> None:
        self._reschedule(stream, self.ids[pick % len(self.ids)], when)

    @precondition(lambda self: self.state.parked)
    @rule(stream=streams, pick=picks, when=st.sampled_from(("0", "+0", "+500000", "@")))
    def reschedule_in_a_lane(self, stream: bytes, pick: int, when: str) -> None:
        """Give another due time to one that is parked, or that a lane is reserved for."""
        ids = [*self.state.parked_ids(), *(lane[1:] for key, lane in self.state.lanes.items() if key)]
        self._reschedule(stream, ids[pick % len(ids)], when)

    def _reschedule(self, stream: bytes, id_: str, when: str) -> None:
        when = f"={self.now + 3 * SECOND}" if when == "@" else when
        now, ahead = self.last_now, self.last_now - self.now
        if self._do(ops.reschedule(self.keys, id_, when), stream) == 1:
            if when == "0":
                self.journal.no_later(id_, now)
            else:
                self.journal.due(id_, now + int(when[1:]) if when[0] == "+" else int(when[1:]) + ahead)
                self.journal.promised.discard(id_)

    @rule(
        stream=streams,
        limit=st.sampled_from((1, 2, 1000)),
        at_end=st.booleans(),
        named=st.lists(st.tuples(picks, st.sampled_from((0, 0, 0, 1)), st.booleans()), max_size=3),
    )
    def redrive(self, stream: bytes, limit: int, at_end: bool, named: list[tuple[int, int, bool]]) -> None:
        """Put dead letters back to work: the oldest, or some by name, with another body or looked at too long ago."""
        dead, before = sorted(self.state.dead.items()), self.state
        letters = []
        for pick, late, is_edited in named if dead else []:
            id_, died = dead[pick % len(dead)]
            letters.append((id_, died - late, self._rewritten(id_) if is_edited else b""))
        now, waited_for = self.last_now, set(self.journal.blocking)
        answer = self._do(ops.redrive(self.keys, limit, letters, at_end=at_end), stream)
        back = set(before.dead) - set(self.state.dead)
        check(answer == [len(back), len(self.state.dead)], "redrive said", answer, back)
        check(not letters or back <= {id_ for id_, _, _ in letters}, "redrove what was not named", back, letters)
        for id_ in back:
            self.journal.no_later(id_, now)
        if not at_end:
            self.journal.promised |= back & waited_for

    @rule(
        stream=streams,
        verb=st.sampled_from(("pause", "resume", "resume", "purge", "purge")),
        state=states,
        limit=st.sampled_from((1, 2, 1000)),
    )
    def steer(self, stream: bytes, verb: str, state: str, limit: int) -> None:
        if verb == "pause" and self.is_full:
            return
        calls: dict[str, Call[Any]] = {
            "pause": ops.pause(self.keys, "me"),
            "resume": ops.resume(self.keys),
            "purge": ops.purge(self.keys, state, limit),
        }
        self._do(calls[verb], stream)

    @rule(
        stream=streams,
        batch=st.lists(drafts, max_size=2),
        us=st.sampled_from((0, 3 * SECOND // 2, 3 * SECOND)),
        dead=keeps,
        done=st.one_of(st.none(), keeps),
    )
    def tidy(self, stream: bytes, batch: list[Draft], us: int, dead: Keep, done: Keep | None) -> None:
        """Tidy up, perhaps with something that has just expired, or is about to."""
        if batch:
            self._send(stream, [draft._replace(ttl=2) for draft in batch], {}, "each")
        if us:
            self._move_clocks(us)
        options = type(self.queue.options)(dead=dead, done=done)
        before, now = self.state, self.last_now
        is_more = self._do(ops.tidy(self.keys, options), stream)
        check(is_more == 0, "there is never so much here that a tidy leaves some of it", is_more)
        check(done is not None or self.state.done == before.done, "tidy touched what it was not told of", before.done)
        check(all(at > now for at in self.state.expires.values()), "tidy left what expired", self.state.expires)
        check(dead.count is None or len(self.state.dead) <= dead.count, "tidy left too many dead", self.state.dead)
        tidied = self.state
        if all(at > self.last_now for at in tidied.expires.values()):  # a lane handed on takes a tick of the clock
            self._do(ops.tidy(self.keys, options), stream)
            check(self.state == tidied, "a second tidy found", *self.state.differences(tidied))

    # Faults.

    @precondition(lambda self: any(self.history.values()))
    @rule(stream=streams)
    def lose_a_reply_and_repeat(self, stream: bytes) -> None:
        if self.history[stream]:
            call, sequence = self.history[stream][-1]
            before, is_known = self.state, self._is_known(stream, sequence)
            self._do(call, stream, sequence)
            if is_known:
                check(self.state == before, "I6 a repeat changed", *self.state.differences(before))

    @precondition(lambda self: any(self.history.values()))
    @rule(stream=streams, pick=picks)
    def arrive_after_its_successor(self, stream: bytes, pick: int) -> None:
        known = self.state.calls.get(stream)
        before_it = [(call, at) for call, at in self.history[stream] if known and at < _sequence_of(known)]
        overtaken = {call.script.name: (call, at) for call, at in before_it}  # the last of each kind
        if overtaken:
            call, sequence = overtaken[sorted(overtaken)[pick % len(overtaken)]]
            self._arrive_late(call, stream, sequence)

    def _arrive_late(self, call: Call[Any], stream: bytes, sequence: int) -> None:
        before = self.state
        answer = self._do(call, stream, sequence)
        is_refused = isinstance(answer, str) and ("OVERTAKEN" in answer or "OOM" in answer)
        check(is_refused, "I6 an overtaken call ran", answer)
        check(self.state == before, "I6 an overtaken call changed", *self.state.differences(before))

    @rule(us=st.sampled_from((1, 1000, SECOND, 3 * SECOND, 31 * SECOND, 31 * SECOND, 100 * SECOND, 4000 * SECOND)))
    def let_time_pass(self, us: int) -> None:
        self._move_clocks(us)

    @rule(us=st.sampled_from((1, SECOND, 60 * SECOND, 3600 * SECOND)))
    def step_the_clock_back(self, us: int) -> None:
        self._move_clocks(-us)

    @precondition(lambda self: bool(set(self.state.msgs) - set(self.state.parked_ids())))
    @rule(pick=picks)
    def lose_a_body(self, pick: int) -> None:
        # Only the record says where a message is parked: without it, it can be found by an audit alone.
        ids = sorted(set(self.state.msgs) - set(self.state.parked_ids()))
        id_ = ids[pick % len(ids)]
        self.lost_bodies.add(id_)
        self.queue.lose_body(id_)
        self.engine.lose_body(self.keys, id_)
        self.state, self.last_now = self._looked()

    @rule()
    def fill_the_server(self) -> None:
        self.is_full = not self.is_full
        self.world.wire.post([("CONFIG", "SET", "maxmemory", "1" if self.is_full else "0")])

    @precondition(lambda self: self.ids)
    @rule(pick=picks, state=states, limit=st.integers(1, 3))
    def look(self, pick: int, state: str, limit: int) -> None:
        viewer = views.Viewer(self.keys.name, lambda _, body: body)
        id_ = self.ids[pick % len(self.ids)]
        looks: list[Call[Any]] = [
            ops.explain(self.keys, viewer, id_),
            ops.list_(self.keys, viewer, state, limit, None),
            ops.list_(self.keys, viewer, state, limit, id_),
            ops.pending(self.keys, 0, 10),
        ]
        if state in ("dead", "done"):
            looks += [ops.list_(self.keys, viewer, state, limit, after, newest=True) for after in (None, id_)]
        wire = self.world.wire
        answers = wire.post([wire.spelled(call, STREAMS[0], 0) for call in looks])
        for call, answer in zip(looks, answers, strict=True):
            expected = self.engine.call(call, STREAMS[0], 0)
            decode: Any = (lambda reply: reply) if answer == -1 else call.decode  # -1: no page begins there
            is_same = decode(answer) == decode(expected)
            check(is_same, f"the engines differ on {call.script.name}", answer, expected)
        page = looks[1].decode(answers[1])[0]
        if page:
            behind = ops.list_(self.keys, viewer, state, limit, page[-1])
            answer, expected = wire.run(*wire.spelled(behind, b"", 0)), self.engine.call(behind, b"", 0)
            check(
                behind.decode(answer) == behind.decode(expected),
                "the engines differ on a page",
                behind.args,
                answer,
                expected,
            )

    # A step.

    def _do(self, call: Call[Any], stream: bytes, sequence: int | None = None) -> Any:
        """Run a call on both sides; compare, look, check. An error is returned as its text."""
        is_new = sequence is None
        if sequence is None:
            self.sequences[stream] += 1
            sequence = self.sequences[stream]
        wire = self.world.wire
        is_refused = self.is_full and call.script.name in ("send", "send_checked")
        # An overtaken send is refused either way, by the shorter script for want of memory.
        is_refused = is_refused and not self._is_known(stream, sequence, or_later=call.script.name != "send")
        before, before_now = self.state, self.last_now
        answer, dump, stats = wire.post(
            [
                wire.spelled(call, stream, sequence),
                self.queue.spelled_dump(),
                wire.spelled(ops.stats(self.keys), b"", 0),
            ]
        )
        self.state, self.last_now = self.queue.read_dump(dump), stats[0]
        if is_refused:
            check("OOM" in str(answer), "a full server took a send", answer)
            check(self.state == before, "a refused send changed", *self.state.differences(before))
            return str(answer)
        answer = self._same_answer(call, answer, stream, sequence, before)
        if is_new and call.writes:
            self.history[stream].append((call, sequence))
        self._check_token(call, answer, before, is_new=is_new)
        is_claim = is_new and call.script.name == "claim"
        self.has_room = not is_claim and (self.has_room or bool(set(before.leased) - set(self.state.leased)))
        self._same_stats(stats)
        self._same_state()
        self._check_moves(call.script.name, before, before_now)
        self._check_attempts(call.script.name, before)
        self.journal.ended(_live_ids(self.state), set(self.state.dead))
        return answer

    def _check_token(self, call: Call[Any], answer: Any, before: State, *, is_new: bool) -> None:
        """See that a consumer that blocks is woken when it must be."""
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
        check(not found, "the engines differ on what is stored", *found)

    def _looked(self) -> tuple[State, int]:
        wire = self.world.wire
        dump, stats = wire.post([self.queue.spelled_dump(), wire.spelled(ops.stats(self.keys), b"", 0)])
        self._same_stats(stats)
        return self.queue.read_dump(dump), stats[0]

    def _set_clocks(self, us: int) -> None:
        self.now = us
        self.world.clock.freeze(us)
        self.engine.clock.set_us(us)

    def _move_clocks(self, us: int) -> None:
        self._set_clocks(self.now + us)
        if us >= CALLS_FORGOTTEN:
            self.history = {stream: [] for stream in STREAMS}
        self.state, self.last_now = self._looked()

    def _is_known(self, stream: bytes, sequence: int, *, or_later: bool = False) -> bool:
        stored = self.state.calls.get(stream)
        last = _sequence_of(stored) if stored else -1
        return last >= sequence if or_later else last == sequence

    # What must hold.

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

    @invariant()
    def check_i2_one_place(self) -> None:
        state = self.state
        for id_ in _all_ids(state):
            check(len(state.places(id_)) == 1, "I2 not in exactly one place", id_, state.places(id_))
        placed = {*_live_ids(state), *state.dead, *state.done}
        check(placed - set(state.msgs) <= self.lost_bodies, "I2 a place without a body", placed - set(state.msgs))
        check(set(state.counts) <= placed - set(state.dead) - set(state.done), "I2 counts of nobody", state.counts)
        check(set(state.why) <= placed, "I2 why of nobody", state.why)
        check({*state.dead, *state.done} <= set(state.why), "I2 over, and nobody knows why", state.why)
        check(set(state.why) & _live_ids(state) <= set(state.counts), "I2 why without counts", state.why)
        waiting = {*_waiting_ids(state), *state.parked_ids()}
        with_ttl = {id_ for id_ in waiting if id_ in state.msgs and state.msgs[id_][17] & codec.FLAG_TTL}
        check(with_ttl <= set(state.expires), "I2 a ttl that nobody watches", with_ttl, state.expires)
        check(set(state.expires) - with_ttl <= self.lost_bodies, "I2 expires of nobody", state.expires, with_ttl)

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
            check(mark == "+" and owner not in ("", id_), "I7 parked behind nobody", id_, state.lanes)
        for key, (_, owner) in lanes.items():
            if owner in self.lost_bodies:
                continue
            place = (state.places(owner) or ["nowhere"])[0]
            is_waited_for = place == "dead" and owner in journal.blocking
            check(
                journal.key_of(owner) == key and (place == "leased" or place.startswith("waiting") or is_waited_for),
                "I7 a lane of nobody",
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
                self._audit("lanes")  # a lane waits for what was lost: nobody else knows
            if not _live_ids(self.state):
                break
        else:
            raise Broken(f"the queue cannot be drained: {self.state}")
        self._do(ops.claim(self.keys, self.queue.options, limit=1, lease=30, consumer="drain", then="watch"), stream)
        allowed = {"meta", "dedup", "dedup_ends", *(f"call:{stream.decode()}" for stream in STREAMS)}
        check(self.queue.key_names() <= allowed, "I9 left behind", self.queue.key_names() - allowed)

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
        """Mend one key on both sides, which must find the same."""
        call = ops.audit_step(self.keys, source, "0", repair=True)
        answer, expected = self.world.wire.run(*self.world.wire.spelled(call, b"", 0)), self.engine.call(call, b"", 0)
        mine, theirs = call.decode(answer), call.decode(expected)
        is_same = sorted(map(repr, mine.faults)) == sorted(map(repr, theirs.faults)) and mine[:3] == theirs[:3]
        check(is_same, "the engines differ on an audit", mine, theirs)
        self.state, self.last_now = self._looked()
        self._same_state()


_NOBODY: Final = codec.Lease(-1, 0, 0, 0, "")


def _sequence_of(stored: bytes) -> int:
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


def machine_in(world: World) -> type[QueueMachine]:
    """Make a machine for a world."""
    return type("Machine", (QueueMachine,), {"world": world})
