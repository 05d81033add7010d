"""Read from several queues and groups. One that is damaged, or on a node that is away, does not hide the others."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

import typer

from duly._sync.survey import Survey
from duly.cli.session import Inbox, Session
from duly.errors import ServerError, Unavailable

T = TypeVar("T")
Failed = dict[str, ServerError]


def read_each(
    sources: Iterable[Inbox], survey: Survey, read: Callable[[Inbox], T], failed: Failed | None = None
) -> dict[str, T]:
    """Return what `read` returns for each source. A damaged source is recorded in `failed`, and the next follows.

    A source on a node that is away is left out.
    """
    found = {}
    for each in sources:
        try:
            if (value := survey.read(each, partial(read, each))) is not None:
                found[each.label] = value
        except Unavailable:
            raise
        except ServerError as error:
            if failed is not None:
                failed[each.label] = error
    return found


def report_failed(session: Session, survey: Survey, failed: Failed) -> None:
    """Name the damaged sources and the nodes that are away, and exit with status 1 if there are any."""
    for name, error in failed.items():
        session.note(f"{error}. Run `duly audit {shlex.quote(name)}` for details")
    session.exit_if_missing(survey)
    if failed:
        raise typer.Exit(1)
