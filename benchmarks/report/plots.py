"""Plots as SVG, without scripts and outside fonts. Their colours follow the reader's light or dark mode."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from benchmarks.report.numbers import rate, short
from benchmarks.report.results import Figure, NotMeasured, Results

_STYLE: Final = """<style>
svg { color: #1f2328; --paper: #ffffff; --ours: #0a6b4a; --theirs: #7d8590; --line: #d1d9e0; }
@media (prefers-color-scheme: dark) {
  svg { color: #e6edf3; --paper: #0d1117; --ours: #3fb68b; --theirs: #8b949e; --line: #3d444d; } }
.paper { fill: var(--paper); }
text { fill: currentColor; font: 13px system-ui, sans-serif; }
.title { font-weight: 600; }
.small { font-size: 11px; }
.ours { fill: var(--ours); stroke: var(--ours); }
.theirs { fill: var(--theirs); stroke: var(--theirs); }
.spread { stroke: currentColor; stroke-width: 1.5; }
.axis { stroke: var(--line); }
.curve { fill: none; stroke: var(--ours); stroke-width: 2; }
</style>"""

_WIDTH: Final = 720
_NAMES: Final = 170
_VALUES: Final = 90
_ROW: Final = 24
_TOP: Final = 44


@dataclass(frozen=True)
class Bar:
    """One row of a plot."""

    name: str
    figure: Figure

    @property
    def is_ours(self) -> bool:
        """Whether the row is Duly's."""
        return self.name.startswith("duly")

    @property
    def is_early(self) -> bool:
        """Whether a sample is negative: the queue delivers before the due time, which is not a better result."""
        return min([self.figure.value, *self.figure.samples]) < 0

    @property
    def longest(self) -> float:
        """The end of the bar or of its line."""
        return max([self.figure.value, *self.figure.samples])


def bars(title: str, unit: str, rows: Sequence[Bar], *, higher_is_better: bool) -> str:
    """Draw horizontal bars, the best first, with a line over the range of the samples."""
    timely = [row for row in rows if not row.is_early]
    timely.sort(key=lambda row: row.figure.value, reverse=higher_is_better)
    most = max(row.longest for row in timely) or 1.0
    scale = (_WIDTH - _NAMES - _VALUES) / most
    ordered = [*timely, *(row for row in rows if row.is_early)]
    parts = [part for place, row in enumerate(ordered) for part in _bar(row, _TOP + place * _ROW, scale)]
    best = "more is better" if higher_is_better else "less is better"
    legend = f"{unit}, {best}. A line spans all samples. ¹ one sample, ~ noisy."
    return _svg(title, legend, _TOP + len(ordered) * _ROW + 8, parts)


def _bar(row: Bar, top: int, scale: float) -> list[str]:
    """Draw a row: a name, a bar, its value, and the line of the samples."""
    name = f'<text x="{_NAMES - 8}" y="{top + 13}" text-anchor="end">{escape(row.name)}</text>'
    if row.is_early:
        return [name, f'<text x="{_NAMES + 6}" y="{top + 13}">delivers some early</text>']
    value, samples = row.figure.value, row.figure.samples
    label = rate(value) if value >= 1_000 else short(value)
    label += {"one sample": " ¹", "noisy": " ~"}.get(row.figure.label, "")
    kind = "ours" if row.is_ours else "theirs"
    parts = [
        name,
        f'<rect class="{kind}" x="{_NAMES}" y="{top + 2}" width="{max(value * scale, 1):.1f}" height="14"/>',
        f'<text x="{_NAMES + row.longest * scale + 6:.1f}" y="{top + 13}">{escape(label)}</text>',
    ]
    if len(samples) > 1:
        first, last = (_NAMES + each(samples) * scale for each in (min, max))
        parts.append(f'<line class="spread" x1="{first:.1f}" x2="{last:.1f}" y1="{top + 9}" y2="{top + 9}"/>')
    return parts


def curve(title: str, step: str, unit: str, points: Sequence[tuple[float, Figure]]) -> str:
    """Draw a line over steps that grow by factors, with the range of the samples at each."""
    height, left, right, base = 260, 60, 50, 230
    steps = [math.log10(where) for where, _ in points]
    most = max(max([figure.value, *figure.samples]) for _, figure in points) or 1.0

    def x(where: float) -> float:
        span = (max(steps) - min(steps)) or 1.0
        return left + (math.log10(where) - min(steps)) / span * (_WIDTH - left - right)

    def y(value: float) -> float:
        return base - value / most * (base - _TOP - 16)

    parts = [f'<line class="axis" x1="{left}" x2="{_WIDTH - right}" y1="{base}" y2="{base}"/>']
    for where, figure in points:
        at = x(where)
        samples = figure.samples or [figure.value]
        parts += [
            f'<line class="spread" x1="{at:.1f}" x2="{at:.1f}" y1="{y(min(samples)):.1f}" y2="{y(max(samples)):.1f}"/>',
            f'<circle class="ours" cx="{at:.1f}" cy="{y(figure.value):.1f}" r="3.5"/>',
            _label(at, y(max(samples)) - 8, short(figure.value)),
            _label(at, base + 16, f"{where:,.0f}"),
        ]
    line = " ".join(f"{x(where):.1f},{y(figure.value):.1f}" for where, figure in points)
    parts.append(f'<polyline class="curve" points="{line}"/>')
    return _svg(title, f"{unit} by {step}. A line spans all samples.", height, parts)


def _label(x: float, y: float, text: str) -> str:
    return f'<text class="small" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{text}</text>'


def _svg(title: str, legend: str, height: int, parts: Sequence[str]) -> str:
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        _STYLE,
        '<rect class="paper" width="100%" height="100%" rx="6"/>',
        f'<text class="title" x="8" y="18">{escape(title)}</text>',
        f'<text class="small" x="8" y="35">{escape(legend)}</text>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _of_field(
    title: str, question: str, unit: str, *, higher_is_better: bool, only: Sequence[str] = ()
) -> Callable[[Results], str]:
    """Draw a figure of the whole field, or of the parties in `only`."""

    def draw(results: Results) -> str:
        found = [each for each in results.of("field") if each.question == question]
        rows = [Bar(each.party, each) for each in found if each.party in only or not only]
        if not rows:
            raise NotMeasured(f"field: {question}")
        return bars(title, unit, rows, higher_is_better=higher_is_better)

    return draw


def _of_scale(title: str, start: str, step: str, unit: str) -> Callable[[Results], str]:
    """Draw a growth."""

    def draw(results: Results) -> str:
        found = [each for each in results.of("scale") if each.question.startswith(start) and step in each.beside]
        if not found:
            raise NotMeasured(f"scale: {start}")
        return curve(title, step, unit, [(each.beside[step], each) for each in found])

    return draw


_DRAIN: Final = "drain, one worker process"
_IDLE: Final = "latency, idle, p50"
_USUAL: Final = ("duly", "repid", "taskiq", "arq")
"""The parties of the first plots of the page: Duly, the fastest, the one with the shortest way, and one with delays."""

PLOTS: Final[Mapping[str, tuple[str, Callable[[Results], str]]]] = {
    "speed-drain": (
        "Messages per second that one worker process handles, and three other queues",
        _of_field("One worker process drains a queue", _DRAIN, "messages/s", higher_is_better=True, only=_USUAL),
    ),
    "speed-idle": (
        "Milliseconds from send to the handler of an idle worker, and two other queues",
        _of_field(
            "From send to the handler of an idle worker, p50", _IDLE, "ms", higher_is_better=False, only=_USUAL[:3]
        ),
    ),
    "field-drain": (
        "Messages per second that one worker process handles, the whole field",
        _of_field("One worker process drains a queue", _DRAIN, "messages/s", higher_is_better=True),
    ),
    "field-latency": (
        "Milliseconds from send to the handler of an idle worker, p50, the whole field",
        _of_field("From send to an idle handler, p50", _IDLE, "ms", higher_is_better=False),
    ),
    "field-latency-p99": (
        "Milliseconds from send to the handler of an idle worker, p99, the whole field",
        _of_field("From send to an idle handler, p99", "latency, idle, p99", "ms", higher_is_better=False),
    ),
    "field-late": (
        "Milliseconds that delayed messages are late, p50, the whole field",
        _of_field(
            "200 delayed messages over 5 s, late, p50", "delayed over 5 s, late, p50", "ms", higher_is_better=False
        ),
    ),
    "scale-growth": (
        "Server CPU of a claim of 100 by the number of waiting messages",
        _of_scale("Claim and release 100", "claim and release", "waiting", "us of the server"),
    ),
    "scale-processes": (
        "Messages per second by the number of worker processes",
        _of_scale("Worker processes drain a queue", "drain", "processes", "messages/s"),
    ),
}
"""By the name of the file: the text for those who cannot see it, and how it is drawn."""

CHINESE: Final[Mapping[str, str]] = {
    "speed-drain": "一个 worker 进程每秒处理的消息数，以及另外三个队列",
    "speed-idle": "从发送到空闲 worker 的处理函数开始的毫秒数，以及另外两个队列",
    "field-drain": "一个 worker 进程每秒处理的消息数，全部队列",
    "field-latency": "从发送到空闲 worker 的处理函数开始的毫秒数，p50，全部队列",
    "field-latency-p99": "从发送到空闲 worker 的处理函数开始的毫秒数，p99，全部队列",
    "field-late": "延迟消息迟到的毫秒数，p50，全部队列",
    "scale-growth": "不同数量的等待消息下，领取 100 条占用的服务器 CPU",
    "scale-processes": "不同数量的 worker 进程每秒处理的消息数",
}
"""The texts on Chinese pages."""
