"""One connection for threads, and the primitives that differ between asyncio and threads.

The async counterpart of this file is written by hand. It has no policy: no retries, no backoff.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, ParamSpec, TypeVar

from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from duly._core.address import Kind
from duly._core.call import Arg, packed

P = ParamSpec("P")
T = TypeVar("T")

sleep = time.sleep

_KINDS: Final[Mapping[Kind, Any]] = {
    "tcp": Connection,
    "tls": SSLConnection,
    "unix": UnixDomainSocketConnection,
    "embedded": UnixDomainSocketConnection,
}
UNREACHABLE: Final = (RedisConnectionError, RedisTimeoutError, OSError)
"""Exceptions of a wire if the server cannot be reached or does not answer."""

CONNECT_TIMEOUT: Final = 5.0
LEAVING_TIMEOUT: Final = 1.0
REPLY_TIMEOUT: Final = 5.0
"""Seconds that a server may take to reply. All scripts are bounded, so a server that takes longer is stuck."""


class Gate:
    """Does not limit calls: threads are few, and each has its own connection."""

    def __init__(self, _most: int) -> None:
        """Count nothing."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def in_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that blocks."""
    return function(*args, **kwargs)


def nothing_in_background() -> None:
    """Wait for nothing: there is no background."""


def uninterrupted(result: T, if_abandoned: Callable[[T], object] | None = None) -> T:  # noqa: ARG001
    """Return a result. A thread is not cancelled; where a signal handler may raise, `Link.run_whole` is used."""
    return result


class Bell:
    """Wakes a thread."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def ring(self) -> None:
        """End the current or next wait."""
        self._event.set()

    def wait(self, seconds: float) -> None:
        """Wait up to `seconds` for a ring."""
        self._event.wait(max(seconds, 0))
        self._event.clear()


class Wire:
    """One connection to one server. It raises the exceptions of redis-py, and is closed after one."""

    def __init__(self, kind: Kind, options: Mapping[str, Any], name: str = "") -> None:
        """`name` is for CLIENT LIST. It is ignored if the user may not set a name."""
        make: Any = _KINDS[kind]
        self._connection = make(
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            driver_info=None,
            socket_timeout=REPLY_TIMEOUT,
            socket_connect_timeout=CONNECT_TIMEOUT,
            **options,
        )
        self._introduction = packed([b"CLIENT", b"SETNAME", name]) if name else b""
        """Sent together with the first command, so that the name needs no extra round trip."""
        self.client_id = 0
        """The id for CLIENT UNBLOCK, set for connections that block."""
        self.idle_since: float = 0.0
        """When its last call ended, by the monotonic clock."""

    @property
    def is_open(self) -> bool:
        """Whether it is connected."""
        return bool(self._connection.is_connected)

    def open(self) -> None:
        """Connect."""
        self._connection.connect()

    def ask(self, command: list[Arg], timeout: float = REPLY_TIMEOUT) -> Any:
        """Send a command and read its reply."""
        try:
            introduction = self._introduction
            self._connection.send_packed_command([introduction + packed(command)], check_health=False)
            if introduction:
                self._finish_introduction(timeout)
            if timeout == REPLY_TIMEOUT:  # set on the socket already
                return self._connection.read_response()
            return self._connection.read_response(timeout=timeout)
        except ResponseError:
            raise  # the reply was read completely
        except BaseException:
            self.close()  # a late reply must not be read by the next call
            raise

    def _finish_introduction(self, timeout: float) -> None:
        self._introduction = b""
        with contextlib.suppress(ResponseError):
            self._connection.read_response(timeout=timeout)

    def ask_second(self, first: list[Arg], second: list[Arg]) -> Any:
        """Send two commands in one write, so that the server runs them in a row. Return the reply to the second."""
        try:
            both = packed(first) + packed(second)
            self._connection.send_packed_command([both], check_health=False)
            self._connection.read_response()
            return self._connection.read_response()
        except BaseException:
            self.close()  # a late reply must not be read by the next call, even after an error
            raise

    def begin(self, command: list[Arg]) -> None:
        """Send a command with a slow reply."""
        self._connection.send_packed_command([packed(command)], check_health=False)

    def poll(self, seconds: float) -> bool:
        """Wait up to `seconds` for the reply to `begin`, without reading it."""
        return bool(self._connection.can_read(timeout=max(seconds, 0)))

    def finish(self, timeout: float = REPLY_TIMEOUT) -> Any:
        """Read the reply to `begin`."""
        return self._connection.read_response(timeout=timeout)

    def close(self) -> None:
        """Disconnect. Safe to repeat."""
        self._connection.disconnect()

    def abandon(self) -> None:
        """Disconnect."""
        self.close()

    def hang_up(self) -> None:
        """Abort the connection. A pending read fails."""
        with contextlib.suppress(Exception):
            self._connection._sock.shutdown(socket.SHUT_RDWR)
