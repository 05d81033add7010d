"""Where a dashboard listens, and under which names it answers. Whom it is open to is said on purpose, or refused."""

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
    """The dashboard cannot listen where it was told to."""


@dataclass(frozen=True)
class Certificate:
    """What TLS is done with."""

    certificate: Path
    key: Path

    def check(self) -> None:
        """Refuse files that TLS cannot be done with, before anybody asks."""
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
        raise UsageError(f"--tls-key: {self.key} is locked by a passphrase that nobody is there to type: give it open")


@dataclass(frozen=True, kw_only=True)
class Binding:
    """Where to listen: made only if what goes over the wire there is safe."""

    host: str
    port: int
    certificate: Certificate | None = None
    behind_proxy: bool = False
    """Whether something in front of it does TLS, and tells who asks."""
    allowed: Sequence[str] = ()
    """Names that it answers under, besides its own."""

    def __post_init__(self) -> None:
        """Check all that can be without listening."""
        if not 0 <= self.port <= HIGHEST_PORT:
            raise UsageError(f"--port: {self.port} is no port: 1 to {HIGHEST_PORT}, or 0 for any that is free")
        checked_hosts(self.allowed)
        if self.certificate is not None:
            self.certificate.check()
        if not self._ip.is_loopback:
            self._check_public()

    def _check_public(self) -> None:
        if self.certificate is None and not self.behind_proxy:
            raise UsageError(
                f"--host {self.host} is reached from other machines, where the token would be read on its way: give "
                "--tls-cert and --tls-key, or --behind-proxy if something in front of it does TLS"
            )
        if self._ip.is_unspecified and not self.allowed:
            raise UsageError(
                f"--host {self.host} has no name of its own: say with --allow-host under which name it is reached"
            )

    @property
    def hosts(self) -> list[str]:
        """The names that it answers under: a page elsewhere that has its name point here is refused."""
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
        """Write the address to open."""
        uses_allowed_name = self._ip.is_unspecified and not self.behind_proxy
        (host,) = checked_hosts([self.allowed[0] if uses_allowed_name else self.host])
        return f"{'https' if self.certificate else 'http'}://{host.name}:{listener.getsockname()[1]}/"

    def _bind_problem(self, error: OSError) -> str:
        if error.errno == errno.EADDRINUSE:
            return f"port {self.port} of {self.host} is taken: name another with --port, or 0 for any that is free"
        return f"cannot listen on port {self.port} of {self.host}: {error.strerror}"

    @cached_property
    def _resolved(self) -> tuple[socket.AddressFamily, Any]:
        """Find the one address to listen on, once: what was checked is what is used."""
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"--host: {self.host!r} is no address or name of this machine: {reason}") from None
        return found[0][0], found[0][4]

    @cached_property
    def _ip(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
        found = ipaddress.ip_address(self._resolved[1][0])
        # ::ffff:0.0.0.0 is 0.0.0.0 in other words.
        return getattr(found, "ipv4_mapped", None) or found
