"""An audit: checks all keys of a queue, group or topic in bounded steps, and its counters.

Each step checks its ids atomically, so an audit can run while the queue is in use.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from duly._core import faults, ops, views
from duly._core.keys import QueueKeys
from duly._core.replies import AUDITED_BYTES
from duly._core.views import Accounts
from duly.message import Audit, AuditFault
from duly.options import checked_flag

if TYPE_CHECKING:
    from duly._async.link import AsyncLink

Progress = Callable[[int], None]

_MOST_ROUNDS: Final = 6
"""The largest number of rounds of a repair.

A fix may reveal another fault: a message gets its place back, and then its lane is missing. So a repair runs until a
round finds no fault, or until this limit, if other programs cause damage all the time.
"""


_ROWS: Final = {"dead_why_bytes": "dead_why", "done_why_bytes": "done_why"}
"""The fields of `meta` with the bytes of rows."""


class Round(NamedTuple):
    """The findings of one pass over all keys."""

    faults: list[AuditFault]
    accounts: Accounts
    sizes: Mapping[str, int]
    """The stored bytes by the number that counts them. Bytes that may have changed during the round are missing."""


class AsyncAuditor:
    """One audit of a queue, group or topic."""

    def __init__(
        self, link: "AsyncLink", keys: QueueKeys, name: str, *, repair: bool, on_progress: Progress | None
    ) -> None:
        self._link = link
        self._keys = keys
        self._name = name
        self._sources = ops.AUDITED_OF_TOPIC if keys.kind == "topic" else ops.AUDITED
        self._repair = checked_flag(repair, "repair")
        self._on_progress = on_progress
        self._checked = 0

    async def run(self) -> Audit:
        """Check everything, and fix it if `repair` is set."""
        unreadable = await self._walk("keys")
        if unreadable and not self._repair:
            return self._audit(unreadable, Accounts(views.NOTHING_COUNTED))
        last = await self._round()
        found = [*unreadable, *last.faults]
        rounds = 1
        while self._repair and last.faults and rounds < _MOST_ROUNDS:
            last = await self._round()
            found += last.faults
            rounds += 1
        while self._repair and not await self._correct(last) and rounds < 2 * _MOST_ROUNDS:
            last = await self._round()
            found += last.faults
            rounds += 1
        return self._audit([*found, *_explained(_wrong_sizes(last))], last.accounts)

    def _audit(self, found: list[AuditFault], accounts: Accounts) -> Audit:
        every = tuple(faults.without_repeats(found))
        return Audit(self._name, accounts.stats, self._checked, every, repaired=self._repair, entered=accounts.entered)

    async def _round(self) -> Round:
        """Check all keys and read the counters."""
        before = await self._link.run(ops.accounts(self._keys))
        found: list[AuditFault] = []
        sizes = Counter(dict.fromkeys(AUDITED_BYTES, 0))
        for source in self._sources:
            found += await self._walk(source, sizes)
        after = await self._link.run(ops.accounts(self._keys))
        comparable = [name for name in sizes if not found and _movements(name, before) == _movements(name, after)]
        return Round(found, after, {name: sizes[name] for name in comparable})

    async def _walk(self, source: str, sizes: Counter[str] | None = None) -> list[AuditFault]:
        """Check one key, and add the bytes that it stores to `sizes`."""
        cursor = "0"
        found: list[AuditFault] = []
        while True:
            step = await self._link.run(ops.audit_step(self._keys, source, cursor, repair=self._repair))
            found += step.faults
            self._checked += step.checked
            if sizes is not None:
                sizes.update(step.sizes)
            if self._on_progress is not None:
                self._on_progress(self._checked)
            cursor = step.cursor
            if cursor == "0":
                return found

    async def _correct(self, last: Round) -> bool:
        """Correct the counters. False: another repair has changed them since they were read."""
        corrections = _corrections(last)
        if difference := self._audit([], last.accounts).difference:
            corrections["corrected"] = -difference
        if not corrections:
            return True
        return await self._link.run(ops.correct(self._keys, corrections, last.accounts.repairs))


def _explained(wrong: dict[str, tuple[int | None, int]]) -> list[AuditFault]:
    return [
        faults.explained(name, faults.WRONG_BYTES, f"it counts {counted:,}, and {real:,} are stored")
        for name, (counted, real) in wrong.items()
        if counted is not None
    ]


def _movements(size: str, accounts: Accounts) -> tuple[object, ...]:
    """Return the numbers that change when a message is added, removed or resized, or when a repair fixes a fault."""
    stats = accounts.stats
    if size in _ROWS:
        return _state_of_rows(size, accounts), getattr(stats, size)
    return (
        accounts.entered, accounts.repairs,
        stats.sent, stats.acked, stats.recycled, stats.replaced, stats.buried, stats.redriven,
        stats.cancelled, stats.expired, stats.dropped, stats.purged, stats.moved, stats.trimmed, stats.done_trimmed,
    )  # fmt: skip


def _state_of_rows(size: str, accounts: Accounts) -> str:
    """Return the state of the messages with these rows, as `lib/row_bytes.lua` writes it."""
    stats = accounts.stats
    of_dead, of_done = (stats.dead, stats.buried), (stats.done, stats.done_trimmed)
    messages, grows = of_dead if size == "dead_why_bytes" else of_done
    return f"{messages} {grows} {accounts.repairs}"


def _wrong_sizes(last: Round) -> dict[str, tuple[int | None, int]]:
    """Return the numbers that differ from the stored bytes, with both values. None: the number is unknown."""
    counted = {name: getattr(last.accounts.stats, name) for name in last.sizes}
    return {name: (counted[name], real) for name, real in last.sizes.items() if counted[name] != real}


def _corrections(last: Round) -> dict[str, int | str]:
    """Return the arguments of `correct`: differences, and for rows their bytes and their state."""
    corrections: dict[str, int | str] = {}
    for name, (counted, real) in _wrong_sizes(last).items():
        if name in _ROWS:
            corrections[_ROWS[name]] = f"{real} {_state_of_rows(name, last.accounts)}"
        else:
            corrections[name] = real - (counted or 0)
    return corrections
