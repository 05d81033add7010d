"""`duly doctor`: prints the report about a server."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from duly.cli.output import visible
from duly.cli.session import Session
from duly.doctor import Finding, Report, Verdict, examine

Strict = Annotated[bool, typer.Option("--strict", help="Exit with status 1 for warnings as well.")]

_COLOURS: Final[dict[Verdict, str]] = {"ok": "green", "warn": "yellow", "bad": "bold red", "unknown": "cyan"}


_VITAL: Final = ("eviction", "persistence")
"""Checks without which the safety of messages is unknown."""


def doctor(session: Session, strict: Strict = False) -> None:
    """Examine the server and the keys: print problems, why they matter, and commands that fix them.

    It changes nothing, and also examines servers that an app refuses. Exit status 1 if messages
    can be lost or calls fail.
    """
    report = examine(session.app)
    if session.as_json:
        findings = [
            {"name": each.name, "verdict": each.verdict, "found": each.found, "why": each.why, "fix": each.fix}
            for each in report.findings
        ]
        session.show({"ok": report.ok, "server": report.server, "findings": findings})
    else:
        _print(session, report)
    is_warned = any(each.verdict == "warn" for each in report.findings)
    raise typer.Exit(0 if report.ok and not (strict and is_warned) else 1)


def _print(session: Session, report: Report) -> None:
    console = session.console
    console.print(Text(visible(report.server), style="bold"))
    rows = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    rows.add_column(no_wrap=True)
    rows.add_column(no_wrap=True)
    rows.add_column(overflow="fold")
    for each in report.findings:
        rows.add_row(Text(each.verdict, style=_COLOURS[each.verdict]), each.name, visible(each.found))
    console.print(rows)
    for each in report.findings:
        if each.verdict in ("bad", "warn"):
            _print_trouble(session, each)
    unknown = [each for each in report.findings if each.verdict == "unknown"]
    if unknown:
        console.print()
        console.print("unknown; to find out:")
        for line in dict.fromkeys(line for each in unknown for line in each.fix.splitlines()):
            console.print(Padding(Text(visible(line)), (0, 0, 0, 4), expand=False))
    console.print()
    console.print(_closing(report))


def _print_trouble(session: Session, finding: Finding) -> None:
    """Print the reason and the fix. Commands are printed without line breaks, so that they can be copied."""
    console = session.console
    console.print()
    console.print(Text.assemble((finding.verdict, _COLOURS[finding.verdict]), f" {finding.name}"))
    console.print(Padding(Text(visible(finding.why)), (0, 0, 0, 4), expand=False))
    for line in finding.fix.splitlines():
        style = "dim" if line.startswith("#") else "bold"
        console.print(Text(f"    {visible(line)}", style=style), soft_wrap=True)


def _closing(report: Report) -> Text:
    counts = {verdict: sum(each.verdict == verdict for each in report.findings) for verdict in _COLOURS}
    summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    if not report.ok:
        return Text(
            f"{summary}: messages can be lost or calls fail; fix this before you rely on this server", style="bold red"
        )
    unknown = [each.name for each in report.findings if each.verdict == "unknown" and each.name in _VITAL]
    if unknown:
        return Text(f"{summary}: cannot determine whether messages are safe: see {', '.join(unknown)}", style="yellow")
    if counts["warn"] or counts["unknown"]:
        return Text(f"{summary}: no check found a risk for messages")
    return Text(f"{summary}: all checks passed", style="green")
