"""Whom the server lets do what: which roles of `duly acl` a call is for, told to users whose rights are not enough."""

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
)
_OBSERVERS: Final = frozenset(
    {"stats", "get", "list", "pending", "read", "workers", "schedules", "audit", "listing", "explain"}
)
_ROLES: Final[Mapping[str, frozenset[str]]] = {
    "producer": _PRODUCERS,
    "consumer": _CONSUMERS,
    "observer": _OBSERVERS,
}
"""What each may call, by the first word of a call's title; an admin may do everything."""


def roles_of(title: str) -> list[str]:
    """Name the roles that a call is for, the one with the least rights first."""
    word = title.partition(" ")[0]
    # What producers do, they do to the topic: its groups are not theirs.
    left_out = _PRODUCERS if " on group " in title else frozenset()
    return [*(role for role, calls in _ROLES.items() if word in calls - left_out), "admin"]


def advice(title: str, user: str, refusal: str) -> str:
    """Say whom the server refused, for which roles the call is, and what prints their rights.

    A user has one role: given another, it loses what it could do before. So the advice is a user of its own, but for
    an admin, who can do everything.
    """
    word, roles = title.partition(" ")[0], roles_of(title)
    *others, last = roles
    named = f"the roles {', '.join(others)} and {last}" if others else f"the role {last} alone"
    about_keys = ", and for the keys of one namespace (--namespace, --own-keys)" if "key" in refusal else ""
    whom = (
        f"for a user of its own: given to {user!r}, they would replace those that it has now"
        if others
        else f"for a user of its own, or for this one by `--user {shlex.quote(user)}`: an admin can do everything"
    )
    return (
        f"The user {user!r} of this connection lacks a right: {word} is for {named}{about_keys}. The rights are "
        f"printed by `duly acl --role {roles[0]}`, {whom}"
    )
