"""`duly dashboard`: serves the dashboard, the HTTP API and the metrics. The work is done in duly.web."""

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
from duly._core.observing import attach
from duly.cli.session import PATIENCE, Session
from duly.cli.stop_signals import StopSignals, print_reconnects
from duly.errors import DulyError, UsageError

if TYPE_CHECKING:
    from duly.web.binding import Certificate
    from duly.web.token_file import Token

Host = Annotated[
    str,
    typer.Option("--host", metavar="ADDRESS", help="The address to listen on. Addresses other than loopback need TLS."),
]
Port = Annotated[int, typer.Option("--port", metavar="N", help="The port; 0 chooses a free one.")]
GivenToken = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        help="The access token. Default: $DULY_DASHBOARD_TOKEN, else a generated one, kept in a file.",
    ),
]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="Refuse all changes.")]
BehindProxy = Annotated[
    bool,
    typer.Option("--behind-proxy", help="A proxy in front does TLS; trust X-Forwarded-For and -Proto."),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option("--allow-host", metavar="NAME", help="Also accept this host name in the address. Repeatable."),
]
TlsCert = Annotated[
    Path | None, typer.Option("--tls-cert", metavar="FILE", help="Use TLS with this certificate and its chain, in PEM.")
]
TlsKey = Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="The key of --tls-cert, in PEM.")]
OpenMetrics = Annotated[bool, typer.Option("--open-metrics", help="Serve /metrics without a token.")]


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
    """Serve the dashboard, the HTTP API and the metrics until stopped.

    Example: duly dashboard --port 8080 --read-only

    Prints the address when it listens, a link that signs in once, and a generated token once.
    Later it prints the file in which the token is kept.
    """
    _check_installed()
    _check_given(session, token)
    from duly.web import create_app
    from duly.web.application import sign_in_link
    from duly.web.binding import Binding
    from duly.web.service import Service
    from duly.web.token_file import resolve_token
    from duly.web.trace_context import TraceContext

    where = Binding(
        host=host,
        port=port,
        certificate=_certificate(tls_cert, tls_key),
        behind_proxy=behind_proxy,
        allowed=allow_host or (),
    )
    session.survey().queues()  # fail at once if the server is unreachable
    with where.listen() as listener, StopSignals() as stops:
        shown = duly.AsyncDuly(session.app, namespace=session.namespace, patience=PATIENCE)
        print_reconnects(shown)
        attach(shown, TraceContext())
        chosen = resolve_token(token, os.environ)
        site = create_app(shown, tokens=chosen.text, read_only=read_only, hosts=where.hosts, open_metrics=open_metrics)
        url = where.url(listener)
        # Behind a proxy, the address is another one. Output that is not a terminal may be a log.
        link = sign_in_link(site, url, chosen.text) if sys.stdout.isatty() and not behind_proxy else None
        announce = functools.partial(_announce, session, url, chosen, link)
        service = Service(site, where, on_listening=announce, at_end=shown.aclose)
        with stops.on_stop(service.stop), _log_changes():
            service.run([listener])


@contextmanager
def _log_changes() -> Iterator[None]:
    """Log changes by users on standard error, so that a paused or purged queue can be explained."""
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
    """Raise an error that names the missing extra. The other commands do not need it."""
    try:
        import duly.web.service  # noqa: F401
    except ImportError as error:
        if error.name is not None:  # a broken installation; a missing extra raises an error without a name
            raise
        raise DulyError(str(error)) from error


def _check_given(session: Session, token: str | None) -> None:
    """Check a given token first: it may be invalid, and other users may see it."""
    from duly.web.token_file import VARIABLE, configured_token

    if token:
        session.note(f"other users of this machine can see --token in the list of processes: prefer {VARIABLE}")
    configured_token(token, os.environ)


def _certificate(file: Path | None, key: Path | None) -> Certificate | None:
    from duly.web.binding import Certificate

    if file is None and key is None:
        return None
    if file is None or key is None:
        raise UsageError("--tls-cert and --tls-key belong together: give a certificate and its key")
    return Certificate(file, key)


def _announce(session: Session, url: str, token: Token, link: str | None) -> None:
    """Print the address, the token, and a link that signs in once. A generated token is printed only once."""
    made = token.text if token.is_new else None
    lines = [url]
    if token.path is not None:
        lines.append(f"token {made}, kept in {token.path}" if made else f"the token is in {token.path}")
    if link is not None:
        lines.append(f"sign in once, within 5 minutes: {link}")
    fields = {"url": url, "token": made, "token_file": token.path and str(token.path)}
    session.show(fields, "\n".join(lines))
