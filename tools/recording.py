"""Record `duly demo` in a terminal, and write it as an animated SVG for the README.

Run it on a quiet machine: `python -m tools.recording`. It runs the demo for real, and keeps the times of its output,
except for long waits. The animation needs no script. Readers who prefer less motion see the last screen.
"""

import os
import pty
import select
import struct
import sys
import termios
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fcntl import ioctl
from html import escape
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final

import pyte

PICTURE: Final = Path(__file__).parents[1] / "docs/images/demo.svg"
COMMAND: Final = ("duly", "demo", "--seconds", "6")
COLUMNS: Final = 96
ROWS: Final = 37
LARGEST: Final = 400_000
PAUSE: Final = 0.25
"""Seconds between two screens. A terminal shows more; an eye does not need them."""
LAST: Final = 8.0
"""Seconds for which the last screen stays."""
LONGEST: Final = 1.5
"""Seconds after which a screen changes, even if it stayed longer: the processes of the demo take a while to start."""
TYPING: Final = 1.2
_CELL: Final = (8.2, 18)
_EDGE: Final = 14

_STYLE: Final = """<style>
text {{ fill: #d6dde3; font: 13.5px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre; }}
.title {{ fill: #9aa7b1; }}
.bold {{ font-weight: 700; fill: #ffffff; }}
.kill {{ fill: #ff8f85; font-weight: 700; }}
.good {{ fill: #5ccdbf; font-weight: 700; }}
.part {{ visibility: hidden; }}
.last {{ visibility: visible; }}
@media (prefers-reduced-motion: no-preference) {{
.last {{ visibility: hidden; }}
{animations}
}}
</style>"""


@dataclass(frozen=True)
class Screen:
    """The lines of a terminal at one moment."""

    at: float
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Line:
    """A line of text that stands in one row for a while."""

    row: int
    text: str
    start: float
    end: float


def main() -> None:
    """Record the demo, and write the picture if the demo was right and the file is small enough."""
    screens = without_waits(list(recorded(COMMAND)))
    drawn = svg(screens)
    if not any("verdict: OK" in line for line in screens[-1].lines):
        sys.exit("\n".join(screens[-1].lines))
    if len(drawn) > LARGEST:
        sys.exit(f"the picture has {len(drawn)} characters: at most {LARGEST} are meant")
    PICTURE.write_text(drawn, "utf-8")


def recorded(command: Sequence[str]) -> Iterator[Screen]:
    """Run the command in a terminal, and yield the lines of its screen over time."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ |= {"TERM": "xterm", "NO_COLOR": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        os.execvp(command[0], list(command))  # noqa: S606 - a command of this file
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    stream.feed(f"$ {' '.join(command)}\r\n".encode())
    begun, next_at = time.monotonic(), 0.0
    yield Screen(0.0, tuple(screen.display))
    while output := _read(terminal):
        stream.feed(output)
        elapsed = time.monotonic() - begun
        if elapsed >= next_at and not select.select([terminal], [], [], 0.02)[0]:
            next_at = elapsed + PAUSE
            yield Screen(TYPING + elapsed, tuple(screen.display))
    yield Screen(TYPING + time.monotonic() - begun, tuple(screen.display))
    os.waitpid(child, 0)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end is closed
        return b""


def without_waits(screens: Sequence[Screen]) -> list[Screen]:
    """Leave out screens that repeat the one before them, and shorten long waits."""
    kept, at = [screens[0]], screens[0].at
    for before, screen in pairwise(screens):
        at += min(screen.at - before.at, LONGEST)
        if screen.lines != kept[-1].lines:
            at = min(at, kept[-1].at + LONGEST)
            kept.append(Screen(at, screen.lines))
    return kept


def lines_of(screens: Sequence[Screen], end: float) -> list[Line]:
    """Return each line with the time during which it stays in its row. Empty ones are left out."""
    starts = [screen.at for screen in screens] + [end]
    found = []
    for row in range(max(len(screen.lines) for screen in screens)):
        texts = [screen.lines[row].rstrip() for screen in screens]
        place = 0
        for text, same in groupby(texts):
            count = len(list(same))
            if text:
                found.append(Line(row, text, starts[place], starts[place + count]))
            place += count
    return found


def svg(screens: Sequence[Screen]) -> str:
    """Draw the screens as one animation that begins again at its end."""
    end = screens[-1].at + LAST
    lines = lines_of(screens, end)
    spans = sorted({(line.start, line.end) for line in lines})
    width, height = round(COLUMNS * _CELL[0] + 2 * _EDGE), ROWS * _CELL[1] + 2 * _EDGE
    parts = [
        f'<text class="{_class(line, spans, end)}" x="{_EDGE}" y="{_EDGE + 13 + line.row * _CELL[1]}">'
        f"{_marked(line.text)}</text>"
        for line in lines
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'xml:space="preserve" role="img" aria-label="duly demo: a consumer is killed, and no message is lost">\n'
        + _STYLE.format(animations="\n".join(_animations(spans, end)))
        + f'\n<rect fill="#12161a" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _class(line: Line, spans: Sequence[tuple[float, float]], end: float) -> str:
    place = spans.index((line.start, line.end))
    return f"part {'last ' if line.end == end else ''}a{place}"


def _animations(spans: Iterable[tuple[float, float]], end: float) -> Iterator[str]:
    for place, (start, stop) in enumerate(spans):
        first, last = 100 * start / end, 100 * stop / end
        steps = [f"{first:.2f}% {{ visibility: visible; }}"]
        if first:
            steps.insert(0, "0% { visibility: hidden; }")
        if last < 100:
            steps.append(f"{last:.2f}%, 100% {{ visibility: hidden; }}")
        else:
            steps.append("100% { visibility: visible; }")
        yield f"@keyframes k{place} {{ {' '.join(steps)} }}"
        yield f".a{place} {{ animation: k{place} {end:.1f}s step-end infinite; }}"


def _marked(text: str) -> str:
    """Return the text with the colour of what it reports."""
    written = escape(text.rstrip())
    if "kill" in text:
        return f'<tspan class="kill">{written}</tspan>'
    if text.startswith(("verdict: OK", "the audit agrees")) or text.split() in (
        ["lost", "0"],
        ["early", "0"],
        ["unexplained", "0"],
    ):
        return f'<tspan class="good">{written}</tspan>'
    if text.startswith("$ "):
        return f'<tspan class="bold">{written}</tspan>'
    return written


if __name__ == "__main__":
    main()
