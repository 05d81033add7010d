"""`duly bench`: measures this server from this machine."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from duly import bench as benchmark
from duly.bench.benchmarks import ALL
from duly.cli import output
from duly.cli.output import Align
from duly.cli.session import Session
from duly.options import checked_count

_MOST_MESSAGES: Final = 1_000_000
_MOST_BYTES: Final = 100_000
_NOISY: Final = 0.3
"""Samples whose range is more than this part of their median are called noisy."""

_MOST_ROUNDS: Final = 100

Messages = Annotated[int, typer.Option("--messages", metavar="N", help="The number of messages for each rate.")]
BodyBytes = Annotated[int, typer.Option("--body-bytes", metavar="N", help="The size of a body.")]
Rounds = Annotated[int, typer.Option("--rounds", metavar="N", help="How often everything is measured.")]


def bench(session: Session, messages: Messages = 20_000, body_bytes: BodyBytes = 100, rounds: Rounds = 3) -> None:
    """Measure rates and waits on a server, in a temporary namespace.

    It takes about half a minute and puts load on the server. Only compare figures that were measured
    on the same machine at the same time.
    """
    checked_count(messages, "--messages", most=_MOST_MESSAGES)
    checked_count(body_bytes, "--body-bytes", most=_MOST_BYTES)
    checked_count(rounds, "--rounds", most=_MOST_ROUNDS)
    with session.progress("measuring", len(ALL) * rounds) as progress:
        found = benchmark.run(
            session.app,
            messages=messages,
            body_bytes=body_bytes,
            rounds=rounds,
            on_progress=lambda _title, done: progress(done),
        )
    columns: dict[str, Align] = {"WHAT": "left", "MEDIAN": "right", "RANGE": "right", "NOTE": "left"}
    session.show(found, output.Sheet(columns, [_row(each) for each in found.figures], cut=["WHAT"], spare=["NOTE"]))


def _row(figure: benchmark.Figure) -> tuple[str, str, str, str]:
    least, most = min(figure.samples), max(figure.samples)
    shown = _rounded(figure.value, figure.unit)
    spread = "" if least == most else f"{_rounded(least, figure.unit)} to {_rounded(most, figure.unit)}"
    return figure.name, f"{shown} {figure.unit}".strip(), spread, _note(figure)


def _note(figure: benchmark.Figure) -> str:
    """Label a figure that should not be compared closely."""
    if len(figure.samples) == 1:
        return "one sample"
    is_noisy = max(figure.samples) - min(figure.samples) > _NOISY * abs(figure.value)
    return "noisy" if is_noisy else ""


def _rounded(value: float, unit: str) -> str:
    return f"{value:,.2f}" if unit in ("ms", "s", "us") else f"{value:,.0f}"
