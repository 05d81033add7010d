"""Where the server is: URLs read, credentials kept out of sight."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from duly.errors import UsageError

Kind = Literal["tcp", "tls", "unix", "embedded", "memory"]

_PLAIN: Final[Mapping[str, Kind]] = {"redis": "tcp", "valkey": "tcp", "rediss": "tls", "valkeys": "tls", "unix": "unix"}
_LATER: Final = ("redis+sentinel", "valkey+sentinel", "redis+cluster", "valkey+cluster")
_QUERY: Final[Mapping[str, type]] = {
    "db": int,
    "client_name": str,
    "ssl_ca_certs": str,
    "ssl_certfile": str,
    "ssl_keyfile": str,
    "ssl_cert_reqs": str,
    "ssl_check_hostname": bool,
}
_EXAMPLE: Final = "redis://localhost:6379/0"
_ESCAPES: Final = "in a user name or password write @ as %40, : as %3A, / as %2F, # as %23, ? as %3F and % as %25"
_BRACKETS: Final = (
    "an IPv6 address is written redis://[::1]:6379/0; in a user name or password write [ as %5B and ] as %5D"
)


@dataclass(frozen=True)
class Address:
    """One server. `options` are what redis-py's connections take; they are never shown."""

    kind: Kind
    shown: str
    """For people: without user, password and query."""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    place: str = ""
    """The directory of an embedded server, or the name of an in-process store."""


def parse(url: Any) -> Address:
    """Read a URL of section "Connecting" of the API."""
    if isinstance(url, str) and url.strip()[:1] in ("'", '"'):
        raise UsageError("the server address begins with a quotation mark: remove the quotes around it")
    if not isinstance(url, str) or "://" not in url:
        raise UsageError(
            "a server address begins with its scheme, like redis://localhost:6379/0, embedded:///directory or memory://"
        )
    try:
        parts = urlsplit(url)
    except ValueError:
        # The text of the URL stays out of it, here and below: it may hold a password.
        why = _BRACKETS if {"[", "]"} & set(url) else "the name of the host has a character that no name has"
        raise UsageError(f"the server address cannot be read: {why}") from None
    scheme = parts.scheme
    if scheme in _LATER:
        raise UsageError(f"{scheme}:// is not built yet: this version speaks to one server")
    if scheme == "memory":
        name = parts.netloc.rpartition("@")[2]
        return Address("memory", f"memory://{name}", place=name)
    if scheme == "embedded":
        directory = unquote(parts.netloc.rpartition("@")[2] + parts.path)
        if not directory:
            raise UsageError("embedded:// needs a directory: embedded:///var/lib/duly or embedded://./data")
        return _embedded(directory)
    if scheme not in _PLAIN:
        known = ", ".join([*_PLAIN, "embedded", "memory"])
        raise UsageError(f"{scheme}:// is not known: use one of {known}")
    try:
        return _server(scheme, parts)
    except _Unreadable as error:
        raise UsageError(f"the {scheme}:// address cannot be read: {error}") from None


class _Unreadable(Exception):
    """Says what is wrong with an address, without any of its text."""


def _server(scheme: str, parts: SplitResult) -> Address:
    kind = _PLAIN[scheme]
    if kind != "unix":
        _check_host(parts)
    options = _query_options(parts.query)
    if parts.username:
        options["username"] = unquote(parts.username)
    if parts.password:
        options["password"] = unquote(parts.password)
    if kind == "unix":
        options["path"] = unquote(parts.path)
        shown = f"unix://{options['path']}"
        if not options["path"]:
            raise UsageError("unix:// needs the path of a socket: unix:///run/redis.sock")
    else:
        options["host"] = unquote(parts.hostname or "localhost")
        options["port"] = _port_of(parts)
        if parts.path.strip("/"):
            options["db"] = _number(parts.path.strip("/"), "the database")
        shown = f"{scheme}://{options['host']}:{options['port']}/{options.get('db', 0)}"
    return Address(kind, shown, options)


def _check_host(parts: SplitResult) -> None:
    """Find out whether a password has ended the host's part before its time."""
    for sign, rest in (("/", parts.path), ("#", parts.fragment)):
        if "@" in rest:
            raise _ended_by(sign)
    if parts.fragment:
        raise _Unreadable(f"it has no part that begins with #: {_ESCAPES}")


def _ended_by(sign: str) -> _Unreadable:
    return _Unreadable(f"there is a {sign} before an @, where it ends the name of the host: {_ESCAPES}")


def _port_of(parts: SplitResult) -> int:
    try:
        port = 6379 if parts.port is None else parts.port
    except ValueError:
        port = 0
    if not port:
        raise _Unreadable(f"the port must be a number from 1 to 65535, as in {_EXAMPLE}; {_ESCAPES}")
    return port


def _number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise _Unreadable(f"{what} must be a number, as in {_EXAMPLE}")
    return int(text)


def _query_options(query: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _QUERY and "@" in query:
            raise _ended_by("?")
        if name not in _QUERY:
            shown = f"?{name}=" if name.isidentifier() else "what follows the question mark"  # maybe of a password
            raise UsageError(f"{shown} is not known in a server address: use {', '.join(_QUERY)}")
        if _QUERY[name] is int:
            options[name] = _number(value, f"?{name}=")
        else:
            options[name] = value.lower() in ("1", "true", "yes") if _QUERY[name] is bool else value
    return options


def chosen(url: str | None, environment: Mapping[str, str]) -> Address:
    """Choose the server: what is given, else DULY_URL, else the embedded one in DULY_HOME or ./.duly."""
    if url is not None:
        return parse(url)
    if named := environment.get("DULY_URL"):
        try:
            return parse(named)
        except UsageError as error:
            raise UsageError(f"DULY_URL: {error}") from error
    return _embedded(environment.get("DULY_HOME") or ".duly")


def _embedded(directory: str) -> Address:
    place = str(Path(directory).expanduser().absolute())
    return Address("embedded", f"embedded://{place}", place=place)
