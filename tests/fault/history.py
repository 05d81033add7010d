"""The history of events of a fault run, and the checks H1 to H12 that judge it.

An operation has three outcomes, as with Jepsen: `ok`, `fail` (surely not done) and `info` (unknown: a timeout,
a lost reply). Filing an unknown as `fail` hides bugs, so `Recorder.operation` files every error as `info`
unless it is declared a refusal, and an invoke without an outcome (its process was killed) counts as `info`.

Times: `server_us` is the server's clock as the operation itself returned it. Where an event has none, all
events are placed by the monotonic window [invoked, returned] in which the server must have acted; a check
then reports only what no placing inside the windows can excuse. A check never guesses against the queue.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter, defaultdict
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import ceil, inf
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

Type = Literal["invoke", "ok", "fail", "info"]

FINISHES = frozenset({"ack", "cancel", "reject", "dead", "expire"})
"""After these the message is not redelivered. `dead` are the dead letters that the drain found."""
FOUND = frozenset({"dead", "expire"})
"""Not done by a client but found later, so at an unknown time."""
GIVES_BACK = frozenset({"retry", "defer", "recycle", "release"})
"""After these it comes again, as it should."""
SETTLES = GIVES_BACK | {"ack", "reject"}
SETS_DUE = GIVES_BACK | {"send", "reschedule", "promote", "redrive"}

MARKS = frozenset({"kill", "rollback"})
"""Not operations but causes: `kill` (of `process`), `rollback` (the server came back with older data).

A rollback with `invoked_ns` lasted from then on: clients used both the old server and the new one.
"""


# --- Events ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of a history. `None` means that it does not apply or is not known."""

    op: str
    type: Type
    process: str
    mono_ns: int
    """When it was recorded. The clock is the machine's, so events of different processes compare."""
    invoked_ns: int | None = None
    """When the operation began; an outcome without it began at an unknown time."""
    server_us: int | None = None
    id: str | None = None
    key: str | None = None
    due_us: int | None = None
    """For a claim: the due time it reported. For what sets a due time: the one it set."""
    fence: int | None = None
    attempt: int | None = None
    lease_us: int | None = None
    """For claim and extend: for how long from now the lease was granted."""
    digest: str | None = None
    """Of the body, to check that it arrives unchanged."""
    note: str | None = None

    def line(self) -> str:
        """Return the event as one line of JSON, without fields that are None."""
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None})


class Recorder:
    """Records the events of one process or thread, in memory or in its own file. Threads may share it.

    With a path each event is one append to the file, made before `record` returns: a kill -9 loses none.
    """

    def __init__(self, process: str, path: Path | None = None) -> None:
        self.process = process
        self.events: list[Event] = []
        self._lock = threading.Lock()
        self._file = None if path is None else os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def record(self, op: str, type: Type, **fields: Any) -> Event:  # noqa: A002 - the word of the history
        """Record one event, now. `fields` are those of `Event`."""
        given = {"process": self.process, "mono_ns": time.monotonic_ns(), **fields}
        event = Event(op=op, type=type, **given)
        with self._lock:
            if self._file is None:
                self.events.append(event)
            else:
                os.write(self._file, event.line().encode() + b"\n")
        return event

    @contextmanager
    def operation(
        self, op: str, *ids: str, refusals: tuple[type[BaseException], ...] = (), **fields: Any
    ) -> Iterator[Callable[..., None]]:
        """Record an invoke, and at the end its outcome, for each id. Errors are recorded and go on.

        The block may call what it is given, once for each message, with the fields that the reply brought
        (`done(id=..., fence=...)`); without that call it is `ok` with the fields of the invoke. An error in
        `refusals` is `fail`; any other, even an interrupt, is `info`: the outcome is unknown.
        """
        invoked_ns = time.monotonic_ns()
        targets: Sequence[str | None] = ids or (None,)
        for target in targets:
            self.record(op, "invoke", id=target, **fields)
        replied = False

        def done(**outcome: Any) -> None:
            nonlocal replied
            replied = True
            target = ids[0] if len(ids) == 1 else None
            self.record(op, "ok", **{"id": target, "invoked_ns": invoked_ns, **fields, **outcome})

        outcome: Type = "ok"
        note: str | None = None
        try:
            yield done
        except BaseException as error:
            outcome, note = "fail" if isinstance(error, refusals) else "info", repr(error)
            raise
        finally:
            if not replied:
                for target in targets:
                    self.record(op, outcome, **{**fields, "id": target, "invoked_ns": invoked_ns, "note": note})

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _unfinished(events: Sequence[Event]) -> list[Event]:
    """Return an `info` for each invoke that has no outcome: its process died, so the outcome is unknown."""
    open_invokes: dict[tuple[str, str, str], list[Event]] = defaultdict(list)
    for event in sorted(events, key=lambda event: event.mono_ns):
        if event.id is None:
            continue
        started = open_invokes[event.process, event.op, event.id]
        if event.type == "invoke":
            started.append(event)
        elif started:
            started.pop(0)
    left = [event for started in open_invokes.values() for event in started]
    return [replace(event, type="info", invoked_ns=event.mono_ns, note="no outcome") for event in left]


