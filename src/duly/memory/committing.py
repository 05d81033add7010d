"""Finishing a message, sending others and changing keys of the user, in one step or not at all: commit."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from duly import _lua
from duly._core.effects import Effect
from duly._core.replies import COMMIT_DONE, COMMIT_IMPOSSIBLE, COMMIT_LOST, COMMIT_NO_ROOM
from duly.memory import sending, settling
from duly.memory.calls import Kept
from duly.memory.message import StoredMessage
from duly.memory.state import QueueState
from duly.memory.trying import Trial
from duly.memory.user_keys import UserKeys

_FIRST_REST: Final = 9
_TARGET_HEAD: Final = 5
_STRIDE: Final = 3


class Reach(NamedTuple):
    """What a commit may touch beside the queue of its message."""

    targets: list[QueueState]
    user_keys: Sequence[bytes]
    store: UserKeys


def split_keys(args: Sequence[bytes], keys: Sequence[bytes]) -> tuple[list[bytes], Sequence[bytes]]:
    """Tell the queues that a commit sends to, by the prefix of their keys, and the keys of the user."""
    names = [name for name in _lua.script("send_checked").keys if name not in ("call", "waiting*")]
    size, count = len(names) + len(args[4]), int(args[7])
    prefixes = [keys[number * size].removesuffix(names[0].encode()) for number in range(count)]
    return prefixes, keys[count * size :]


def commit(queue: QueueState, args: list[bytes], reach: Reach) -> Any:
    """Do everything, or nothing."""
    id_, fence, effect_count = args[5], int(args[6]), int(args[8])
    message = queue.messages.get(id_)
    if message is None or message.lease is None or message.lease.fence != fence:
        return [COMMIT_LOST]
    plans, at = _plans(reach.targets, args, message)
    for position, plan in enumerate(plans, 1):
        if plan.is_refused:
            return Kept([COMMIT_NO_ROOM, position])
    effects = list(_effects(args, at, effect_count, reach.user_keys))
    now, now_ms = queue.tick(), queue.server_us // 1000
    trial = Trial(reach.store, now_ms)
    for position, effect in enumerate(effects, 1):
        problem = trial.problem(effect)
        if problem is not None:
            return Kept([COMMIT_IMPOSSIBLE, position, problem.encode()])
    for effect in effects:
        reach.store.run(effect, now_ms)
    settling.finish(queue, [args[4], *args[:4], id_, args[6], b""])
    queue.clock = now
    reply, before = [COMMIT_DONE], 0
    for plan in plans:
        sending.carry_out(plan)
        reply += sending.outcomes(plan, before)
        before += len(plan.messages)
    return Kept(reply)


def _plans(targets: Sequence[QueueState], args: list[bytes], message: StoredMessage) -> tuple[list[sending.Plan], int]:
    plans, at = [], _FIRST_REST
    for target in targets:
        first = at + _TARGET_HEAD
        last = first + int(args[at + 4]) * _STRIDE
        leaving = message if args[at] == b"1" else None
        plans.append(sending.plan_sends(target, args[first:last], sending.Bounds.read(args[at + 1 : at + 4]), leaving))
        at = last
    return plans, at


def _effects(args: list[bytes], at: int, count: int, keys: Sequence[bytes]) -> Iterator[Effect]:
    for _ in range(count):
        size = int(args[at + 2])
        yield Effect(args[at + 1].decode(), keys[int(args[at]) - 1], tuple(args[at + 3 : at + 3 + size]))
        at += 3 + size


TRANSITIONS: Final[dict[str, Callable[[QueueState, list[bytes], Reach], Any]]] = {"commit": commit}
"""What each script does that reaches beyond one queue, by its name."""
