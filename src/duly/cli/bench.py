"""`duly bench`: what this server and this machine do together."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from duly import bench as measuring
from duly.bench.benchmarks import ALL
from duly.cli import output
from duly.cli.output import Align
from duly.cli.session import Session
from duly.options import checked_count

_MOST_MESSAGES: Final = 1_000_000
_MOST_BYTES: Final = 100_000

Messages = Annotated[int, typer.Option("--messages", metavar="N", help="How many messages the rates are taken over.")]
BodyBytes = Annotated[int, typer.Option("--body-bytes", metavar="N", help="The size of a body.")]


def bench(session: Session, messages: Messages = 20_000, body_bytes: BodyBytes = 100) -> None:
    """Measure rates and waits on a server, in a queue that is deleted afterwards.

    Takes some seconds and keeps the server busy meanwhile. Figures of different machines, or of the same
    one at another hour, say little: compare what was measured side by side.
    """
    checked_count(messages, "--messages", most=_MOST_MESSAGES)
    checked_count(body_bytes, "--body-bytes", most=_MOST_BYTES)
    with session.progress("measuring", len(ALL)) as progress:
        found = measuring.run(
            session.app, messages=messages, body_bytes=body_bytes, on_progress=lambda _title, done: progress(done)
        )
    columns: dict[str, Align] = {"WHAT": "left", "FIGURE": "right"}
    rows = [(each.name, f"{_rounded(each)} {each.unit}") for each in found.figures]
    session.show(found, output.Sheet(columns, rows, cut=["WHAT"]))


def _rounded(figure: measuring.Figure) -> str:
    return f"{figure.value:,.2f}" if figure.unit == "ms" else f"{figure.value:,.0f}"
