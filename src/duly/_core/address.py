"""The address of the server: parse URLs, and hide credentials."""

import inspect
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from duly._core.topology import Node
from duly.errors import UsageError

Kind = Literal["tcp", "tls", "unix", "embedded", "memory"]
Topology = Literal["single", "sentinel", "cluster"]

_PLAIN: Final[Mapping[str, Kind]] = {"redis": "tcp", "valkey": "tcp", "rediss": "tls", "valkeys": "tls", "unix": "unix"}
_LISTING: Final[Mapping[str, tuple[Kind, Topology]]] = {
    f"{plain}+{topology}": (_PLAIN[plain], topology)
    for plain in ("redis", "valkey", "rediss", "valkeys")
    for topology in ("sentinel", "cluster")
}
"""The schemes of addresses that list several hosts."""
_PORTS: Final[Mapping[Topology, int]] = {"single": 6379, "sentinel": 26379, "cluster": 6379}
_QUERY: Final[Mapping[str, type]] = {
    "db": int,
    "client_name": str,
    "ssl_ca_certs": str,
    "ssl_certfile": str,
    "ssl_keyfile": str,
    "ssl_cert_reqs": str,
    "ssl_check_hostname": bool,
}
_OF_SENTINELS: Final[Mapping[str, type]] = {"sentinel_username": str, "sentinel_password": str}
_FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "ssl_cert_reqs": ("required", "optional", "none"),
    "ssl_check_hostname": ("true", "yes", "1", "false", "no", "0"),
}
_YES: Final = ("true", "yes", "1")
_QUOTES: Final = tuple("'\"`\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb")
_MOST_DIGITS: Final = 9
_EXAMPLE: Final = "redis://localhost:6379/0"
_ESCAPES: Final = "in a user name, password or path write @ as %40, : as %3A, / as %2F, # as %23, ? as %3F and % as %25"
_BRACKETS: Final = (
    "an IPv6 address is written redis://[::1]:6379/0; in a user name or password write [ as %5B and ] as %5D"
)


