"""A client for the examination: one plain connection, with a time limit for each reply.

A refusal is a reply as well: the caller gets `Missing`, with the reason.
"""

import math
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from redis.exceptions import NoPermissionError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from duly._core.address import Address, Kind
from duly._core.call import Arg
from duly._core.server import is_unknown_command
from duly._sync.wire import REPLY_TIMEOUT, Wire
from duly.doctor.facts import Missing
from duly.errors import ServerError

REPLY_LIMIT: Final = 10.0
"""Seconds that one reply may take in total."""
_CHECK_INTERVAL: Final = 0.1

_CONTAINERS: Final = ("ACL", "CLIENT", "CLUSTER", "COMMAND", "CONFIG", "LATENCY", "MEMORY", "SLOWLOG", "XINFO")


class Busy(ServerError):
    """A script has been running for so long that the server rejects all other commands."""


class Client:
    """A connection to the server under examination."""

    def __init__(self, wire: Wire, namespace: str) -> None:
        self._wire = wire
        self._namespace = namespace

    def ask(self, *command: Arg) -> Any:
        """Run a command. Returns `Missing` if the server refuses it, and raises all other errors."""
        try:
            return self._wire.ask(list(command))
        except NoPermissionError as error:
            return self._forbidden(command, str(error))
        except ResponseError as error:
            return self._refused(command, str(error))

    def _forbidden(self, command: tuple[Arg, ...], text: str) -> Missing:
        name = _name(command)
        if "key" in text.lower() and "command" not in text.lower():
            return Missing(
                f"the user may not use the keys of the namespace with {_title(name)}", f"~{self._namespace}:{{*}}:*"
            )
        return Missing(f"the user may not run {_title(name)}", f"+{name}")

    def _refused(self, command: tuple[Arg, ...], text: str) -> Missing:
        name = _name(command)
        if "NOPERM" in text:  # inside a script
            return self._forbidden(command, text)
        if text.startswith("BUSY"):
            raise Busy(text)
        if is_unknown_command(text):
            return Missing(f"the server does not offer {_title(name)}")
        return Missing(f"the server refuses {_title(name)}: {text}")


def _name(command: tuple[Arg, ...]) -> str:
    """Name a command as ACL rules do: config|get."""
    words = [str(word) for word in command[:2]]
    return "|".join(words[: 2 if words[0] in _CONTAINERS else 1]).lower()


def _title(name: str) -> str:
    return name.replace("|", " ").upper()


@contextmanager
def connected(address: Address) -> Iterator[Wire]:
    """Connect to a server, even to one that an app would refuse. Starts an embedded server that is not running."""
    if address.kind != "embedded":
        yield from _opened(BoundedWire(address.kind, address.options))
        return
    from duly.embedded import open_server

    server = open_server(address.place)
    try:
        yield from _opened(BoundedWire(address.kind, {"path": str(server.socket_path)}))
    finally:
        server.release()


def _opened(wire: Wire) -> Iterator[Wire]:
    try:
        wire.open()
        yield wire
    finally:
        wire.close()


class Unfinished(RedisTimeoutError):
    """A reply began, and was not complete within `REPLY_LIMIT`."""


class BoundedWire(Wire):
    """A wire that disconnects when a reply takes too long in total.

    The time-out of a socket is not enough: each byte that arrives restarts it, so a reply may trickle in forever.
    """

    def __init__(self, kind: Kind, options: Mapping[str, Any]) -> None:
        super().__init__(kind, options)
        self._ends_at = math.inf
        self._is_closed = threading.Event()

    def open(self) -> None:
        """Connect."""
        threading.Thread(target=self._watch, name="duly-doctor", daemon=True).start()
        with self._bounded():
            super().open()

    def ask(self, command: list[Arg], timeout: float = REPLY_TIMEOUT) -> Any:
        """Send a command and read its reply."""
        with self._bounded():
            return super().ask(command, timeout)

    def close(self) -> None:
        """Disconnect. Safe to repeat."""
        self._is_closed.set()
        super().close()

    @contextmanager
    def _bounded(self) -> Iterator[None]:
        self._ends_at = ends_at = time.monotonic() + REPLY_LIMIT
        try:
            yield
        except (RedisError, OSError) as error:
            if time.monotonic() < ends_at:
                raise
            raise Unfinished(str(error)) from error
        finally:
            self._ends_at = math.inf

    def _watch(self) -> None:
        while not self._is_closed.wait(_CHECK_INTERVAL):
            if time.monotonic() >= self._ends_at:
                self.hang_up()
