"""The rules that grant a user the permissions of a role."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from duly._core.effects import COMMANDS as EFFECTS
from duly._core.keys import head_of, pattern_of
from duly.acl.commands import READS, commands_of_script, runs_caller_commands
from duly.acl.roles import CELERY_SCRIPTS, FOR_CELERY, FOR_CLUSTER, FOR_FSYNC, OPTIONAL, ROLES, Role
from duly.acl.servers import Knowledge, known_of
from duly.errors import UsageError
from duly.options import checked_name

PASSWORD: Final = "PASSWORD"  # noqa: S105, a word that stands for one
"""A placeholder for the password. No password is generated."""

_WORD: Final = re.compile(r"[^\s'\"\\]+")
"""A word that redis-cli reads unchanged."""

_WILD: Final = re.compile(r"[*?\[]")
"""The first character of a pattern that matches more than itself."""


def commands_of(role: Role) -> frozenset[str]:
    """Return every command that a role needs: those of its scripts and those that the client sends."""
    found = set(role.sends)
    for script, kinds in role.scripts.items():
        for kind in kinds:
            commands = commands_of_script(script, kind)
            found |= commands & READS if script in role.read_only else commands
    return frozenset(found)


def every_command() -> frozenset[str]:
    """Return all commands that rules may contain. The server is asked which of them it has."""
    return commands_of(ROLES["admin"]) | own_commands_of(()) | {*FOR_FSYNC, *FOR_CLUSTER, *FOR_CELERY}


def rules(
    role: str,
    server: str | Mapping[str, str] | Knowledge,
    namespace: str = "duly",
    *,
    own_keys: Iterable[str] = (),
    own_commands: Iterable[str] = (),
    fsync: bool = False,
    cluster: bool = False,
    celery: bool = False,
) -> list[str]:
    """List the rules of a role: keys first, then `-@all`, then each command by its name.

    Args:
        role: producer, consumer, observer or admin.
        server: its version, like "7.0" or "valkey-9.1", its reply to INFO, or the result of `ask`.
        namespace: the namespace of the app.
        own_keys: patterns of keys outside of Duly that commits change (`redis=`).
        own_commands: the commands that commits use on these keys. Default: all that a commit can use.
        fsync: add CONFIG GET, which durable="fsync" needs.
        cluster: add the commands that find the node of a queue in a cluster.
        celery: add the commands that the transport for kombu needs.
    """
    whose, known = _role(role), known_of(server)
    keys = [checked_pattern(pattern, namespace) for pattern in own_keys]
    wanted = set(commands_of(whose)) | _commit_commands(whose, keys, list(own_commands))
    if fsync:
        if "wait" not in whose.sends:
            raise UsageError(f"role {role}: fsync is only for roles that send, since it allows durable=")
        wanted.update(FOR_FSYNC)
    if cluster:
        wanted.update(FOR_CLUSTER)
    if celery:
        wanted |= _celery_commands(whose)
    unknown = sorted(command for command in wanted if not known.knows(command))
    if missing := set(unknown) - OPTIONAL:
        raise UsageError(f"{known.title} does not have {', '.join(sorted(missing))}: Duly does not run there")
    patterns = [f"~{pattern_of(checked_name(namespace, 'namespace'))}", *(f"~{pattern}" for pattern in keys)]
    reset = ["resetchannels", *(["clearselectors"] if known.has_selectors else []), "-@all"]
    return ["resetkeys", *patterns, *reset, *(f"+{name}" for name in sorted(wanted - set(unknown)))]


def setuser(user: str, given: Iterable[str]) -> str:
    """Return the command that creates a user with rules, or sets the rules of an existing user."""
    return " ".join(["ACL", "SETUSER", _checked_word(user, "user name"), "on", f">{PASSWORD}", *given])


def _role(name: str) -> Role:
    if name not in ROLES:
        raise UsageError(f"{name!r} is not a role: use one of {', '.join(ROLES)}")
    return ROLES[name]


def _celery_commands(role: Role) -> set[str]:
    """Return the commands that Celery needs besides those of a consumer."""
    if not role.runs("claim", "queue"):
        raise UsageError(f"role {role.name}: Celery consumes and declares queues, so it needs the role consumer")
    return {*FOR_CELERY, *(command for script in CELERY_SCRIPTS for command in commands_of_script(script, "queue"))}


def _commit_commands(role: Role, keys: list[str], commands: list[str]) -> set[str]:
    """Return the commands that commits may use on the user's own keys."""
    if not keys and not commands:
        return set()
    if not any(map(runs_caller_commands, role.scripts)):
        raise UsageError(f"role {role.name}: only a commit changes your own keys, and only a consumer commits")
    if not keys:
        raise UsageError("own commands need own keys: give a pattern like stock:*")
    return set(own_commands_of(commands))


def own_commands_of(named: Iterable[str]) -> frozenset[str]:
    """Return the commands that commits may use on the user's own keys: the named ones, or else all."""
    names = [name.upper() for name in named]
    for name in names:
        if name not in EFFECTS:
            raise UsageError(f"a commit cannot use {name}, only {', '.join(EFFECTS)}")
    return frozenset(name.lower() for name in names or EFFECTS)


def checked_pattern(pattern: str, namespace: str) -> str:
    """Check that a pattern of keys can be written in a rule and matches no key of Duly."""
    begin, duly = _WILD.split(pattern, maxsplit=1)[0], head_of(namespace).decode()
    if not begin:
        raise UsageError(f"{pattern!r} would match all keys of the server: name yours, like stock:*")
    if begin.startswith(duly) or (begin != pattern and duly.startswith(begin)):
        raise UsageError(f"{pattern!r} would match keys of Duly: name yours, like stock:*")
    return _checked_word(pattern, "pattern of keys")


def _checked_word(text: str, what: str) -> str:
    if not _WORD.fullmatch(text):
        raise UsageError(f"{text!r} cannot be a {what} here: leave out spaces, quotes and backslashes")
    return text