class History:
    """All events of a run, of all processes, in the order in which they were recorded."""

    def __init__(self, events: Iterable[Event]) -> None:
        given = list(events)
        self.events = sorted([*given, *_unfinished(given)], key=lambda event: event.mono_ns)

    @classmethod
    def read(cls, *paths: Path) -> Self:
        """Read recorders' files. A last line without an end was never recorded and is left out."""
        whole_lines = (line for path in paths for line in path.read_text().split("\n")[:-1])
        return cls(Event(**json.loads(line)) for line in whole_lines)

    @classmethod
    def of(cls, *recorders: Recorder) -> Self:
        """Join recorders that kept their events in memory."""
        return cls(event for recorder in recorders for event in recorder.events)

    def select(self, *ops: str, type: Type = "ok") -> list[Event]:  # noqa: A002 - the word of the history
        """Return the events of these operations that name a message."""
        return [event for event in self.events if event.type == type and event.op in ops and event.id]

    @cached_property
    def by_id(self) -> dict[str, list[Event]]:
        found: dict[str, list[Event]] = defaultdict(list)
        for event in self.events:
            if event.id is not None:
                found[event.id].append(event)
        return dict(found)

    @cached_property
    def has_server_time(self) -> bool:
        """Whether every successful operation on a message has the server's time."""
        return all(
            event.server_us is not None
            for event in self.events
            if event.type == "ok" and event.id and event.op not in FOUND
        )

    def window(self, event: Event) -> tuple[float, float]:
        """Return the earliest and latest moment, in microseconds, at which the server acted."""
        if self.has_server_time and event.server_us is not None:
            return event.server_us, event.server_us
        if self.has_server_time or event.op in FOUND:
            return -inf, inf
        began = -inf if event.invoked_ns is None else event.invoked_ns / 1000
        return began, event.mono_ns / 1000 if event.type == "ok" else inf

    def surely_before(self, first: Event, second: Event) -> bool:
        return self.window(first)[1] < self.window(second)[0]

    def maybe_before(self, first: Event, second: Event) -> bool:
        return self.window(first)[0] <= self.window(second)[1]

    def claims(self, message_id: str | None) -> list[Event]:
        """Return the deliveries of a message, in the order of the server."""
        return self._claims.get(message_id, [])

    @cached_property
    def _claims(self) -> dict[str | None, list[Event]]:
        found: dict[str | None, list[Event]] = defaultdict(list)
        for event in sorted(self.select("claim"), key=self.window):
            found[event.id].append(event)
        return dict(found)

    @cached_property
    def _rollbacks(self) -> list[tuple[int, int]]:
        found = [event for event in self.events if event.op == "rollback"]
        return [(event.mono_ns if event.invoked_ns is None else event.invoked_ns, event.mono_ns) for event in found]

    def is_rolled_back_between(self, first: Event, second: Event) -> bool:
        """Return whether a server may have forgotten the first event before the second one."""
        return any(first.mono_ns <= ended and began <= second.mono_ns for began, ended in self._rollbacks)

    def known(self, message_id: str | None, ops: AbstractSet[str]) -> list[Event]:
        """Return what these operations did to a message, surely (`ok`) or perhaps (`info`)."""
        events = self.by_id.get(message_id or "", [])
        return [event for event in events if event.op in ops and event.type in {"ok", "info"}]


