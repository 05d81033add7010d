"""`duly audit [--repair]`: proves the accounts of queues, and mends what somebody else broke."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from duly.cli import output
from duly.cli.arguments import Inboxes
from duly.cli.output import Align
from duly.cli.session import Inbox, Session
from duly.message import Audit

Repair = Annotated[bool, typer.Option("--repair", help="Mend what is found, without losing a body.")]

_FAULTS_SHOWN = 20


def audit(session: Session, queues: Inboxes = None, repair: Repair = False) -> None:
    """Prove that what was sent is accounted for, and that each message is in exactly one place.

    Exit status 1 when something is wrong, and with --repair when something still is.
    """
    found = [_audited(session, each, repair=repair) for each in session.inboxes(queues)]
    wrong = {each.queue for each in found if not each.ok}
    if repair:
        wrong = {name for name in wrong if not _audited(session, session.inbox(name), repair=False).ok}
    session.show([_to_fields(each) for each in found], _text(found, wrong))
    if repair:
        for name in sorted(wrong):
            session.note(f"{name} is still not right: run it again when nobody works there")
    if wrong:
        raise typer.Exit(1)


def _audited(session: Session, source: Inbox, *, repair: bool) -> Audit:
    with session.progress(f"auditing {source.label}", None) as progress:
        return source.audit(repair, on_progress=progress)


def _to_fields(audit: Audit) -> dict[str, Any]:
    return {**output.plain(audit), "ok": audit.ok, "difference": audit.difference, "explanation": audit.explanation}


def _verdict(audit: Audit, wrong: set[str]) -> Text:
    if audit.ok:
        return Text("right", "green")
    if audit.queue not in wrong:
        return Text("repaired", "bold yellow")
    return Text("STILL WRONG" if audit.repaired else "WRONG", "bold red")


def _text(found: list[Audit], wrong: set[str]) -> RenderableType:
    columns: dict[str, Align] = {
        "QUEUE": "left", "CHECKED": "right", "LIVE": "right", "DEAD": "right", "DIFFERENCE": "right", "FAULTS": "right",
        "VERDICT": "left",
    }  # fmt: skip
    rows = [
        (
            each.queue,
            f"{each.checked:,}",
            f"{each.stats.live:,}",
            f"{each.stats.dead:,}",
            f"{each.difference:,}",
            f"{len(each.faults):,}",
            _verdict(each, wrong),
        )
        for each in found
    ]
    return Group(
        output.Sheet(columns, rows, cut=["QUEUE"], spare=["CHECKED", "DEAD", "LIVE"]),
        *(line for each in found for line in _faults(each)),
    )


def _faults(audit: Audit) -> list[RenderableType]:
    """Write what was found in sentences, the first of many."""
    lines: list[RenderableType] = [
        Text(output.visible(f"{audit.queue} {sentence}")) for sentence in audit.explanation[:_FAULTS_SHOWN]
    ]
    if (more := len(audit.explanation) - _FAULTS_SHOWN) > 0:
        lines.append(Text(f"... and {more:,} more of {audit.queue}: --json shows all"))
    return lines
