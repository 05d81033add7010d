"""Tables of messages: the columns that exist, and the choice of `--columns`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

import typer

from duly.cli import output
from duly.cli.output import Align, body_text, clock_text
from duly.errors import UsageError
from duly.message import Message

OVER: Final = ("dead", "done")
"""States without further attempts."""


class Column(NamedTuple):
    """One value of each message."""

    cell: Callable[[Message], object]
    align: Align = "left"
    is_time: bool = False
    is_cut: bool = False
    """Whether it becomes narrower in a narrow terminal."""


def _when(message: Message) -> Any:
    """Return the deadline, the end or the due time, by state."""
    if message.state == "leased":
        return message.deadline
    return message.finished_at if message.state in OVER else message.due_at


COLUMNS: Final[Mapping[str, Column]] = {
    "id": Column(lambda each: each.id),
    "state": Column(lambda each: each.state),
    "when": Column(_when, is_time=True),
    "sent": Column(lambda each: each.sent_at, is_time=True),
    "due": Column(lambda each: each.due_at, is_time=True),
    "deadline": Column(lambda each: each.deadline, is_time=True),
    "died": Column(lambda each: each.finished_at, is_time=True),
    "finished": Column(lambda each: each.finished_at, is_time=True),
    "attempt": Column(lambda each: each.attempt, "right"),
    "deliveries": Column(lambda each: each.deliveries, "right"),
    "failures": Column(lambda each: each.failures, "right"),
    "crashes": Column(lambda each: each.crashes, "right"),
    "priority": Column(lambda each: each.priority, "right"),
    "reason": Column(lambda each: each.reason, is_cut=True),
    "key": Column(lambda each: each.key, is_cut=True),
    "holder": Column(lambda each: each.consumer, is_cut=True),
    "error": Column(lambda each: each.errors[-1].error if each.errors else None, is_cut=True),
    "headers": Column(lambda each: ", ".join(f"{name}={text}" for name, text in each.headers.items()), is_cut=True),
    "body": Column(lambda each: body_text(output.shown_body_of(each)), is_cut=True),
}

Columns = Annotated[
    str | None,
    typer.Option(
        "--columns", metavar="NAMES", help=f"The columns of the table, like id,key,body: {', '.join(COLUMNS)}."
    ),
]


def chosen_columns(names: str | None, *, as_json: bool) -> list[str] | None:
    """Read `--columns`. None: the usual columns."""
    if names is None:
        return None
    if as_json:
        raise UsageError("--columns and --json: JSON has all fields of a message")
    found = [name.strip() for name in names.split(",")]
    if unknown := [name for name in found if name not in COLUMNS]:
        raise UsageError(f"--columns: there is no column {unknown[0]!r}, but there are {', '.join(COLUMNS)}")
    return list(dict.fromkeys(found))


def message_table(messages: Iterable[Message], names: Sequence[str], *, spare: Sequence[str] = ()) -> output.Sheet:
    """Return a table with these columns. A narrow terminal leaves out those in `spare` first."""
    titles = {name: output.zoned(name.upper()) if COLUMNS[name].is_time else name.upper() for name in names}
    return output.Sheet(
        {titles[name]: COLUMNS[name].align for name in names},
        [[_cell(COLUMNS[name], each) for name in names] for each in messages],
        cut=[titles[name] for name in names if COLUMNS[name].is_cut],
        spare=[titles[name] for name in spare if name in titles],
    )


def _cell(column: Column, message: Message) -> object:
    value: Any = column.cell(message)
    if column.is_time:
        return clock_text(value)
    return "-" if value is None or value == "" else value
