"""The address that a dashboard listens on, and the host names it answers to. Insecure settings are rejected."""

from __future__ import annotations

import errno
import ipaddress
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NoReturn

from duly.errors import DulyError, UsageError
from duly.web.hosts import HIGHEST_PORT, checked_hosts

LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")
_BACKLOG: Final = 2048


class BindError(DulyError):
    """The dashboard cannot listen on its address."""


@dataclass(frozen=True)
class Certificate:
    """The certificate and key for TLS."""

    certificate: Path
    key: Path

    def check(self) -> None:
        """Reject files that cannot be used for TLS, before the first connection."""
        for option, file in (("--tls-cert", self.certificate), ("--tls-key", self.key)):
            try:
                file.open("rb").close()
            except OSError as error:
                raise UsageError(f"{option}: cannot read {file}: {error.strerror}") from None
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key, self._reject_passphrase)
        except ssl.SSLError as error:
            raise UsageError(
                f"{self.certificate} and {self.key} are not a certificate and its key, in PEM: "
                f"{(error.reason or str(error)).lower().replace('_', ' ')}"
            ) from None

    def _reject_passphrase(self) -> NoReturn:
        raise UsageError(f"--tls-key: {self.key} is encrypted with a passphrase: give a key without one")


@dataclass(frozen=True, kw_only=True)
class Binding:
    """An address to listen on. Creating it fails if traffic to that address would not be secure."""

    host: str
    port: int
    certificate: Certificate | None = None
    behind_proxy: bool = False
    """Whether a proxy in front of the dashboard does TLS and reports the client's address."""
    allowed: Sequence[str] = ()
    """Host names that it answers to, in addition to its own."""

    def __post_init__(self) -> None:
        """Check everything that can be checked without listening."""
        if not 0 <= self.port <= HIGHEST_PORT:
            raise UsageError(f"--port: {self.port} is not a port: use 1 to {HIGHEST_PORT}, or 0 for any free port")
        checked_hosts(self.allowed)
        if self.certificate is not None:
            self.certificate.check()
        if not self._ip.is_loopback:
            self._check_public()

    def _check_public(self) -> None:
        if self.certificate is None and not self.behind_proxy:
            raise UsageError(
                f"--host {self.host} is reachable from other machines, and the token would be sent in clear text: give "
                "--tls-cert and --tls-key, or --behind-proxy if a proxy in front does TLS"
            )
        if self._ip.is_unspecified and not self.allowed:
            raise UsageError(
                f"--host {self.host} stands for all addresses: give the name that clients use with --allow-host"
            )

    @property
    def hosts(self) -> list[str]:
        """The host names it answers to. Requests for other names are rejected, which prevents DNS rebinding."""
        loopback = LOOPBACK_NAMES if self._ip.is_loopback else ()
        own_host = () if self._ip.is_unspecified else (self.host.partition("%")[0],)
        return [*loopback, *own_host, *self.allowed]

    def listen(self) -> socket.socket:
        """Open the socket."""
        family, address = self._resolved
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            raise BindError(self._bind_problem(error)) from error
        return listener

    def url(self, listener: socket.socket) -> str:
        """Return the URL to open."""
        uses_allowed_name = self._ip.is_unspecified and not self.behind_proxy
        (host,) = checked_hosts([self.allowed[0] if uses_allowed_name else self.host])
        return f"{'https' if self.certificate else 'http'}://{host.name}:{listener.getsockname()[1]}/"

    def _bind_problem(self, error: OSError) -> str:
        if error.errno == errno.EADDRINUSE:
            return f"port {self.port} of {self.host} is in use: choose another with --port, or 0 for any free port"
        return f"cannot listen on port {self.port} of {self.host}: {error.strerror}"

    @cached_property
    def _resolved(self) -> tuple[socket.AddressFamily, Any]:
        """Resolve the address once, so that the checked address is the one in use."""
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"--host: {self.host!r} is not an address or name of this machine: {reason}") from None
        return found[0][0], found[0][4]

    @cached_property
    def _ip(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
        found = ipaddress.ip_address(self._resolved[1][0])
        # ::ffff:0.0.0.0 is another notation for 0.0.0.0.
        return getattr(found, "ipv4_mapped", None) or found
