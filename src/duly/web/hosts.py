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


def parse_host(text: str) -> Host | None:
    """Read the value of a Host header; None: it is not one."""
    found = _HOST.fullmatch(text.lower())
    if found is None:
        return None
    name, port = _normalized(found["name"]), int(found["port"]) if found["port"] else None
    if name is None or (port is not None and port > HIGHEST_PORT):
        return None
    return Host(name, port)


def _normalized(name: str) -> str | None:
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
    hosts = parse_host(found["host"]) if found else None
    if found is None or hosts is None or found["scheme"] != scheme:
        return False
    usual = _PORTS.get(scheme)
    return (hosts.name, hosts.port or usual) == (host.name, host.port or usual)


class AllowedHosts:
    """The names that are answered to: those that were given, any, or those of this machine itself."""

    def __init__(self, hosts: Collection[str] | None, *, allow_any: bool) -> None:
        self._allowed = checked_hosts(hosts)
        self._allow_any = allow_any

    def allows(self, host: Host) -> bool:
        """Whether a request for this host is answered."""
        if self._allowed:
            return host in self._allowed or Host(host.name, None) in self._allowed
        return self._allow_any or is_loopback(host)


def checked_hosts(hosts: Collection[str] | None) -> frozenset[Host]:
    """Read the names that somebody allows; one without a port stands for all ports."""
    texts = [hosts] if isinstance(hosts, str) else list(hosts or ())
    return frozenset(_checked_host(each) for each in texts)


def _checked_host(hosts: object) -> Host:
    text = hosts if isinstance(hosts, str) else ""
    is_bare_ipv6 = text.count(":") > 1 and "[" not in text
    host = parse_host(f"[{text}]" if is_bare_ipv6 else text)
    if host is None:
        raise UsageError(
            f"{hosts!r} is not a host: use a name or an address, with or without a port, like 'q.example:80'"
        )
    return host