# --- Reports -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Violation:
    check: str
    text: str
    events: tuple[Event, ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"{self.check}: {self.text}", *(f"    {event.line()}" for event in self.events)])


@dataclass(frozen=True, slots=True)
class TotalQueue:
    """Jepsen's record of a queue, over ids. Fewer acknowledged than attempts is not a fault: replies get lost.

    Two sends of one id are one message here. A message is out when it was finished or found dead, or when
    the outcome of its ack is unknown; a delivery alone is not enough, its holder may have died.
    """

    attempts: int
    acknowledged: int
    ok: int
    """Attempted, and out."""
    lost: frozenset[str]
    """Acknowledged, and not out."""
    unexpected: frozenset[str]
    """Out or delivered, and never attempted."""
    duplicated: int
    """Deliveries of a message after its first. No fault in itself: see H3."""
    recovered: int
    """The send's outcome was unknown, and the message came out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    seed: int | None
    total: TotalQueue
    violations: tuple[Violation, ...]
    causes: Mapping[str, int]
    """Why messages were delivered again, with counts."""
    lateness_us: Mapping[str, int]
    """p50, p99 and max of claim minus due; empty without server times and due times."""
    stale_refused: int
    """Operations of a stale holder that were refused: shows that H8 was put to the test."""

    @property
    def is_clean(self) -> bool:
        return not self.violations

    def broken(self) -> set[str]:
        """Return the checks that failed, as `{"H1", ...}`."""
        return {violation.check for violation in self.violations}


def assert_clean(report: Report, *, most: int = 20) -> None:
    """Fail with the seed, the figures and the offending events, unless the report is clean."""
    if report.is_clean:
        return
    shown = "\n".join(str(violation) for violation in report.violations[:most])
    hidden = len(report.violations) - most
    more = f"\n... and {hidden} more" if hidden > 0 else ""
    raise AssertionError(
        f"seed {report.seed}: {len(report.violations)} violations of {sorted(report.broken())}\n"
        f"{report.total}\n{shown}{more}"
    )


# --- The record of the queue -------------------------------------------------------------------------------


def total_queue(history: History) -> TotalQueue:
    """Count sent and delivered messages. The queue must have been drained."""
    attempted = _ids(history.select("send", type="invoke"))
    acknowledged = _ids(history.select("send"))
    out = _ids(history.select(*FINISHES)) | _ids(history.select("ack", "cancel", "reject", type="info"))
    claims = history.select("claim")
    deliveries = Counter(event.id for event in claims)
    return TotalQueue(
        attempts=len(attempted),
        acknowledged=len(acknowledged),
        ok=len(out & attempted),
        lost=frozenset(acknowledged - out),
        unexpected=frozenset((out | _ids(claims)) - attempted),
        duplicated=deliveries.total() - len(deliveries),
        recovered=len((out & attempted) - acknowledged),
    )


def _ids(events: Iterable[Event]) -> set[str]:
    return {event.id for event in events if event.id is not None}


# --- The checks --------------------------------------------------------------------------------------------


def check_h1_nothing_lost(history: History) -> list[Violation]:
    """An acknowledged send came out."""
    lost = sorted(total_queue(history).lost)
    return [Violation("H1", f"{one} was lost", tuple(history.by_id[one])) for one in lost]


def check_h2_nothing_invented(history: History) -> list[Violation]:
    """A delivered message was sent, was not refused, and has the same body."""
    found = [
        Violation("H2", f"{one} was never sent", tuple(history.by_id[one]))
        for one in sorted(total_queue(history).unexpected)
    ]
    for one, events in history.by_id.items():
        sends = [event for event in events if event.op == "send" and event.type != "invoke"]
        claims = history.claims(one)
        if claims and sends and all(send.type == "fail" for send in sends):
            found.append(Violation("H2", f"{one} was refused, and delivered", (*sends, *claims)))
        sent = {event.digest for event in events if event.op in {"send", "recycle"} and event.digest}
        altered = [claim for claim in claims if sent and claim.digest and claim.digest not in sent]
        found += [Violation("H2", f"{one} came out altered", (claim,)) for claim in altered]
    return found


def check_h3_duplicates_explained(history: History) -> list[Violation]:
    """Each delivery after the first has a cause."""
    return [
        Violation("H3", f"{second.id} was delivered again for no reason", (first, second))
        for first, second, cause in redeliveries(history)
        if cause is None
    ]


def redeliveries(history: History) -> Iterator[tuple[Event, Event, str | None]]:
    """Pair each delivery with the one before it, and with the cause that allowed it."""
    marks = [event for event in history.events if event.op in MARKS]
    for one in history.by_id:
        for first, second in pairwise(history.claims(one)):
            yield first, second, _cause(history, first, second, marks)


def _cause(history: History, first: Event, second: Event, marks: Sequence[Event]) -> str | None:
    for event in history.known(first.id, GIVES_BACK | {"redrive"}):
        is_between = history.maybe_before(event, second) and not history.surely_before(event, first)
        if is_between and (event.op == "redrive" or event.fence == first.fence):
            return event.op if event.type == "ok" else f"{event.op}, outcome unknown"
    if history.is_rolled_back_between(first, second):
        return "rollback"
    between = [mark for mark in marks if first.mono_ns <= mark.mono_ns <= second.mono_ns]
    was_killed = any(mark.op == "kill" and mark.process == first.process for mark in between)
    if _lease_end(history, first) <= history.window(second)[1]:
        return "holder killed" if was_killed else "lease expired"
    # Without leases in the history (a foreign queue) the death of the holder has to do.
    return "holder killed" if was_killed and first.lease_us is None else None


def check_h4_bounded(history: History, max_attempts: int) -> list[Violation]:
    """No message is delivered more often than allowed, and attempt numbers never fall."""
    found = []
    for one in history.by_id:
        claims = history.claims(one)
        if len(claims) > max_attempts:
            found.append(Violation("H4", f"{one}: {len(claims)} deliveries, {max_attempts} allowed", (*claims,)))
        found += [
            Violation("H4", f"{one}: the attempt number fell", (first, second))
            for first, second in pairwise(claims)
            if first.attempt is not None and second.attempt is not None and second.attempt < first.attempt
        ]
    return found


def check_h5_never_early(history: History) -> list[Violation]:
    """No delivery before the due time, by the server's clock."""
    found = []
    for claim in history.select("claim"):
        due = _due_of(history, claim)
        if due is None:
            continue
        if claim.server_us is None:
            found.append(Violation("H5", f"{claim.id}: cannot be judged without the server's time", (claim,)))
        elif claim.server_us < due:
            found.append(Violation("H5", f"{claim.id}: {due - claim.server_us} us early", (claim,)))
    return found


