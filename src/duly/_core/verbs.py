"""What moves a message, and the legal moves.

Law: every legal move is a row of MOVES. A script may perform only the moves listed for its verb;
tests/model checks every step of random histories against this table.
"""

from typing import Final, Literal

from duly._core.states import LIVE, State

Verb = Literal[
    "send", "claim", "ack", "retry", "defer", "recycle", "reject", "release", "crash",
    "extend", "cancel", "reschedule", "redrive", "move", "expire", "drop", "purge", "trim", "wait", "hand on",
]  # fmt: skip
"""What moves a message. `crash`, `expire`, `drop` and `trim` are done by claims and sends on the way, and by tidy;
`wait` is time passing: no script, the due time comes; `hand on` is done by whatever ends the message before it."""

_WAITING: Final = ("ready", "delayed")

MOVES: Final[frozenset[tuple[State | None, Verb, State | None]]] = frozenset(
    {
        (None, "send", "ready"),
        (None, "send", "delayed"),
        ("delayed", "wait", "ready"),
        ("ready", "claim", "leased"),
        ("ready", "claim", "parked"),  # another of its key is out
        ("leased", "ack", None),
        ("leased", "ack", "done"),
        ("leased", "extend", "leased"),
        ("leased", "reject", "dead"),
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
        *(("leased", verb, to) for verb in ("retry", "defer", "recycle", "release", "crash") for to in _WAITING),
        # A message whose body was lost or damaged cannot go back.
        *(("leased", verb, "dead") for verb in ("retry", "defer", "recycle", "release")),
        *((state, verb, None) for state in (*LIVE, "dead") for verb in ("cancel", "purge")),
    }
)
