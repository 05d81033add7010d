"""The verbs of a delivery's holder, one row for each, and the legal moves of a message.

Moves, calls, error titles, outcomes, access rules and the memory engine read VERBS; tests/unit/test_verbs.py compares
clients, the HTTP API, scripts, counters and the protocol page with it.
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
"""A message whose body was lost or damaged cannot be delivered again: it becomes dead."""


class Verb(NamedTuple):
    """An action on a delivery that only its holder can do."""

    scripts: tuple[str, ...]
    """The scripts of the verb. Each compares the fence."""
    to: tuple[State | None, ...]
    """The states that the message can have afterwards; None: it is gone."""
    counter: str = ""
    """The counter that each message increments; empty: none."""
    outcome: type[Outcome | Recycle] | None = None
    """The outcome that a handler can raise or return instead of calling the method."""
    role: Role = "consumer"
    """The role of `duly acl` with the fewest permissions that may use the verb."""


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
    """Return the verb of an outcome of a handler; None: it is not an outcome."""
    return next((name for name, verb in VERBS.items() if verb.outcome and isinstance(outcome, verb.outcome)), None)


MOVES: Final[frozenset[tuple[State | None, str, State | None]]] = frozenset(
    {
        *(("leased", name, to) for name, verb in VERBS.items() for to in verb.to),
        (None, "send", "ready"),
        (None, "send", "delayed"),
        ("delayed", "wait", "ready"),
        ("ready", "claim", "leased"),
        ("ready", "claim", "parked"),  # another one of its key is leased
        ("leased", "crash", "dead"),
        ("ready", "claim", "dead"),  # its body is lost or damaged
        ("dead", "redrive", "ready"),
        ("dead", "move", None),  # to another queue, where it is sent
        ("ready", "redrive", "parked"),  # behind an earlier one of its key
        ("parked", "hand on", "ready"),
        ("dead", "trim", None),
        ("done", "trim", None),
        ("done", "send", "ready"),  # the caller's id, used again
        ("done", "send", "delayed"),
        ("done", "purge", None),
        *((state, verb, to) for state in _WAITING for verb in ("reschedule", "send") for to in _WAITING),
        *((state, verb, None) for state in (*_WAITING, "parked") for verb in ("expire", "drop")),
        *(("parked", verb, to) for verb in ("reschedule", "send") for to in _WAITING),
        *(("leased", "crash", to) for to in _WAITING),
        *((state, verb, None) for state in (*LIVE, "dead") for verb in ("cancel", "purge")),
    }
)
"""The moves of each verb, from state to state. Claims, sends and tidy do `crash`, `expire`, `drop` and `trim`. `wait`
has no script: the due time comes. `hand on` is done by the call that ends the message before it."""
