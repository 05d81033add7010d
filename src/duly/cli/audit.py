"""`duly audit [--repair]`: proves the accounts of queues, topics and groups, and mends what somebody else broke."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

import duly
from duly.cli import output, parameters
from duly.cli.output import Align
from duly.cli.session import Audited, Session, groups_of
from duly.errors import ServerError, Unavailable
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


@dataclass(frozen=True)
class _Failure:
    """What could not be audited."""

    source: Audited
    label: str
    error: ServerError

    def to_fields(self) -> dict[str, Any]:
        return {"queue": self.label, "kind": type(self.source).__name__.lower(), "ok": False, "error": str(self.error)}


def _label(source: Audited) -> str:
    """Name a source for people: a queue may have the name of a topic."""
    return f"{source.name} (topic)" if isinstance(source, duly.Topic) else source.label


def audit(session: Session, queues: parameters.Audited = None, repair: Repair = False) -> None:
    """Prove that what was sent is accounted for, and that each message is in exactly one place.

    Of a topic, what was published with a delay. Exit status 1 when something is wrong, and with --repair when
    something still is.
    """
    run = _Run(session, repair=repair)
    if queues:
        run.look_at([each for name in queues for each in session.audited_as(name)])
    else:
        run.look_at_all()
    found = run.found
    fields = [*(each.to_fields() for each in found), *(each.to_fields() for each in run.failed)]
    session.show({"audits": fields}, _text(found))
    wrong = [each for each in found if each.is_wrong]
    if repair:
        for each in wrong:
            session.note(f"{each.label} is still not right: run it again when nobody works there")
    for failure in run.failed:
        session.note(f"{failure.label} could not be looked at: {failure.error}")
    if wrong or run.failed:
        raise typer.Exit(1)


class _Run:
    """One after the other: what stops the audit of one is told, and stops no other."""

    def __init__(self, session: Session, *, repair: bool) -> None:
        self.found: list[_Finding] = []
        self.failed: list[_Failure] = []
        self._session = session
        self._repair = repair

    def look_at_all(self) -> None:
        """Audit each topic before its groups are asked for: a repair may have to find them first."""
        self.look_at(self._session.queues())
        for topic in self._session.topics():
            self.look_at([topic])
            with self._noting(topic, f"{topic.name}/*"):
                self.look_at(groups_of(topic))

    def look_at(self, sources: Iterable[Audited]) -> None:
        for source in sources:
            with self._noting(source, _label(source)):
                self.found.append(_finding(self._session, source, repair=self._repair))

    @contextmanager
    def _noting(self, source: Audited, label: str) -> Iterator[None]:
        try:
            yield
        except Unavailable:
            raise
        except ServerError as error:
            self.failed.append(_Failure(source, label, error))


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