_PARTS: Final = re.compile(r"([^/?#]*)([^?#]*)\??([^#]*)#?(.*)", re.DOTALL)
"""The hosts with user and password, the path, the query and the fragment of an address, after its `://`."""
_HOST: Final = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::([^:]*))?")
"""A host, an IPv6 address in brackets, and a port."""
_HOST_NAME: Final = re.compile(rb"[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Address:
    """One server, or all servers of a sentinel service or a cluster. `options` and `sentinel_options` are never shown.

    With several servers, `options` are for connections to any node that stores data, without a host and a port.
    """

    kind: Kind
    """How to connect. To nodes and sentinels alike."""
    shown: str
    """The address for logs and errors, without user, password and query."""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    place: str = ""
    """The directory of an embedded server, or the name of an in-process store."""
    is_default: bool = False
    """Whether it is the embedded server in ./.duly, because neither the program nor the environment names one."""
    topology: Topology = "single"
    seeds: tuple[Node, ...] = ()
    """The sentinels to ask for the primary, or the nodes to ask for the others of their cluster."""
    service: str = ""
    """The name that sentinels have for the primary."""
    sentinel_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """As `options`, for connections to sentinels."""

    def reaches_the_same_as(self, other: "Address") -> bool:
        """Return whether both addresses are of the same servers. Sentinels and nodes may be named in any order."""
        one, another = (replace(each, shown="", seeds=tuple(sorted(each.seeds))) for each in (self, other))
        return one == another


def parse(url: Any) -> Address:
    """Parse the URL of a server."""
    parts = _split(url)
    scheme = parts.scheme
    if scheme == "memory":
        name = parts.netloc.rpartition("@")[2]
        return Address("memory", f"memory://{name}", place=name)
    if scheme == "embedded":
        directory = unquote(parts.netloc.rpartition("@")[2] + parts.path)
        if not directory:
            raise UsageError("embedded:// needs a directory: embedded:///var/lib/duly or embedded://./data")
        return _embedded(directory)
    if scheme not in _PLAIN and scheme not in _LISTING:
        known = ", ".join([*_PLAIN, "embedded", "memory"])
        raise UsageError(f"{scheme}:// is not known: use one of {known}")
    try:
        return _several(scheme, parts) if scheme in _LISTING else _server(scheme, parts)
    except _Unreadable as error:
        raise UsageError(f"the {scheme}:// address cannot be read: {error}") from None


def _split(url: Any) -> SplitResult:
    text = url.strip() if isinstance(url, str) else ""
    if text.startswith(_QUOTES):
        raise UsageError("the server address begins with a quotation mark: remove the quotes around it")
    scheme, _, rest = text.partition("://")
    if scheme.lower() in _LISTING and (found := _PARTS.fullmatch(rest)):  # `urlsplit` refuses some lists of hosts
        return SplitResult(scheme.lower(), *found.groups())
    try:
        parts = urlsplit(text)
    except ValueError:
        # No error quotes the text of the URL: it may hold a password.
        why = _BRACKETS if {"[", "]"} & set(text) else "the host name has a character that is not allowed"
        raise UsageError(f"the server address cannot be read: {why}") from None
    if "://" not in text or not parts.scheme:
        raise UsageError(
            "a server address begins with its scheme, like redis://localhost:6379/0, embedded:///directory or memory://"
        )
    return parts


class _Unreadable(Exception):
    """Describes an invalid address without quoting a part that may belong to a password."""


def _server(scheme: str, parts: SplitResult) -> Address:
    kind = _PLAIN[scheme]
    _check_signs(kind, parts)
    if kind != "unix" and "," in _hosts_of(parts):
        raise _Unreadable(
            "it names several hosts: use redis+cluster://host1:7000,host2:7001 for the nodes of a cluster, or "
            "redis+sentinel://host1:26379,host2:26379/mymaster for sentinels"
        )
    options = {**_query_options(scheme, kind, parts.query), **_credentials(parts)}
    if kind == "unix":
        options["path"] = unquote(parts.path)
        shown = f"unix://{options['path']}"
        if not options["path"]:
            raise UsageError("unix:// needs the path of a socket: unix:///run/redis.sock")
    else:
        options["host"] = _host_of(parts)
        options["port"] = _port_of(parts)
        if parts.path.strip("/"):
            options["db"] = _database_of(parts, options.get("db"))
        shown = f"{scheme}://{options['host']}:{options['port']}/{options.get('db', 0)}"
    return Address(kind, shown, options)


def _several(scheme: str, parts: SplitResult) -> Address:
    kind, topology = _LISTING[scheme]
    _check_signs(kind, parts)
    options = {**_query_options(scheme, kind, parts.query), **_credentials(parts)}
    seeds = tuple(dict.fromkeys(_seed(text, topology) for text in _hosts_of(parts).split(",")))
    shown = f"{scheme}://{','.join(map(str, seeds))}"
    if topology == "cluster":
        _check_database_of_cluster(parts, options.pop("db", 0))
        return Address(kind, shown, options, topology=topology, seeds=seeds)
    service, database = _service_of(parts), options.get("db", 0)
    shown += f"/{service}?db={database}" if database else f"/{service}"
    at_sentinels = _checked_credentials(options.pop("sentinel_username", ""), options.pop("sentinel_password", ""))
    at_sentinels |= {name: value for name, value in options.items() if name.startswith("ssl_")}
    return Address(kind, shown, options, topology=topology, seeds=seeds, service=service, sentinel_options=at_sentinels)


def _check_database_of_cluster(parts: SplitResult, asked: int) -> None:
    if asked or parts.path.strip("/") not in ("", "0"):
        raise UsageError(
            "a cluster has database 0 only, and no service name: write redis+cluster://host1:7000,host2:7001"
        )


def _service_of(parts: SplitResult) -> str:
    service = unquote(parts.path.strip("/"))
    if not service:
        raise _Unreadable(
            "it lacks the name that the sentinels have for the primary, as in redis+sentinel://host1,host2/mymaster"
        )
    if "/" in service:
        raise _Unreadable("there is a second slash after the name of the service: give the database as ?db=0")
    if not service.isprintable():
        raise _Unreadable("the name of the service has a character that is not allowed")
    return service


def _hosts_of(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2] or "localhost"


def _seed(text: str, topology: Topology) -> Node:
    """Read one of several hosts."""
    found = _HOST.fullmatch(text)
    if found is None:
        raise _Unreadable(_BRACKETS)
    host, port = found.groups()
    if not host:
        raise _Unreadable(f"between two commas, or after one, there is no host name; {_ESCAPES}")
    return Node(_ipv6(host[1:-1]) if host[0] == "[" else _host_name(host), _port(port or str(_PORTS[topology])))


def _ipv6(text: str) -> str:
    try:
        return str(ipaddress.IPv6Address(unquote(text)))
    except ValueError:
        raise _Unreadable(_BRACKETS) from None


def _host_name(text: str) -> str:
    host = _checked_host(unquote(text).lower())
    if not _HOST_NAME.fullmatch(host.encode("idna")):
        raise _Unreadable(f"the host name has a character that is not allowed; {_ESCAPES}")
    return host


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and 1 <= int(text) <= 65535):
        raise _wrong_port()
    return int(text)


def _credentials(parts: SplitResult) -> dict[str, str]:
    return _checked_credentials(unquote(parts.username or ""), unquote(parts.password or ""))


def _checked_credentials(username: str, password: str) -> dict[str, str]:
    given = {"username": username, "password": password}
    try:
        "".join(given.values()).encode()
    except UnicodeEncodeError:
        raise _Unreadable("the user name or the password is not valid Unicode text") from None
    return {name: text for name, text in given.items() if text}


def _check_signs(kind: Kind, parts: SplitResult) -> None:
    """Raise if a character of the password ends the host's part too early."""
    may_have_at = kind == "unix" and not parts.netloc  # unix:///run/me@here has no password that could be cut
    for sign, rest in (("/", "" if may_have_at else parts.path), ("#", parts.fragment)):
        if "@" in rest:
            raise _ended_by(sign)
    if parts.fragment:
        raise _Unreadable(f"an address cannot have a part that begins with #: {_ESCAPES}")
    if kind == "unix" and parts.netloc.rpartition("@")[2]:
        raise _Unreadable("the path of the socket begins with a slash, as in unix:///run/redis.sock")


