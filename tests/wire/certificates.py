"""Certificates for tests, made by the openssl program: an authority, and what it signs."""

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_EC: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class OpensslMissing(Exception):
    """This machine lacks the openssl program."""


@dataclass(frozen=True)
class Certificate:
    """The files of a certificate and its key."""

    file: Path
    key: Path


class Authority:
    """Signs certificates. All files are in one directory."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        if shutil.which("openssl") is None:
            raise OpensslMissing
        self._directory = directory
        self._name = name
        self.file = directory / f"{name}.pem"
        self._key = directory / f"{name}.key"
        subject = ("-x509", "-days", "2", "-subj", f"/CN={name}")
        extensions = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")
        _openssl("req", *_EC, *subject, *extensions, "-keyout", self._key, "-out", self.file)

    def sign(self, names: str, days: int = 2, file: str = "") -> Certificate:
        """Sign a certificate for `names`, such as `DNS:localhost,IP:127.0.0.1`. With negative days, it has expired."""
        stem = self._directory / (file or f"{self._name}-{len(list(self._directory.iterdir()))}")
        request, made = stem.with_suffix(".csr"), Certificate(stem.with_suffix(".crt"), stem.with_suffix(".pem"))
        _openssl("req", *_EC, "-subj", "/CN=of-a-test", "-keyout", made.key, "-out", request)
        extensions = stem.with_suffix(".ext")
        extensions.write_text(f"subjectAltName={names}\nauthorityKeyIdentifier=keyid\nkeyUsage=digitalSignature\n")
        by = ("-CA", self.file, "-CAkey", self._key, "-CAcreateserial", "-extfile", extensions)
        _openssl("x509", "-req", "-in", request, *by, "-days", str(days), "-out", made.file)
        return made

    def server_context(self, certificate: Certificate, *, asks_clients: bool = False) -> ssl.SSLContext:
        """Return the settings of a server with this certificate, which may ask clients for theirs."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.file, certificate.key)
        if asks_clients:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.file)
        return context


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=30)
