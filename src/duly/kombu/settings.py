"""The options of the transport, and the address of its server."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal
from urllib.parse import quote, urlencode

from duly import _port
from duly.errors import UsageError

Place = Literal["server", "worker"]

_CERT_REQS: Final[Mapping[object, str]] = {0: "none", 1: "optional", 2: "required", None: "none"}


@dataclass(frozen=True)
class TransportOptions:
    """Options of `broker_transport_options`, or of `transport_options` of a `kombu.Connection`.

    - `lease`: Seconds after which a message of a worker that died is redelivered. Workers that live renew it.
    - `delivery_limit`: The number of deliveries after which a requeued message is dead, as in a quorum queue.
    - `crash_limit`: The number of expired leases after which a message is dead; None: as many as `delivery_limit`.
    - `eta`: Where a message waits for its `eta`: on the "server", or in the memory of a "worker" as with other brokers.
    - `expires`: Where an expired message ends: "server" removes it, "worker" delivers it, so that Celery revokes it.
    - `namespace`: The prefix of all keys.
    - `patience`: Seconds that a call retries while the server does not answer. Then kombu retries.
    - `max_message_bytes`: The largest size of a message.
    - `allow_eviction`: Whether to accept a server that may evict keys.
    """

    lease: float = 30.0
    delivery_limit: int = 20
    crash_limit: int | None = None
    eta: Place = "server"
    expires: Place = "server"
    namespace: str = "duly"
    patience: float = 5.0
    max_message_bytes: int = 16 << 20
    allow_eviction: bool = False

    def __post_init__(self) -> None:
        for name in ("eta", "expires"):
            if getattr(self, name) not in ("server", "worker"):
                raise UsageError(
                    f"the transport option {name} must be 'server' or 'worker', not {getattr(self, name)!r}"
                )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "TransportOptions":
        """Read the options, and ignore those of kombu and other transports. Raises UsageError for a misspelt name."""
        known = {field.name for field in fields(cls)}
        for name in given.keys() - known:
            if meant := _port.nearest(name, known):
                raise UsageError(f"the transport of Duly has no option {name!r}.{meant}")
        return cls(**{name: value for name, value in given.items() if name in known})

    @property
    def crashes(self) -> int:
        """The crash limit of queues."""
        return self.delivery_limit if self.crash_limit is None else self.crash_limit


def server_url(client: Any) -> str:
    """Return the address of the server of a `kombu.Connection`, for `duly.Duly`."""
    url = _url_of(client)
    if url.startswith("memory:"):
        raise UsageError(
            "duly+memory:// cannot be a broker, since each connection would have its own: use duly+embedded://"
        )
    return url


def _url_of(client: Any) -> str:
    host = client.hostname or "localhost"
    if "://" not in host:  # after a fail-over, kombu has split the URL
        return _with_tls(_joined(client, host), client.ssl)
    scheme, _, rest = host.removeprefix("duly+").partition("://")
    return _with_tls(f"{'redis' if scheme == 'duly' else scheme}://{rest}", client.ssl)


def shown_url(url: str, *, include_password: bool, mask: str) -> str:
    """Return a URL for logs, with its password masked."""
    scheme, _, rest = url.rpartition("://")
    whole = f"duly+{scheme.removeprefix('duly+')}" if scheme != "duly" else scheme
    if include_password:
        return f"{whole or 'duly'}://{rest}"
    login, at, place = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    place, question, _ = place.partition("?")  # a query may have the password of sentinels
    return f"{whole or 'duly'}://{user}{colon}{mask if colon else ''}{at}{place}{question}{mask if question else ''}"


def _joined(client: Any, host: str) -> str:
    scheme = str(client.transport_cls).partition("+")[2] or "redis"
    login = quote(client.userid or "", safe="")
    if client.password:
        login += f":{quote(client.password, safe='')}"
    place = f"{host}:{client.port}" if client.port else host
    path = quote((client.virtual_host or "").strip("/"))
    return f"{scheme}://{login}{'@' if login else ''}{place}/{path}"


def _with_tls(url: str, ssl: Any) -> str:
    """Add the options of `broker_use_ssl`. They have the same names in a URL of Duly."""
    if not ssl:
        return url
    scheme, _, rest = url.partition("://")
    plain, plus, kind = scheme.partition("+")
    secure = f"{plain if plain.endswith('s') and plain != 'redis' else plain + 's'}{plus}{kind}"
    query = {name: _CERT_REQS.get(value, value) for name, value in ssl.items()} if isinstance(ssl, Mapping) else {}
    if not query:
        return f"{secure}://{rest}"
    return f"{secure}://{rest}{'&' if '?' in rest else '?'}{urlencode(query)}"
