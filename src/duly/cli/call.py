"""`duly call`: makes a worker call a task of an app, on the server of the app."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

import duly
from duly.cli import values
from duly.cli.command import AsJson
from duly.cli.output import body_text
from duly.cli.parameters import At, Delay
from duly.cli.send import send_one
from duly.cli.session import PATIENCE, Session
from duly.cli.stop_signals import graceful_stop
from duly.errors import UsageError
from duly.worker.app_loader import App, load_task

Task = Annotated[
    str,
    typer.Argument(
        metavar="TASK", help="The task, as module:app.task or module:function; with --app its name.", show_default=False
    ),
]
Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ARGUMENT",
        help="A value, or NAME=VALUE: JSON, else text. Write '\"a=b\"' for a text with =, and -- before -5.",
        show_default=False,
    ),
]
OfApp = Annotated[
    str | None, typer.Option("--app", metavar="TARGET", help="The app, as module:name. TASK is then a name alone.")
]
Wait = Annotated[
    str | None,
    typer.Option("--wait", metavar="DURATION", help="Wait this long for the result, and print it instead of the id."),
]


def call(
    task: Task,
    arguments: Arguments = None,
    app: OfApp = None,
    delay: Delay = None,
    at: At = None,
    wait: Wait = None,
    as_json: AsJson = False,
) -> None:
    """Make a worker call a task. The arguments are checked before anything is sent.

    Example: duly call shop:app.welcome 42 lang=zh --delay 30m
    """
    options = values.due(delay, at)
    seconds = values.optional_duration(wait, "--wait")
    found = load_task(task, app)
    args, kwargs = _read(arguments or ())
    body = found.definition.encoded(args, kwargs)
    if seconds is not None and found.queue.options.done is None:
        raise UsageError(f"--wait: queue {found.queue.name!r} keeps no results: give it done=duly.Keep(...)")
    session = Session(None, found.app.namespace, as_json=as_json)
    session.app = _own_app(found.app)
    with graceful_stop():
        try:
            queue = session.app._queue(found.queue.name, found.queue.options)
            if seconds is None:
                send_one(session, queue, body, {**options, "id": None})
            else:
                _send_and_wait(session, queue, body, options, seconds)
        finally:
            session.close()


def _own_app(app: App) -> duly.Duly:
    """Connect to the server of a sync or async app, with the patience of a command."""
    if app._address.kind == "memory":
        raise UsageError("the app is on memory://, which no worker in another process sees: set DULY_URL")
    return duly.Duly(app, namespace=app.namespace, allow_eviction=app._allow_eviction, patience=PATIENCE)


def _send_and_wait(session: Session, queue: duly.Queue, body: Any, options: dict[str, Any], seconds: float) -> None:
    id_ = queue.send(body, **options)
    session.note(f"{id_} is stored in {queue.name}")
    result = queue.result(id_, seconds)
    session.show({"queue": queue.name, "id": id_, "result": result}, body_text(result))


def _read(words: Iterable[str]) -> tuple[list[Any], dict[str, Any]]:
    """Parse values and NAME=VALUE."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for word in words:
        name, is_named, text = word.partition("=")
        if not (is_named and name.isidentifier()):
            args.append(values.argument(word))
        elif name in kwargs:
            raise UsageError(f"{name}= is given twice")
        else:
            kwargs[name] = values.argument(text)
    return args, kwargs
