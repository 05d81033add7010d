"""`duly dashboard`: serves the page, the HTTP API and the metrics. Parses and prints; the work is in duly.web."""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import duly
from duly.cli.session import PATIENCE, Session
from duly.cli.stopping import Stops, show_return
from duly.errors import DulyError, UsageError

if TYPE_CHECKING:
    from duly.web.binding import Certificate
    from duly.web.token_file import Token

Host = Annotated[
    str, typer.Option("--host", metavar="ADDRESS", help="Where it listens. Others than this machine's own need TLS.")
]
Port = Annotated[int, typer.Option("--port", metavar="N", help="On which port; 0 takes a free one.")]
GivenToken = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        help="What callers must show. Default: $DULY_DASHBOARD_TOKEN, else one that is made and kept in a file.",
    ),
]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="Refuse everything that changes something.")]
BehindProxy = Annotated[
    bool,
    typer.Option("--behind-proxy", help="A proxy in front of it does TLS; X-Forwarded-For and -Proto are believed."),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option("--allow-host", metavar="NAME", help="Answer under this name as well, as in the address. Repeats."),
]
TlsCert = Annotated[
    Path | None, typer.Option("--tls-cert", metavar="FILE", help="Do TLS with this certificate and its chain, in PEM.")
]
TlsKey = Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="The key of --tls-cert, in PEM.")]
OpenMetrics = Annotated[bool, typer.Option("--open-metrics", help="Show /metrics without a token.")]


def dashboard(
    session: Session,
    host: Host = "127.0.0.1",
    port: Port = 8787,
    token: GivenToken = None,
    read_only: ReadOnly = False,
    behind_proxy: BehindProxy = False,
    allow_host: AllowHost = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    open_metrics: OpenMetrics = False,
) -> None:
    """Serve the dashboard, the HTTP API and the metrics until told to stop.

    Example: duly dashboard --port 8080 --read-only

    Prints the address when it listens, and the token the first time;
    later it says in which file the token is kept.
    """
    _check_installed()
    _check_given(session, token)
    from duly.web import create_app
    from duly.web.binding import Binding
    from duly.web.service import Service
    from duly.web.token_file import resolve_token

    where = Binding(
        host=host,
        port=port,
        certificate=_certificate(tls_cert, tls_key),
        behind_proxy=behind_proxy,
        allowed=allow_host or (),
    )
    session.app.queues()  # a server that is not there is told at once
    with where.listen() as listener, Stops() as stops:
        shown = duly.AsyncDuly(session.app, namespace=session.namespace, patience=PATIENCE)
        show_return(shown)
        chosen = resolve_token(token, os.environ)
        site = create_app(shown, tokens=chosen.text, read_only=read_only, hosts=where.hosts, open_metrics=open_metrics)
        told = functools.partial(_announce, session, where.url(listener), chosen)
        service = Service(site, where, on_listening=told, at_end=shown.aclose)
        with stops.at_once(service.stop), _changes_told():
            service.run([listener])


@contextmanager
def _changes_told() -> Iterator[None]:
    """Show who changes something, on standard error: somebody will ask why a queue stands still, or is empty."""
    log, shown = logging.getLogger("duly.web.changes"), logging.StreamHandler(sys.stderr)
    shown.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    before = log.level, log.propagate
    log.addHandler(shown)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(shown)
        log.level, log.propagate = before


def _check_installed() -> None:
    """Say which extra is missing; the other commands do without it."""
    try:
        import duly.web.service  # noqa: F401
    except ImportError as error:
        if error.name is not None:  # a fault of the installation: the missing extra is told in a sentence of our own
            raise
        raise DulyError(str(error)) from error


def _check_given(session: Session, token: str | None) -> None:
    """Look at a token that is given before anything is done for it: it may be of no use, and others may see it."""
    from duly.web.token_file import VARIABLE, configured_token

    if token:
        session.note(f"others on this machine may see --token in its list of processes: prefer {VARIABLE}")
    configured_token(token, os.environ)


def _certificate(file: Path | None, key: Path | None) -> Certificate | None:
    from duly.web.binding import Certificate

    if file is None and key is None:
        return None
    if file is None or key is None:
        raise UsageError("--tls-cert and --tls-key are given together: a certificate, and the key of it")
    return Certificate(file, key)


def _announce(session: Session, url: str, token: Token) -> None:
    """Say where to go, and what to say there. A new token is shown this once."""
    made = token.text if token.is_new else None
    lines = [url]
    if token.path is not None:
        lines.append(f"token {made}, kept in {token.path}" if made else f"the token is in {token.path}")
    fields = {"url": url, "token": made, "token_file": token.path and str(token.path)}
    session.show(fields, "\n".join(lines))
