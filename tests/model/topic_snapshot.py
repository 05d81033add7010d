"""All that a server holds of a topic and its groups, and whether the memory engine holds the same."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from duly._core import ops, topic_ops, views
from duly._core.keys import GroupKeys, TopicKeys
from duly.memory.engine import Engine
from duly.memory.stream import ConsumerGroup, Id, read_id, written_id
from duly.memory.topic_state import GroupState, TopicState
from tests.lua.harness import Queue, State
from tests.model import alike
from tests.model.checked_queue import CRASH_LIMIT
from tests.model.world import World, check

META_AT: Final = 7
"""Where `meta` is in a dump: the last of the hashes."""

NO_COUNTERS: Final = frozenset({"fed", "swept", "sweeping"})
"""Fields that only the `meta` of a group has."""


class Store(Queue):
    """The store of a group, or of the topic itself, dumped as a queue's."""

    def __init__(self, world: World, keys: TopicKeys | GroupKeys, streams: Sequence[bytes]) -> None:
        super().__init__(world.wire, keys.name, crash_limit=CRASH_LIMIT)
        self.keys = keys
        self.fed: dict[str, bytes] = {}
        self.watch_streams(*streams)

    def read_dump(self, answer: list[Any]) -> State:
        """Turn the answer to a dump into a value; how far the group was fed is kept apart."""
        flat = answer[META_AT] or []
        fields = {name.decode(): value for name, value in zip(flat[0::2], flat[1::2], strict=True)}
        self.fed = {name: fields.pop(name) for name in NO_COUNTERS & set(fields)}
        meta = [text for name, value in fields.items() for text in (name.encode(), value)]
        return super().read_dump([*answer[:META_AT], meta, *answer[META_AT + 1 :]])


class Row(NamedTuple):
    """A row of XPENDING."""

    id: Id
    consumer: bytes
    idle: int
    deliveries: int


class Member(NamedTuple):
    """A row of XINFO CONSUMERS."""

    name: bytes
    pending: int
    idle: int


@dataclass
class Native:
    """The stream's own data of a group."""

    last: Id
    pending: list[Row]
    members: list[Member]

    def without_members(self, entries: Container[Id]) -> "Native":
        """Leave out what servers do not agree on."""
        return Native(self.last, [row for row in self.pending if row.id in entries], [])


@dataclass
class Snapshot:
    """Everything, at one moment."""

    topic: State
    stores: dict[str, State]
    """By group; an unused group is empty."""
    fed: dict[str, dict[str, bytes]]
    bells: dict[str, Id]
    """By group, and the topic's under its empty name."""
    entries: dict[Id, list[bytes]]
    native: dict[str, Native]
    """By group; absent: there is none."""
    topic_stats: list[Any]
    stats: dict[str, list[Any]]

    def unread(self, group: str) -> set[Id]:
        """Name the entries that a group has not read."""
        return {id_ for id_ in self.entries if id_ > self.native[group].last} if group in self.native else set()

    def stored(self, group: str) -> set[Id]:
        """Name what a group has in its store."""
        return {read_id(id_.encode()) for id_ in self.stores[group].msgs}

    def counted(self, name: str) -> int:
        """Read a counter of the topic."""
        return self.topic.stats.get(name, 0)


