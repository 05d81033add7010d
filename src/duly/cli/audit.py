"""`duly audit [--repair]`: proves the accounts of queues, topics and groups, and mends what somebody else broke."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

import duly
from duly.cli import arguments, output
from duly.cli.output import Align
from duly.cli.session import Audited, Session
from duly.message import Audit

Repair = Annotated[bool, typer.Option("--repair", help="Mend what is found, without losing a body.")]

_FAULTS_SHOWN = 20


@dataclass(frozen=True)
class _Finding:
    """What was audited, what came out, and whether it is wrong now."""

    source: Audited
    audit: Audit
    is_wrong: bool

    @property
    def label(self) -> str:
        return _label(self.source)

    def to_fields(self) -> dict[str, Any]:
        audit, kind = self.audit, type(self.source).__name__.lower()
        told = {"ok": audit.ok, "difference": audit.difference, "explanation": audit.explanation}
        return {**output.plain(audit), "kind": kind, **told}


def _label(source: Audited) -> str:
    """Name a source for people: a queue may have the name of a topic."""
    return f"{source.name} (topic)" if isinstance(source, duly.Topic) else source.label


def audit(session: Session, queues: arguments.Audited = None, repair: Repair = False) -> None:
    """Prove that what was sent is accounted for, and that each message is in exactly one place.

    Of a topic, what was published with a delay. Exit status 1 when something is wrong, and with --repair when
    something still is.
    """
    found = [_finding(session, each, repair=repair) for each in session.audited(queues)]
    session.show([each.to_fields() for each in found], _text(found))
    wrong = [each for each in found if each.is_wrong]
    if repair:
        for each in wrong:
            session.note(f"{each.label} is still not right: run it again when nobody works there")
    if wrong:
        raise typer.Exit(1)


def _finding(session: Session, source: Audited, *, repair: bool) -> _Finding:
    audit = _audited(session, source, repair=repair)
    is_wrong = not audit.ok and (not repair or not _audited(session, source, repair=False).ok)
    return _Finding(source, audit, is_wrong)


def _audited(session: Session, source: Audited, *, repair: bool) -> Audit:
    with session.progress(f"auditing {_label(source)}", None) as progress:
        return source.audit(repair, on_progress=progress)


def _verdict(finding: _Finding) -> Text:
    if finding.audit.ok:
        return Text("right", "green")
    if not finding.is_wrong:
        return Text("repaired", "bold yellow")
    return Text("STILL WRONG" if finding.audit.repaired else "WRONG", "bold red")


def _text(found: list[_Finding]) -> RenderableType:
    columns: dict[str, Align] = {
        "QUEUE": "left", "CHECKED": "right", "LIVE": "right", "DEAD": "right", "DIFFERENCE": "right", "FAULTS": "right",
        "VERDICT": "left",
    }  # fmt: skip
    rows = [
        (
            each.label,
            f"{each.audit.checked:,}",
            f"{each.audit.stats.live:,}",
            f"{each.audit.stats.dead:,}",
            f"{each.audit.difference:,}",
            f"{len(each.audit.faults):,}",
            _verdict(each),
        )
        for each in found
    ]
    return Group(
        output.Sheet(columns, rows, cut=["QUEUE"], spare=["CHECKED", "DEAD", "LIVE"]),
        *(line for each in found for line in _faults(each)),
    )


def _faults(finding: _Finding) -> list[RenderableType]:
    """Write what was found in sentences, the first of many."""
    told = finding.audit.explanation
    lines: list[RenderableType] = [
        Text(output.visible(f"{finding.label} {sentence}")) for sentence in told[:_FAULTS_SHOWN]
    ]
    if (more := len(told) - _FAULTS_SHOWN) > 0:
        lines.append(Text(f"... and {more:,} more of {finding.label}: --json shows all"))
    return lines
