"""Boxes, arrows and texts of a diagram as SVG, without outside fonts. Colours follow the reader's light or dark mode.

Colours are those of the dashboard, read from its style sheet. Two states that have none there are added here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Final

_SHEET: Final = Path(__file__).parents[1] / "src/duly/web/static/duly.css"
_TAKEN: Final = (
    "paper",
    "card",
    "ink",
    "quiet",
    "line",
    "accent",
    "accent-soft",
    "bad",
    "bad-soft",
    "warn",
    "warn-soft",
)
_ADDED: Final = (
    {"ready": "#1d5fb4", "ready-soft": "#e4eefb", "parked": "#6b3fa0", "parked-soft": "#f0e8fa"},
    {"ready": "#7db3f5", "ready-soft": "#1b2b40", "parked": "#c3a0f0", "parked-soft": "#2b2140"},
)
_KINDS: Final = {
    "ready": "ready",
    "parked": "parked",
    "leased": "accent",
    "delayed": "warn",
    "dead": "bad",
}
"""The colour of each state."""

_STYLE: Final = """<style>
svg {{ {light} }}
@media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}
text {{ fill: var(--ink); font: 15px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", Arial, sans-serif; }}
.ground {{ fill: var(--card); stroke: var(--line); }}
.small {{ font-size: 13px; }}
.quiet {{ fill: var(--quiet); }}
.strong {{ font-weight: 650; }}
.mono {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 13.5px; }}
rect.plain, rect.done {{ fill: var(--paper); stroke: var(--quiet); }}
rect.absent {{ fill: none; stroke: var(--quiet); stroke-dasharray: 4 4; }}
.arrow {{ fill: none; stroke: var(--quiet); stroke-width: 1.6; }}
.head {{ fill: var(--quiet); }}
.dashed {{ stroke-dasharray: 5 4; }}
{states}
</style>"""


@dataclass(frozen=True)
class Box:
    """Where a box is."""

    x: float
    y: float
    width: float
    height: float

    @property
    def left(self) -> tuple[float, float]:
        """The middle of the left side."""
        return self.x, self.y + self.height / 2

    @property
    def right(self) -> tuple[float, float]:
        """The middle of the right side."""
        return self.x + self.width, self.y + self.height / 2

    @property
    def top(self) -> tuple[float, float]:
        """The middle of the upper side."""
        return self.x + self.width / 2, self.y

    @property
    def bottom(self) -> tuple[float, float]:
        """The middle of the lower side."""
        return self.x + self.width / 2, self.y + self.height


@dataclass
class Drawing:
    """A picture that grows by its methods. Later parts lie above earlier ones."""

    title: str
    width: int
    height: int
    _parts: list[str] = field(default_factory=list)

    def box(
        self, x: float, y: float, width: float, height: float, *lines: str, kind: str = "plain", style: str = "strong"
    ) -> Box:
        """Draw a box with centred lines of text. The first line has the style, the others are small."""
        made = Box(x, y, width, height)
        self._parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>')
        first = y + height / 2 + 5 - 9 * (len(lines) - 1)
        for place, line in enumerate(lines):
            look = f"{style} on-{kind}" if place == 0 else "small"
            self.text(x + width / 2, first + 18 * place, line, look, "middle")
        return made

    def bar(self, x: float, y: float, width: float, height: float, kind: str) -> Box:
        """Draw a box without text."""
        return self.box(x, y, width, height, kind=kind)

    def text(self, x: float, y: float, line: str, style: str = "", anchor: str = "start") -> None:
        """Draw a line of text. `anchor` is start, middle or end."""
        self._parts.append(f'<text class="{style}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(line)}</text>')

    def texts(
        self, x: float, y: float, lines: Sequence[str], style: str = "small quiet", anchor: str = "start"
    ) -> None:
        """Draw lines of text below each other."""
        for place, line in enumerate(lines):
            self.text(x, y + 18 * place, line, style, anchor)

    def arrow(self, *points: tuple[float, float], style: str = "") -> None:
        """Draw a line through the points, with a head at the last one."""
        path = " L ".join(f"{x:g} {y:g}" for x, y in points)
        (before_x, before_y), (x, y) = points[-2:]
        dx, dy = ((x > before_x) - (x < before_x), (y > before_y) - (y < before_y))
        if dx and dy:
            size = ((x - before_x) ** 2 + (y - before_y) ** 2) ** 0.5
            dx, dy = (x - before_x) / size, (y - before_y) / size
        corners = [
            (x, y),
            (x - 9 * dx - 4.5 * dy, y - 9 * dy + 4.5 * dx),
            (x - 9 * dx + 4.5 * dy, y - 9 * dy - 4.5 * dx),
        ]
        head = " ".join(f"{each_x:.1f},{each_y:.1f}" for each_x, each_y in corners)
        self._parts.append(f'<path class="arrow {style}" d="M {path}"/><polygon class="head" points="{head}"/>')

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str = "") -> None:
        """Draw a straight line."""
        self._parts.append(f'<path class="arrow {style}" d="M {x1:g} {y1:g} L {x2:g} {y2:g}"/>')

    def svg(self) -> str:
        """Return the file."""
        ground = f'<rect class="ground" x="0.5" y="0.5" width="{self.width - 1}" height="{self.height - 1}" rx="12"/>'
        name = escape(self.title, quote=True)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img" aria-label="{name}">\n'
            f"<title>{escape(self.title)}</title>\n" + "\n".join([_style(), ground, *self._parts]) + "\n</svg>\n"
        )


def _style() -> str:
    light, dark = palettes()
    states = "\n".join(
        f"rect.{state} {{ fill: var(--{colour}-soft); stroke: var(--{colour}); }} "
        f"text.on-{state} {{ fill: var(--{colour}); }}"
        for state, colour in _KINDS.items()
    )
    return _STYLE.format(light=_declared(light), dark=_declared(dark), states=states)


def _declared(colours: dict[str, str]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in colours.items())


def palettes() -> tuple[dict[str, str], dict[str, str]]:
    """Return the colours of light and of dark mode, by name."""
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#\w+);", block))
        for block in re.findall(r":root \{(.*?)\}", _SHEET.read_text(), re.DOTALL)[:2]
    )
    light, dark = (
        {name: found[name] for name in _TAKEN} | added for found, added in zip((light, dark), _ADDED, strict=True)
    )
    return light, dark
