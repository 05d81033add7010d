"""When a consumer that blocks must be woken (docs/protocol.md, section 10), judged by what the server holds alone.

The memory engine has no tokens: it knows what a claim may find.
"""

from collections.abc import Sequence
from math import inf
from typing import Any, Final

from duly._core import replies
from tests.lua.harness import State

EMPTYING: Final = frozenset({"ack", "finish", "reject", "cancel", "purge", "move", "tidy"})
"""Scripts that remove the token when they leave nothing to wait for (I9)."""

_LIMIT_AT, _THEN_AT = 1, 5


def fault(script: str, before: State, after: State, now: int) -> str:
    """Describe the mistake of a call other than claim with the wake token; '': none."""
    now = _decided_at(before, after, now)
    if makes_claimable(before, after, now) and not after.wake:
        return "something may be claimed, or comes earlier, and no consumer is woken"
    is_room = before.meta.get("limited") == "0" and bool(set(before.leased) - set(after.leased))
    if is_room and not after.wake:
        return "there is room in flight, and no consumer is woken"
    # A call that ends many messages may hand a lane on to one that it ends next: then it leaves a token for nothing.
    may_hand_lane_on = bool(set(before.parked_ids()) - set(after.parked_ids()))
    is_quiet = not is_room and not may_hand_lane_on
    if script in EMPTYING and before.msgs and not after.msgs and is_quiet and after.wake:
        return "I9 a token in an empty queue"
    if script == "tidy" and not after.msgs and after.wake:
        return "I9 tidy left a token in an empty queue"
    is_send = script in ("send", "send_checked") and not may_hand_lane_on
    if is_send and not (_is_open(before, now) or _is_open(after, now)) and after.wake != before.wake:
        return "a send to a queue that is paused or limited left a token"
    return ""


def makes_claimable(before: State, after: State, now: int) -> bool:
    """Return whether something may be claimed that could not be before, or is due earlier than all else."""
    old, new = _moments(before, now), _moments(after, now)
    first = min(old.values(), default=inf)
    # No consumer is woken for a message whose body was lost: a queue without bodies has no wake token.
    told = {what: at for what, at in new.items() if what[1] in after.msgs}
    return any(at < old.get(what, inf) and (at <= now or at < first) for what, at in told.items())


def fault_of_claim(args: Sequence[Any], answer: list[Any], before: State, after: State) -> str:
    """Describe the mistake of a claim with the wake token: the caller watches, or its finder; '': none."""
    claimed, limit, then = replies.claimed(answer), int(args[_LIMIT_AT]), args[_THEN_AT]
    may_be_more = claimed.next_in == 0 or (0 < limit == len(claimed.ids) and then != "behind")
    if claimed.passed_over or may_be_more:
        return "" if after.wake else "no token for others"
    if then in ("stay", "behind") or (then == "watch" and not claimed.ids):
        return "a token, and the caller watches" if after.wake else ""
    if claimed.ids:
        return "" if after.wake else "no token, and its caller is busy"
    if then == "pass" and claimed.next_in is not None and not claimed.is_paused:
        return "" if after.wake else "no token, and its caller goes"
    if not after.msgs:
        return "I9 a token in an empty queue" if after.wake else ""
    return "the token is gone" if before.wake and not after.wake else ""


def _decided_at(before: State, after: State, now: int) -> int:
    """Return when a call decided whether the queue was open. Each message of a send takes a tick after that.

    If a limit ends within these ticks, the consumer that met it still has its timer.
    """
    return now - max(len(after.msgs.keys() - before.msgs.keys()) - 1, 0)


def _is_open(state: State, now: int) -> bool:
    limited = state.meta.get("limited")
    return "paused" not in state.meta and (limited is None or 0 < int(limited) <= now)


def _moments(state: State, now: int) -> dict[tuple[str, str], int]:
    """List when a claim may find something: each waiting message, unless none is delivered, and each deadline."""
    moments = {("deadline", id_): at for id_, at in state.leased.items()}
    if _is_open(state, now):
        moments |= {("due", id_): at for ids in state.waiting.values() for id_, at in ids.items()}
    return moments