def _ended_by(sign: str) -> _Unreadable:
    return _Unreadable(f"there is a {sign} before an @, which ends the host name: {_ESCAPES}")


def _host_of(parts: SplitResult) -> str:
    return _checked_host(unquote(parts.hostname or "localhost"))


def _checked_host(host: str) -> str:
    try:
        host.encode("idna")  # as name resolution does
    except UnicodeError:
        raise _Unreadable("each part of the host name, between its dots, must have 1 to 63 characters") from None
    return host


def _port_of(parts: SplitResult) -> int:
    try:
        port = _PORTS["single"] if parts.port is None else parts.port
    except ValueError:
        port = 0
    if not port:
        raise _wrong_port()
    return port


def _wrong_port() -> _Unreadable:
    return _Unreadable(f"the port must be a number from 1 to 65535, as in {_EXAMPLE}; {_ESCAPES}")


def _database_of(parts: SplitResult, asked: int | None) -> int:
    database = _number(parts.path.strip("/"), "the database")
    if asked not in (None, database):
        raise _Unreadable("it names two databases, one after the slash and one with ?db=: leave one of them out")
    return database


def _number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise _Unreadable(f"{what} must be a number, as in {_EXAMPLE}")
    if len(text) > _MOST_DIGITS:
        raise _Unreadable(f"{what} must be a number of at most {_MOST_DIGITS} digits, as in {_EXAMPLE}")
    return int(text)


def _query_options(scheme: str, kind: Kind, query: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    _, plus, topology = scheme.partition("+")
    known = {**_QUERY, **_OF_SENTINELS} if topology == "sentinel" else _QUERY
    for name, value in parse_qsl(query.replace("+", "%2B"), keep_blank_values=True):  # + means itself
        if name in _OF_SENTINELS and name not in known:
            raise _Unreadable(f"?{name}= is for sentinels: use redis+sentinel:// or valkey+sentinel://")
        if name not in known and "@" in query:
            raise _ended_by("?")
        if name not in known:
            raise UsageError(f"{_shown_name(name, query)} is not known in a server address: use {', '.join(known)}")
        if name.startswith("ssl_") and kind != "tls":
            raise _Unreadable(f"?{name}= is for TLS: use rediss{plus}{topology}:// or valkeys{plus}{topology}://")
        options[name] = _option(name, value)
    if "ssl_keyfile" in options and "ssl_certfile" not in options:
        raise _Unreadable("?ssl_keyfile= is the key of a certificate: pass ssl_certfile= as well")
    return options


def _shown_name(name: str, query: str) -> str:
    """Show the name of an unknown option, unless it may be a part of a password."""
    if "sentinel_password" in query:
        return "a text after the question mark (in a password, write & as %26)"
    return f"?{name}=" if name.isidentifier() else "the text after the question mark"


def _option(name: str, text: str) -> Any:
    if _QUERY.get(name) is int:
        return _number(text, f"?{name}=")
    if name in _FILES:
        return _readable_file(name, text)
    if name not in _CHOICES:
        return text
    chosen_one = text.lower()
    if chosen_one not in _CHOICES[name]:
        raise _Unreadable(f"?{name}= must be one of {', '.join(_CHOICES[name])}")
    return chosen_one in _YES if _QUERY[name] is bool else chosen_one


def _readable_file(name: str, file: str) -> str:
    """Check the file now: later errors would name neither file nor option, and would blame the server."""
    try:
        with Path(file).open("rb"):
            return file
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise _Unreadable(f"?{name}={file} cannot be read: {why}") from None


def chosen(url: str | None, environment: Mapping[str, str]) -> Address:
    """Choose the server: the given URL, else DULY_URL, else the embedded one in DULY_HOME or ./.duly."""
    if url is not None:
        return parse(url)
    if named := environment.get("DULY_URL"):
        try:
            return parse(named)
        except UsageError as error:
            raise UsageError(f"DULY_URL: {error}") from error.__cause__
    if home := environment.get("DULY_HOME"):
        return _embedded(home)
    return replace(_embedded(".duly"), is_default=True)


def with_credentials(address: Address, credentials: Any) -> Address:
    """Return the address with a function that returns user and password for each new connection."""
    if not callable(credentials):
        raise UsageError(f"credentials must be a function, not {type(credentials).__name__}")
    if inspect.iscoroutinefunction(credentials):
        raise UsageError("credentials must be a plain function, not a coroutine function: it is called in a thread")
    if address.kind in ("embedded", "memory"):
        raise UsageError(f"credentials are for a server with a login, not for {address.shown}")
    return replace(address, options={**address.options, "credentials": credentials})


def _embedded(directory: str) -> Address:
    place = str(Path(directory).expanduser().absolute())
    return Address("embedded", f"embedded://{place}", place=place)
