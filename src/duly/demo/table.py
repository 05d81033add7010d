"""What is shown while the demonstration runs: a table that changes on a terminal, a line now and then elsewhere."""

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
from duly.demo.process import Part

_COLUMNS: Final = ("ready", "delayed", "leased", "dead", "sent", "delivered", "acked")


@dataclass(frozen=True)
class Look:
    """How things stand at one moment."""

    elapsed: float
    queues: dict[str, Stats]
    parts: Sequence[Part]
    news: Sequence[str]
    """What happened so far that is worth a line."""


class View(Protocol):
    """Shows looks."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def show(self, look: Look) -> None:
        """Show how things stand."""


class Rates:
    """Acks a second of each queue, over about the last second."""

    def __init__(self) -> None:
        self._points: dict[str, deque[tuple[float, int]]] = {}

    def rate_of(self, queue: str, acked: int) -> float:
        """Note how many were acked by now, and tell the rate."""
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

    def show(self, look: Look) -> None:
        """Draw both tables."""
        news = "\n".join(f"  {line}" for line in look.news)
        self._live.update(Group(self._queues(look), _processes(look), news), refresh=True)

    def _queues(self, look: Look) -> Table:
        table = Table(title=f"{look.elapsed:.1f} s", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("queue")
        for name in (*_COLUMNS, "acked/s"):
            table.add_column(name, justify="right", min_width=5)
        for queue, stats in look.queues.items():
            rate = self._rates.rate_of(queue, stats.acked)
            table.add_row(queue, *(f"{getattr(stats, name):,}" for name in _COLUMNS), f"{rate:,.0f}")
        return table


def _processes(look: Look) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("process", "pid", "state"):
        table.add_column(name)
    for name in ("sent", "received", "acked"):
        table.add_column(name, justify="right", min_width=5)
    for part in look.parts:
        counts = (part.tally.count[event] for event in ("sent", "delivered", "acked"))
        table.add_row(part.name, str(part.pid), part.state, *(f"{count:,}" if count else "" for count in counts))
    return table


class Lines:
    """For a file or a pipe."""

    def __init__(self, say: Callable[[str], None], every: float = 1.0) -> None:
        self._say = say
        self._every = every
        self._next_at = 0.0
        self._told = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def show(self, look: Look) -> None:
        """Say what is new, and once a second how things stand."""
        for line in look.news[self._told :]:
            self._say(f"{look.elapsed:5.1f} s  {line}")
        self._told = len(look.news)
        if time.monotonic() < self._next_at:
            return
        self._next_at = time.monotonic() + self._every
        for queue, stats in look.queues.items():
            figures = "  ".join(f"{name} {getattr(stats, name)}" for name in _COLUMNS)
            self._say(f"{look.elapsed:5.1f} s  {queue}: {figures}")
