"""Under which names the dashboard answers, and whether a web page that calls it is its own. Pure.

A name that anybody may point at this machine (DNS rebinding) makes a stranger's page one of the same origin. So the
`Host` of every request must be one that is expected.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from typing import Final, NamedTuple

from duly.errors import UsageError

_HOST: Final = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?\.?)(?::(?P<port>[0-9]{0,5}))?")
_ORIGIN: Final = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>[^/?#@\\]+)")
_PORTS: Final = {"http": 80, "https": 443}
HIGHEST_PORT: Final = 65535


class Host(NamedTuple):
    """A name or an address, in one spelling, and the port if one was given."""

    name: str
    port: int | None


def read_host(text: str) -> Host | None:
    """Read the value of a Host header; None: it is not one."""
    found = _HOST.fullmatch(text.lower())
    if found is None:
        return None
    name, port = _one_spelling(found["name"]), int(found["port"]) if found["port"] else None
    if name is None or (port is not None and port > HIGHEST_PORT):
        return None
    return Host(name, port)


def _one_spelling(name: str) -> str | None:
    if not name.startswith("["):
        return name.removesuffix(".")
    try:
        return f"[{ipaddress.IPv6Address(name[1:-1])}]"
    except ValueError:
        return None


def is_loopback(host: Host) -> bool:
    """Whether a host is this machine, whatever a name server says."""
    if host.name in {"localhost", "[::1]"} or host.name.endswith(".localhost"):
        return True
    try:
        return ipaddress.IPv4Address(host.name).is_loopback
    except ValueError:
        return False


def is_origin_of(origin: str, scheme: str, host: Host) -> bool:
    """Whether a page of an origin was served by this scheme and host. `null` is the origin of none."""
    found = _ORIGIN.fullmatch(origin.lower())
    given = read_host(found["host"]) if found else None
    if found is None or given is None or found["scheme"] != scheme:
        return False
    usual = _PORTS.get(scheme)
    return (given.name, given.port or usual) == (host.name, host.port or usual)


class Hosts:
    """The names that are answered to: those that were given, any, or those of this machine itself."""

    def __init__(self, given: Collection[str] | None, *, else_any: bool) -> None:
        self._allowed = checked_hosts(given)
        self._else_any = else_any

    def allows(self, host: Host) -> bool:
        """Whether a request for this host is answered."""
        if self._allowed:
            return host in self._allowed or Host(host.name, None) in self._allowed
        return self._else_any or is_loopback(host)


def checked_hosts(given: Collection[str] | None) -> frozenset[Host]:
    """Read the names that somebody allows; one without a port stands for all ports."""
    texts = [given] if isinstance(given, str) else list(given or ())
    return frozenset(_checked_host(each) for each in texts)


def _checked_host(given: object) -> Host:
    text = given if isinstance(given, str) else ""
    is_bare_ipv6 = text.count(":") > 1 and "[" not in text
    host = read_host(f"[{text}]" if is_bare_ipv6 else text)
    if host is None:
        raise UsageError(
            f"{given!r} is not a host: use a name or an address, with or without a port, like 'q.example:80'"
        )
    return host
