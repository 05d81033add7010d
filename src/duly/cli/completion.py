"""Names that the shell completes. It queries the server briefly, starts no server, and ignores errors."""

import logging
import os
from collections.abc import Callable, Iterable
from typing import Final

import typer

import duly
from duly._core import address
from duly.embedded import control

_PATIENCE: Final = 0.5


def complete_queue(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer queues."""
    return _offered(ctx, incomplete, lambda app: app.queues())


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer topics."""
    return _offered(ctx, incomplete, lambda app: app.topics())


def complete_inbox(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer queues, and groups of topics."""
    return _offered(ctx, incomplete, lambda app: [*app.queues(), *_groups(app)])


def complete_audited(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer queues, topics, and groups of topics."""
    return _offered(ctx, incomplete, lambda app: sorted({*app.queues(), *app.topics(), *_groups(app)}))


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer groups of the preceding topic."""
    topic = ctx.params.get("topic") or ""
    return _offered(ctx, incomplete, lambda app: [group.name for group in app.topic(topic).groups()])


def complete_schedule(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer schedules."""
    return _offered(ctx, incomplete, lambda app: [each.name for each in app.schedules()])


def _groups(app: duly.Duly) -> list[str]:
    return [f"{topic}/{group.name}" for topic in app.topics() for group in app.topic(topic).groups()]


def _offered(ctx: typer.Context, incomplete: str, names: Callable[[duly.Duly], Iterable[str]]) -> list[str]:
    logging.disable()  # do not log that a server does not answer
    try:
        chosen = address.chosen(ctx.params.get("url"), os.environ)
        if chosen.kind == "embedded" and not control.status(chosen.place).is_running:
            return []
        with duly.Duly(chosen, namespace=ctx.params.get("namespace") or "duly", patience=_PATIENCE) as app:
            return [name for name in names(app) if name.startswith(incomplete)]
    except Exception:  # noqa: BLE001, completion must not print a traceback
        return []
