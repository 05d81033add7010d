"""The state of the memory engine, in the form in which a dump shows a server's keys."""

from typing import Any

from duly._core import codec
from duly._core.keys import QueueKeys
from duly.memory import wire
from duly.memory.engine import Engine
from duly.memory.lanes import Parked
from duly.memory.state import QueueState
from tests.lua.harness import State

Stored = dict[str, Any]
_OF_SCRIPTS = frozenset({"priorities", "lateness", "large", "dead_why", "done_why"})
"""Fields of `meta` that save scripts a read, or that `stats` shows. So do those that begin with `before_`."""


def stored(engine: Engine, keys: QueueKeys) -> Stored:
    """Read everything that a server would have in keys."""
    state = engine._queue(keys).state
    messages = {id_.decode(): message for id_, message in state.messages.items()}
    waiting = {priority: _scores(ids) for priority, ids in state.waiting.items()}
    return {
        "msgs": {id_: each.record for id_, each in messages.items() if each.record is not None},
        "waiting": {priority: ids for priority, ids in waiting.items() if ids},
        "leased": _scores(state.leased),
        "leases": {id_: codec.read_lease(wire.lease(each)) for id_, each in messages.items() if each.lease},
        "counts": {id_: each.counts for id_, each in messages.items() if each.counts is not None},
        "why": {id_: each.why for id_, each in messages.items() if each.why is not None},
        "expires": _scores(state.expires),
        "dead": _scores(state.dead),
        "done": _scores(state.done),
        "lanes": {key.decode(): id_.decode() for key, id_ in state.lanes.owners.items()},
        "parked": [_member(row) for row in state.lanes],
        "meta": _meta(state),
        "history": {place.decode(): value for place, value in state.history.items()},
    }


def _member(row: Parked) -> bytes:
    """Write the row of a parked message: section 3 of the protocol."""
    return row.key + b"\0" + b"%d%064d" % (9 + row.rank, row.due) + row.id


def _scores(ids: Any) -> dict[str, int]:
    return {id_.decode(): score for score, id_ in ids}


def without_lateness(stats: list[Any]) -> list[Any]:
    """Leave out how late the last claim was: a script checks only some of the messages that it takes."""
    return [*stats[:11], 0, *stats[12:]]


def _meta(state: QueueState) -> dict[str, str]:
    fields = {
        "clock": state.clock,
        "keyed": 1 if state.is_keyed else None,
        "tat": state.tat or None,
        "limited": state.limited,
        "retry_credit": f"{state.retry_credit:.17g}" if state.retry_credit else None,
        "point": state.point_ends,
        "paused": None if state.paused is None else state.paused.decode(),
    }
    return {name: str(value) for name, value in fields.items() if value is not None}


def _is_of_scripts(name: str) -> bool:
    return name in _OF_SCRIPTS or name.startswith("before_")


def differences(real: State, expected: Stored, *, has_room: bool = False) -> list[tuple[str, Any, Any]]:
    """Name the differences, with both sides.

    `has_room`: leases have ended since a claim was limited by the number in flight. Scripts that leave a token anyway
    let the next claim remove `limited`.
    """
    shown: Stored = {name: getattr(real, name) for name in expected}
    # The mark of a lane is for invariant I7 to judge: `+` may stay when the last that was parked is gone.
    shown["lanes"] = {key: lane[1:] for key, lane in real.lanes.items() if key}
    shown["meta"] = {name: value for name, value in real.meta.items() if not _is_of_scripts(name)}
    if shown["meta"].get("retry_credit") == "0":
        del shown["meta"]["retry_credit"]  # a claim that leaves work to the next one may store none
    if has_room and shown["meta"].get("limited") == "0" and "limited" not in expected["meta"]:
        del shown["meta"]["limited"]
    return [(name, shown[name], expected[name]) for name in expected if shown[name] != expected[name]]
