"""The commands that the server has and the connected user may run, found out without running them."""

import json
from collections.abc import Mapping
from typing import Any, Final

from duly._core.keys import ProbeKeys
from duly.acl.grants import commands_of
from duly.acl.roles import OPTIONAL, ROLES, Role
from duly.doctor.client import Client
from duly.doctor.facts import Missing, Permissions, Version

_KEY: Final = "{key}"
_SAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "blpop": ("BLPOP", _KEY, "0"),
    "del": ("DEL", _KEY),
    "exists": ("EXISTS", _KEY),
    "mget": ("MGET", _KEY),
    "unlink": ("UNLINK", _KEY),
    "eval": ("EVAL", "return 1", "1", _KEY),
    "evalsha": ("EVALSHA", "0" * 40, "1", _KEY),
    "xread": ("XREAD", "STREAMS", _KEY, "0"),
    "xreadgroup": ("XREADGROUP", "GROUP", "g", "c", "STREAMS", _KEY, ">"),
}
"""Sample calls of commands whose key is not the first argument, or whose arguments are all keys."""
_KEYLESS: Final = frozenset({"info", "role", "scan", "select", "time", "wait", "waitaof"})
_ON_REQUEST: Final = frozenset({"client|setname", "select"})
"""Commands that a client sends only if its address has a name or a database."""
_CHECK_SCRIPT: Final = """
if not redis.acl_check_cmd then return redis.error_reply('ERR redis.acl_check_cmd is missing') end
local denied, unknown = {}, {}
for _, sample in ipairs(cjson.decode(ARGV[1])) do
  local is_known, may = pcall(redis.acl_check_cmd, unpack(sample[2]))
  local found = is_known and denied or unknown
  if not (is_known and may) then found[#found + 1] = sample[1] end
end
return {denied, unknown}
"""
"""Asks the server whether it would allow each command. Commands that it does not have are returned separately."""


def needed_by(role: Role) -> frozenset[str]:
    """Return the commands that a role cannot do without, as the server lists them: XGROUP without its subcommand."""
    return frozenset(name.partition("|")[0].upper() for name in commands_of(role) - OPTIONAL - _ON_REQUEST)


def find_absent_commands(client: Client, namespace: str) -> frozenset[str] | Missing:
    """Return the commands of Duly that the server lacks. If COMMAND INFO is not allowed, a script checks them."""
    names = sorted(frozenset().union(*map(needed_by, ROLES.values())))
    reply = client.ask("COMMAND", "INFO", *names)
    if not isinstance(reply, Missing):
        return frozenset(name for name, row in zip(names, reply, strict=True) if not row)
    tried = _try_commands(client, namespace, sorted(frozenset().union(*map(commands_of, ROLES.values()))))
    if isinstance(tried, Missing):
        return reply
    return frozenset(name.partition("|")[0].upper() for name in tried[1]) & frozenset(names)


def find_permissions(client: Client, namespace: str, user: str, version: Version) -> Permissions | Missing:
    """Return the rules that the user lacks for each role."""
    needs = {name: commands_of(role) - OPTIONAL for name, role in ROLES.items()}
    if isinstance(client.ask("EVAL", "return 1", 0), Missing):
        return Permissions(dict.fromkeys(needs, ("+eval",)))
    if version < (7, 0, 0):
        return _from_rules(client, user, needs)
    tried = _try_commands(client, namespace, sorted(set().union(*needs.values())))
    if isinstance(tried, Missing):
        return tried
    return Permissions({name: _lacking(namespace, wanted, tried[0]) for name, wanted in needs.items()})


def _try_commands(
    client: Client, namespace: str, commands: list[str]
) -> tuple[frozenset[str], frozenset[str]] | Missing:
    """Return the commands that the user may not run, and those that the server does not have."""
    key = ProbeKeys(namespace).key("right").decode()
    samples = [(name, [key if word == _KEY else word for word in _sample(name)]) for name in commands]
    reply = client.ask("EVAL", _CHECK_SCRIPT, 0, json.dumps(samples))
    if isinstance(reply, Missing):
        return reply
    denied, unknown = (frozenset(name.decode() for name in names) for names in reply)
    return denied, unknown


def _sample(command: str) -> tuple[str, ...]:
    words = tuple(command.upper().split("|"))
    if command in _SAMPLES:
        return _SAMPLES[command]
    return (*words, "0") if _is_keyless(command) else (*words, _KEY, "1", "1")


def _is_keyless(command: str) -> bool:
    """Return whether a command has no key."""
    return command in _KEYLESS or command.startswith("client|")


def _lacking(namespace: str, wanted: frozenset[str], denied: frozenset[str]) -> tuple[str, ...]:
    """Return the missing rules. If every command with a key is denied, the rule for the keys is missing."""
    lacks, keyed = wanted & denied, {name for name in wanted if not _is_keyless(name)}
    if keyed <= lacks:
        return (f"~{namespace}:{{*}}:*", *(f"+{name}" for name in sorted(lacks - keyed)))
    return tuple(f"+{name}" for name in sorted(lacks))


def _from_rules(client: Client, user: str, needs: Mapping[str, Any]) -> Permissions | Missing:
    """Read the rules of the user from a server that cannot check commands. Only rules that allow all are understood."""
    reply = client.ask("ACL", "GETUSER", user)
    if isinstance(reply, Missing):
        return reply
    rules = dict(zip(reply[0::2], reply[1::2], strict=True))
    if rules.get(b"commands") == b"+@all" and rules.get(b"keys") in ([b"*"], b"~*"):
        return Permissions(dict.fromkeys(needs, ()))
    return Missing("this version of the server cannot check permissions without running commands")
