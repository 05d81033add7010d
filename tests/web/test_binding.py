"""The addresses that a dashboard may listen on, and its host names."""

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
def test_a_public_address_needs_tls_or_a_proxy(host: str) -> None:
    with pytest.raises(UsageError, match=f"--host {host} is reachable from other machines.*--tls-cert.*--behind-proxy"):
        bound(host, allowed=["duly.example.com"])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "::ffff:0.0.0.0", "::ffff:0:0"])
def test_the_unspecified_address_needs_a_host_name(host: str) -> None:
    with pytest.raises(
        UsageError, match=f"--host {host} stands for all addresses: give the name that clients use with --allow-host"
    ):
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
def test_the_host_names_of_a_binding(host: str, allowed: list[str], hosts: list[str]) -> None:
    assert bound(host, behind_proxy=True, allowed=allowed).hosts == hosts


def test_a_loopback_address_needs_no_tls() -> None:
    with bound().listen() as listener:
        host, port = listener.getsockname()
        assert bound().url(listener) == f"http://{host}:{port}/"
        assert bound("localhost").url(listener) == f"http://localhost:{port}/"


def test_the_url_can_be_opened(certificate: Certificate) -> None:
    """The URL has the allowed name for the unspecified address, or the address itself behind a proxy."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        everywhere: dict[str, Any] = {"host": "0.0.0.0", "allowed": ["duly.example.com"]}

        assert bound(**everywhere, certificate=certificate).url(listener) == f"https://duly.example.com:{port}/"
        assert bound(**everywhere, behind_proxy=True).url(listener) == f"http://0.0.0.0:{port}/"


def test_a_port_in_use_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(BindError, match=f"port {port} of 127.0.0.1 is in use: choose another with --port"):
            bound(port=port).listen()


def test_an_address_of_another_machine_is_reported() -> None:
    with pytest.raises(BindError, match=r"cannot listen on port 0 of 192\.0\.2\.1: Cannot assign requested address"):
        bound("192.0.2.1", behind_proxy=True).listen()


@pytest.mark.parametrize("host", ["", "two words", "no-such-host.invalid", "a" * 300])
def test_an_invalid_address_is_rejected(host: str) -> None:
    with pytest.raises(UsageError, match=r"--host: .* is not an address or name of this machine"):
        bound(host)


@pytest.mark.parametrize("port", [-1, 65536])
def test_an_invalid_port_is_rejected(port: int) -> None:
    with pytest.raises(UsageError, match=f"--port: {port} is not a port"):
        bound(port=port)


@pytest.mark.parametrize("name", ["https://duly.example.com", "*", "", "duly.example.com/page"])
def test_an_invalid_host_name_is_rejected(name: str) -> None:
    with pytest.raises(UsageError, match="is not a host"):
        bound(allowed=[name])


def test_invalid_certificate_files_are_rejected(tmp_path: Path, certificate: Certificate) -> None:
    (tmp_path / "text").write_text("no certificate")

    with pytest.raises(UsageError, match=r"--tls-cert: cannot read .*gone: No such file"):
        bound(certificate=Certificate(tmp_path / "gone", certificate.key))
    with pytest.raises(UsageError, match=r"--tls-key: cannot read .*: Is a directory"):
        bound(certificate=Certificate(certificate.certificate, tmp_path))
    with pytest.raises(UsageError, match="are not a certificate and its key, in PEM"):
        bound(certificate=Certificate(tmp_path / "text", certificate.key))


def test_an_encrypted_key_is_rejected_without_a_prompt(tmp_path: Path, certificate: Certificate) -> None:
    locked = tmp_path / "locked.pem"
    subprocess.run(
        ["openssl", "pkey", "-in", certificate.key, "-aes128", "-passout", "pass:secret", "-out", locked],
        check=True, capture_output=True,
    )  # fmt: skip

    with pytest.raises(UsageError, match=r"--tls-key: .*locked\.pem is encrypted with a passphrase"):
        bound(certificate=Certificate(certificate.certificate, locked))
