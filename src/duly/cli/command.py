"""Registers a function of a session as a command, with the options that all commands share and a graceful stop."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from duly.cli.session import Session
from duly.cli.stop_signals import graceful_stop
from duly.cli.typer_classes import Command

Url = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help="The server. Default: $DULY_URL, else the embedded one in $DULY_HOME or ./.duly."
    ),
]
Namespace = Annotated[str, typer.Option("--namespace", metavar="NAME", help="The prefix of all keys.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

_SHARED: Final = {"url": (Url, None), "namespace": (Namespace, "duly"), "as_json": (AsJson, False)}


def command(
    app: typer.Typer, name: str | None = None, *, starts_server: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function of a session as a command, with the options that all commands share.

    With `starts_server` it starts an embedded server in a directory that has none.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        shared = [
            inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for each, (kind, default) in _SHARED.items()
        ]

        @functools.wraps(function)
        def run(*, url: str | None, namespace: str, as_json: bool, **options: Any) -> None:
            session = Session(url, namespace, as_json=as_json, starts_server=starts_server)
            with graceful_stop():
                try:
                    function(session, **options)
                finally:
                    session.close()

        del run.__wrapped__  # its signature would be used
        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own] + shared
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        app.command(name, cls=Command)(run)
        return function

    return register
