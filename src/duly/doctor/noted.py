"""What the server has noted of the last day: its slow log, and what its latency monitor saw."""

from typing import Final

from duly import _lua
from duly._core.keys import head_of
from duly.doctor.asking import Asker
from duly.doctor.facts import Missing, SlowCommand, Stall

_DAY: Final = 86_400
_ROWS: Final = 128


def slow_commands(asker: Asker, namespace: str, server_us: int) -> tuple[SlowCommand, ...] | Missing:
    """Read the slow log."""
    rows = asker.ask("SLOWLOG", "GET", _ROWS)
    if isinstance(rows, Missing):
        return rows
    recent = [row for row in rows if row[1] > server_us / 1_000_000 - _DAY]
    head = head_of(namespace)
    return tuple(
        SlowCommand(_said(row[3]), row[2] / 1_000_000, any(word.startswith(head) for word in row[3])) for row in recent
    )


def stalls(asker: Asker, server_us: int) -> tuple[Stall, ...] | Missing:
    """Read what the latency monitor noted."""
    rows = asker.ask("LATENCY", "LATEST")
    if isinstance(rows, Missing):
        return rows
    recent = [row for row in rows if row[1] > server_us / 1_000_000 - _DAY]
    return tuple(Stall(row[0].decode(errors="replace"), row[3] / 1000) for row in recent)


def _said(words: list[bytes]) -> str:
    """Name a command, and of a script of ours which it is."""
    name = words[0].decode(errors="replace").upper()
    if name == "EVALSHA" and len(words) > 1:
        return f"{name} {_names_by_hash().get(words[1].decode(errors='replace'), '')}".strip()
    return name


def _names_by_hash() -> dict[str, str]:
    kinds: tuple[_lua.Kind, ...] = ("queue", "topic", "group", "freeing")
    return {_lua.script(name, kind).sha: name for name in _lua.names() for kind in kinds}
