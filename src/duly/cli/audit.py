"""`duly audit [--repair]`: checks the data of queues, topics and groups, and repairs damage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

import duly
from duly._sync.survey import Survey
from duly.cli import output, parameters
from duly.cli.output import Align
from duly.cli.session import Audited, Session, groups_on, missing_nodes
from duly.errors import ServerError, Unavailable
from duly.message import Audit

Repair = Annotated[bool, typer.Option("--repair", help="Repair faults, without losing a body.")]

_FAULTS_SHOWN = 20


@dataclass(frozen=True)
class _Finding:
    """The audit of a source, and whether the source is still wrong."""

    source: Audited
    audit: Audit
    is_wrong: bool

    @property
    def label(self) -> str:
        return _label(self.source)

    def to_fields(self) -> dict[str, Any]:
        audit, kind = self.audit, type(self.source).__name__.lower()
        results = {"ok": audit.ok, "difference": audit.difference, "explanation": audit.explanation}
        return {**output.plain(audit), "kind": kind, **results}


@dataclass(frozen=True)
class _Failure:
    """A source that could not be audited."""

    source: Audited
    label: str
    error: ServerError

    def to_fields(self) -> dict[str, Any]:
        return {"queue": self.label, "kind": type(self.source).__name__.lower(), "ok": False, "error": str(self.error)}


def _label(source: Audited) -> str:
    """Return a label. A queue may have the name of a topic."""
    return f"{source.name} (topic)" if isinstance(source, duly.Topic) else source.label


def audit(session: Session, queues: parameters.Audited = None, repair: Repair = False) -> None:
    """Check that every message is accounted for, and is in exactly one place.

    For a topic, delayed entries are checked. Exit status 1 if a fault was found, or with --repair if a fault remains.
    """
    survey = session.survey()
    run = _Run(session, survey, repair=repair)
    if queues:
        run.audit([each for name in queues for each in session.audited_as(name)])
    else:
        run.audit_all()
    found = run.found
    fields = [*(each.to_fields() for each in found), *(each.to_fields() for each in run.failed)]
    session.show({"audits": fields, **missing_nodes(survey)}, _text(found))
    wrong = [each for each in found if each.is_wrong]
    if repair:
        for each in wrong:
            session.note(f"{each.label} still has faults: run it again when no worker uses it")
    for failure in run.failed:
        session.note(f"{failure.label} could not be audited: {failure.error}")
    session.exit_if_missing(survey)
    if wrong or run.failed:
        raise typer.Exit(1)


class _Run:
    """Audits sources one by one. A failure is recorded, and the next source follows.

    Sources on a node that is away are left out.
    """

    def __init__(self, session: Session, survey: Survey, *, repair: bool) -> None:
        self.found: list[_Finding] = []
        self.failed: list[_Failure] = []
        self._session = session
        self._survey = survey
        self._repair = repair

    def audit_all(self) -> None:
        """Audit everything. Topics come before their groups, since a repair may restore lost groups."""
        self.audit(self._session.queues(self._survey))
        for topic in self._session.topics(self._survey):
            self.audit([topic])
            with self._recording_failure(topic, f"{topic.name}/*"):
                self.audit(groups_on(self._survey, topic))

    def audit(self, sources: Iterable[Audited]) -> None:
        for source in sources:
            with self._recording_failure(source, _label(source)):
                finding = self._survey.read(source, partial(_finding, self._session, source, repair=self._repair))
                if finding is not None:
                    self.found.append(finding)

    @contextmanager
    def _recording_failure(self, source: Audited, label: str) -> Iterator[None]:
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
    """Return the faults as sentences, up to a limit."""
    sentences = finding.audit.explanation
    lines: list[RenderableType] = [
        Text(output.visible(f"{finding.label} {sentence}")) for sentence in sentences[:_FAULTS_SHOWN]
    ]
    if (more := len(sentences) - _FAULTS_SHOWN) > 0:
        lines.append(Text(f"... and {more:,} more of {finding.label}: --json shows all"))
    return lines