class Looker:
    """Reads everything, and compares it."""

    def __init__(self, world: World, keys: TopicKeys, groups: dict[str, GroupKeys], streams: Sequence[bytes]) -> None:
        self._wire = world.wire
        self._notes_all_members = world.server.kind == "valkey"
        """Older servers do not note a consumer that reads nothing, and keep trimmed entries pending."""
        self._keys = keys
        self._groups = groups
        self._stores = [Store(world, keys, streams), *(Store(world, each, streams) for each in groups.values())]

    def looks(self) -> list[Sequence[Any]]:
        """Spell out what to ask, to be posted behind a call."""
        wire, stream = self._wire, self._keys.stream
        return [
            *(store.spelled_dump() for store in self._stores),
            *(("XREVRANGE", store.keys.key("wake"), "+", "-", "COUNT", 1) for store in self._stores),
            wire.spelled(topic_ops.stats(self._keys), b"", 0),
            *(wire.spelled(ops.stats(keys), b"", 0) for keys in self._groups.values()),
            ("XRANGE", stream, "-", "+"),
            *(("XPENDING", stream, name, "-", "+", 10_000) for name in self._groups),
            *(("XINFO", "CONSUMERS", stream, name) for name in self._groups),
        ]

    def seen(self, answers: list[Any]) -> Snapshot:
        """Read the answers."""
        answer, names = iter(answers), list(self._groups)
        topic, *stores = [store.read_dump(next(answer)) for store in self._stores]
        rings = [next(answer) for _ in self._stores]
        topic_stats = next(answer)
        stats = {name: next(answer) for name in names}
        entries = {read_id(id_): fields for id_, fields in next(answer)}
        pending = {name: next(answer) for name in names}
        members = {name: next(answer) for name in names}
        return Snapshot(
            topic,
            dict(zip(names, stores, strict=True)),
            {name: store.fed for name, store in zip(names, self._stores[1:], strict=True)},
            {name: read_id(ring[0][0]) if ring else (0, 0) for name, ring in zip(("", *names), rings, strict=True)},
            entries,
            {row.name: _native(row, pending[row.name], members[row.name]) for row in _rows(topic_stats)},
            topic_stats,
            stats,
        )

    def compare(self, snapshot: Snapshot, engine: Engine) -> None:
        """Check that the engine holds the same."""
        self._compare_topic(snapshot, engine)
        for name, keys in self._groups.items():
            self._compare_group(snapshot, engine, name, keys)

    def _compare_topic(self, snapshot: Snapshot, engine: Engine) -> None:
        state = engine._queue(self._keys).state
        assert isinstance(state, TopicState)
        answers = (snapshot.topic_stats, engine.call(topic_ops.stats(self._keys), b"", 0))
        # No two engines count the bytes of a stream alike.
        mine, theirs = [_counted(topic_ops.topic_overview(answer)._replace(bytes=0)) for answer in answers]
        if not self._notes_all_members:
            mine, theirs = _without_members(mine), _without_members(theirs)
        check(mine == theirs, "the engines differ on topic_stats", mine, theirs)
        largest = max((sum(map(len, fields[1::2])) for fields in snapshot.entries.values()), default=0)
        noted = int(topic_ops.topic_overview(snapshot.topic_stats).fields.get("largest", 0))
        check(noted >= largest, "an entry that is larger than the largest", noted, largest)
        entries = {entry.id: list(entry.fields) for entry in state.stream.from_((0, 0), 10_000)}
        check(snapshot.entries == entries, "the engines differ on entries", snapshot.entries, entries)
        found = alike.differences(snapshot.topic, alike.stored(engine, self._keys))
        check(not found, "the engines differ on delayed publishes", *found)

    def _compare_group(self, snapshot: Snapshot, engine: Engine, name: str, keys: GroupKeys) -> None:
        state = engine._queue(keys).state
        assert isinstance(state, GroupState)
        found = alike.differences(snapshot.stores[name], alike.stored(engine, keys))
        check(not found, "the engines differ on what a group stores", name, *found)
        fed = {} if state.fed is None else {"fed": written_id(state.fed)}
        fed |= {} if state.swept is None else {"swept": str(state.swept).encode()}
        check(snapshot.fed[name] == fed, "the engines differ on how far a group was fed", name, snapshot.fed[name], fed)
        answers = (snapshot.stats[name], engine.call(ops.stats(keys), b"", 0))
        mine, theirs = map(alike.without_lateness, answers)
        check(mine[:12] == theirs[:12], "the engines differ on stats", name, mine[:12], theirs[:12])
        counted = [views.stats(answer) for answer in (mine, theirs)]
        check(counted[0] == counted[1], "the engines differ on counters", name, *counted)
        native = None if state.consumers is None else _as_native(state.consumers, state.server_us // 1000)
        found_native = snapshot.native.get(name)
        if not self._notes_all_members and native and found_native:
            native, found_native = (
                native.without_members(snapshot.entries),
                found_native.without_members(snapshot.entries),
            )
        check(found_native == native, "the engines differ on members", name, found_native, native)


def _counted(snapshot: topic_ops.TopicOverview) -> topic_ops.TopicOverview:
    """Leave out the numbers by which scripts choose how many entries to read, and the bytes of rows."""
    left_out = ("large", "largest", "dead_why", "done_why")
    fields = {name: value for name, value in snapshot.fields.items() if name not in left_out}
    return snapshot._replace(fields=fields)


def _without_members(snapshot: topic_ops.TopicOverview) -> topic_ops.TopicOverview:
    return snapshot._replace(groups=[row._replace(consumers=0, pending=0) for row in snapshot.groups])


def _rows(topic_stats: list[Any]) -> Iterator[topic_ops.GroupRow]:
    yield from topic_ops.topic_overview(topic_stats).groups


def _native(row: topic_ops.GroupRow, pending: list[Any], members: list[Any]) -> Native:
    found = Native(
        read_id(row.last_id.encode()),
        [Row(read_id(id_), *rest) for id_, *rest in pending],
        [Member(*fields[1:6:2]) for fields in members],
    )
    counted = (len(found.pending), len(found.members))
    check((row.pending, row.consumers) == counted, "topic_stats and the server differ", row, counted)
    return found


def _as_native(group: ConsumerGroup, now_ms: int) -> Native:
    pending = [
        Row(id_, row.consumer, max(now_ms - row.delivered_ms, 0), row.deliveries)
        for id_, row in group.pending_from((0, 0))
    ]
    members = [
        Member(name, each.pending, max(now_ms - each.seen_ms, 0)) for name, each in sorted(group.consumers.items())
    ]
    return Native(group.last, pending, members)
