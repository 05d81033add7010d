"""What a holder does with a delivery, one row for each verb, and the legal moves of a message.

Moves, calls, error titles, outcomes, access rules and the memory engine read VERBS; tests/unit/test_verbs.py holds
clients, the HTTP API, scripts, counters and the protocol page against it.
Law: every legal move is a row of MOVES. A script may perform only the moves listed for its verb;
tests/model checks every step of random histories against this table.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from duly._core.states import LIVE, State
from duly.outcomes import Defer, Outcome, Recycle, Reject, RetryIn

Settling = Literal["ack", "commit", "retry", "defer", "recycle", "reject", "release"]
"""The verbs that end a delivery."""

Role = Literal["producer", "consumer", "observer", "admin"]
"""The roles of `duly acl`."""

_WAITING: Final[tuple[State, ...]] = ("ready", "delayed")
_BACK: Final[tuple[State, ...]] = (*_WAITING, "dead")
"""A message whose body was lost or damaged cannot go back: it is dead."""


class Verb(NamedTuple):
    """One thing that the holder of a delivery, and no other consumer, can do with it."""

    scripts: tuple[str, ...]
    """The scripts that do it. Each compares the fence."""
    to: tuple[State | None, ...]
    """The states that the message can have afterwards; None: it is gone."""
    counter: str = ""
    """The counter that each message raises; empty: none."""
    outcome: type[Outcome | Recycle] | None = None
    """What a handler raises or returns in place of calling the method."""
    role: Role = "consumer"
    """The least role of `duly acl` that has the right."""


VERBS: Final[Mapping[str, Verb]] = {
    "ack": Verb(("ack", "finish"), (None, "done"), "acked"),
    "commit": Verb(("commit", "keep_result"), (None, "done"), "acked"),
    "retry": Verb(("retry",), _BACK, "retried", RetryIn),
    "defer": Verb(("defer",), _BACK, "deferred", Defer),
    "recycle": Verb(("recycle",), _BACK, "recycled", Recycle),
    "reject": Verb(("reject",), ("dead",), "buried", Reject),
    "release": Verb(("release",), _BACK, "released"),
    "extend": Verb(("extend",), ("leased",)),
    "progress": Verb(("progress",), ("leased",)),
}


def scripts_of_verbs(role: Role) -> list[str]:
    """List the scripts of the verbs that a role of `duly acl` has."""
    return [script for verb in VERBS.values() if verb.role == role for script in verb.scripts]


def verb_of(outcome: object) -> str | None:
    """Name the verb that an outcome of a handler asks for; None: it is no outcome."""
    return next((name for name, verb in VERBS.items() if verb.outcome and isinstance(outcome, verb.outcome)), None)


MOVES: Final[frozenset[tuple[State | None, str, State | None]]] = frozenset(
    {
        *(("leased", name, to) for name, verb in VERBS.items() for to in verb.to),
        (None, "send", "ready"),
        (None, "send", "delayed"),
        ("delayed", "wait", "ready"),
        ("ready", "claim", "leased"),
        ("ready", "claim", "parked"),  # another of its key is out
        ("leased", "crash", "dead"),
        ("ready", "claim", "dead"),  # its body is lost or damaged
        ("dead", "redrive", "ready"),
        ("dead", "move", None),  # to another queue, where it is sent
        ("ready", "redrive", "parked"),  # for one of its key that is before it
        ("parked", "hand on", "ready"),
        ("dead", "trim", None),
        ("done", "trim", None),
        ("done", "send", "ready"),  # an id of the caller's own, used again
        ("done", "send", "delayed"),
        ("done", "purge", None),
        *((state, verb, to) for state in _WAITING for verb in ("reschedule", "send") for to in _WAITING),
        *((state, verb, None) for state in (*_WAITING, "parked") for verb in ("expire", "drop")),
        *(("parked", verb, to) for verb in ("reschedule", "send") for to in _WAITING),
        *(("leased", "crash", to) for to in _WAITING),
        *((state, verb, None) for state in (*LIVE, "dead") for verb in ("cancel", "purge")),
    }
)
"""From which state to which each verb moves a message. `crash`, `expire`, `drop` and `trim` are done by claims and
sends on the way, and by tidy; `wait` is time passing: no script, the due time comes; `hand on` is done by whatever
ends the message before it."""
