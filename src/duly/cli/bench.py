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

Messages = Annotated[int, typer.Option("--messages", metavar="N", help="The number of messages for each rate.")]
BodyBytes = Annotated[int, typer.Option("--body-bytes", metavar="N", help="The size of a body.")]


def bench(session: Session, messages: Messages = 20_000, body_bytes: BodyBytes = 100) -> None:
    """Measure rates and waits on a server, in a temporary queue.

    It takes some seconds and puts load on the server. Only compare figures that were measured on the
    same machine at the same time.
    """
    checked_count(messages, "--messages", most=_MOST_MESSAGES)
    checked_count(body_bytes, "--body-bytes", most=_MOST_BYTES)
    with session.progress("measuring", len(ALL)) as progress:
        found = benchmark.run(
            session.app, messages=messages, body_bytes=body_bytes, on_progress=lambda _title, done: progress(done)
        )
    columns: dict[str, Align] = {"WHAT": "left", "FIGURE": "right"}
    rows = [(each.name, f"{_rounded(each)} {each.unit}") for each in found.figures]
    session.show(found, output.Sheet(columns, rows, cut=["WHAT"]))


def _rounded(figure: benchmark.Figure) -> str:
    return f"{figure.value:,.2f}" if figure.unit == "ms" else f"{figure.value:,.0f}"