def _due_of(history: History, claim: Event) -> int | None:
    """Return the due time that surely held at the claim: the last one set, or a perhaps set earlier one."""
    began = history.window(claim)[0]
    settings = [event for event in history.known(claim.id, SETS_DUE) if event.due_us is not None]
    settings.sort(key=history.window)
    known = [event for event in settings if event.type == "ok" and history.window(event)[1] <= began]
    unsure = [event for event in settings if event not in known and not history.surely_before(claim, event)]
    allowed = min((event.due_us or 0 for event in (*known[-1:], *unsure)), default=None)
    moments = [moment for moment in (allowed if known else None, claim.due_us) if moment is not None]
    return max(moments, default=None)


def check_h6_nothing_after_finish(history: History) -> list[Violation]:
    """No delivery after a confirmed ack, cancel, reject or expiry, unless sent or redriven again."""
    return [
        Violation("H6", f"{one} was delivered after its {end.op}", (end, claim))
        for one, events in history.by_id.items()
        for end in events
        if end.op in FINISHES and end.type == "ok"
        for claim in history.claims(one)
        if history.surely_before(end, claim)
        and not history.is_rolled_back_between(end, claim)
        and not _is_revived(history, end, claim)
    ]


def _is_revived(history: History, end: Event, claim: Event) -> bool:
    """Return whether the id may have been sent again in between. Its first send made the finished message."""
    revivals = [*history.known(claim.id, {"send"})[1:], *history.known(claim.id, {"redrive"})]
    return any(history.maybe_before(event, claim) and not history.surely_before(event, end) for event in revivals)


