"""Charts of the history and forecast of a queue or group, or of the history of all, as SVG paths with axes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from duly._port import span
from duly.message import Bucket, Histogram, HistoryPoint

SPANS: Final = {"1h": "an hour", "24h": "a day", "7d": "a week"}
"""The histories that a page can show."""

WIDTH, HEIGHT = 480, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 10, 8, 22
_MAX_X_STEPS: Final = 7
_MAX_Y_STEPS: Final = 5
_DAY: Final = 86_400
_STEPS: Final = (1, 2, 5, 10)
_ALMOST: Final = 1 - 1e-9
"""0.1 times 3 is a little more than 0.3."""
_SECONDS: Final = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, _DAY)
"""Distances of ticks of durations. Shorter ones are like those of numbers."""
_TIMES: Final = (60, 300, 600, 900, 1800, 3600, 7200, 10_800, 14_400, 21_600, 43_200, _DAY)
"""Distances of ticks of times."""

Values = Sequence[float | None]
Intervals = Sequence[HistoryPoint | Bucket]
Scale = Callable[[float], float]
"""Converts a time or a value to a position."""


@dataclass(frozen=True)
class Line:
    """One line of a chart. Intervals without a value are gaps."""

    name: str
    style: str
    path: str
    last: str


@dataclass(frozen=True)
class Chart:
    """The lines and ticks of one chart, in the units of its SVG."""

    title: str
    lines: Sequence[Line]
    across: Sequence[tuple[float, str]]
    """Ticks of the time axis: position and text."""
    upwards: Sequence[tuple[float, str]]
    """Ticks of the other axis."""

    @property
    def axes(self) -> str:
        """The path of both axes, with a line for each tick."""
        ticks = (f"M{x:.1f} {HEIGHT - _BOTTOM}v4" for x, _ in self.across)
        grid = (f"M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}" for y, _ in self.upwards)
        return f"M{_LEFT} {_TOP}V{HEIGHT - _BOTTOM}" + "".join(grid) + "".join(ticks)


def charts_of(history: Sequence[HistoryPoint]) -> list[Chart]:
    """Draw a history. The last interval is not over yet, so its counts are left out."""
    if not history:
        return []
    whole = [*history[:-1], None]
    seconds = (history[0].end - history[0].start).total_seconds()

    def rates(count: Callable[[HistoryPoint], int]) -> Values:
        return [None if point is None else count(point) * 60 / seconds for point in whole]

    failures = rates(lambda point: point.retried + point.crashed + point.dead)
    return [
        _chart(
            "Messages per minute",
            history,
            {"sent": rates(lambda point: point.sent), "acked": rates(lambda point: point.acked), "failed": failures},
            _number,
        ),
        _chart("Backlog", history, {"due and waiting": [point.depth for point in history]}, _count),
        _chart("Age of the oldest message", history, {"oldest": [point.oldest_age for point in history]}, span),
        _chart(
            "95th percentile of lateness and handling",
            history,
            {
                "lateness": [_quantile(point.lateness) for point in history],
                "handling": [_quantile(point.handling) for point in history],
            },
            span,
        ),
    ]


def forecast_charts(forecast: Sequence[Bucket]) -> list[Chart]:
    """Draw a forecast as bars, if any message becomes due."""
    counts = [bucket.count for bucket in forecast]
    if not any(counts):
        return []
    chart = _chart("Messages that become due", forecast, {"due": counts}, _count, _bars)
    bars = replace(chart.lines[0], name="in all", last=_count(sum(counts)))
    return [replace(chart, lines=[bars])]


def total(histories: Iterable[Sequence[HistoryPoint]]) -> list[HistoryPoint]:
    """Add up the histories of several queues. The age is that of the oldest message of all."""
    by_start: defaultdict[datetime, list[HistoryPoint]] = defaultdict(list)
    for history in histories:
        for point in history:
            by_start[point.start].append(point)
    return [_sum(by_start[start]) for start in sorted(by_start)]


def _sum(points: Sequence[HistoryPoint]) -> HistoryPoint:
    counts = ("sent", "delivered", "acked", "retried", "crashed", "dead", "expired")
    depths = [point.depth for point in points if point.depth is not None]
    ages = [point.oldest_age for point in points if point.oldest_age is not None]
    return HistoryPoint(
        points[0].start,
        points[0].end,
        **{name: sum(getattr(point, name) for point in points) for name in counts},
        depth=sum(depths) if depths else None,
        oldest_age=max(ages, default=None),
        lateness=_merged(point.lateness for point in points),
        handling=_merged(point.handling for point in points),
    )


def _merged(histograms: Iterable[Histogram]) -> Histogram:
    found = list(histograms)
    counts = zip(*(each.counts for each in found), strict=True)
    return Histogram(tuple(map(sum, counts)), sum(each.total for each in found))


def _quantile(histogram: Histogram) -> float | None:
    bound = histogram.quantile(0.95)
    return bound if bound is None or math.isfinite(bound) else Histogram.BOUNDS[-1]


_STYLES: Final = ("first", "second", "third")


def _path_through(intervals: Intervals, values: Values, x_of: Scale, y_of: Scale) -> str:
    places = [x_of((each.start.timestamp() + each.end.timestamp()) / 2) for each in intervals]
    return _path([(x, None if value is None else y_of(value)) for x, value in zip(places, values, strict=True)])


def _bars(intervals: Intervals, values: Values, x_of: Scale, y_of: Scale) -> str:
    base = y_of(0)
    return "".join(
        f"M{x_of(each.start.timestamp()):.1f} {base:.1f}V{y_of(value):.1f}H{x_of(each.end.timestamp()):.1f}V{base:.1f}"
        for each, value in zip(intervals, values, strict=True)
        if value
    )


def _chart(
    title: str,
    history: Intervals,
    series: Mapping[str, Values],
    text: Callable[[float], str],
    draw: Callable[[Intervals, Values, Scale, Scale], str] = _path_through,
) -> Chart:
    largest = max((value for values in series.values() for value in values if value is not None), default=0) or 1
    step = _step(largest, is_duration=text is span, least=1 if text is _count else 0)
    steps = math.ceil(largest / step * _ALMOST)
    top = step * steps
    first, last = history[0].start.timestamp(), history[-1].end.timestamp()

    def x_of(at: float) -> float:
        return _LEFT + (at - first) / (last - first) * (WIDTH - _LEFT - _RIGHT)

    def y_of(value: float) -> float:
        return HEIGHT - _BOTTOM - value / top * (HEIGHT - _TOP - _BOTTOM)

    lines = []
    for style, (name, values) in zip(_STYLES, series.items(), strict=False):
        known = [value for value in values if value is not None]
        lines.append(Line(name, style, draw(history, values, x_of, y_of), text(known[-1]) if known else "-"))
    upwards = [(y_of(step * number), text(step * number)) for number in range(steps + 1)]
    return Chart(title, lines, _time_ticks(first, last, x_of), upwards)


def _path(points: Iterable[tuple[float, float | None]]) -> str:
    path, is_joined = "", False
    for x, y in points:
        if y is not None:
            path += f"{'L' if is_joined else 'M'}{x:.1f} {y:.1f}" + ("" if is_joined else "h0")
        is_joined = y is not None
    return path


def _time_ticks(first: float, last: float, x_of: Scale) -> list[tuple[float, str]]:
    """Choose round times in UTC, with the date if the axis is longer than a day."""
    step = next((each for each in _TIMES if (last - first) / each <= _MAX_X_STEPS), _DAY)
    step *= math.ceil((last - first) / step / _MAX_X_STEPS)
    form = "%H:%M" if last - first <= _DAY else "%m-%d" if step >= _DAY else "%m-%d %H:%M"
    ticks = range(math.ceil(first / step) * step, math.floor(last) + 1, step)
    return [(x_of(at), datetime.fromtimestamp(at, UTC).strftime(form)) for at in ticks]


def _step(largest: float, *, is_duration: bool, least: float) -> float:
    """Return the distance of two ticks, a number that is easy to read, for an axis from 0 to at least `largest`."""
    least = max(least, largest / _MAX_Y_STEPS)
    if is_duration and least > _SECONDS[0]:
        return float(next((each for each in _SECONDS if each >= least), _DAY * math.ceil(least / _DAY)))
    power = 10.0 ** math.floor(math.log10(least))
    return float(next((step * power for step in _STEPS if step * power >= least * _ALMOST), 10 * power))


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:,.2g}"
