"""Draw the live view for the README: `duly stats --watch` of a shop at work, as an SVG without outside fonts.

Run it after a change of the view: `python tools/picture.py`. With --check it fails when the picture is stale.
"""

import dataclasses
import io
import math
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI

from duly.cli.rates import Rates
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
    """Write the picture, or check that it is what would be written."""
    drawn = draw()
    if "--check" not in sys.argv:
        PICTURE.parent.mkdir(exist_ok=True)
        PICTURE.write_text(drawn)
    elif not PICTURE.exists() or PICTURE.read_text() != drawn:
        sys.exit(f"{PICTURE.name} is stale: run python tools/picture.py")


def draw() -> str:
    """Draw one frame after a while of watching."""
    rates = Rates()
    for second in range(LOOKS):
        rates.add(shop_at(second), float(second))
    console = Console(record=True, width=SIZE[0], height=SIZE[1], file=io.StringIO(), force_terminal=True)
    at = datetime(2026, 11, 16, 9, 30, tzinfo=UTC)
    shown = live_view(shop_at(LOOKS - 1), rates, title="redis://shop:6379/0", workers=4, at=at, size=SIZE)
    console.print(shown)
    return console.export_svg(title="duly stats --watch", theme=DIMMED_MONOKAI, code_format=SVG, unique_id="duly")


def shop_at(second: int) -> dict[str, Stats]:
    """Make up a shop: steady orders, mails in waves, a few dead payments, a topic whose archive lags."""
    wave = 900 + 700 * math.sin(second / 4)
    mails = sum(int(900 + 700 * math.sin(each / 4)) for each in range(second))
    return {
        "mails": _stats(
            ready=int(wave), leased=100, sent=mails + int(wave), acked=mails, oldest_age=0.4, lateness=0.002
        ),
        "orders": _stats(
            ready=12, delayed=4_310, leased=40, sent=1_250 * second + 4_400, acked=1_250 * second, oldest_age=0.009,
            lateness=0.001,
        ),
        "payments": _stats(
            ready=3, delayed=57, leased=8, parked=21, dead=2, sent=310 * second + 90, acked=310 * second,
            oldest_age=0.012, lateness=0.001,
        ),
        "events/archive": _stats(
            ready=8_120, leased=20, sent=420 * second + 8_140, acked=420 * second, oldest_age=19.3, lateness=0.4
        ),
        "events/totals": _stats(leased=6, sent=1_560 * second + 6, acked=1_560 * second, lateness=0.001),
    }  # fmt: skip


def _stats(**counts: float) -> Stats:
    return Stats(**{**_ZEROS, "paused": None, "next_due_in": None, **counts})


if __name__ == "__main__":
    main()
