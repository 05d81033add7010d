"""Where a dashboard may listen, and under which names it answers there."""

import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from duly.errors import UsageError
from duly.web.binding import BindError, Binding, Certificate

OWN = ["localhost", "127.0.0.1", "::1"]


def bound(host: str = "127.0.0.1", port: int = 0, **options: Any) -> Binding:
    return Binding(host=host, port=port, **options)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    if shutil.which("openssl") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("openssl makes the certificate of this test")
    place = tmp_path_factory.mktemp("tls")
    made = Certificate(place / "cert.pem", place / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-subj", "/CN=localhost", "-keyout", made.key, "-out", made.certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    return made


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "0", "192.0.2.1", "::ffff:0.0.0.0", "::ffff:192.0.2.1"])
def test_an_open_address_needs_tls_or_a_proxy(host: str) -> None:
    with pytest.raises(UsageError, match=f"--host {host} is reached from other machines.*--tls-cert.*--behind-proxy"):
        bound(host, allowed=["duly.example.com"])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "::ffff:0.0.0.0", "::ffff:0:0"])
def test_an_address_that_is_all_of_them_needs_a_name(host: str) -> None:
    with pytest.raises(UsageError, match=f"--host {host} has no name of its own: say with --allow-host"):
        bound(host, behind_proxy=True)


@pytest.mark.parametrize(
    ("host", "allowed", "hosts"),
    [
        ("127.0.0.1", [], [*OWN, "127.0.0.1"]),
        ("127.0.0.5", [], [*OWN, "127.0.0.5"]),
        ("localhost", ["duly.example.com"], [*OWN, "localhost", "duly.example.com"]),
        ("192.0.2.1", ["duly.example.com"], ["192.0.2.1", "duly.example.com"]),
        ("192.0.2.1", [], ["192.0.2.1"]),
        ("::ffff:192.0.2.1", [], ["::ffff:192.0.2.1"]),
        ("::ffff:127.0.0.1", [], [*OWN, "::ffff:127.0.0.1"]),
        ("0.0.0.0", ["duly.example.com"], ["duly.example.com"]),
    ],
)
def test_the_names_it_answers_under(host: str, allowed: list[str], hosts: list[str]) -> None:
    assert bound(host, behind_proxy=True, allowed=allowed).hosts == hosts


def test_a_page_of_this_machine_needs_nothing() -> None:
    with bound().listen() as listener:
        host, port = listener.getsockname()
        assert bound().url(listener) == f"http://{host}:{port}/"
        assert bound("localhost").url(listener) == f"http://localhost:{port}/"


def test_the_address_is_one_that_can_be_opened(certificate: Certificate) -> None:
    """Where it listens on all, that is a name; a proxy is told where it listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        everywhere: dict[str, Any] = {"host": "0.0.0.0", "allowed": ["duly.example.com"]}

        assert bound(**everywhere, certificate=certificate).url(listener) == f"https://duly.example.com:{port}/"
        assert bound(**everywhere, behind_proxy=True).url(listener) == f"http://0.0.0.0:{port}/"


def test_a_taken_port_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(BindError, match=f"port {port} of 127.0.0.1 is taken: name another with --port"):
            bound(port=port).listen()


def test_an_address_of_another_machine_is_told() -> None:
    with pytest.raises(BindError, match=r"cannot listen on port 0 of 192\.0\.2\.1: Cannot assign requested address"):
        bound("192.0.2.1", behind_proxy=True).listen()


@pytest.mark.parametrize("host", ["", "two words", "no-such-host.invalid", "a" * 300])
def test_what_is_no_address_is_refused(host: str) -> None:
    with pytest.raises(UsageError, match=r"--host: .* is no address or name of this machine"):
        bound(host)


@pytest.mark.parametrize("port", [-1, 65536])
def test_what_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(UsageError, match=f"--port: {port} is no port"):
        bound(port=port)


@pytest.mark.parametrize("name", ["https://duly.example.com", "*", "", "duly.example.com/page"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not a host"):
        bound(allowed=[name])


def test_files_that_are_no_certificate_are_refused(tmp_path: Path, certificate: Certificate) -> None:
    (tmp_path / "text").write_text("no certificate")

    with pytest.raises(UsageError, match=r"--tls-cert: cannot read .*gone: No such file"):
        bound(certificate=Certificate(tmp_path / "gone", certificate.key))
    with pytest.raises(UsageError, match=r"--tls-key: cannot read .*: Is a directory"):
        bound(certificate=Certificate(certificate.certificate, tmp_path))
    with pytest.raises(UsageError, match="are not a certificate and its key, in PEM"):
        bound(certificate=Certificate(tmp_path / "text", certificate.key))


def test_a_key_that_is_locked_is_refused_without_asking(tmp_path: Path, certificate: Certificate) -> None:
    locked = tmp_path / "locked.pem"
    subprocess.run(
        ["openssl", "pkey", "-in", certificate.key, "-aes128", "-passout", "pass:secret", "-out", locked],
        check=True, capture_output=True,
    )  # fmt: skip

    with pytest.raises(UsageError, match=r"--tls-key: .*locked\.pem is locked by a passphrase"):
        bound(certificate=Certificate(certificate.certificate, locked))
