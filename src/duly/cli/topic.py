"""`duly topic ls|groups|pending|seek|publish|read|delete`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import RenderableType

import duly
from duly._core.measures import size_text
from duly._core.naming import nearest
from duly.cli import inspection, output, values
from duly.cli.command import command
from duly.cli.completion import complete_group
from duly.cli.output import Align, body_text, clock_text
from duly.cli.parameters import AsBytes, AsText, At, Body, Dedup, DedupFor, Delay, Headers, Key, Limit, Most, Topic, Yes
from duly.cli.session import NotFound, Session, missing_nodes
from duly.cli.stop_signals import StopSignals, until_stopped
from duly.errors import ServerError, Unavailable
from duly.message import Entry, GroupInfo, TopicStats

app: typer.Typer = typer.Typer(no_args_is_help=True, help="Topics: each entry is delivered to every group.")

Group = Annotated[
    str,
    typer.Argument(metavar="GROUP", help="A group of the topic.", autocompletion=complete_group, show_default=False),
]
Consumer = Annotated[
    str | None, typer.Option("--consumer", metavar="NAME", help="Only entries that this consumer holds.")
]
MinIdle = Annotated[
    str, typer.Option("--min-idle", metavar="DURATION", help="Only entries that have been held this long.")
]
Position = Annotated[
    str,
    typer.Argument(
        metavar="POSITION",
        help="beginning, end, an entry id (starts after it), or a time like 2026-12-01T09:00+08:00.",
        show_default=False,
    ),
]
After = Annotated[str, typer.Option("--after", metavar="POSITION", help="beginning, new, an entry id, or a time.")]
Wait = Annotated[str, typer.Option("--wait", metavar="DURATION", help="How long to wait for the first entry.")]
Follow = Annotated[bool, typer.Option("--follow", help="Continue until Ctrl-C; with --json one object per line.")]

_ROUND_SECONDS = 20.0


@command(app)
def ls(session: Session) -> None:
    """List the topics."""
    survey = session.survey()
    found: dict[str, TopicStats] = {}
    for topic in session.topics(survey):
        if (stats := survey.read(topic, topic.stats)) is not None:
            found[topic.name] = stats
    rows = [{"name": name, **output.plain(stats)} for name, stats in found.items()]
    session.show_list("topics", rows, _topics_table(found), **missing_nodes(survey))
    session.exit_if_missing(survey)


def _topics_table(found: dict[str, TopicStats]) -> RenderableType:
    columns: dict[str, Align] = {
        "TOPIC": "left", "ENTRIES": "right", "DELAYED": "right", "SIZE": "right", "PUBLISHED": "right",
        "TRIMMED": "right", "GROUPS": "right", "LAST": "left",
    }  # fmt: skip
    rows = [
        (
            name,
            f"{each.length:,}",
            f"{each.delayed:,}",
            size_text(each.bytes),
            f"{each.published:,}",
            f"{each.trimmed:,}",
            each.groups,
            each.last_id or "-",
        )
        for name, each in found.items()
    ]
    return output.Sheet(columns, rows, cut=["TOPIC"], spare=["TRIMMED", "LAST", "PUBLISHED", "SIZE"])


@command(app)
def groups(session: Session, topic: Topic) -> None:
    """List the groups of a topic, with their progress."""
    found = session.topic(topic).groups()
    session.show_list("groups", found, _groups_table(found))


def _groups_table(found: list[GroupInfo]) -> RenderableType:
    counted = ("unread", "pending", "delayed", "parked", "dead", "missed", "consumers")
    columns: dict[str, Align] = {"GROUP": "left", **{name.upper(): "right" for name in counted}, "LAST": "left"}
    rows = [(each.name, *(f"{getattr(each, name):,}" for name in counted), each.last_id) for each in found]
    return output.Sheet(columns, rows, cut=["GROUP"], spare=["PARKED", "MISSED", "LAST", "DELAYED"])


@command(app)
def pending(
    session: Session,
    topic: Topic,
    group: Group,
    consumer: Consumer = None,
    min_idle: MinIdle = "0s",
    limit: Most = 50,
) -> None:
    """Show which entries the consumers of a group hold, like XPENDING."""
    idle = values.duration(min_idle, "--min-idle")
    found = session.group(topic, group).pending(consumer=consumer, min_idle=idle, limit=limit)
    session.show(found, inspection.pending_text(found))


@command(app)
def seek(session: Session, topic: Topic, group: Group, position: Position) -> None:
    """Move a group to another position. Entries that it holds are not affected.

    Example: duly topic seek events archive 2026-01-05T09:00+08:00
    """
    found = session.group(topic, group)
    found.seek(_position(position, "POSITION"))
    info = next((each for each in session.topic(topic).groups() if each.name == group), None)
    if info is None:
        raise NotFound(f"group {group!r} of topic {topic!r} was just deleted")
    session.show(info, f"{topic}/{group} continues after {info.last_id}; {info.unread:,} unread")


def _position(text: str, option: str) -> Any:
    """Parse a position: a word, an entry id (with a dash), or a time."""
    milliseconds, is_id, number = text.partition("-")
    if text in ("beginning", "new", "end") or (is_id and milliseconds.isdecimal() and number.isdecimal()):
        return text
    return values.aware_moment(text, option)


@command(app, starts_server=True)
def publish(
    session: Session,
    topic: Topic,
    body: Body = None,
    delay: Delay = None,
    at: At = None,
    key: Key = None,
    header: Headers = None,
    dedup: Dedup = None,
    dedup_for: DedupFor = None,
    text: AsText = False,
    as_bytes: AsBytes = False,
) -> None:
    """Publish to every group of a topic.

    Example: duly topic publish events '{"paid": 17}' --header kind=paid
    """
    options: dict[str, Any] = {
        **values.due(delay, at),
        "key": key,
        "headers": values.headers(header),
        "dedup": dedup,
        "dedup_for": values.optional_duration(dedup_for, "--dedup-for"),
    }
    given = values.body(body, as_text=text, as_bytes=as_bytes)
    target = _target(session, topic)
    with StopSignals(session.app) as stops:
        entry = target.publish(given, **options)
        stops.show_stored(session, {"topic": topic, "id": entry}, entry, f"{entry} is published to {topic}")
    stops.exit_if_stopped()


def _target(session: Session, name: str) -> duly.Topic:
    """Return a topic to publish to, which may be new. A queue is refused: its consumers would not receive the entry."""
    topic = session.app.topic(name)
    try:
        if not topic.stats().published:
            _check_new(session, name)
    except Unavailable:
        raise
    except ServerError:  # a producer may lack permission for stats
        pass
    return topic


def _check_new(session: Session, name: str) -> None:
    """Print a note if the topic is new but a similar name exists, which may be a typo."""
    survey = session.survey()
    if name in (known := survey.topics()):
        return
    if name in survey.queues():
        raise NotFound(f"{name!r} is a queue, not a topic: `duly send {name}`")
    if question := nearest(name, known):
        session.note(f"topic {name!r} is new.{question}")


@command(app)
def read(
    session: Session,
    topic: Topic,
    after: After = "beginning",
    limit: Limit = 100,
    wait: Wait = "0s",
    follow: Follow = False,
) -> None:
    """Read entries without a group. The progress of groups does not change.

    Shows the first 200 characters of each body; --json has all of it.
    """
    found = session.topic(topic)
    position = _position(after, "--after")
    if not follow:
        entries = _read(found, position, limit, values.duration(wait, "--wait"))
        following = entries[-1].id if len(entries) == limit else None
        session.show_list("entries", entries, _entries_table(entries), following=following)
        return
    with until_stopped(session.app):
        _read_on(session, found, position, limit)


def _read(topic: duly.Topic, position: Any, limit: int, wait: float) -> list[Entry]:
    """Read page by page. Pages of large entries are shorter than requested, and only an empty page is the end."""
    found = topic.read(position, limit, wait)
    while 0 < len(found) < limit and (page := topic.read(found[-1].id, limit - len(found))):
        found += page
    return found


def _read_on(session: Session, topic: duly.Topic, position: Any, limit: int) -> None:
    while True:
        for entry in topic.read(position, limit, _ROUND_SECONDS):
            position = entry.id
            if session.as_json:
                output.print_json(entry, one_line=True)
            else:
                output.print_text(f"{entry.id}  {body_text(output.body_of(entry))}")


def _entries_table(entries: list[Entry]) -> RenderableType:
    published = output.zoned("PUBLISHED")
    columns: dict[str, Align] = {"ID": "left", published: "left", "KEY": "left", "BODY": "left"}
    rows = [
        (each.id, clock_text(each.published_at), each.key or "-", body_text(output.body_of(each))) for each in entries
    ]
    return output.Sheet(columns, rows, cut=["KEY", "BODY"], spare=["KEY", published])


@command(app)
def delete(session: Session, topic: Topic, yes: Yes = False) -> None:
    """Delete a topic with its entries and groups."""
    found = session.topic(topic)
    stats = found.stats()
    session.confirm(
        f"Delete topic {topic} with {stats.length:,} entries and {stats.groups} group(s) permanently?", yes=yes
    )
    found.delete()
    session.show({"topic": topic, "deleted": True}, f"{topic} is deleted")
