"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated, Final, Literal, get_args

import typer

from duly.cli.completion import complete_audited, complete_inbox, complete_queue, complete_topic

State = Literal["ready", "delayed", "leased", "parked", "dead", "done"]
STATES: Final[tuple[State, ...]] = get_args(State)

Inbox = Annotated[
    str,
    typer.Argument(
        metavar="QUEUE",
        help="A queue, or a group of a topic as events/archive.",
        autocompletion=complete_inbox,
        show_default=False,
    ),
]
Inboxes = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="QUEUE",
        help="Queues, or groups of topics as events/archive. Default: all.",
        autocompletion=complete_inbox,
        show_default=False,
    ),
]
Audited = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="QUEUE",
        help="Queues, topics, or groups of topics as events/archive. Default: all.",
        autocompletion=complete_audited,
        show_default=False,
    ),
]
Queue = Annotated[
    str, typer.Argument(metavar="QUEUE", help="A queue.", autocompletion=complete_queue, show_default=False)
]
Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="A topic.", autocompletion=complete_topic, show_default=False)
]
Id = Annotated[str, typer.Argument(metavar="ID", help="The id of a message.", show_default=False)]
Ids = Annotated[list[str], typer.Argument(metavar="ID", help="Ids of messages.", show_default=False)]
Body = Annotated[
    str | None,
    typer.Argument(
        metavar="BODY",
        help="JSON, or text. @file reads a file (@@ is a literal @), - reads standard input, like no BODY in a pipe.",
        show_default=False,
    ),
]
AsText = Annotated[bool, typer.Option("--text", help="BODY is text, even if it is valid JSON.")]
AsBytes = Annotated[bool, typer.Option("--bytes", help="BODY is bytes, sent unchanged.")]
Lines = Annotated[bool, typer.Option("--lines", help="Each line of the file or standard input is a body.")]
Delay = Annotated[str | None, typer.Option("--delay", metavar="DURATION", help="Due after this time: 30s, 5m, 2h.")]
At = Annotated[
    str | None, typer.Option("--at", metavar="TIME", help="Due at this time: 2026-12-01T09:00+08:00, or epoch seconds.")
]
Key = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Strict order within this key.")]
Headers = Annotated[list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="A header; repeatable.")]
Dedup = Annotated[
    str | None, typer.Option("--dedup", metavar="VALUE", help="Store one message with this value per window.")
]
DedupFor = Annotated[str | None, typer.Option("--dedup-for", metavar="DURATION", help="The window. Default: 5m.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", help="At most N, 1 to 1000.")]
After = Annotated[str | None, typer.Option("--after", metavar="ID", help="Continue after this message.")]
Most = Annotated[int, typer.Option("--limit", metavar="N", help="At most N.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; print the number.")]
