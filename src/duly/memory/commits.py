"""commit: finish a message, send, publish and change keys of the user, all in one step or not at all."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from duly import _lua
from duly._core.effects import Effect
from duly._core.replies import COMMIT_DONE, COMMIT_IMPOSSIBLE, COMMIT_LOST, COMMIT_NO_ROOM
from duly._core.results import packed_results
from duly.memory import sends, settles, topics
from duly.memory.calls import Kept
from duly.memory.message import StoredMessage
from duly.memory.state import QueueState
from duly.memory.topic_state import TopicState
from duly.memory.trial import Trial
from duly.memory.user_keys import Reply, UserKeys

_FIRST_REST: Final = 12
_TARGET_HEAD: Final = 5
_TOPIC_HEAD: Final = 4
_STRIDE: Final = 3
_NOT_PLAIN: Final = b"0"
_EXACT_INTEGER: Final = 2**53


class Reach(NamedTuple):
    """The state that a commit may change besides the queue of its message."""

    targets: list[QueueState]
    topics: list[TopicState]
    user_keys: Sequence[bytes]
    store: UserKeys


class Keys(NamedTuple):
    """The keys of a commit, by their owners."""

    targets: list[bytes]
    """The prefixes of the stores that it sends to."""
    topics: list[bytes]
    """The prefixes of the topics that it publishes to."""
    of_user: Sequence[bytes]


def split_keys(args: Sequence[bytes], keys: Sequence[bytes]) -> Keys:
    """Split the keys of a commit into its stores, its topics and the keys of the user."""
    send_keys, publish_keys = _lua.script("send_checked").keys, _lua.script("publish", "topic").keys
    targets, rest = _prefixes(send_keys, int(args[9]), len(args[4]), keys)
    return Keys(targets, *_prefixes(publish_keys, int(args[10]), 1, rest))


def _prefixes(
    names: Sequence[str], count: int, priorities: int, keys: Sequence[bytes]
) -> tuple[list[bytes], Sequence[bytes]]:
    """Read `count` prefixes from keys, of which a script has several per prefix. Also return the remaining keys."""
    fixed = [name for name in names if name not in ("call", "waiting*")]
    size = len(fixed) + priorities
    return [keys[at * size].removesuffix(fixed[0].encode()) for at in range(count)], keys[count * size :]


def commit(queue: QueueState, args: list[bytes], reach: Reach) -> Any:
    """Apply all changes, or none."""
    id_, fence, effect_count = args[5], int(args[6]), int(args[11])
    message = queue.messages.get(id_)
    if message is None or message.lease is None or message.lease.fence != fence:
        return [COMMIT_LOST]
    plans, at = _plans(reach.targets, args, message)
    for position, plan in enumerate(plans, 1):
        if plan.is_refused:
            return Kept([COMMIT_NO_ROOM, position])
    publishes, at = _publishes(reach.topics, args, at)
    effects = list(_effects(args, at, effect_count, reach.user_keys))
    now, now_ms = queue.tick(), queue.server_us // 1000
    trial = Trial(reach.store, now_ms)
    for position, effect in enumerate(effects, 1):
        problem = trial.problem(effect)
        if problem is not None:
            return Kept([COMMIT_IMPOSSIBLE, position, problem.encode()])
    answers = [_exact(reach.store.run(effect, now_ms)) for effect in effects]
    result = packed_results([args[7].decode()])
    settles.finish(queue, [args[4], *args[:4], result, id_, args[6]], int(args[8]))
    queue.clock = now
    outcomes, before = list[Any](), 0
    for plan in plans:
        sends.carry_out(plan)
        outcomes += sends.outcomes(plan, before)
        before += len(plan.messages)
    ids = [id_ for topic, entries in publishes for id_ in topics.publish(topic, entries).reply]
    return Kept([COMMIT_DONE, outcomes, ids, answers])


def _exact(reply: Reply) -> Any:
    """Answer as the script does: a number that is too large for Lua is a list of its digits."""
    return [b"%d" % reply] if isinstance(reply, int) and abs(reply) > _EXACT_INTEGER else reply


def _publishes(
    found: Sequence[TopicState], args: list[bytes], at: int
) -> tuple[list[tuple[TopicState, list[bytes]]], int]:
    """Read the publishes to each topic, as the arguments of publish."""
    publishes = []
    for topic in found:
        first = at + _TOPIC_HEAD
        last = first + int(args[at + 3])
        publishes.append((topic, [*args[at : at + 3], _NOT_PLAIN, *args[first:last]]))
        at = last
    return publishes, at


def _plans(targets: Sequence[QueueState], args: list[bytes], message: StoredMessage) -> tuple[list[sends.Plan], int]:
    plans, at = [], _FIRST_REST
    for target in targets:
        first = at + _TARGET_HEAD
        last = first + int(args[at + 4]) * _STRIDE
        leaving = message if args[at] == b"1" else None
        plans.append(sends.plan_sends(target, args[first:last], sends.Bounds.read(args[at + 1 : at + 4]), leaving))
        at = last
    return plans, at


def _effects(args: list[bytes], at: int, count: int, keys: Sequence[bytes]) -> Iterator[Effect]:
    for _ in range(count):
        size = int(args[at + 2])
        yield Effect(args[at + 1].decode(), keys[int(args[at]) - 1], tuple(args[at + 3 : at + 3 + size]))
        at += 3 + size


TRANSITIONS: Final[dict[str, Callable[[QueueState, list[bytes], Reach], Any]]] = {"commit": commit}
"""The functions of scripts that reach beyond one queue, by script name."""
