"""One connection for asyncio, and the primitives that differ between asyncio and threads.

The sync counterpart of this file is written by hand. It has no policy: no retries, no backoff.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, ParamSpec, TypeVar

from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from duly._core.address import Kind
from duly._core.call import Arg, packed

P = ParamSpec("P")
T = TypeVar("T")

Gate = asyncio.Semaphore
sleep = asyncio.sleep
in_thread = asyncio.to_thread

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
_background: Final[set[asyncio.Future[Any]]] = set()


async def uninterrupted(work: Awaitable[T], if_abandoned: Callable[[T], Awaitable[object]] | None = None) -> T:
    """Finish `work` even if the caller is cancelled, and then pass its result to `if_abandoned`.

    A call that is cut off would leave a connection with an unread reply, and leased messages without a consumer.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.cancelled():
            await before_leaving(_clean_up(task, if_abandoned))
        raise


async def _clean_up(task: asyncio.Future[T], if_abandoned: Callable[[T], Awaitable[object]] | None) -> None:
    try:
        result = await task
        if if_abandoned is not None:
            await if_abandoned(result)
    except Exception:  # noqa: BLE001, S110 - the caller is gone; the lease or a timeout ends it
        pass


async def before_leaving(work: Awaitable[object]) -> None:
    """Clean up after a cancellation: block briefly, then finish in the background."""
    task = in_background(work)
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.wait({task}, timeout=LEAVING_TIMEOUT)


async def nothing_in_background() -> None:
    """Wait briefly for the background tasks of this event loop."""
    loop, here = asyncio.get_running_loop(), asyncio.current_task()
    if others := {task for task in _background if task.get_loop() is loop and task is not here}:
        await asyncio.wait(others, timeout=LEAVING_TIMEOUT)


def in_background(work: Awaitable[object]) -> asyncio.Future[object]:
    """Run something to its end without waiting for it."""
    task = asyncio.ensure_future(work)
    _background.add(task)
    task.add_done_callback(_background.discard)
    return task


class AsyncBell:
    """Wakes a task from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def ring(self) -> None:
        """End the current or next wait."""
        with contextlib.suppress(RuntimeError):  # its event loop is closed
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float) -> None:
        """Wait up to `seconds` for a ring."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0)):
                await self._event.wait()
        self._event.clear()


class AsyncWire:
    """One connection to one server. It raises the exceptions of redis-py, and is closed after one."""

    def __init__(self, kind: Kind, options: Mapping[str, Any], name: str = "") -> None:
        """`name` is for CLIENT LIST. It is ignored if the user may not set a name."""
        make: Any = _KINDS[kind]
        self._connection = make(
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            driver_info=None,
            socket_timeout=None,
            socket_connect_timeout=CONNECT_TIMEOUT,
            **options,
        )
        self._reading: asyncio.Task[Any] | None = None
        self._naming = packed([b"CLIENT", b"SETNAME", name]) if name else b""
        self._introduction = b""
        """Sent together with the first command after a connect, so that the name needs no extra round trip."""
        self.client_id = 0
        """The id for CLIENT UNBLOCK, set for connections that block."""
        self.idle_since: float = 0.0
        """When its last call ended, by the monotonic clock."""

    @property
    def is_open(self) -> bool:
        """Whether it is connected."""
        return bool(self._connection.is_connected)

    async def open(self) -> None:
        """Connect."""
        if not self.is_open:
            self._introduction = self._naming
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await self._connection.connect()
        except ssl.SSLError as error:
            raise ConnectionError(str(error)) from error

    async def ask(self, command: list[Arg], timeout: float = REPLY_TIMEOUT) -> Any:
        """Send a command and read its reply."""
        try:
            async with asyncio.timeout(timeout):
                introduction = self._introduction
                await self._connection.send_packed_command(introduction + packed(command), check_health=False)
                if introduction:
                    await self._finish_introduction()
                return await self._connection.read_response()
        except ResponseError:
            raise  # the reply was read completely
        except BaseException:
            await self.close()  # a late reply must not be read by the next call
            raise

    async def _finish_introduction(self) -> None:
        self._introduction = b""
        with contextlib.suppress(ResponseError):
            await self._connection.read_response()

    async def ask_second(self, first: list[Arg], second: list[Arg]) -> Any:
        """Send two commands in one write, so that the server runs them in a row. Return the reply to the second."""
        try:
            async with asyncio.timeout(REPLY_TIMEOUT):
                both = packed(first) + packed(second)
                await self._connection.send_packed_command(both, check_health=False)
                await self._connection.read_response()
                return await self._connection.read_response()
        except BaseException:
            await self.close()  # a late reply must not be read by the next call, even after an error
            raise

    async def begin(self, command: list[Arg]) -> asyncio.Task[Any]:
        """Send a command with a slow reply. The task ends when the reply is there, and `finish` returns it."""
        await self._connection.send_packed_command(packed(command), check_health=False)
        self._reading = asyncio.create_task(self._connection.read_response())
        return self._reading

    async def poll(self, seconds: float) -> bool:
        """Wait up to `seconds` for the reply to `begin`, without reading it."""
        assert self._reading is not None
        done, _ = await asyncio.wait({self._reading}, timeout=seconds)
        return bool(done)

    async def finish(self, timeout: float = REPLY_TIMEOUT) -> Any:
        """Read the reply to `begin`."""
        assert self._reading is not None
        reading, self._reading = self._reading, None
        async with asyncio.timeout(timeout):
            return await reading

    async def close(self) -> None:
        """Disconnect. Safe to repeat."""
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        await self._connection.disconnect(nowait=True)

    def abandon(self) -> None:
        """Drop a connection whose event loop has ended, so that nothing can be awaited on it."""
        self._reading = None
        connection = self._connection
        writer = connection._writer
        connection._reader = connection._writer = None
        if writer is None:
            return
        transport: Any = writer.transport
        with contextlib.suppress(Exception):
            try:
                transport.abort()
            except RuntimeError:  # the event loop is closed: close the socket as it would have done
                transport._call_connection_lost(None)

    def hang_up(self) -> None:
        """Abort the connection. A pending read fails."""
        with contextlib.suppress(Exception):
            self._connection._writer.transport.abort()
