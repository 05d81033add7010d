"""A commit put together: what is sent where, what is done to keys of the user, and what a refusal means."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from duly._core import codec, ops
from duly._core.effects import Effect, checked_effects, described, shown
from duly._core.naming import is_of_topic, title_of
from duly._core.replies import COMMIT_NO_ROOM, Committed
from duly.errors import DulyError, QueueFull, TooLarge, UsageError
from duly.options import MAX_BATCH

MAX_COMMIT_BYTES: Final = 32 << 20


class Commit(NamedTuple):
    """What a commit is to do beside the ack."""

    targets: list[ops.Target]
    """Each queue once."""
    order: list[int]
    """For each send as given, its position among the messages of all targets."""
    effects: list[Effect]

    def refused(self, queue: str, id_: str, outcome: Committed) -> DulyError:
        """Say why nothing was done."""
        begin = f"commit of message {id_} of {title_of(queue)} was refused and changed nothing: "
        if outcome.code == COMMIT_NO_ROOM:
            target = self.targets[outcome.position]
            bounds = f"max_length={target.options.max_length}, max_bytes={target.options.max_bytes}"
            return QueueFull(
                f"{begin}queue {target.keys.name!r} is full ({bounds}). The message is still leased: commit again "
                "later, or retry it"
            )
        effect = described(outcome.position + 1, self.effects[outcome.position])
        return UsageError(f"{begin}{effect}: {outcome.problem}. The message is still leased")


def planned(queue: Any, send: Iterable[tuple[Any, Any]] | None, effects: Iterable[Sequence[Any]] | None) -> Commit:
    """Check and encode what a delivery of `queue` commits. None is nothing."""
    groups: dict[bytes, ops.Target] = {}
    places: list[tuple[bytes, int]] = []
    send = () if send is None else send
    if isinstance(send, str | bytes | Mapping) or not isinstance(send, Iterable):
        raise UsageError(f"send= takes pairs of a queue and a body, not {shown(send)}")
    for position, pair in enumerate(send, 1):
        target, body = _pair(queue, position, pair)
        group = groups.setdefault(target._keys.prefix, ops.Target(target._keys, target.options, []))
        places.append((target._keys.prefix, len(group.messages)))
        group.messages.append(target._outgoing(body))
    namespaces = [queue._app.namespace, *(_namespace_of(prefix) for prefix in groups)]
    commit = Commit(list(groups.values()), _order(groups, places), checked_effects(effects, namespaces))
    _check_size(queue.title, commit)
    return commit


def _namespace_of(prefix: bytes) -> str:
    """Read the namespace from the prefix of a queue's keys."""
    return prefix.decode().partition(":{")[0]


def _pair(queue: Any, position: int, pair: Any) -> tuple[Any, Any]:
    if isinstance(pair, tuple | list) and len(pair) == 2 and is_of_topic(pair[0]):
        raise UsageError(
            f"send {position} of a commit must go to a queue, not to {pair[0]!r}: publish before the ack with "
            "dedup=d.id, or send to a queue whose handler publishes"
        )
    if not isinstance(pair, tuple | list) or len(pair) != 2 or not hasattr(pair[0], "_outgoing"):
        raise UsageError(f"send {position} of a commit must be a pair of a queue and a body, not {shown(pair)}")
    if not _share_a_server(queue, pair[0]):
        raise UsageError(
            f"send {position} of a commit goes to {pair[0]!r}, on another server than {queue.title}: "
            "one step cannot span two servers. Send there from a handler of a queue here"
        )
    return pair[0], pair[1]


def _share_a_server(one: Any, other: Any) -> bool:
    engine = getattr(one._link, "engine", None)
    if engine is not None:
        return engine is getattr(other._link, "engine", None)
    return bool(one._app._address == other._app._address)


def _order(groups: Mapping[bytes, ops.Target], places: Sequence[tuple[bytes, int]]) -> list[int]:
    begins, total = {}, 0
    for prefix, target in groups.items():
        begins[prefix] = total
        total += len(target.messages)
    return [begins[prefix] + index for prefix, index in places]


def _check_size(title: str, commit: Commit) -> None:
    if len(commit.order) > MAX_BATCH:
        raise UsageError(f"a commit takes at most {MAX_BATCH} sends, not {len(commit.order)}")
    size = sum(codec.stored_size(message.part) for target in commit.targets for message in target.messages)
    size += sum(len(value) for effect in commit.effects for value in (effect.key, *effect.args))
    if size > MAX_COMMIT_BYTES:
        raise TooLarge(f"a commit on {title} of {size} bytes is over {MAX_COMMIT_BYTES}: make it smaller")
