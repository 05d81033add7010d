"""The progress of the demo in a file or a pipe."""

from dataclasses import fields
from typing import Any

from duly import Stats
from duly.demo.table import Lines, Snapshot


def stats(**counts: int) -> Stats:
    values: dict[str, Any] = {each.name: 0 for each in fields(Stats)}
    return Stats(**values | counts)


def test_counters_are_printed_only_when_they_have_changed() -> None:
    printed: list[str] = []
    lines = Lines(printed.append, every=0)
    for elapsed, sent in ((0.0, 0), (1.0, 0), (2.0, 5), (3.0, 5)):
        queues = {"orders": stats(sent=sent), "reminders": stats()}
        lines.show(Snapshot(elapsed, queues, (), ("news",) if sent else ()))

    assert [line.partition(" ready")[0] for line in printed] == [
        "  0.0 s  orders:",
        "  0.0 s  reminders:",
        "  2.0 s  news",
        "  2.0 s  orders:",
    ]
