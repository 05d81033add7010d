"""Build a commit from its sends, publishes and effects on the user's keys, and explain its refusal."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from duly._core import codec, ops
from duly._core.call import Call
from duly._core.effects import Effect, checked_effects, described, shown
from duly._core.naming import is_of_topic, title_of
from duly._core.observing import NO_HEADERS
from duly._core.outgoing import Outgoing
from duly._core.replies import COMMIT_DONE, COMMIT_NO_ROOM, COMMIT_UNPUBLISHABLE, CommitOutcome
from duly._core.spanning import check_key, check_target
from duly._core.topic_ops import Publication
from duly.errors import DulyError, QueueFull, TooLarge, UsageError
from duly.options import MAX_BATCH

MAX_COMMIT_BYTES: Final = 32 << 20


class Place(NamedTuple):
    """The place of one of the caller's sends or publishes in the call."""

    prefix: bytes
    """The prefix of its queue's or topic's keys."""
    position: int
    is_entry: bool = False
    """Whether it enters the stream of a topic now. Otherwise it is a stored message."""


class Commit:
    """The actions of a commit, in addition to the ack."""

    def __init__(self) -> None:
        self._targets: dict[bytes, ops.Target] = {}
        self._topics: dict[bytes, ops.Publishes] = {}
        self._sends: list[Place] = []
        self._publishes: list[Place] = []
        self.effects: list[Effect] = []

    @property
    def targets(self) -> list[ops.Target]:
        """The queues and topics that messages are stored in, each once."""
        return list(self._targets.values())

    @property
    def topics(self) -> list[ops.Publishes]:
        """The topics that entries are published to, each once."""
        return list(self._topics.values())

    @property
    def namespaces(self) -> list[str]:
        """The namespaces of all targets and topics."""
        return [prefix.decode().partition(":{")[0] for prefix in (*self._targets, *self._topics)]

    def add_send(self, queue: Any, body: Any) -> None:
        """Add a message for a queue."""
        message = queue._outgoing(body, _headers_for(queue, body))
        self._sends.append(self._message_for(queue._keys, queue.options, message))

    def add_publish(self, topic: Any, body: Any) -> None:
        """Add an entry for a topic. With a delay, the topic stores it as a message."""
        (prepared,) = topic._prepared([body], [_headers_for(topic, body)])
        if isinstance(prepared, Outgoing):
            self._publishes.append(self._message_for(topic._keys, topic._of_group, prepared))
        else:
            self._publishes.append(self._entry_for(topic, prepared))

    def _message_for(self, keys: Any, options: Any, message: Outgoing) -> Place:
        target = self._targets.setdefault(keys.prefix, ops.Target(keys, options, []))
        target.messages.append(message)
        return Place(keys.prefix, len(target.messages) - 1)

    def _entry_for(self, topic: Any, entry: Publication) -> Place:
        keys = topic._keys
        found = self._topics.setdefault(keys.prefix, ops.Publishes(keys, topic.options.keep, []))
        found.entries.append(entry)
        return Place(keys.prefix, len(found.entries) - 1, is_entry=True)

    def check_size(self, title: str) -> None:
        """Raise if the commit is too large for one call."""
        for what, count in (("sends", len(self._sends)), ("publishes", len(self._publishes))):
            if count > MAX_BATCH:
                raise UsageError(f"a commit takes at most {MAX_BATCH} {what}, not {count}")
        size = sum(codec.stored_size(message.part) for target in self.targets for message in target.messages)
        size += sum(len(text) for topic in self.topics for entry in topic.entries for text in entry.fields)
        size += sum(len(value) for effect in self.effects for value in (effect.key, *effect.args))
        if size > MAX_COMMIT_BYTES:
            raise TooLarge(f"a commit on {title} of {size} bytes is over {MAX_COMMIT_BYTES}: make it smaller")

    def call(self, queue: Any, settle: ops.Held, result: str, result_in: float) -> Call[CommitOutcome]:
        """Make the call. Its reply has the ids in the caller's order of sends and publishes."""
        call = ops.commit(
            queue._keys, queue.options, settle, self.targets, self.topics, self.effects,
            result=result, result_in=result_in,
        )  # fmt: skip
        decode = call.decode
        call.decode = lambda reply: self._arranged(decode(reply))
        return call

    def _arranged(self, outcome: CommitOutcome) -> CommitOutcome:
        if outcome.code != COMMIT_DONE:
            return outcome
        messages = _begins((prefix, len(target.messages)) for prefix, target in self._targets.items())
        entries = _begins((prefix, len(topic.entries)) for prefix, topic in self._topics.items())

        def id_at(place: Place) -> str:
            if place.is_entry:
                return outcome.published[entries[place.prefix] + place.position]
            return outcome.sent[messages[place.prefix] + place.position]

        return outcome._replace(sent=list(map(id_at, self._sends)), published=list(map(id_at, self._publishes)))

    def refused(self, queue: str, id_: str, outcome: CommitOutcome) -> DulyError:
        """Make the error of a commit that changed nothing."""
        begin = f"commit of message {id_} of {title_of(queue)} was refused and changed nothing: "
        if outcome.code == COMMIT_NO_ROOM:
            target = self.targets[outcome.position]
            bounds = f"max_length={target.options.max_length}, max_bytes={target.options.max_bytes}"
            return QueueFull(
                f"{begin}queue {target.keys.name!r} is full ({bounds}). The message is still leased: commit again "
                "later, or retry it"
            )
        if outcome.code == COMMIT_UNPUBLISHABLE:
            what = self.topics[outcome.position].keys.title
        else:
            what = described(outcome.position + 1, self.effects[outcome.position])
        return UsageError(f"{begin}{what}: {outcome.problem}. The message is still leased")


