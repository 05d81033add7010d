"""The transport: a connection of kombu to a server, with its channels and the thread that fetches messages."""

import contextlib
import os
import time
import weakref
from typing import Any, Final

from kombu.transport import virtual

import duly
from duly import _port
from duly.kombu.channel import Channel
from duly.kombu.declarations import Binding, Declarations
from duly.kombu.fetcher import Fetcher
from duly.kombu.settings import TransportOptions, server_url, shown_url
from duly.kombu.subscription import Feed

_EXTEND_EVERY: Final = 3.0
"""Seconds between two extensions of the bindings of queues with `x-expires`."""

_ATTEMPTS: Final = 4
"""Attempts to connect that fit into the timeout of kombu."""


class Transport(virtual.Transport):  # type: ignore[misc]
    """A transport for kombu. It claims to be of the type `redis`, by which Celery chooses what a broker can do."""

    Channel = Channel
    can_parse_url = True
    default_port = 6379
    driver_type = "redis"
    driver_name = "duly"
    connection_errors: tuple[Any, ...] = (*virtual.Transport.connection_errors, OSError, duly.Unavailable)
    channel_errors: tuple[Any, ...] = (*virtual.Transport.channel_errors, duly.LeaseLost)
    implements: Any = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"])
    )

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self.options: TransportOptions = TransportOptions.of(client.transport_options)
        self.queue_arguments: dict[str, dict[str, Any]] = {}
        """How each queue was declared on this connection."""
        self.feeds: dict[str, Feed] = {}
        """The queues that get the messages of a fanout exchange from its topic."""
        self._expiring: dict[tuple[str, Binding], tuple[float, float | None]] = {}
        self._extend_at = 0.0
        self._pipe: _Pipe | None = None
        self._queues: dict[str, duly.Queue[bytes]] = {}
        self._open()

    def driver_version(self) -> str:
        """Return the version of Duly."""
        return str(duly.__version__)

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:  # noqa: FBT001, FBT002 - kombu calls it so
        """Return the address of the server for logs."""
        url = uri if self.client is None else server_url(self.client)
        return shown_url(url, include_password=include_password, mask=mask)

    # Connecting

    def _open(self) -> None:
        options = self.options
        self.app: duly.Duly = duly.Duly(
            server_url(self.client),
            namespace=options.namespace,
            patience=options.patience,
            max_message_bytes=options.max_message_bytes,
            allow_eviction=options.allow_eviction,
        )
        self.declarations: Declarations = Declarations(self.app)
        this = weakref.ref(self)

        def extend() -> None:
            if (transport := this()) is not None:
                transport.extend_bindings()

        self.fetcher: Fetcher = Fetcher(self.app, options.lease, extend)
        self._queues.clear()
        weakref.finalize(self, _end, self.fetcher, self.app, os.getpid()).atexit = False

    def establish_connection(self) -> Any:
        """Connect to the server. Raises Unavailable if it does not answer in time."""
        if self.app.is_closed:
            self._open()
        # kombu spends the whole timeout on all hosts of a list, and on all attempts.
        _port.check_server(self.app, (self.client.connect_timeout or self.options.patience) / _ATTEMPTS)
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        """Close all channels, stop fetching, and disconnect."""
        super().close_connection(connection)
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        _end(self.fetcher, self.app, os.getpid())

    def queue(self, name: str) -> duly.Queue[bytes]:
        """Return the queue of Duly for a queue of kombu."""
        found = self._queues.get(name)
        if found is None:
            found = self._queues[name] = self.app.queue(
                _port.encoded_name(name), lease=self.options.lease, crash_limit=self.options.crashes
            )
        return found

    def bind(self, exchange: str, binding: Binding, *, expires: float | None, message_ttl: float | None) -> None:
        """Store a binding. One that expires is extended while this connection is open."""
        if expires is not None:
            self._expiring[exchange, binding] = expires, message_ttl
        self.declarations.bind(exchange, binding, expires=expires, message_ttl=message_ttl)

    def unbind(self, exchange: str, binding: Binding) -> None:
        """Remove a binding."""
        self._expiring.pop((exchange, binding), None)
        self.declarations.unbind(exchange, binding)

    def extend_bindings(self) -> None:
        """Extend the bindings of queues with `x-expires`, every few seconds."""
        if not self._expiring or time.monotonic() < self._extend_at:
            return
        self._extend_at = time.monotonic() + _EXTEND_EVERY
        for (exchange, binding), (expires, message_ttl) in list(self._expiring.items()):
            self.declarations.bind(exchange, binding, expires=expires, message_ttl=message_ttl)

    # Delivering

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:  # noqa: ARG002
        """Call consumers with their messages. Raises socket.timeout if there are none within `timeout` seconds."""
        if not self.fetcher.deliver(timeout):
            raise TimeoutError

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:  # noqa: ARG002
        """Let the event loop of a worker deliver messages."""
        if self._pipe is None:
            self._pipe = _Pipe()
        pipe, fetcher = self._pipe, self.fetcher

        def deliver() -> None:
            pipe.empty()
            fetcher.deliver(0)

        loop.add_reader(pipe, deliver)
        fetcher.on_ready = pipe.write
        fetcher.signal()

    def unregister_from_event_loop(self, connection: Any, loop: Any) -> None:  # noqa: ARG002
        """Leave the event loop."""
        self.fetcher.on_ready = None
        if self._pipe is not None:
            loop.remove_reader(self._pipe)


class _Pipe:
    """Wakes the event loop from another thread."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        for end in (self._reader, self._writer):
            os.set_blocking(end, False)

    def fileno(self) -> int:
        """Return the end that the event loop watches."""
        return self._reader

    def write(self) -> None:
        """Wake the event loop. A full pipe wakes it anyway, and a closed one has none."""
        with contextlib.suppress(OSError):
            os.write(self._writer, b".")

    def empty(self) -> None:
        """Take all that was written."""
        with contextlib.suppress(OSError):
            while os.read(self._reader, 4096):
                pass

    def close(self) -> None:
        """Close both ends."""
        os.close(self._reader)
        os.close(self._writer)


def _end(fetcher: Fetcher, app: duly.Duly, pid: int) -> None:
    """Stop fetching and disconnect, in the process that has connected."""
    if pid == os.getpid() and fetcher.is_ours:
        fetcher.stop()
        app.close()
