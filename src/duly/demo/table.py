"""The progress of the demo: a live table on a terminal, or elsewhere a line per second, if something has changed."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from duly import Stats
from duly.demo.process import DemoProcess

_COLUMNS: Final = ("ready", "delayed", "leased", "dead", "sent", "delivered", "acked")


@dataclass(frozen=True)
class Snapshot:
    """The state of queues and processes at one moment."""

    elapsed: float
    queues: dict[str, Stats]
    processes: Sequence[DemoProcess]
    news: Sequence[str]
    """Messages about events, like the kill."""


class View(Protocol):
    """Shows snapshots."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def show(self, snapshot: Snapshot) -> None:
        """Show a snapshot."""


class Rates:
    """Acks per second of each queue, over about the last second."""

    def __init__(self) -> None:
        self._points: dict[str, deque[tuple[float, int]]] = {}

    def rate_of(self, queue: str, acked: int) -> float:
        """Record the number of acks, and return the rate."""
        points, now = self._points.setdefault(queue, deque()), time.monotonic()
        points.append((now, acked))
        while len(points) > 2 and now - points[0][0] > 1:
            points.popleft()
        then, before = points[0]
        return (acked - before) / (now - then) if then < now else 0.0


class LiveTable:
    """For a terminal."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False)
        self._rates = Rates()

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, snapshot: Snapshot) -> None:
        """Draw both tables."""
        news = "\n".join(f"  {line}" for line in snapshot.news)
        self._live.update(Group(self._queues(snapshot), _processes(snapshot), news), refresh=True)

    def _queues(self, snapshot: Snapshot) -> Table:
        table = Table(title=f"{snapshot.elapsed:.1f} s", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("queue")
        for name in (*_COLUMNS, "acked/s"):
            table.add_column(name, justify="right", min_width=5)
        for queue, stats in snapshot.queues.items():
            rate = self._rates.rate_of(queue, stats.acked)
            table.add_row(queue, *(f"{getattr(stats, name):,}" for name in _COLUMNS), f"{rate:,.0f}")
        return table


def _processes(snapshot: Snapshot) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("process", "pid", "state"):
        table.add_column(name)
    for name in ("sent", "received", "acked"):
        table.add_column(name, justify="right", min_width=5)
    for process in snapshot.processes:
        counts = (process.tally.count[event] for event in ("sent", "delivered", "acked"))
        table.add_row(
            process.name, str(process.pid), process.state, *(f"{count:,}" if count else "" for count in counts)
        )
    return table


class Lines:
    """For a file or a pipe."""

    def __init__(self, print_line: Callable[[str], None], every: float = 1.0) -> None:
        self._print = print_line
        self._every = every
        self._next_at = 0.0
        self._printed = 0
        self._figures: dict[str, str] = {}
        """The last line of each queue. It is not printed again while it is the same."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def show(self, snapshot: Snapshot) -> None:
        """Print new events, and once per second the counters that have changed."""
        for line in snapshot.news[self._printed :]:
            self._print(f"{snapshot.elapsed:5.1f} s  {line}")
        self._printed = len(snapshot.news)
        if time.monotonic() < self._next_at:
            return
        self._next_at = time.monotonic() + self._every
        for queue, stats in snapshot.queues.items():
            figures = "  ".join(f"{name} {getattr(stats, name)}" for name in _COLUMNS)
            if self._figures.get(queue) != figures:
                self._print(f"{snapshot.elapsed:5.1f} s  {queue}: {figures}")
                self._figures[queue] = figures
