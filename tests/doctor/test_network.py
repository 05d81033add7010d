"""Servers that answer late, slowly, or in another protocol: one finding, soon, with a hint."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import duly
from duly._sync import wire
from duly.doctor import Finding, client, examine
from duly.doctor.checks.network import unreachable

Talk = Callable[[socket.socket, threading.Event], None]


@contextmanager
def answering(talk: Talk) -> Iterator[int]:
    """Yield the port of a server that runs `talk` for its first client."""
    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            try:
                connection, _ = listening.accept()
                with connection:
                    talk(connection, is_over)
            except OSError:  # the client has disconnected
                return

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        is_over.set()
        thread.join()


def drip(connection: socket.socket, is_over: threading.Event) -> None:
    connection.recv(1000)
    while not is_over.wait(0.05):
        connection.sendall(b"+")


def stay_silent(_: socket.socket, is_over: threading.Event) -> None:
    is_over.wait(60)


def hang_up(connection: socket.socket, _: threading.Event) -> None:
    connection.recv(1000)


def speak_http(connection: socket.socket, _: threading.Event) -> None:
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def only_finding(url: str) -> Finding:
    with duly.Duly(url) as app:
        (finding,) = examine(app).findings
    assert (finding.name, finding.verdict) == ("connection", "bad")
    return finding


def test_a_server_whose_reply_trickles_in_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "REPLY_LIMIT", 0.5)
    began = time.monotonic()

    with answering(drip) as port:
        finding = only_finding(f"redis://127.0.0.1:{port}/0")

    assert "did not complete a reply" in finding.found
    assert time.monotonic() - began < 5


def test_a_silent_server_may_expect_tls() -> None:
    with duly.Duly("redis://127.0.0.1:1/0") as app:
        finding = unreachable(app._address, TimeoutError("timed out"))

    assert "does not answer" in finding.found
    assert "rediss://" in finding.fix


def test_a_silent_server_may_not_use_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "CONNECT_TIMEOUT", 0.3)

    with answering(stay_silent) as port:
        finding = only_finding(f"rediss://127.0.0.1:{port}/0")

    assert "redis://" in finding.fix


@pytest.mark.parametrize(
    ("scheme", "talk", "hint"),
    [("redis", hang_up, "rediss://"), ("rediss", hang_up, "redis://"), ("rediss", speak_http, "redis://")],
    ids=["hangs-up", "hangs-up-on-tls", "http-on-tls"],
)
def test_a_server_that_disconnects_or_uses_another_protocol_may_differ_in_tls(
    scheme: str, talk: Talk, hint: str
) -> None:
    with answering(talk) as port:
        finding = only_finding(f"{scheme}://127.0.0.1:{port}/0")

    assert hint in finding.fix


def test_a_refused_connection_does_not_suggest_tls() -> None:
    assert "rediss" not in only_finding("redis://127.0.0.1:1/0").fix
