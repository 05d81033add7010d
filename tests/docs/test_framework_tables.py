"""The tables that map the API of Dramatiq and taskiq to that of Duly name things that exist."""

import inspect
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import dramatiq
import pytest
import taskiq
from dramatiq import middleware, rate_limits
from dramatiq.broker import Broker
from dramatiq.brokers.stub import StubBroker
from dramatiq.results import Results
from dramatiq.results.backends.stub import StubBackend
from taskiq.kicker import AsyncKicker

import duly
import duly.dramatiq
import duly.taskiq
from duly.options import SendOptions

DOCS = Path(__file__).parents[2] / "docs"
NAME = re.compile(r"[A-Za-z_][A-Za-z_]{3,}")
TEXTS = re.compile(r'"[^"]*"')
EXAMPLES = {"True", "ValueError", "OSError", "orders", "shop", "when", "message", "broker", "task", "args", "raise"}
"""Words of examples, and of Python."""


def rows_of(page: str, language: str = ".") -> list[tuple[str, str]]:
    """Return the code in each row of the table: that of the framework, and that of Duly."""
    _, _, table = (DOCS / language / f"{page}.md").read_text().partition(" | Duly |\n| --- | --- |\n")
    lines = table.partition("\n\n")[0].splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines]
    return [(code_of(theirs), code_of(ours)) for theirs, ours in cells]


def code_of(cell: str) -> str:
    return " ".join(TEXTS.sub('""', code) for code in re.findall(r"`([^`]+)`", cell))


def names_in(objects: Iterable[Any]) -> set[str]:
    """Return the names of objects, of what they have, and of their parameters."""
    found = set[str]()
    for each in objects:
        found |= {getattr(each, "__name__", ""), *dir(each)}
        if inspect.isclass(each) or inspect.isroutine(each):
            found |= set(inspect.signature(each).parameters)
    return found


def of_dramatiq() -> set[str]:
    broker: Broker = StubBroker()
    broker.add_middleware(Results(backend=StubBackend()))  # type: ignore[no-untyped-call]
    parts = [dramatiq, middleware, middleware.Middleware, middleware.CurrentMessage, dramatiq.Actor, dramatiq.Message]
    calls = [dramatiq.actor, dramatiq.Actor.send_with_options, dramatiq.Message.get_result, dramatiq.Retry, StubBroker]
    commands = {"processes", "threads", "middleware"}
    own = names_in([duly.dramatiq, duly.dramatiq.DulyBroker]) | {"broker_priority"}
    return names_in([*parts, *calls, rate_limits]) | broker.actor_options | own | commands


def of_taskiq() -> set[str]:
    task = taskiq.AsyncTaskiqDecoratedTask
    parts = [taskiq, taskiq.AsyncBroker, AsyncKicker, task, taskiq.TaskiqMiddleware, taskiq.Context]
    calls = [taskiq.AsyncBroker.task, taskiq.AsyncTaskiqTask, taskiq.AsyncTaskiqTask.wait_result]
    retries = [taskiq.SmartRetryMiddleware, taskiq.TaskiqEvents]
    labels = {"max_retries", "delay", "priority", "queue_name", "timeout", "await", "source", "context"}
    commands = {"scheduler", "worker", "workers", "async", "tasks"}
    return names_in([*parts, *calls, *retries, task.schedule_by_cron, duly.taskiq]) | labels | commands


def of_duly() -> set[str]:
    app = duly.Duly("redis://localhost:1")
    parts = [
        duly,
        app,
        duly.Queue,
        duly.QueueOptions,
        duly.AsyncDelivery,
        app.task,
        app.queue,
        app.schedule,
        duly.Retry,
    ]
    task = app.task(name="close")(print)
    commands = {"worker", "processes", "concurrency", "memory", "await", "raise", "nightly"}
    commit = inspect.signature(duly.Delivery.commit).parameters
    return names_in([*parts, task, task.result]) | set(SendOptions.__annotations__) | set(commit) | commands


@pytest.mark.parametrize(("page", "known"), [("dramatiq", of_dramatiq), ("taskiq", of_taskiq)])
def test_the_names_of_a_table_exist(page: str, known: Any) -> None:
    theirs, ours = (EXAMPLES | names for names in (known(), of_duly()))
    rows = rows_of(page)

    unknown = {name for each, _ in rows for name in NAME.findall(each)} - theirs
    unknown_here = {name for _, each in rows for name in NAME.findall(each)} - ours

    assert len(rows) > 15
    assert (unknown, unknown_here) == (set(), set())


@pytest.mark.parametrize("page", ["dramatiq", "taskiq"])
def test_both_languages_have_the_same_rows(page: str) -> None:
    assert rows_of(page) == rows_of(page, "zh")
