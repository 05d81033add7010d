"""`duly demo`: runs the scenario of duly.demo and prints its result."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from duly.cli import output
from duly.demo.plan import ORDERS
from duly.demo.scenario import Outcome, run_demo, server_for
from duly.demo.table import Lines, LiveTable, View

Seconds = Annotated[float, typer.Option("--seconds", help="Length of the run, 2 to 60; the load grows with it.")]
Directory = Annotated[
    Path | None, typer.Option("--dir", help="Use an embedded server in this directory instead of a temporary one.")
]
Url = Annotated[
    str | None, typer.Option("--url", help="Use this server. The queues of the run are deleted afterwards.")
]
Histories = Annotated[
    Path | None, typer.Option("--histories", help="Keep the histories of the processes in this new directory.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object, and nothing else.")]


def demo(
    seconds: Seconds = 10.0,
    directory: Directory = None,
    url: Url = None,
    histories: Histories = None,
    as_json: AsJson = False,
) -> None:
    """Run producers and consumers, kill one with -9, and account for every message.

    Without --dir and --url it starts a server in a temporary directory, which is removed afterwards.
    It does not use DULY_URL.
    Exit status 1 if a message was lost, early, or delivered twice without a cause.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # a graceful end, which leaves nothing behind
    with server_for(url, directory) as address:
        outcome = run_demo(address, seconds, _choose_view(as_json), histories)
    if as_json:
        output.print_json(_to_fields(outcome), one_line=True)
    else:
        _print(outcome)
    raise typer.Exit(0 if outcome.ok else 1)


def _choose_view(as_json: bool) -> View:
    console = Console()
    if as_json:
        return Lines(lambda _: None)
    return LiveTable(console) if output.is_interactive(console) else Lines(typer.echo)


def _to_fields(outcome: Outcome) -> dict[str, Any]:
    return {
        "ok": outcome.ok,
        "seconds": round(outcome.seconds, 1),
        "killed": {"process": outcome.victim, "held": outcome.held},
        "queues": {each.queue: asdict(each) for each in outcome.ledgers},
        "problems": list(outcome.problems),
    }


def _print(outcome: Outcome) -> None:
    typer.echo("")
    for each in outcome.ledgers:
        typer.echo(f"{each.queue}: {each.sent:,} sent, {each.delivered:,} delivered, {each.acked:,} acked")
        typer.echo(f"  lost         {len(each.lost)}")
        typer.echo(f"  early        {len(each.early)}")
        typer.echo(f"  redelivered  {len(each.redelivered)}")
        for reason, count in Counter(one.reason for one in each.redelivered).items():
            typer.echo(f"    {count:>4}  {reason}")
        typer.echo(f"  unexplained  {len(each.unexplained)}")
        late = "  ".join(f"{name} {seconds * 1000:.1f} ms" for name, seconds in each.lateness.items())
        note = "  (a backlog is made on purpose)" if late and each.queue == ORDERS else ""
        typer.echo(f"  lateness     {late or 'no message was delivered'}{note}")
    typer.echo("")
    for problem in outcome.problems:
        typer.echo(f"problem: {problem}")
    if outcome.ok:
        typer.echo("verdict: OK. No message lost, early, or delivered twice without a cause; the audit agrees.")
    else:
        typer.echo(f"verdict: BROKEN, {len(outcome.problems)} problem(s).")
