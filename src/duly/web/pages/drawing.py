"""The course of a rate as a small line: the path of an SVG. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

WIDTH: Final = 96
HEIGHT: Final = 20
_POINTS: Final = 40
_MARGIN: Final = 1.5


def trend(values: Sequence[float]) -> str:
    """Draw the last values from left to right, the newest at the right edge; 0 is at the bottom."""
    shown = list(values)[-_POINTS:]
    if len(shown) < 2:
        return ""
    top = max(shown) or 1
    step = WIDTH / (_POINTS - 1)
    begin = WIDTH - step * (len(shown) - 1)
    points = (f"{begin + step * at:.1f} {_height(each / top):.1f}" for at, each in enumerate(shown))
    return "M" + "L".join(points)


def _height(part: float) -> float:
    return HEIGHT - _MARGIN - part * (HEIGHT - 2 * _MARGIN)
