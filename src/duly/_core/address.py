"""Where the server is: URLs read, credentials kept out of sight."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

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
    if not isinstance(url, str) or "://" not in url:
        raise UsageError(
            "a server address begins with its scheme, like redis://localhost:6379/0, embedded:///directory or memory://"
        )
    try:
        parts = urlsplit(url)
    except ValueError as error:
        # The text of the URL stays out of it: it may hold a password.
        raise UsageError(f"the server address cannot be read: {type(error).__name__}") from None
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
    except UsageError:
        raise
    except ValueError as error:
        raise UsageError(f"the {scheme}:// address cannot be read: {type(error).__name__}") from None


def _server(scheme: str, parts: Any) -> Address:
    kind = _PLAIN[scheme]
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
        options["port"] = parts.port or 6379
        if parts.path.strip("/"):
            options["db"] = int(parts.path.strip("/"))
        shown = f"{scheme}://{options['host']}:{options['port']}/{options.get('db', 0)}"
    return Address(kind, shown, options)


def _query_options(query: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _QUERY:
            shown = f"?{name}=" if name.isidentifier() else "what follows the question mark"  # maybe of a password
            raise UsageError(f"{shown} is not known in a server address: use {', '.join(_QUERY)}")
        kind = _QUERY[name]
        options[name] = value.lower() in ("1", "true", "yes") if kind is bool else kind(value)
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
