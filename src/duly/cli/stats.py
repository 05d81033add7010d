"""`duly stats [--watch] [--since] [--ahead]`: counters of all queues, their history, and their forecast."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from duly._core.history import checked_span
from duly._core.measures import size_text, span
from duly._core.rates import Course, Rates, sparkline
from duly._core.topology import Away
from duly._sync.survey import Survey
from duly.cli import output, values
from duly.cli.each_inbox import Failed, read_each, report_failed
from duly.cli.forecast import ahead_of, show_forecast
from duly.cli.output import Align
from duly.cli.parameters import Inboxes
from duly.cli.session import PATIENCE, Inbox, Session, missing_nodes
from duly.cli.stop_signals import until_stopped
from duly.errors import UsageError
from duly.message import Histogram, HistoryPoint, Stats

_SHORTEST_INTERVAL: Final = 0.1
_FRAME_LINES: Final = 5
"""Lines of the live view besides the queues."""
_BARS_FROM_WIDTH: Final = 100
_ENDS: Final = ("done", "cancelled", "expired", "dropped", "purged", "moved", "trimmed", "corrected")
"""Other ways in which messages end. Each has a column if its count is not zero. With them, SENT adds up."""
_SPARE: Final = (
    *(name.upper() for name in _ENDS),
    "SIZE",
    "PARKED",
    "LATE",
    "LEASED",
    "OLDEST",
    "DELAYED",
    "SENT",
    "IN/S",
)

Watch = Annotated[bool, typer.Option("--watch", help="Repeat until Ctrl-C, with rates. In a pipe: a table each time.")]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="DURATION", help="Show the history instead: 10m, 1h, 24h, at most 7d."),
]
Ahead = Annotated[
    str | None,
    typer.Option(
        "--ahead",
        metavar="DURATION",
        help="Show what becomes due instead: 10m, at most ten years. Without a value: 1d.",
    ),
]
Interval = Annotated[str, typer.Option("--interval", metavar="DURATION", help="The interval of --watch.")]

Found = Mapping[str, Stats]
Samples = Iterator[tuple[Found, Rates, Survey]]


def stats(
    session: Session,
    queues: Inboxes = None,
    watch: Watch = False,
    interval: Interval = "1s",
    since: Since = None,
    ahead: Ahead = None,
) -> None:
    """Show the counters of each queue and of each group of a topic.

    Example: duly stats --watch
    """
    if ahead is not None:
        show_forecast(session, queues, ahead_of(ahead, is_alone=since is None and not watch))
        return
    if since is not None:
        _show_history(session, queues, _history_of(since, is_watching=watch))
        return
    seconds = values.duration(interval, "--interval")
    if seconds < _SHORTEST_INTERVAL:
        raise UsageError(f"--interval: {interval!r} is too short, the minimum is {span(_SHORTEST_INTERVAL)}")
    survey = session.survey()
    sources = session.inboxes(queues, survey)  # fail at once for a wrong name or an unreachable server
    if not watch:
        _show_once(session, sources, survey)
        return
    show = _watch if output.is_interactive(session.console) and not session.as_json else _print_samples
    with until_stopped(session.app):
        # Named queues stay in view, even after they are deleted.
        show(session, _samples(session, sources if queues else None, seconds))


def _read_stats(
    sources: Iterable[Inbox], survey: Survey, failed: Failed | None = None, history: float | None = None
) -> dict[str, Stats]:
    return read_each(sources, survey, lambda inbox: inbox.stats(history=history), failed)


def _rows(found: Found, rates: Rates | None) -> list[dict[str, Any]]:
    rows = [{"name": name, "live": stats.live, **output.plain(stats)} for name, stats in found.items()]
    for row in rows:
        del row["history"]  # --since shows it
    if rates is not None:
        for row in rows:
            course = rates.of(row["name"])
            row |= {"sent_per_second": _latest(course.sent), "acked_per_second": _latest(course.acked)}
    return rows


def _fields(found: Found, rates: Rates | None, survey: Survey) -> dict[str, Any]:
    """Return the fields for --json. `missing` lists the nodes of a cluster that do not answer, if there are any."""
    return {"queues": _rows(found, rates), **missing_nodes(survey)}


def _latest(values_: Any) -> float:
    return round(values_[-1], 1) if values_ else 0.0


# Once


def _show_once(session: Session, sources: Iterable[Inbox], survey: Survey) -> None:
    failed: Failed = {}
    found = _read_stats(sources, survey, failed)
    session.show(_fields(found, None, survey), _counts_table(found))
    report_failed(session, survey, failed)


# The history


def _history_of(since: str, *, is_watching: bool) -> float:
    if is_watching:
        raise UsageError("--since shows the past, and --watch the present: choose one of them")
    seconds = values.duration(since, "--since")
    try:
        return checked_span(seconds)
    except UsageError:
        raise UsageError(f"--since: {since!r} must be a minute at least and a week at most") from None


_HISTORY: Final[dict[str, Align]] = {
    "FROM": "left", "SENT": "right", "DELIVERED": "right", "ACKED": "right", "RETRIED": "right", "CRASHED": "right",
    "DEAD": "right", "EXPIRED": "right", "DEPTH": "right", "OLDEST": "right", "LATE 95%": "right",
    "HANDLING 95%": "right",
}  # fmt: skip
_HISTORY_SPARE: Final = ("EXPIRED", "CRASHED", "OLDEST", "HANDLING 95%", "LATE 95%", "RETRIED", "DELIVERED")


def _show_history(session: Session, queues: Inboxes, seconds: float) -> None:
    failed: Failed = {}
    survey = session.survey()
    found = _read_stats(session.inboxes(queues, survey), survey, failed, seconds)
    fields = _fields(found, None, survey) | {"queues": [_history_row(name, each) for name, each in found.items()]}
    session.show(fields, _history_view(found))
    report_failed(session, survey, failed)


def _history_row(name: str, stats: Stats) -> dict[str, Any]:
    return {"name": name, "bounds": Histogram.BOUNDS, "history": output.plain(stats.history)}


def _history_view(found: Found) -> RenderableType:
    parts: list[RenderableType] = []
    for name, stats in found.items():
        if not stats.history:
            parts.append(Text(f"{output.visible(name)}: no history yet"))
            continue
        parts += [Text(output.visible(name), "bold"), _history_table(stats.history), Text("")]
    return Group(*parts) if parts else Text("there are no queues yet: `duly send orders hello` creates one")


def _history_table(history: Iterable[HistoryPoint]) -> output.Sheet:
    return output.Sheet(_HISTORY, [_history_cells(point) for point in history], spare=_HISTORY_SPARE)


def _history_cells(point: HistoryPoint) -> list[object]:
    numbers = (point.sent, point.delivered, point.acked, point.retried, point.crashed)
    dead = Text(f"{point.dead:,}", "bold red" if point.dead else "")
    depth = "-" if point.depth is None else f"{point.depth:,}"
    times = (_quantile(histogram) for histogram in (point.lateness, point.handling))
    shown = (f"{each:,}" for each in numbers)
    return [
        output.clock_text(point.start)[:16],
        *shown,
        dead,
        f"{point.expired:,}",
        depth,
        span(point.oldest_age),
        *times,
    ]


def _quantile(histogram: Histogram) -> str:
    """Show a bound that 95 of 100 times stay within."""
    bound = histogram.quantile(0.95)
    if bound is None:
        return "-"
    return f"> {span(Histogram.BOUNDS[-1])}" if bound == float("inf") else f"< {span(bound)}"


_COUNTS: Final[dict[str, Align]] = {
    "QUEUE": "left", "READY": "right", "DELAYED": "right", "LEASED": "right", "PARKED": "right", "DEAD": "right",
    "OLDEST": "right",
}  # fmt: skip


def _counts(name: str, stats: Stats) -> list[object]:
    dead = Text(f"{stats.dead:,}", "bold red" if stats.dead else "")
    title = Text(output.visible(name)) + Text(" (paused)" if stats.paused else "", "yellow")
    numbers = (f"{each:,}" for each in (stats.ready, stats.delayed, stats.leased, stats.parked))
    return [title, *numbers, dead, span(stats.oldest_age)]


def _counts_table(found: Found) -> RenderableType:
    if not found:
        return Text("there are no queues yet: `duly send orders hello` creates one")
    ends = [name for name in _ENDS if any(getattr(each, name) for each in found.values())]
    columns: dict[str, Align] = {**_COUNTS, "SENT": "right", "ACKED": "right"}
    columns |= {**dict.fromkeys(map(str.upper, ends), "right"), "SIZE": "right"}
    rows = [
        [
            *_counts(name, each),
            f"{each.sent:,}",
            f"{each.acked:,}",
            *(f"{getattr(each, name):,}" for name in ends),
            size_text(each.stored_bytes),
        ]
        for name, each in found.items()
    ]
    return output.Sheet(columns, rows, cut=["QUEUE"], spare=_SPARE)


# Repeatedly


def _samples(session: Session, sources: list[Inbox] | None, seconds: float) -> Samples:
    rates = Rates()
    due = time.monotonic()
    while True:
        survey = session.survey()
        with _brief_waits(session, survey):
            found = _read_stats(session.inboxes(None, survey) if sources is None else sources, survey)
        rates.add(found, time.monotonic())
        yield found, rates, survey
        now = time.monotonic()
        due = max(due + seconds, now)
        time.sleep(due - now)


@contextmanager
def _brief_waits(session: Session, survey: Survey) -> Iterator[None]:
    """Do not wait for one node of a cluster as long as for the only server: the others are shown without it."""
    link, patience = session.app._link, session.app._link.patience
    if survey.is_partial:
        link.patience = min(patience, PATIENCE)
    try:
        yield
    finally:
        link.patience = patience


def _print_samples(session: Session, samples: Samples) -> None:
    for found, rates, survey in samples:
        now = datetime.now(UTC)
        if session.as_json:
            output.print_json({"at": now, **_fields(found, rates, survey)}, one_line=True)
            continue
        session.console.print(output.time_text(now))
        session.console.print(live_table(found, rates, width=session.console.width, rows=len(found)))
        for each in survey.away:
            session.console.print(Text(output.visible(str(each)), "yellow"))


def _watch(session: Session, samples: Samples) -> None:
    console = session.console
    # Standard output is not redirected: only the view is printed there, in its encoding. Notes on standard error are
    # shown above the view only if both are the same terminal.
    is_shared = sys.stderr.isatty()
    with Live(
        console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=is_shared
    ) as live:
        for found, rates, survey in samples:
            workers = survey.workers()
            live.update(
                live_view(
                    found,
                    rates,
                    title=f"{session.app!r}".strip("<>").removeprefix("Duly on "),
                    workers=None if workers is None else len(workers),
                    at=datetime.now(UTC),
                    size=(console.width, console.height),
                    away=survey.away,
                ),
                refresh=True,
            )


def live_view(
    found: Found,
    rates: Rates,
    *,
    title: str,
    workers: int | None,
    at: datetime,
    size: tuple[int, int],
    away: Sequence[Away] = (),
) -> RenderableType:
    """Draw one frame: a title, the queues that fit, the sum, and a line for each node that is away."""
    width, height = size
    working = "? worker(s)" if workers is None else f"{workers} worker(s)"
    head = Text.assemble(("duly ", "bold"), output.visible(title), f"   {working}   ", output.time_text(at)[:19])
    head.truncate(width, overflow="ellipsis")
    rows = max(1, height - _FRAME_LINES - len(away))
    left_out = f"{len(found) - rows:,} more are not shown, but are in the sum. " if len(found) > rows else ""
    body = live_table(found, rates, width=width, rows=rows)
    return Group(head, Text(""), body, *_absences(away, width), Text(f"{left_out}Ctrl-C exits", "dim"))


def _absences(away: Sequence[Away], width: int) -> list[Text]:
    lines = [Text(output.visible(str(each)), "yellow") for each in away]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def live_table(found: Found, rates: Rates, *, width: int, rows: int) -> output.Sheet:
    """Draw the queues, or the busiest ones if not all fit, and the sum of all queues."""
    has_bars = width >= _BARS_FROM_WIDTH
    columns: dict[str, Align] = {**_COUNTS, "LATE": "right", "IN/S": "right", "OUT/S": "right"}
    shown = _that_fit(found, rates, rows)
    lines = [
        _live_row(_counts(name, found[name]), found[name].lateness, rates.of(name), has_bars=has_bars) for name in shown
    ]
    late = max((each.lateness for each in found.values()), default=0.0)
    lines.append(_live_row(_sums(found), late, rates.total(), has_bars=has_bars))
    return output.Sheet(
        columns | ({"TREND": "left"} if has_bars else {}), lines, cut=["QUEUE"], spare=_SPARE, total=True
    )


def _sums(found: Found) -> list[object]:
    states = ("ready", "delayed", "leased", "parked", "dead")
    sums = (f"{sum(getattr(each, state) for each in found.values()):,}" for state in states)
    return [f"{len(found):,} in all", *sums, span(max((each.oldest_age for each in found.values()), default=0.0))]


def _live_row(counts: list[object], late: float, course: Course, *, has_bars: bool) -> list[object]:
    cells = [*counts, span(late), f"{_latest(course.sent):,.0f}", f"{_latest(course.acked):,.0f}"]
    if has_bars:
        cells.append(Text(sparkline(course.acked, 20, is_unicode=output.supports_unicode()), "green"))
    return cells


def _that_fit(found: Found, rates: Rates, rows: int) -> list[str]:
    if len(found) <= rows:
        return list(found)
    busiest = sorted(found, key=lambda name: (-_latest(rates.of(name).acked), -found[name].live, name))
    return sorted(busiest[:rows])
