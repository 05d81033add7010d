"""Queues and bindings that any process has declared, in two tables on the server.

A binding of a queue with `x-expires` has an end. Its consumer extends it, and a publisher that finds an old one removes
it together with its queue.
"""

import json
import time
from typing import Any, Final, NamedTuple

import duly
from duly import _port

_QUEUES: Final = "queues"
_SLACK: Final = 60.0
"""Seconds for which an unused binding is kept beyond its time, since clocks of machines differ."""


class Binding(NamedTuple):
    """A row of the table of an exchange, as kombu has it."""

    routing_key: str
    pattern: str | None
    queue: str


class Declarations:
    """The declarations of one namespace."""

    def __init__(self, app: duly.Duly) -> None:
        self._app = app

    def add_queue(self, name: str) -> None:
        """Note that a queue was declared."""
        self._run("HSET", _QUEUES, name, "")

    def has_queue(self, name: str) -> bool:
        """Return whether a queue was declared."""
        return bool(self._run("HEXISTS", _QUEUES, name))

    def queues(self) -> set[str]:
        """Return the names of all queues that were declared."""
        return {name.decode() for name in self._run("HKEYS", _QUEUES)}

    def remove_queue(self, name: str) -> None:
        """Forget a queue."""
        self._run("HDEL", _QUEUES, name)

    def bind(self, exchange: str, binding: Binding, *, expires: float | None, message_ttl: float | None) -> None:
        """Store or extend a binding. `expires`: seconds for which it is kept without a consumer."""
        until = None if expires is None else time.time() + expires + _SLACK
        self._run("HSET", _table_of(exchange), json.dumps(binding), json.dumps([until, message_ttl]))

    def unbind(self, exchange: str, binding: Binding) -> bool:
        """Remove a binding. Return whether it existed."""
        return bool(self._run("HDEL", _table_of(exchange), json.dumps(binding)))

    def clear(self, exchange: str) -> None:
        """Remove all bindings of an exchange."""
        self._run("DEL", _table_of(exchange))

    def bindings(self, exchange: str) -> dict[Binding, float | None]:
        """Return the bindings of an exchange, each with the TTL of messages of its queue."""
        flat = self._run("HGETALL", _table_of(exchange))
        rows = flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True)
        found: dict[Binding, float | None] = {}
        for key, value in rows:
            binding, (until, message_ttl) = Binding(*json.loads(key)), json.loads(value)
            if until is None or until > time.time():
                found[binding] = message_ttl
            elif self.unbind(exchange, binding):
                self._app.queue(_port.encoded_name(binding.queue)).delete()
        return found

    def _run(self, command: str, table: str, *arguments: str) -> Any:
        return _port.kombu_command(self._app, command, table, *arguments)


def _table_of(exchange: str) -> str:
    return f"exchange:{exchange}"
