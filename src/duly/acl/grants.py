"""The rules that give a user the rights of a role."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from duly._core.effects import COMMANDS as EFFECTS
from duly._core.keys import head_of, pattern_of
from duly.acl.commands import READS, commands_of_script, runs_commands_of_the_user
from duly.acl.roles import FOR_FSYNC, OPTIONAL, ROLES, Role
from duly.acl.servers import Knowledge, known_of
from duly.errors import UsageError
from duly.options import checked_name

PASSWORD: Final = "PASSWORD"  # noqa: S105, a word that stands for one
"""Where the password belongs. None is ever made up."""

_WRITTEN: Final = re.compile(r"[^\s'\"\\]+")
"""What stands in a line of redis-cli as it is."""

_WILD: Final = re.compile(r"[*?\[]")
"""Where a pattern begins to match more than itself."""


def commands_of(role: Role) -> frozenset[str]:
    """Name every command that a role needs: of its scripts, and of the client."""
    found = set(role.sends)
    for script, kinds in role.scripts.items():
        for kind in kinds:
            commands = commands_of_script(script, kind)
            found |= commands & READS if script in role.looks else commands
    return frozenset(found)


def every_command() -> frozenset[str]:
    """Name all that rules may have to name: what a server is asked about."""
    return commands_of(ROLES["admin"]) | own_commands_of(()) | set(FOR_FSYNC)


def rules(
    role: str,
    server: str | Mapping[str, str] | Knowledge,
    namespace: str = "duly",
    *,
    own_keys: Iterable[str] = (),
    own_commands: Iterable[str] = (),
    fsync: bool = False,
) -> list[str]:
    """List the rules of a role: keys first, then `-@all`, then each command by its name.

    Args:
        role: producer, consumer, observer or admin.
        server: its version, like "7.0" or "valkey-9.1", its answer to INFO, or what `ask` found out.
        namespace: the namespace of the app.
        own_keys: patterns of keys of yours that commits change (`redis=`).
        own_commands: the commands that they use there; all that a commit can use, if there are keys and none is named.
        fsync: also what durable="fsync" needs, which is CONFIG GET.
    """
    whose, known = _role(role), known_of(server)
    keys = [checked_pattern(pattern, namespace) for pattern in own_keys]
    wanted = set(commands_of(whose)) | _own(whose, keys, list(own_commands))
    if fsync:
        if "wait" not in whose.sends:
            raise UsageError(f"role {role}: durable= is for those who send, fsync has no meaning here")
        wanted.update(FOR_FSYNC)
    unknown = sorted(command for command in wanted if not known.knows(command))
    if missing := set(unknown) - OPTIONAL:
        raise UsageError(f"{known.title} does not know {', '.join(sorted(missing))}: Duly does not run there")
    patterns = [f"~{pattern_of(checked_name(namespace, 'namespace'))}", *(f"~{pattern}" for pattern in keys)]
    reset = ["resetchannels", *(["clearselectors"] if known.has_selectors else []), "-@all"]
    return ["resetkeys", *patterns, *reset, *(f"+{name}" for name in sorted(wanted - set(unknown)))]


def setuser(user: str, given: Iterable[str]) -> str:
    """Write the command that creates a user with some rules, or gives them to one who exists."""
    return " ".join(["ACL", "SETUSER", _as_it_is(user, "user name"), "on", f">{PASSWORD}", *given])


def _role(name: str) -> Role:
    if name not in ROLES:
        raise UsageError(f"{name!r} is no role: use one of {', '.join(ROLES)}")
    return ROLES[name]


def _own(role: Role, keys: list[str], commands: list[str]) -> set[str]:
    """Name what commits may do to keys of the user."""
    if not keys and not commands:
        return set()
    if not any(map(runs_commands_of_the_user, role.scripts)):
        raise UsageError(f"role {role.name}: only a commit changes keys of yours, and that is a consumer's")
    if not keys:
        raise UsageError("commands of your own need keys of your own: give a pattern like stock:*")
    return set(own_commands_of(commands))


def own_commands_of(named: Iterable[str]) -> frozenset[str]:
    """Name what commits may do to keys of the user: the commands that were named, else all that there are."""
    names = [name.upper() for name in named]
    for name in names:
        if name not in EFFECTS:
            raise UsageError(f"a commit cannot use {name}, only {', '.join(EFFECTS)}")
    return frozenset(name.lower() for name in names or EFFECTS)


def checked_pattern(pattern: str, namespace: str) -> str:
    """Return a pattern of keys that can stand in a rule, and matches none of Duly."""
    begin, duly = _WILD.split(pattern, maxsplit=1)[0], head_of(namespace).decode()
    if not begin:
        raise UsageError(f"{pattern!r} would open all keys of the server: name yours, like stock:*")
    if begin.startswith(duly) or (begin != pattern and duly.startswith(begin)):
        raise UsageError(f"{pattern!r} would open keys of Duly itself: name yours, like stock:*")
    return _as_it_is(pattern, "pattern of keys")


def _as_it_is(text: str, what: str) -> str:
    if not _WRITTEN.fullmatch(text):
        raise UsageError(f"{text!r} is no {what} for this: leave out spaces, quotes and backslashes")
    return text