def check_h7_one_live_holder(history: History) -> list[Violation]:
    """The times for which a message was surely held do not overlap; fences are unique and grow."""
    found = []
    for one in history.by_id:
        claims = history.claims(one)
        longest: Event | None = None  # the holder so far whose hold ends last
        for claim in claims:
            if longest is not None and _share_time(history, longest, claim):
                found.append(Violation("H7", f"{one} had two holders at a time", (longest, claim)))
            if longest is None or _sure_hold_end(history, claim) > _sure_hold_end(history, longest):
                longest = claim
        found += [
            Violation("H7", f"{one}: the fence did not grow", (first, second))
            for first, second in pairwise(claims)
            if _fails_to_grow(history, first, second)
        ]
    return found


def _share_time(history: History, first: Event, second: Event) -> bool:
    """Return whether both surely held at one moment, in either order where that is open."""

    def overtakes(holder: Event, other: Event) -> bool:
        return history.window(other)[1] < _sure_hold_end(history, holder)

    if history.is_rolled_back_between(first, second):
        return False
    return overtakes(first, second) and (history.surely_before(first, second) or overtakes(second, first))


def _fails_to_grow(history: History, first: Event, second: Event) -> bool:
    if first.fence is None or second.fence is None:
        return False
    is_backward = second.fence < first.fence and history.surely_before(first, second)
    return is_backward or second.fence == first.fence


def _lease_end(history: History, claim: Event) -> float:
    """Return when the lease as confirmed runs out at the earliest; never, if the history has no leases."""
    extensions = history.known(claim.id, {"extend"})
    granted = [event for event in extensions if event.type == "ok" and event.fence == claim.fence]
    last = max([claim, *granted], key=history.window)
    return inf if last.lease_us is None else history.window(last)[0] + last.lease_us


def _sure_hold_end(history: History, claim: Event) -> float:
    """Return until when the message was surely this claim's: its lease, or its settle if that is earlier.

    A settle at an unknown time may have come right after the claim.
    """
    end = _lease_end(history, claim)
    for event in history.known(claim.id, SETTLES | {"cancel"}):
        if event.op == "cancel" or event.fence == claim.fence:
            end = min(end, max(history.window(event)[0], history.window(claim)[0]))
    return end


def check_h8_stale_holder_powerless(history: History) -> list[Violation]:
    """No operation with a fence succeeded after a newer delivery of the same message."""
    return [
        Violation("H8", f"{event.id}: {event.op} by a stale holder was accepted", (claim, event))
        for event in history.select(*SETTLES, "extend")
        for claim in history.claims(event.id)
        if _is_stale(event, claim)
        and history.surely_before(claim, event)
        and not history.is_rolled_back_between(claim, event)
    ]


def _is_stale(event: Event, newest: Event) -> bool:
    return event.fence is not None and newest.fence is not None and event.fence < newest.fence


def count_stale_refused(history: History) -> int:
    """Count the operations that came with an old fence and were refused."""
    return sum(
        any(_is_stale(event, claim) for claim in history.claims(event.id))
        for event in history.select(*SETTLES, "extend", type="fail")
    )


def check_h9_order_per_key(history: History) -> list[Violation]:
    """Within a key messages come first in the order in which they fell due, one after the other."""
    lanes: dict[str, list[Event]] = defaultdict(list)
    for send in history.select("send"):
        # Without the server's time a due time cannot be compared; a new one starts a new order.
        is_dated = send.due_us is None or history.has_server_time
        is_moved = history.known(send.id, {"reschedule", "promote"})
        if send.key is not None and history.claims(send.id) and is_dated and not is_moved:
            lanes[send.key].append(send)
    found = []
    for key, sends in lanes.items():
        sends.sort(key=lambda send: _falls_due(history, send))
        for earlier, later in pairwise(sends):
            found += _out_of_order(history, key, earlier, later)
    return found


def _falls_due(history: History, send: Event) -> float:
    sent = history.window(send)[0]
    return max(sent, send.due_us or 0) if history.has_server_time else sent


