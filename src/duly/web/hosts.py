"""Host names that the dashboard answers to, and the origin check for web pages. Pure.

With DNS rebinding, an attacker's host name can resolve to this machine, and pages of that name have the same origin.
So the `Host` header of every request must be an expected one.
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
    """A normalized name or address, and the port if there is one."""

    name: str
    port: int | None


def parse_host(text: str) -> Host | None:
    """Parse the value of a Host header. None: it is invalid."""
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
    """Return whether a host is this machine by definition, without asking a name server."""
    if host.name in {"localhost", "[::1]"} or host.name.endswith(".localhost"):
        return True
    try:
        return ipaddress.IPv4Address(host.name).is_loopback
    except ValueError:
        return False


def is_origin_of(origin: str, scheme: str, host: Host) -> bool:
    """Return whether an origin is this scheme and host. The origin `null` matches none."""
    found = _ORIGIN.fullmatch(origin.lower())
    hosts = parse_host(found["host"]) if found else None
    if found is None or hosts is None or found["scheme"] != scheme:
        return False
    usual = _PORTS.get(scheme)
    return (hosts.name, hosts.port or usual) == (host.name, host.port or usual)


class AllowedHosts:
    """The host names that are answered: the given ones, or else any, or else those of the local machine."""

    def __init__(self, hosts: Collection[str] | None, *, allow_any: bool) -> None:
        self._allowed = checked_hosts(hosts)
        self._allow_any = allow_any

    def allows(self, host: Host) -> bool:
        """Return whether requests for this host are answered."""
        if self._allowed:
            return host in self._allowed or Host(host.name, None) in self._allowed
        return self._allow_any or is_loopback(host)


def checked_hosts(hosts: Collection[str] | None) -> frozenset[Host]:
    """Parse the allowed host names. A name without a port allows all ports."""
    texts = [hosts] if isinstance(hosts, str) else list(hosts or ())
    return frozenset(_checked_host(each) for each in texts)


def _checked_host(value: object) -> Host:
    text = value if isinstance(value, str) else ""
    is_bare_ipv6 = text.count(":") > 1 and "[" not in text
    host = parse_host(f"[{text}]" if is_bare_ipv6 else text)
    if host is None:
        raise UsageError(
            f"{value!r} is not a host: use a name or an address, with or without a port, like 'q.example:80'"
        )
    return host
