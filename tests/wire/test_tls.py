"""TLS: which certificates a wire accepts, its own certificate, and handshakes that fail or stall."""

import shutil
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from duly._core.resp import MalformedReply
from duly.errors import UsageError
from tests.servers import LOOPBACK
from tests.waiting import PATIENCE
from tests.wire.certificates import Authority
from tests.wire.driven import Driven, Driver
from tests.wire.scripted import Peer, ScriptedServer, echo

OURS = "DNS:localhost,IP:127.0.0.1"


@contextmanager
def tls_server(context: ssl.SSLContext) -> Iterator[ScriptedServer]:
    with ScriptedServer(lambda peer: peer.answer_all(echo), tls=context) as server:
        yield server


def opened(driver: Driver, server: ScriptedServer, host: str = LOOPBACK, **options: Any) -> Driven:
    return driver.opened({"host": host, "port": server.port, **options}, kind="tls")


@pytest.mark.parametrize("host", [LOOPBACK, "localhost"])
def test_a_valid_certificate_is_accepted(driver: Driver, authority: Authority, host: str) -> None:
    with tls_server(authority.server_context(authority.sign(OURS))) as server:
        wire = opened(driver, server, host, ssl_ca_certs=str(authority.file))
        assert wire.ask("ECHO", "mine") == b"mine"
        assert wire.ask("ECHO", bytes(1 << 20)) == bytes(1 << 20)


@pytest.mark.parametrize(
    ("names", "days", "is_trusted", "reason"),
    [
        (OURS, -1, True, "certificate has expired"),
        (OURS, 2, False, "certificate verify failed|unable to get local issuer"),
        ("DNS:another.host", 2, True, "IP address mismatch"),
    ],
    ids=["expired", "of an unknown authority", "for another host"],
)
def test_other_certificates_are_refused_with_the_reason(
    driver: Driver, authority: Authority, names: str, days: int, is_trusted: bool, reason: str
) -> None:
    with tls_server(authority.server_context(authority.sign(names, days))) as server:
        options = {"ssl_ca_certs": str(authority.file)} if is_trusted else {}
        with pytest.raises(OSError, match=f"cannot connect to {LOOPBACK}:{server.port}: .*({reason})"):
            opened(driver, server, **options)

        wire = opened(driver, server, ssl_cert_reqs="none")
        assert wire.ask("ECHO", "mine") == b"mine"


def test_an_option_turns_the_check_of_the_host_name_off(driver: Driver, authority: Authority) -> None:
    with tls_server(authority.server_context(authority.sign("DNS:another.host"))) as server:
        wire = opened(driver, server, ssl_ca_certs=str(authority.file), ssl_check_hostname=False)
        assert wire.ask("ECHO", "mine") == b"mine"


def test_a_client_shows_its_certificate(driver: Driver, authority: Authority) -> None:
    context = authority.server_context(authority.sign(OURS), asks_clients=True)
    mine = authority.sign("DNS:client")
    files = {"ssl_certfile": str(mine.file), "ssl_keyfile": str(mine.key)}
    with tls_server(context) as server:
        wire = opened(driver, server, ssl_ca_certs=str(authority.file), **files)
        assert wire.ask("ECHO", "mine") == b"mine"

        with pytest.raises(OSError, match=r"(?i)closed the connection|certificate required|reset by peer|alert|EOF"):
            # With TLS 1.3, a client learns of it when it reads.
            opened(driver, server, ssl_ca_certs=str(authority.file)).ask("ECHO", "mine")


def test_a_certificate_that_is_renewed_on_disk_is_used_by_the_next_connection(
    driver: Driver, authority: Authority, tmp_path: Path
) -> None:
    context = authority.server_context(authority.sign(OURS), asks_clients=True)
    stranger = Authority(tmp_path, "stranger")
    file, key = tmp_path / "client.crt", tmp_path / "client.key"
    options = {"ssl_ca_certs": str(authority.file), "ssl_certfile": str(file), "ssl_keyfile": str(key)}

    def store(issuer: Authority) -> None:
        made = issuer.sign("DNS:client")
        shutil.copy(made.file, file)
        shutil.copy(made.key, key)

    with tls_server(context) as server:
        store(stranger)
        with pytest.raises(OSError, match=r".+"):
            opened(driver, server, **options).ask("ECHO", "mine")
        store(authority)
        assert opened(driver, server, **options).ask("ECHO", "mine") == b"mine"


