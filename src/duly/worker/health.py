"""Serves `/healthz` and `/metrics` of a worker, or of all children of a supervisor, in their own thread.

A handler that blocks the event loop does not block the answers.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, NamedTuple, Self

from duly.errors import UsageError
from duly.worker.logs import event
from duly.worker.vitals import QueueVitals, Vitals

_LOG: Final = logging.getLogger("duly.worker")

ReadVitals = Callable[[], Sequence[Vitals]]
_PLAIN: Final = "text/plain; charset=utf-8"
_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"
_TIMEOUT: Final = 5.0
"""Seconds that a client may take to send its request."""


class HealthServer:
    """An HTTP server for probes. `read` returns the state of each process of the worker, and may take a second."""

    def __init__(self, host: str, port: int, read: ReadVitals) -> None:
        """Open the port, so that a wrong one is reported before the worker starts."""

        class Handler(_Handler):
            vitals = staticmethod(read)

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except (OSError, OverflowError) as error:
            raise UsageError(f"--health: cannot listen on {host}:{port}: {error}. Choose another port") from error
        self._server.daemon_threads = True
        self._host = host

    @property
    def port(self) -> int:
        """The port. It is chosen by the system if 0 was given."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, name="duly-health", daemon=True).start()
        event(_LOG, logging.INFO, "worker.health", host=self._host or "all addresses", port=self.port)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """Answers one probe."""

    vitals: ReadVitals
    timeout = _TIMEOUT
    server_version = "duly"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer `GET`."""
        path = self.path.partition("?")[0]
        if path == "/healthz":
            self._answer(*_health(self.vitals()), _PLAIN)
        elif path == "/metrics":
            self._answer(HTTPStatus.OK, _metrics(self.vitals()), _METRICS)
        else:
            self._answer(HTTPStatus.NOT_FOUND, "there are /healthz and /metrics\n", _PLAIN)

    do_HEAD = do_GET  # noqa: N815, the name that the base class calls

    def _answer(self, status: HTTPStatus, text: str, kind: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log no probes."""


def _health(processes: Sequence[Vitals]) -> tuple[HTTPStatus, str]:
    troubles = [
        f"process {number} (pid {each.pid}): {each.trouble}\n"
        for number, each in enumerate(processes, 1)
        if each.trouble is not None
    ]
    return (HTTPStatus.SERVICE_UNAVAILABLE, "".join(troubles)) if troubles else (HTTPStatus.OK, "ok\n")


class _Metric(NamedTuple):
    """A metric of each process, or of each queue of each process."""

    name: str
    kind: str
    description: str
    samples: Callable[[Vitals], Iterable[tuple[str, float]]]
    """Returns the values, each with its labels besides `process`."""


def _one(number: Callable[[Vitals], float]) -> Callable[[Vitals], Iterable[tuple[str, float]]]:
    return lambda vitals: [("", number(vitals))]


def _by_queue(number: Callable[[QueueVitals], float]) -> Callable[[Vitals], Iterable[tuple[str, float]]]:
    return lambda vitals: [(f',queue="{each.name}"', number(each)) for each in vitals.queues]


_ALL: Final = (
    _Metric("healthy", "gauge", "Whether the process polls and its server answers.", _one(lambda v: v.trouble is None)),
    _Metric("concurrency", "gauge", "Handlers that the process runs at once.", _one(lambda v: v.concurrency)),
    _Metric("rolled_back_total", "counter", "Calls that a server confirmed and lost.", _one(lambda v: v.rolled_back)),
    _Metric("in_flight", "gauge", "Messages that the process holds.", _by_queue(lambda q: q.in_flight)),
    _Metric("handled_total", "counter", "Messages that the process has settled.", _by_queue(lambda q: q.handled)),
    _Metric("last_poll_seconds", "gauge", "Seconds since the process polled.", _by_queue(lambda q: q.last_poll)),
)


def _metrics(processes: Sequence[Vitals]) -> str:
    """Return the metrics in the text format of Prometheus. Processes have numbers, which outlive their ids."""
    lines: list[str] = []
    for metric in _ALL:
        name = f"duly_process_{metric.name}"
        lines += [f"# HELP {name} {metric.description}", f"# TYPE {name} {metric.kind}"]
        lines += [
            f'{name}{{process="{number}"{labels}}} {float(value):g}'
            for number, each in enumerate(processes, 1)
            for labels, value in metric.samples(each)
        ]
    return "\n".join(lines) + "\n"
