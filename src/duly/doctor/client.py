"""A client for the examination: one plain connection, with a time limit for each reply.

A refusal is a reply as well: the caller gets `Missing`, with the reason.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from duly._core.address import Address
from duly._core.resp import Arg, ErrorReply
from duly._core.server import is_unknown_command
from duly._sync.wire import Wire
from duly.doctor.facts import Missing
from duly.errors import ServerError

REPLY_LIMIT: Final = 5.0
"""Seconds that a reply may take, until it is complete."""
_REFUSE_ALL: Final = ("LOADING", "ERR max number of clients")
"""Errors that every command would get."""
_CONTAINERS: Final = (
    "ACL",
    "CLIENT",
    "CLUSTER",
    "COMMAND",
    "CONFIG",
    "LATENCY",
    "MEMORY",
    "SENTINEL",
    "SLOWLOG",
    "XINFO",
)


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
            return self._wire.ask(command, REPLY_LIMIT)
        except ErrorReply as error:
            if error.refuses_login or str(error).startswith(_REFUSE_ALL):
                raise
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
        if "NOPERM" in text:  # at the beginning, or inside the error of a script
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
        yield from _opened(Wire(address.kind, address.options))
        return
    from duly.embedded import open_server

    server = open_server(address.place)
    try:
        yield from _opened(Wire(address.kind, {"path": str(server.socket_path)}))
    finally:
        server.release()


def _opened(wire: Wire) -> Iterator[Wire]:
    try:
        wire.open()
        yield wire
    finally:
        wire.close()
