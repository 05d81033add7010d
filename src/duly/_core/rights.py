"""Hints for ACL errors: the roles of `duly acl` that may make a call."""

import shlex
from collections.abc import Mapping
from typing import Final

from duly._core.verbs import VERBS

_PRODUCERS: Final = frozenset(
    {
        "send", "publish", "cancel", "reschedule", "result", "schedule", "unschedule", "schedules", "lock", "unlock",
        "prolong", "wake_lock",
    }
)  # fmt: skip
_CONSUMERS: Final = (
    _PRODUCERS
    | {name for name, verb in VERBS.items() if verb.role == "consumer"}
    | {"receive", "wake", "fire", "once", "beat", "depart", "tidy", "tidy_topic", "seek", "leave_group", "read"}
    | {"measure"}
)
_OBSERVERS: Final = frozenset(
    {"stats", "forecast", "get", "list", "pending", "read", "workers", "schedules", "audit", "listing", "explain"}
)
_ROLES: Final[Mapping[str, frozenset[str]]] = {
    "producer": _PRODUCERS,
    "consumer": _CONSUMERS,
    "observer": _OBSERVERS,
}
"""The calls of each role, by the first word of their titles. An admin may do everything."""


def roles_of(title: str) -> list[str]:
    """Return the roles that may make a call, the one with the fewest permissions first."""
    word = title.partition(" ")[0]
    # Producers use the topic, not its groups.
    left_out = _PRODUCERS if " on group " in title else frozenset()
    return [*(role for role, calls in _ROLES.items() if word in calls - left_out), "admin"]


def advice(title: str, user: str, refusal: str) -> str:
    """Name the denied user, the roles that may make the call, and the command that prints their permissions.

    A user has one role, and a second one would replace it. So the advice is to create a separate user. Only the role
    of an admin, who can do everything, may also be given to the same user.
    """
    word, roles = title.partition(" ")[0], roles_of(title)
    *others, last = roles
    named = f"the roles {', '.join(others)} and {last}" if others else f"the role {last} alone"
    about_keys = ", and for the keys of one namespace (--namespace, --own-keys)" if "key" in refusal else ""
    for_user = (
        f"for a separate user: given to {user!r}, they would replace its current ones"
        if others
        else f"for a separate user, or for this one with `--user {shlex.quote(user)}`: an admin can do everything"
    )
    return (
        f"The user {user!r} of this connection lacks a permission: {word} is for {named}{about_keys}. "
        f"`duly acl --role {roles[0]}` prints the permissions, {for_user}"
    )
