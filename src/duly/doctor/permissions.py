"""What the server can do and the connected user may do, found out without doing it."""

import json
from collections.abc import Mapping
from typing import Any, Final

from duly._core.keys import ProbeKeys
from duly.acl.grants import commands_of
from duly.acl.roles import OPTIONAL, ROLES, Role
from duly.doctor.client import Asker
from duly.doctor.facts import Missing, Rights, Version

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
_IF_ASKED_FOR: Final = frozenset({"client|setname", "select"})
"""A client does without a name, and selects a database only when its address has one."""
_TRY: Final = """
if not redis.acl_check_cmd then return redis.error_reply('ERR nothing can be tried') end
local denied, unknown = {}, {}
for _, sample in ipairs(cjson.decode(ARGV[1])) do
  local is_known, may = pcall(redis.acl_check_cmd, unpack(sample[2]))
  local found = is_known and denied or unknown
  if not (is_known and may) then found[#found + 1] = sample[1] end
end
return {denied, unknown}
"""
"""Asks the server what it would say. A command that it does not know is no matter of rights."""


def needed_by(role: Role) -> frozenset[str]:
    """Name the commands without which a role does not work, as the server lists them: XGROUP, whatever part of it."""
    return frozenset(name.partition("|")[0].upper() for name in commands_of(role) - OPTIONAL - _IF_ASKED_FOR)


def find_absent(asker: Asker, namespace: str) -> frozenset[str] | Missing:
    """Find out which of the commands that Duly uses the server does not have. Who may not ask for them tries them."""
    names = sorted(frozenset().union(*map(needed_by, ROLES.values())))
    told = asker.ask("COMMAND", "INFO", *names)
    if not isinstance(told, Missing):
        return frozenset(name for name, row in zip(names, told, strict=True) if not row)
    tried = _tried(asker, namespace, sorted(frozenset().union(*map(commands_of, ROLES.values()))))
    if isinstance(tried, Missing):
        return told
    return frozenset(name.partition("|")[0].upper() for name in tried[1]) & frozenset(names)


def find_rights(asker: Asker, namespace: str, user: str, version: Version) -> Rights | Missing:
    """Find out what the user lacks for each role."""
    needs = {name: commands_of(role) - OPTIONAL for name, role in ROLES.items()}
    if isinstance(asker.ask("EVAL", "return 1", 0), Missing):
        return Rights(dict.fromkeys(needs, ("+eval",)))
    if version < (7, 0, 0):
        return _by_rules(asker, user, needs)
    tried = _tried(asker, namespace, sorted(set().union(*needs.values())))
    if isinstance(tried, Missing):
        return tried
    return Rights({name: _lacking(namespace, wanted, tried[0]) for name, wanted in needs.items()})


def _tried(asker: Asker, namespace: str, commands: list[str]) -> tuple[frozenset[str], frozenset[str]] | Missing:
    """Name the commands that the user may not run, and those that the server does not know."""
    key = ProbeKeys(namespace).key("right").decode()
    samples = [(name, [key if word == _KEY else word for word in _sample(name)]) for name in commands]
    told = asker.ask("EVAL", _TRY, 0, json.dumps(samples))
    if isinstance(told, Missing):
        return told
    denied, unknown = (frozenset(name.decode() for name in names) for names in told)
    return denied, unknown


def _sample(command: str) -> tuple[str, ...]:
    words = tuple(command.upper().split("|"))
    if command in _SAMPLES:
        return _SAMPLES[command]
    return (*words, "0") if _is_keyless(command) else (*words, _KEY, "1", "1")


def _is_keyless(command: str) -> bool:
    """Tell whether a command names no key."""
    return command in _KEYLESS or command.startswith("client|")


def _lacking(namespace: str, wanted: frozenset[str], denied: frozenset[str]) -> tuple[str, ...]:
    """Say what rules are missing. When every command with a key is denied, it is the keys that are missing."""
    lacks, keyed = wanted & denied, {name for name in wanted if not _is_keyless(name)}
    if keyed <= lacks:
        return (f"~{namespace}:{{*}}:*", *(f"+{name}" for name in sorted(lacks - keyed)))
    return tuple(f"+{name}" for name in sorted(lacks))


def _by_rules(asker: Asker, user: str, needs: Mapping[str, Any]) -> Rights | Missing:
    """Ask an old server for the rules themselves: it cannot try a command. Only those that allow all are understood."""
    told = asker.ask("ACL", "GETUSER", user)
    if isinstance(told, Missing):
        return told
    rules = dict(zip(told[0::2], told[1::2], strict=True))
    if rules.get(b"commands") == b"+@all" and rules.get(b"keys") in ([b"*"], b"~*"):
        return Rights(dict.fromkeys(needs, ()))
    return Missing("the server cannot say what a user may do without doing it")
