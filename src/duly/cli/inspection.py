"""`duly queues`, `list`, `show`, `explain`, `pending` and `workers`: read-only commands."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from duly._core.measures import span
from duly._core.published import with_differences
from duly.cli import output, values
from duly.cli.message_table import OVER, Columns, chosen_columns, message_table
from duly.cli.output import Align, body_text, clock_text, exact_clock_text, time_text, whole_body
from duly.cli.parameters import STATES, After, Id, Inbox, Limit, Most, State
from duly.cli.session import Inbox as AnInbox
from duly.cli.session import NotFound, Session, missing_nodes
from duly.message import Message, Pending, WorkerInfo

StateOf = Annotated[
    str | None,
    typer.Argument(
        metavar="STATE",
        help="ready, delayed, leased, parked, dead or done. Default: all.",
        autocompletion=lambda: list(STATES),
        show_default=False,
    ),
]
Consumer = Annotated[
    str | None, typer.Option("--consumer", metavar="NAME", help="Only messages that this consumer holds.")
]

_WHEN: Final = {"leased": "deadline", "dead": "died", "done": "finished"}
"""The column of times, by state."""


def queues(session: Session) -> None:
    """List the queues, and the groups of topics. `duly topic ls` also lists topics without groups."""
    survey = session.survey()
    names = [each.label for each in session.inboxes(None, survey)]
    if session.as_json:  # names only: statistics would take a call for each queue
        groups = [{"name": name} for name in names if "/" in name]
        rows = [{"name": name} for name in names if "/" not in name]
        session.show_list("queues", rows, groups=groups, **missing_nodes(survey))
    else:
        for name in names:
            output.print_text(name)
    session.exit_if_missing(survey)


def list_(
    session: Session,
    queue: Inbox,
    state: StateOf = None,
    limit: Limit = 50,
    after: After = None,
    columns: Columns = None,
) -> None:
    """List messages of a queue, with the first 200 characters of each body; --json has all of it.

    Example: duly list orders delayed --limit 20
    """
    chosen = chosen_columns(columns, as_json=session.as_json)
    asked: State | None = None if state is None else values.choice(state, "STATE", State)
    source = session.inbox(queue)
    states = STATES if asked is None else (asked,)
    if after is not None:
        before = source.get(after)
        if before is None or before.state not in states:
            there = f"{asked} in {queue}" if asked else f"in {queue}"
            raise NotFound(f"--after: message {after!r} is not {there} any more: start again without it")
        states = states[states.index(before.state) :]
    found: list[Message] = []
    for each in states:
        if len(found) < limit or not found:
            found += _listed(source, each, limit - len(found), after)
        after = None
    following = found[-1].id if len(found) == limit else None
    session.show_list("messages", found, _page_table(asked, found, chosen), following=following)


def _listed(source: AnInbox, state: State, limit: int, after: str | None) -> list[Message]:
    """Read page by page. Pages of large messages are shorter than requested, and only an empty page is the end."""
    found = source.list(state, limit=limit, after=after)
    while 0 < len(found) < limit and (page := source.list(state, limit=limit - len(found), after=found[-1])):
        found += page
    return found


def _page_table(state: str | None, page: list[Message], chosen: list[str] | None) -> RenderableType:
    if chosen:
        return message_table(page, chosen)
    if state is None:
        return message_table(page, ["id", "state", "when", "failures", "key", "body"], spare=["failures", "key"])
    when, tries = _WHEN.get(state, "due"), "failures" if state in OVER else "attempt"
    also = {"dead": ["reason"], "leased": ["holder"]}.get(state, [])
    return message_table(page, ["id", when, tries, "key", *also, "body"], spare=[tries, "key", *also])


def show(session: Session, queue: Inbox, id: Id) -> None:  # noqa: A002
    """Show one message: state, body, counters, errors and timeline."""
    message = session.inbox(queue).get(id)
    if message is None:
        raise NotFound(f"queue {queue!r} has no message {id!r}: it never existed, is finished, or was cancelled")
    session.show(message, _message_text(message))


def _message_text(message: Message) -> RenderableType:
    rows: dict[str, object] = {
        "id": message.id,
        "queue": message.queue,
        "state": message.state,
        "reason": message.reason,
        "key": message.key,
        "priority": message.priority,
        "headers": ", ".join(f"{name}={value}" for name, value in message.headers.items()) or None,
        "sent": time_text(message.sent_at),
        "due": time_text(message.due_at),
        "holder": message.consumer,
        "deadline": message.deadline and time_text(message.deadline),
        "finished": message.finished_at and time_text(message.finished_at),
        "attempt": None if message.state in OVER else message.attempt,
        "counted": f"{message.deliveries} deliveries, {message.failures} failures, {message.crashes} crashes, "
        f"{message.defers} defers, {message.releases} releases",
        "cycles": message.cycles or None,
        "redrives": message.redrives or None,
        "result": None if message.result is None else body_text(message.result),
        "body": whole_body(output.shown_body_of(message)),
    }
    parts: list[RenderableType] = [output.fields({name: value for name, value in rows.items() if value is not None})]
    if message.timeline:
        parts += [Text("\ntimeline", "bold"), _timeline(message)]
    for failure in message.errors[-1:]:
        parts += [Text("\nlast error", "bold"), Text(output.visible_lines(failure.traceback or failure.error))]
    return Group(*parts)


def _timeline(message: Message) -> RenderableType:
    rows = [
        (
            exact_clock_text(each.at),
            each.what,
            "-" if each.took is None else span(each.took),
            each.consumer or "-",
            each.detail,
        )
        for each in message.timeline
    ]
    columns: dict[str, Align] = {
        output.zoned("AT"): "left", "WHAT": "left", "TOOK": "right", "CONSUMER": "left", "DETAIL": "left",
    }  # fmt: skip
    return output.Sheet(columns, rows, cut=["CONSUMER", "DETAIL"], spare=["CONSUMER"])


def explain(session: Session, queue: Inbox, id: Id) -> None:  # noqa: A002
    """Explain in one sentence why a message is not being delivered, and when it will be."""
    source, views = session.inbox_as_served(queue)
    sentence = with_differences(source.explain(id), views)
    session.show({"queue": queue, "id": id, "explanation": sentence}, output.visible(sentence))
    if source.get(id) is None:
        raise typer.Exit(1)


def pending(session: Session, queue: Inbox, consumer: Consumer = None, limit: Most = 50) -> None:
    """Show leased messages: totals by consumer, and the leases by deadline."""
    found = session.inbox(queue).pending(consumer=consumer, limit=limit)
    session.show(found, pending_text(found))


def pending_text(found: Pending) -> RenderableType:
    """Return a table of leases, also for entries of a group."""
    holders = ", ".join(f"{name} {count:,}" for name, count in found.consumers.items()) or "no consumer"
    columns: dict[str, Align] = {"ID": "left", "LEFT": "right", "IDLE": "right", "ATTEMPT": "right", "CONSUMER": "left"}
    rows = [(each.id, span(each.deadline_in), span(each.idle), each.attempt, each.consumer) for each in found.messages]
    return Group(
        Text(f"{found.total:,} held: {output.visible(holders)}"),
        output.Sheet(columns, rows, cut=["CONSUMER"], spare=["ATTEMPT", "IDLE"]),
    )


def workers(session: Session) -> None:
    """Show workers with a recent heartbeat."""
    found = session.app.workers()
    session.show_list("workers", found, _workers_table(found) if found else f"no worker on {session.server}")


def _workers_table(found: list[WorkerInfo]) -> RenderableType:
    since = output.zoned("SINCE")
    columns: dict[str, Align] = {
        "HOST": "left", "PID": "right", "QUEUES": "left", "RUNNING": "right", "HANDLED": "right", since: "left",
        "BEAT": "right", "VERSION": "left",
    }  # fmt: skip
    has_lost = any(each.rolled_back for each in found)  # a rare column
    if has_lost:
        columns["LOST CALLS"] = "right"
    rows = [
        (
            each.host,
            each.pid,
            ", ".join(each.queues),
            f"{each.in_flight}/{each.concurrency}",
            f"{each.handled:,}",
            clock_text(each.started_at),
            f"{span(each.last_beat)} ago",
            each.version,
            *([f"{each.rolled_back:,}"] if has_lost else []),
        )
        for each in found
    ]
    return output.Sheet(columns, rows, cut=["HOST", "QUEUES", "VERSION"], spare=["VERSION", since, "HANDLED"])