def _out_of_order(history: History, key: str, earlier: Event, later: Event) -> list[Violation]:
    first, second = history.claims(earlier.id)[0], history.claims(later.id)[0]
    if not history.has_server_time and not history.surely_before(earlier, later):
        return []  # sent side by side: either order is right
    if history.surely_before(second, first):
        return [Violation("H9", f"key {key}: {later.id} overtook {earlier.id}", (earlier, later, second, first))]
    ends = [event for event in history.by_id[earlier.id or ""] if event.op in FINISHES and event.type == "ok"]
    if ends and all(history.surely_before(second, end) for end in ends):
        text = f"key {key}: {later.id} was delivered while {earlier.id} was out"
        return [Violation("H9", text, (first, second, *ends))]
    return []


def check_h10_conserved(history: History, left: int) -> list[Violation]:
    """An accepted message is finished, or still stored: `left` has the messages of the queue, dead included."""
    ends = FINISHES - {"dead", "reject"}
    finished = _ids(history.select(*ends))
    accepted = _ids(history.select("send"))
    surely_there = accepted - finished - _ids(history.select(*ends, type="info"))
    maybe_there = (accepted | _ids(history.select("send", type="info"))) - finished
    if len(surely_there) <= left <= len(maybe_there):
        return []
    return [Violation("H10", f"{left} are left, {len(surely_there)} to {len(maybe_there)} should be")]


def check_h11_lively(
    history: History, fault_ended_ns: int, *, first_within: float, drained_within: float
) -> list[Violation]:
    """After the fault ended, work went on within seconds, and was done within more seconds."""
    claims = [event.mono_ns for event in history.select("claim") if event.mono_ns >= fault_ended_ns]
    ends = [event.mono_ns for event in history.select(*FINISHES) if event.mono_ns >= fault_ended_ns]
    found = []
    for what, moment, limit in (
        ("delivery", min(claims, default=None), first_within),
        ("finish", max(ends, default=None), drained_within),
    ):
        seconds = inf if moment is None else (moment - fault_ended_ns) / 1e9
        if seconds > limit:
            found.append(Violation("H11", f"the {what} came {seconds:.3f} s after the fault, limit {limit} s"))
    return found


def check_h12_fault_fired(fired: Mapping[str, int]) -> list[Violation]:
    """Every fault of the run has happened at least once, else the run shows nothing."""
    return [Violation("H12", f"{name} never fired") for name, count in fired.items() if count < 1]


def check(
    history: History,
    *,
    seed: int | None = None,
    fired: Mapping[str, int] | None = None,
    max_attempts: int | None = None,
    left: int | None = None,
) -> Report:
    """Run all checks that need no more than the history, and those whose argument is given.

    H11 needs its own limits: call it, and add what it finds with `with_violations`.
    """
    found = [
        *check_h1_nothing_lost(history),
        *check_h2_nothing_invented(history),
        *check_h3_duplicates_explained(history),
        *check_h5_never_early(history),
        *check_h6_nothing_after_finish(history),
        *check_h7_one_live_holder(history),
        *check_h8_stale_holder_powerless(history),
        *check_h9_order_per_key(history),
    ]
    if max_attempts is not None:
        found += check_h4_bounded(history, max_attempts)
    if left is not None:
        found += check_h10_conserved(history, left)
    if fired is not None:
        found += check_h12_fault_fired(fired)
    return Report(
        seed=seed,
        total=total_queue(history),
        violations=tuple(found),
        causes=Counter(cause for _, _, cause in redeliveries(history) if cause is not None),
        lateness_us=_lateness(history),
        stale_refused=count_stale_refused(history),
    )


def with_violations(report: Report, found: Iterable[Violation]) -> Report:
    """Return the report with what another check has found."""
    return replace(report, violations=(*report.violations, *found))


def _lateness(history: History) -> dict[str, int]:
    late = sorted(
        claim.server_us - due
        for claim in history.select("claim")
        if claim.server_us is not None and (due := _due_of(history, claim)) is not None
    )
    if not late:
        return {}
    return {name: late[ceil(share * len(late)) - 1] for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1))}