@pytest.mark.parametrize("option", ["ssl_certfile", "ssl_ca_certs"])
def test_a_file_that_has_gone_is_named(driver: Driver, authority: Authority, tmp_path: Path, option: str) -> None:
    with (
        tls_server(authority.server_context(authority.sign(OURS))) as server,
        pytest.raises(OSError, match=f"{option}.*No such file") as raised,
    ):
        opened(driver, server, **{option: str(tmp_path / "gone.pem")})
    assert "gone.pem" in str(raised.value)


def test_a_file_without_a_certificate_is_named(driver: Driver, authority: Authority) -> None:
    with (
        tls_server(authority.server_context(authority.sign(OURS))) as server,
        pytest.raises(OSError, match="ssl_certfile"),
    ):
        opened(driver, server, ssl_certfile=__file__)


def test_an_option_that_would_not_be_obeyed_is_refused(driver: Driver) -> None:
    with ScriptedServer(Peer.wait_for_end) as server, pytest.raises(UsageError, match="ssl_validate_ocsp"):
        opened(driver, server, ssl_validate_ocsp=True)


@pytest.mark.parametrize("talk", [Peer.stay_silent, Peer.wait_for_end])
def test_a_handshake_that_stalls_ends_at_the_deadline(
    driver: Driver, authority: Authority, monkeypatch: pytest.MonkeyPatch, talk: Any
) -> None:
    monkeypatch.setattr(driver.module, "CONNECT_TIMEOUT", 0.3)
    with ScriptedServer(talk) as server:
        began_at = time.monotonic()
        with pytest.raises(TimeoutError):
            opened(driver, server, ssl_ca_certs=str(authority.file))
        assert time.monotonic() - began_at < 3


def test_a_handshake_that_trickles_ends_at_the_deadline(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def trickle(peer: Peer) -> None:
        peer.socket.recv(1)
        peer.send(b"\x16\x03\x03\x40\x00")  # a record of 16 kB
        for _ in range(200):
            peer.send(b"\x00")
            time.sleep(0.02)

    monkeypatch.setattr(driver.module, "CONNECT_TIMEOUT", 0.3)
    with ScriptedServer(trickle) as server:
        began_at = time.monotonic()
        with pytest.raises(OSError, match=r".+"):
            opened(driver, server)
        assert time.monotonic() - began_at < 2


def test_a_server_without_tls_is_reported(driver: Driver) -> None:
    def talk(peer: Peer) -> None:
        peer.socket.recv(100)
        peer.send(b"-ERR Protocol error: unauthenticated multibulk length\r\n")

    with ScriptedServer(talk) as server, pytest.raises(OSError, match=f"cannot connect to .*:{server.port}: .+"):
        opened(driver, server)


def test_a_server_that_ends_the_handshake_is_reported(driver: Driver) -> None:
    def talk(peer: Peer) -> None:
        peer.socket.recv(10)

    with ScriptedServer(talk) as server, pytest.raises(OSError, match=f"cannot connect to .*:{server.port}: .+"):
        opened(driver, server)


def test_a_server_with_tls_is_reported_by_a_client_without(driver: Driver, authority: Authority) -> None:
    with tls_server(authority.server_context(authority.sign(OURS))) as server:
        wire = driver.wire(server.options, name="duly:client")
        with pytest.raises((OSError, MalformedReply)):
            wire.open()
        assert not wire.is_open


def test_a_reply_that_is_cut_in_a_tls_connection_is_an_error(driver: Driver, authority: Authority) -> None:
    def cut(peer: Peer) -> None:
        peer.command()
        peer.send(b"$5\r\nhel")

    with ScriptedServer(cut, tls=authority.server_context(authority.sign(OURS))) as server:
        wire = opened(driver, server, ssl_ca_certs=str(authority.file))
        with pytest.raises(OSError, match=r"(?i)closed the connection|EOF|reset by peer"):
            wire.ask("PING")
        assert not wire.is_open


def test_a_blocking_call_over_tls_is_polled(driver: Driver, authority: Authority) -> None:
    may_wake = threading.Event()

    def block(peer: Peer) -> None:
        peer.command()
        peer.send(b"+OK\r\n")
        peer.command()
        may_wake.wait(PATIENCE)
        peer.send(b"+woken\r\n")
        peer.answer_all(echo)

    with ScriptedServer(block, tls=authority.server_context(authority.sign(OURS))) as server:
        wire = driver.opened({**server.options, "ssl_ca_certs": str(authority.file)}, kind="tls", name="duly:client")
        wire.begin("BLPOP", "key", 0)
        assert not wire.poll(0.001)
        may_wake.set()
        assert wire.poll(20)
        assert wire.finish() == b"woken"
        assert wire.ask("ECHO", "mine") == b"mine"
