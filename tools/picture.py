"""Draw the live view for docs/cli.md: `duly stats --watch` of a shop at work, as an SVG without outside fonts.

Run it after a change of the view: `python tools/picture.py`. With --check it fails when the picture is stale.
"""

import dataclasses
import io
import math
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI

from duly._core.rates import Rates
from duly.cli.stats import live_view
from duly.message import Stats

PICTURE: Final = Path(__file__).parents[1] / "docs/images/live-view.svg"
SIZE: Final = (112, 14)
LOOKS: Final = 40

# Ours instead of rich's own, which names fonts on a foreign host.
SVG: Final = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, monospace; font-size: {char_height}px;
line-height: {line_height}px; font-variant-east-asian: full-width; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
<rect fill="#1e1e1e" width="100%" height="100%" rx="8"/>
<g transform="translate(9, 20)" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""

_ZEROS: Final[dict[str, Any]] = {each.name: 0 for each in dataclasses.fields(Stats)}


def main() -> None:
    """Write the picture, or check that it is up to date."""
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]  # the bars are not drawn for ASCII
    drawn = draw()
    if "--check" not in sys.argv:
        PICTURE.parent.mkdir(exist_ok=True)
        PICTURE.write_text(drawn)
    elif not PICTURE.exists() or PICTURE.read_text() != drawn:
        sys.exit(f"{PICTURE.name} is stale: run python tools/picture.py")


def draw() -> str:
    """Draw one frame after a while of watching, the same on every machine."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    rates = Rates()
    for second in range(LOOKS):
        rates.add(shop_at(second), float(second))
    console = Console(record=True, width=SIZE[0], height=SIZE[1], file=io.StringIO(), force_terminal=True)
    at = datetime(2026, 11, 16, 9, 30, tzinfo=UTC)
    shown = live_view(shop_at(LOOKS - 1), rates, title="redis://shop:6379/0", workers=4, at=at, size=SIZE)
    console.print(shown)
    return console.export_svg(title="duly stats --watch", theme=DIMMED_MONOKAI, code_format=SVG, unique_id="duly")


def shop_at(second: int) -> dict[str, Stats]:
    """Make up a shop: orders by the hour, mails in waves, a few dead payments, a topic whose archive lags."""
    return {
        "mails": _flow(second, 900, 700, 4.0, ready=480, leased=100, oldest_age=0.4, lateness=0.002),
        "orders": _flow(second, 1250, 180, 7.0, ready=12, delayed=4310, leased=40, oldest_age=0.009, lateness=0.001),
        "payments": _flow(second, 310, 90, 2.5, ready=3, delayed=57, leased=8, parked=21, dead=2, lateness=0.001),
        "events/archive": _flow(second, 420, 10, 3.0, ready=8120, leased=20, oldest_age=19.3, lateness=0.4),
        "events/totals": _flow(second, 1560, 230, 6.0, leased=6, lateness=0.001),
    }


def _flow(second: int, mean: int, swing: int, slowness: float, **counts: float) -> Stats:
    """Let messages come and go in waves around a mean rate."""
    acked = sum(int(mean + swing * math.sin(each / slowness)) for each in range(second))
    live = sum(int(counts.get(state, 0)) for state in ("ready", "delayed", "leased", "parked"))
    return _stats(sent=acked + live, acked=acked, **counts)


def _stats(**counts: float) -> Stats:
    return Stats(**{**_ZEROS, "paused": None, "next_due_in": None, **counts})


if __name__ == "__main__":
    main()
