"""What a server knows: a rule that names a command which it does not know makes it refuse all rules at once."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from redis.exceptions import ResponseError

from duly._core.server import read_info
from duly.errors import UsageError

_SINCE: Final = {"waitaof": (7, 2)}
"""Commands of ours that came after the oldest servers that Duly runs on, with the version of Redis and Valkey alike."""

_HAVE_SUBCOMMANDS: Final = (7, 0)
"""Before this, servers know no subcommands, and take a rule for any."""

_HAVE_SELECTORS: Final = (7, 0)
"""From this on a user may have rights beside its own rules, which these do not take away."""

_VERSION: Final = re.compile(r"(?:(redis|valkey)[- ])?(\d+)\.(\d+)(?:\.\d+)*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What is known of a server. `commands`: those of ours that it said to know; None: it was not asked."""

    name: str
    version: tuple[int, int]
    commands: frozenset[str] | None = None

    @property
    def title(self) -> str:
        """The server, for people."""
        return f"{self.name} {self.version[0]}.{self.version[1]}"

    @property
    def has_selectors(self) -> bool:
        """Whether users may have selectors."""
        return self.version >= _HAVE_SELECTORS

    def knows(self, command: str) -> bool:
        """Tell whether a rule may name a command."""
        if self.commands is not None:
            return command in self.commands
        return self.version >= _SINCE.get(command, (0, 0))


def known_of(server: "str | Mapping[str, str] | Knowledge") -> Knowledge:
    """Read which server it is: a version like 7.0 or valkey-9.1, or the answer to INFO."""
    if isinstance(server, Knowledge):
        return server
    if not isinstance(server, str):
        name = "Valkey" if "valkey_version" in server else "Redis"
        return _read(name, server.get("valkey_version") or server.get("redis_version", ""))
    return _read(None, server)


def _read(name: str | None, text: str) -> Knowledge:
    found = _VERSION.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{text!r} is no version of a server: write one like 7.0, redis-6.2 or valkey-9.1")
    return Knowledge(name or (found.group(1) or "Redis").capitalize(), (int(found.group(2)), int(found.group(3))))


def ask(app: Any, commands: Iterable[str]) -> Knowledge:
    """Ask the server of an app which of some commands it knows. One that does not tell is judged by its version."""
    link = app._link
    if app._address.kind == "memory":
        raise UsageError("memory:// has no users: name a server by --url, or its version by --server")
    with link.connections.gate:
        slot = link.connections.take()
        try:
            return _asked(link.connections.opened(slot), list(commands))
        finally:
            link.connections.give(slot)


def _asked(wire: Any, commands: list[str]) -> Knowledge:
    known = known_of(read_info(wire.ask([b"INFO", b"server"])))
    asked = commands if known.version >= _HAVE_SUBCOMMANDS else [name.partition("|")[0] for name in commands]
    try:
        answers = wire.ask([b"COMMAND", b"INFO", *asked])
    except ResponseError:  # this user may not ask
        return known
    there = frozenset(name for name, answer in zip(commands, answers, strict=True) if answer)
    return Knowledge(known.name, known.version, there)
