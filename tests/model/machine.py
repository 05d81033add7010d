"""Rules for random histories: the same calls on the real scripts and on the memory engine.

`checked_queue.py` compares both after every step, and checks the state.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from duly._core import codec, ops, replies, views
from duly._core.call import Call
from duly._core.effects import Effect
from duly._core.outgoing import Outgoing
from duly.options import Keep, OnDead, QueueOptions
from tests.lua.harness import SECOND, State
from tests.model.callers import Caller, Made, Outcome
from tests.model.checked_queue import CRASH_LIMIT, MOST_LOST, STREAMS, CheckedQueue, Receipt, sequence_of
from tests.model.world import World, check

_NO_LEASE: Final = codec.Lease(-1, 0, 0, 0, "")


class Draft(NamedTuple):
    """The values that the machine draws for a message."""

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
     {"rate": "20/s", "max_in_flight": 2}, {"retry_share": 0.5}, {"retry_share": 0.3}, {"retry_share": 0.9})
)  # fmt: skip
states = st.sampled_from(("ready", "delayed", "parked", "parked", "leased", "dead", "done"))


class QueueMachine(CheckedQueue):
    """The rules of a history. Subclasses give the world."""

    # Sending.

    @initialize(batch=st.lists(drafts, min_size=1, max_size=4), may_fail_over=st.booleans())
    def begin(self, batch: list[Draft], may_fail_over: bool) -> None:
        self.may_fail_over = may_fail_over
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
        self._do(
            ops.send(self.keys, messages, options, on_refusal),
            stream,
            lambda outcome: self.journal.sent(messages, outcome.answer, outcome.now, outcome.ahead),
        )

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
        limit=st.integers(0, 6),
        lease=st.sampled_from((0.5, 30, 30)),
        then=st.sampled_from(("watch", "stay", "stay", "behind", "behind", "pass", "leave")),
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

        def follow(outcome: Outcome) -> None:
            before, claimed = outcome.before, replies.claimed(outcome.answer)
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

        self._do(call, stream, follow)

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
        then=st.sampled_from(("watch", "stay", "behind", "pass", "leave")),
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
        stream=streams,
        count=st.integers(1, 6),
        retried=st.integers(1, 4),
        limits=st.lists(st.integers(1, 3), min_size=1, max_size=4),
        share=st.sampled_from((0.1, 0.5, 0.75)),
        key=st.sampled_from((None, None, "k")),
        suspects=st.sampled_from(("with", "none", "alone")),
    )
    def divide_deliveries(
        self, stream: bytes, count: int, retried: int, limits: list[int], share: float, key: str | None,
        suspects: ops.Suspects,
    ) -> None:  # fmt: skip
        """Fail messages, send others, and claim a few at a time by share."""
        batch = [Draft(10, None, 0, None, None, None, replace=False, key=each) for each in (None, key)]
        self._send(stream, batch * retried, {}, "each")
        self.claim(stream, 2 * retried, 30, "leave", "with", Keep())
        held = [ops.Settle(*receipt) for receipt in self.receipts[-retried:] if self._is_live(receipt)]
        if held:
            self._settle(stream, "retry", held, 0, Keep(), is_kept=False)
        self._send(stream, batch * count, {}, "each")
        self._move_clocks(SECOND)
        for limit in limits:
            self.claim(stream, limit, 30, "leave", suspects, Keep(), "continue", {"retry_share": share})

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
        if is_overtaken and self.callers[stream].made:
            late = self.callers[stream].made[-1]
            self._do(ops.correct(self.keys, {"corrected": 0}), stream)
            self._arrive_late(late, stream)

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

        def follow(outcome: Outcome) -> None:
            answer, before = outcome.answer, outcome.before
            is_held = settle.id in before.leases and before.leases[settle.id].fence == settle.fence
            check((answer == [replies.COMMIT_LOST]) != is_held, "I5 a commit without the lease, or the reverse", answer)
            if answer[0] in (replies.COMMIT_NO_ROOM, replies.COMMIT_IMPOSSIBLE):
                changed = [name for name in self.state.differences(before) if name != "calls"]
                check(not changed, "a refused commit changed", *changed)
            elif is_held:
                self.journal.sent(messages, [0, *answer[1]], outcome.now, outcome.ahead)

        commit = ops.commit(self.keys, options, settle, targets, effects=[effect], result_in=result_in)
        self._do(commit, stream, follow)

    @precondition(lambda self: self.receipts)
    @rule(stream=streams, chosen=choices, result=st.sampled_from(("", "j1")))
    def keep_result(self, stream: bytes, chosen: list[tuple[bool, int]], result: str) -> None:
        """Bring what handlers returned, of deliveries that may have committed."""
        settles = self._chosen(chosen)

        def follow(outcome: Outcome) -> None:
            lost, due = outcome.answer, [self._awaits_result(outcome.before, settle) for settle in settles]
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

        self._do(ops.keep_results(self.keys, [(settle, result) for settle in settles]), stream, follow)

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

        def follow(outcome: Outcome) -> None:
            self._check_settle(outcome.before, settles, outcome.answer)
            leases = outcome.before.leases
            for id_ in {settle.id for settle in settles if leases.get(settle.id, _NO_LEASE).fence == settle.fence}:
                if verb in ("retry", "defer", "recycle"):
                    self.journal.due(id_, outcome.now + round(delay * SECOND))
                if verb == "recycle":
                    self.journal.begun.discard(id_)
                if verb == "reject" and on_dead == "block" and id_ in self.state.msgs:
                    self.journal.block([id_])

        self._do(call, stream, follow)

    def _recycled(self, settle: ops.Settle, is_new: bool) -> codec.Part:
        return self._rewritten(settle.id) if is_new else b""

    def _rewritten(self, id_: str) -> codec.Part:
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
        def follow(outcome: Outcome) -> None:
            is_over, places = outcome.answer, outcome.before.places(id_)
            stay = (["done"],) if running else (["done"], ["leased"])
            if id_ not in self.lost_bodies:
                check(is_over == (1 if places and places not in stay else 0), "cancel returned", is_over, places)
            if is_over:
                check(not self.state.places(id_), "cancelled, but still there", id_)
                check(running or id_ not in outcome.before.leases, "cancel took a message from its holder", id_)
            else:
                check(self.state.places(id_) == places, "cancel returned False and ended it", id_, places)

        self._do(ops.cancel(self.keys, id_, running=running), stream, follow)

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

        def follow(outcome: Outcome) -> None:
            if outcome.answer != 1:
                return
            if when == "0":
                self.journal.no_later(id_, outcome.now)
            else:
                is_delay = when[0] == "+"
                self.journal.due(id_, int(when[1:]) + (outcome.now if is_delay else outcome.ahead))
                self.journal.promised.discard(id_)

        self._do(ops.reschedule(self.keys, id_, when), stream, follow)

    @rule(
        stream=streams,
        limit=st.sampled_from((1, 2, 1000)),
        at_end=st.booleans(),
        named=st.lists(st.tuples(picks, st.sampled_from((0, 0, 0, 1)), st.booleans()), max_size=3),
    )
    def redrive(self, stream: bytes, limit: int, at_end: bool, named: list[tuple[int, int, bool]]) -> None:
        """Put dead letters back to work: the oldest, or some by name, with another body or listed too long ago."""
        dead = sorted(self.state.dead.items())
        letters = []
        for pick, late, is_edited in named if dead else []:
            id_, died = dead[pick % len(dead)]
            letters.append((id_, died - late, self._rewritten(id_) if is_edited else b""))

        def follow(outcome: Outcome) -> None:
            back = set(outcome.before.dead) - set(self.state.dead)
            check(outcome.answer == [len(back), len(self.state.dead)], "redrive returned", outcome.answer, back)
            named_ids = {id_ for id_, _, _ in letters}
            check(not letters or back <= named_ids, "redrove letters that were not named", back, letters)
            for id_ in back:
                self.journal.no_later(id_, outcome.now)
            if not at_end:
                self.journal.promised |= back & outcome.blocking

        self._do(ops.redrive(self.keys, limit, letters, at_end=at_end), stream, follow)

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
        check(
            done is not None or self.state.done == before.done,
            "tidy touched finished messages without a bound",
            before.done,
        )
        check(all(at > now for at in self.state.expires.values()), "tidy left what expired", self.state.expires)
        check(dead.count is None or len(self.state.dead) <= dead.count, "tidy left too many dead", self.state.dead)
        tidied = self.state
        if all(at > self.last_now for at in tidied.expires.values()):  # a lane handed on takes a tick of the clock
            self._do(ops.tidy(self.keys, options), stream)
            check(self.state == tidied, "a second tidy found", *self.state.differences(tidied))

    # Faults.

    @precondition(lambda self: self._has_called())
    @rule(stream=streams)
    def lose_a_reply_and_repeat(self, stream: bytes) -> None:
        caller = self.callers[stream]
        if caller.made:
            self._attempt(caller, caller.made[-1])

    @precondition(lambda self: self._has_called())
    @rule(stream=streams, pick=picks)
    def arrive_after_its_successor(self, stream: bytes, pick: int) -> None:
        known = self.state.calls.get(stream)
        before_it = [made for made in self.callers[stream].made if known and made.sequence < sequence_of(known)]
        overtaken = {made.call.script.name: made for made in before_it}  # the last of each kind
        if overtaken:
            self._arrive_late(overtaken[sorted(overtaken)[pick % len(overtaken)]], stream)

    def _arrive_late(self, made: Made, stream: bytes) -> None:
        before = self.state
        answer = self._attempt(self.callers[stream], made)
        is_refused = isinstance(answer, str) and ("OVERTAKEN" in answer or "OOM" in answer)
        check(is_refused, "I6 an overtaken call ran", answer)
        check(self.state == before, "I6 an overtaken call changed", *self.state.differences(before))

    def _has_called(self) -> bool:
        return any(caller.made for caller in self.callers.values())

    @precondition(lambda self: self.may_fail_over)
    @rule(
        lost=st.integers(0, MOST_LOST),
        us=st.sampled_from((0, 1, 3 * SECOND, 31 * SECOND)),
        repeating=st.sampled_from(((), *itertools.permutations(STREAMS, 1), *itertools.permutations(STREAMS))),
    )
    def fail_over(self, lost: int, us: int, repeating: Sequence[bytes]) -> None:
        """Lose the last calls, as a replica does that becomes the primary before it has them.

        The clients in `repeating` have got no reply to their last call, so they repeat it.
        """
        lost_moments = [self.moments.pop() for _ in range(min(lost, len(self.moments)))]
        if lost_moments:
            self._set_back(lost_moments[-1])
        self._go_on(us, repeating)

    def _go_on(self, us: int, repeating: Sequence[bytes]) -> None:
        """Have the clients go on with the new primary, with what they know."""
        self._reconnect()
        self._move_clocks(us)
        self._check_audit()
        for stream in repeating:
            self.lose_a_reply_and_repeat(stream)

    @rule(stream=streams, lateness=st.sampled_from(("5,1", "7,0,3")), handling=st.sampled_from(("0", "9,1,1,1")))
    def measure(self, stream: bytes, lateness: str, handling: str) -> None:
        self._do(ops.measure(self.keys, lateness, handling), stream)

    @rule(us=st.sampled_from((1, 1000, SECOND, 3 * SECOND, 31 * SECOND, 31 * SECOND, 100 * SECOND, 4000 * SECOND)))
    def let_time_pass(self, us: int) -> None:
        self._move_clocks(us)

    @rule(us=st.sampled_from((1, SECOND, 60 * SECOND, 3600 * SECOND)))
    def step_the_clock_back(self, us: int) -> None:
        self._move_clocks(max(self.earliest - self.now, -us))

    @precondition(lambda self: bool(set(self.state.msgs) - set(self.state.parked_ids())))
    @rule(pick=picks)
    def lose_a_body(self, pick: int) -> None:
        # Only the record has the place of a parked message: without it, only an audit finds it.
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


def machine_in(world: World, caller: type[Caller] = Caller) -> type[QueueMachine]:
    """Make a machine for a world, with clients of a kind."""
    return type("Machine", (QueueMachine,), {"world": world, "caller": caller})
