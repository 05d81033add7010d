"""The commands that a server has. It refuses a whole set of rules if one of them names an unknown command."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from duly._core.resp import ErrorReply
from duly._core.server import read_info
from duly.errors import UsageError

_SINCE: Final = {"waitaof": (7, 2)}
"""Commands of Duly that the oldest supported servers lack, with the version of Redis or Valkey that added them."""

_HAVE_SUBCOMMANDS: Final = (7, 0)
"""Older servers accept rules for any subcommand, without checking it."""

_HAVE_SELECTORS: Final = (7, 0)
"""Since this version a user may have selectors, which grant permissions in addition to its rules."""

_VERSION: Final = re.compile(r"(?:(redis|valkey)[- ])?(\d+)\.(\d+)(?:\.\d+)*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Knowledge:
    """A server's version, and which of Duly's commands it has. `commands` is None if it was not asked."""

    name: str
    version: tuple[int, int]
    commands: frozenset[str] | None = None

    @property
    def title(self) -> str:
        """Product and version, for messages."""
        return f"{self.name} {self.version[0]}.{self.version[1]}"

    @property
    def has_selectors(self) -> bool:
        """Whether users may have selectors."""
        return self.version >= _HAVE_SELECTORS

    def knows(self, command: str) -> bool:
        """Return whether a rule may name a command."""
        if self.commands is not None:
            return command in self.commands
        return self.version >= _SINCE.get(command, (0, 0))


def known_of(server: "str | Mapping[str, str] | Knowledge") -> Knowledge:
    """Parse a version like 7.0 or valkey-9.1, or the reply to INFO."""
    if isinstance(server, Knowledge):
        return server
    if not isinstance(server, str):
        name = "Valkey" if "valkey_version" in server else "Redis"
        return _read(name, server.get("valkey_version") or server.get("redis_version", ""))
    return _read(None, server)


def _read(name: str | None, text: str) -> Knowledge:
    found = _VERSION.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{text!r} is not a version of a server: write one like 7.0, redis-6.2 or valkey-9.1")
    return Knowledge(name or (found.group(1) or "Redis").capitalize(), (int(found.group(2)), int(found.group(3))))


def ask(app: Any, commands: Iterable[str]) -> Knowledge:
    """Ask the server of an app which commands it has. If it refuses to answer, its version decides.

    Of a cluster, all primaries are asked, and what all of them have counts. A node that is away is left out.
    """
    if app._address.kind == "memory":
        raise UsageError("memory:// has no users: name a server by --url, or its version by --server")
    names, router = list(commands), app._link.connections.router
    if app._address.topology != "cluster":
        known: Knowledge = app._link.connections.serving_pool().ask(lambda wire: _read_commands(wire, names))
        return known
    return _common([_ask_node(pool, names) for pool in router.all_pools()])


def _ask_node(pool: Any, commands: list[str]) -> Knowledge | OSError:
    try:
        known: Knowledge = pool.ask(lambda wire: _read_commands(wire, commands))
    except OSError as error:
        return error
    return known


def _common(found: list[Knowledge | OSError]) -> Knowledge:
    """Return the oldest version, and the commands that every node has. Raise if no node answered."""
    known = [each for each in found if isinstance(each, Knowledge)]
    if not known:
        raise next(each for each in found if isinstance(each, OSError))
    oldest = min(known, key=lambda each: each.version)
    told = [each.commands for each in known]
    if None in told:  # then the oldest version decides
        return Knowledge(oldest.name, oldest.version)
    return Knowledge(oldest.name, oldest.version, frozenset.intersection(*(each for each in told if each is not None)))


def _read_commands(wire: Any, commands: list[str]) -> Knowledge:
    known = known_of(read_info(wire.ask([b"INFO", b"server"])))
    names = commands if known.version >= _HAVE_SUBCOMMANDS else [name.partition("|")[0] for name in commands]
    try:
        answers = wire.ask([b"COMMAND", b"INFO", *names])
    except ErrorReply:  # the user may not run COMMAND INFO
        return known
    there = frozenset(name for name, answer in zip(commands, answers, strict=True) if answer)
    return Knowledge(known.name, known.version, there)