def planned(
    queue: Any,
    send: Iterable[tuple[Any, Any]] | None,
    publish: Iterable[tuple[Any, Any]] | None,
    effects: Iterable[Sequence[Any]] | None,
) -> Commit:
    """Check and encode the commit of a delivery of `queue`. None means no sends, publishes or effects."""
    commit = Commit()
    for what, pair in _pairs("send", "a queue and a body, or of a task and its arguments", send):
        commit.add_send(*_checked_send(queue, what, pair))
    for what, pair in _pairs("publish", "a topic and a body", publish):
        commit.add_publish(*_checked_publish(queue, what, pair))
    commit.effects = checked_effects(effects, [queue._app.namespace, *commit.namespaces])
    for position, effect in enumerate(commit.effects, 1):
        check_key(queue._link, described(position, effect), queue._keys, effect.key)
    commit.check_size(queue.title)
    return commit


def _headers_for(target: Any, body: Any) -> Mapping[str, str]:
    """Return the headers that the observer of an app adds to a message."""
    observer = target._app._definitions.observer
    return NO_HEADERS if observer is None else observer.creating(target, body)


def _begins(counts: Iterable[tuple[bytes, int]]) -> dict[bytes, int]:
    """Return the index of each prefix's first id among all ids."""
    begins, total = {}, 0
    for prefix, count in counts:
        begins[prefix] = total
        total += count
    return begins


def _pairs(name: str, of: str, given: Any) -> Iterable[tuple[str, tuple[Any, Any]]]:
    """Check a list of pairs, and yield each with its description for errors."""
    given = () if given is None else given
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise UsageError(f"{name}= takes pairs of {of}, not {shown(given)}")
    for position, pair in enumerate(given, 1):
        what = f"{name} {position} of a commit"
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise UsageError(f"{what} must be a pair of {of}, not {shown(pair)}")
        yield what, (pair[0], pair[1])


def _checked_send(queue: Any, what: str, pair: tuple[Any, Any]) -> tuple[Any, Any]:
    target, body = pair
    if is_of_topic(target):
        raise UsageError(f"{what} must go to a queue or a task, not to {target!r}: use publish= for a topic")
    if hasattr(target, "_as_send"):  # a task
        target, body = target.queue, target._as_send(body)
    if not hasattr(target, "_outgoing"):
        raise UsageError(
            f"{what} must be a pair of a queue and a body, or of a task and its arguments, not {shown(pair)}"
        )
    _check_server(queue, what, target)
    return target, body


def _checked_publish(queue: Any, what: str, pair: tuple[Any, Any]) -> tuple[Any, Any]:
    topic, body = pair
    if not hasattr(topic, "_publisher"):
        instead = ": publish to its topic" if is_of_topic(topic) else ": use send= for a queue or a task"
        raise UsageError(f"{what} must be a pair of a topic and a body, not {shown(pair)}{instead}")
    _check_server(queue, what, topic)
    return topic, body


def _check_server(queue: Any, what: str, target: Any) -> None:
    if not _share_a_server(queue, target):
        raise UsageError(
            f"{what} goes to {target!r}, on another server than {queue.title}: a commit cannot span two servers. "
            "Send to a queue on this server, and let its handler send to the other one"
        )
    check_target(queue._link, what, queue._keys, target._keys)


def _share_a_server(one: Any, other: Any) -> bool:
    engine = getattr(one._link, "engine", None)
    if engine is not None:
        return engine is getattr(other._link, "engine", None)
    return bool(one._app._address.reaches_the_same_as(other._app._address))
