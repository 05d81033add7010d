"""What the connected user may do, found out without doing it."""

import json
from collections.abc import Mapping
from typing import Any, Final

from duly.acl.rights import commands_of
from duly.acl.roles import OPTIONAL, ROLES
from duly.doctor.asking import Asker
from duly.doctor.facts import Missing, Rights

_KEY: Final = "{key}"
_SAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "blpop": ("BLPOP", _KEY, "0"),
    "del": ("DEL", _KEY),
    "exists": ("EXISTS", _KEY),
    "unlink": ("UNLINK", _KEY),
    "eval": ("EVAL", "return 1", "1", _KEY),
    "evalsha": ("EVALSHA", "0" * 40, "1", _KEY),
    "xread": ("XREAD", "STREAMS", _KEY, "0"),
    "xreadgroup": ("XREADGROUP", "GROUP", "g", "c", "STREAMS", _KEY, ">"),
}
"""Where the key is not the first argument, or not the only one that may be a key."""
_KEYLESS: Final = frozenset({"info", "scan", "select", "time", "wait", "waitaof"})
_TRY: Final = """
local denied = {}
for _, sample in ipairs(cjson.decode(ARGV[1])) do
  local is_known, may = pcall(redis.acl_check_cmd, unpack(sample[2]))
  if is_known and not may then denied[#denied + 1] = sample[1] end
end
return denied
"""
"""Asks the server what it would say; a command that it does not know is no matter of rights."""


def find_rights(asker: Asker, namespace: str, user: str, version: tuple[int, int, int]) -> Rights | Missing:
    """Find out what the user lacks for each role."""
    needs = {name: commands_of(role) - OPTIONAL for name, role in ROLES.items()}
    if isinstance(asker.ask("EVAL", "return 1", 0), Missing):
        return Rights(dict.fromkeys(needs, ("+eval",)))
    if version < (7, 0, 0):
        return _of_all(asker, user, needs)
    denied = _denied(asker, namespace, sorted(set().union(*needs.values())))
    if isinstance(denied, Missing):
        return denied
    return Rights({name: _lacking(namespace, wanted, denied) for name, wanted in needs.items()})


def _denied(asker: Asker, namespace: str, commands: list[str]) -> frozenset[str] | Missing:
    key = f"{namespace}:{{~doctor}}:right"
    samples = [(name, [key if word == _KEY else word for word in _sample(name)]) for name in commands]
    told = asker.ask("EVAL", _TRY, 0, json.dumps(samples))
    return told if isinstance(told, Missing) else frozenset(name.decode() for name in told)


def _sample(command: str) -> tuple[str, ...]:
    words = tuple(command.upper().split("|"))
    if command in _SAMPLES:
        return _SAMPLES[command]
    return (*words, "0") if is_keyless(command) else (*words, _KEY, "1", "1")


def is_keyless(command: str) -> bool:
    """Tell whether a command names no key."""
    return command in _KEYLESS or command.startswith("client|")


def _lacking(namespace: str, wanted: frozenset[str], denied: frozenset[str]) -> tuple[str, ...]:
    """Say what rules are missing. When every command with a key is denied, it is the keys that are missing."""
    lacks, keyed = wanted & denied, {name for name in wanted if not is_keyless(name)}
    if keyed <= lacks:
        return (f"~{namespace}:{{*}}:*", *(f"+{name}" for name in sorted(lacks - keyed)))
    return tuple(f"+{name}" for name in sorted(lacks))


def _of_all(asker: Asker, user: str, needs: Mapping[str, Any]) -> Rights | Missing:
    """Ask an old server for the rules themselves: it cannot try a command. Only those that allow all are understood."""
    told = asker.ask("ACL", "GETUSER", user)
    if isinstance(told, Missing):
        return told
    rules = dict(zip(told[0::2], told[1::2], strict=True))
    if rules.get(b"commands") == b"+@all" and rules.get(b"keys") in ([b"*"], b"~*"):
        return Rights(dict.fromkeys(needs, ()))
    return Missing("the server cannot say what a user may do without doing it")
