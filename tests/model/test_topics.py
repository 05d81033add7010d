"""Random histories of a topic and its groups: real scripts and the memory engine agree, and what must hold holds."""

import itertools
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from duly._core import codec, ops, replies, topic_ops
from duly._core.call import Call
from duly._core.keys import GroupKeys, TopicKeys
from duly._core.outgoing import Encoder, Outgoing
from duly._core.topic_ops import Publication
from duly.memory.clock import Clock
from duly.memory.engine import Engine, ErrorReply
from duly.memory.stream import Id, read_id, written_id
from duly.memory.topic_state import GroupState, TopicState
from duly.message import Audit
from duly.options import Keep, OnDead, QueueOptions, Send
from tests.conftest import need
from tests.lua.harness import NOW, SECOND, Queue, State
from tests.model import alike
from tests.model.machine import CRASH_LIMIT, World, check, started_world

HISTORIES: Final = int(os.environ.get("DULY_MODEL_EXAMPLES", "400")) // 10
STEPS: Final = 120
STREAMS: Final = (b"one", b"two")
GROUPS: Final = ("archive", "billing", "eu")
CONSUMERS: Final = ("ann", "bob", "cy")
KEYS: Final = (None, None, "k", "k", "k2")
UNFED: Final = frozenset({"fed", "swept"})
"""Fields of a group's `meta` that are no counters, and that no queue has."""

NO_GROUP: Final = "no group yet"
REMOVING: Final = frozenset({"cancel", "purge", "delete", "claim", "reject", "tidy", "delete_topic"})
"""Calls that may end messages which nobody was given: told to, or as dead letters beyond their bound."""


class Store(Queue):
    """The store of a group, or of the topic itself, as a queue that is dumped."""

    def __init__(self, world: World, keys: TopicKeys | GroupKeys) -> None:
        super().__init__(world.wire, keys.name, crash_limit=CRASH_LIMIT)
        self.keys = keys
        self.watch_streams(*STREAMS)

    def read_dump(self, answer: list[Any]) -> State:
        at = _META_AT
        pairs = list(zip(answer[at][0::2], answer[at][1::2], strict=True)) if answer[at] else []
        self.fed = {name.decode(): value for name, value in pairs if name.decode() in UNFED}
        meta = [text for name, value in pairs if name.decode() not in UNFED for text in (name, value)]
        return super().read_dump([*answer[:at], meta or None, *answer[at + 1 :]])


_META_AT: Final = 7
"""Where `meta` is in a dump: the last of the hashes."""


@dataclass
class Native:
    """What the server says of the stream by itself."""

    entries: dict[Id, list[bytes]] = field(default_factory=dict)
    groups: dict[str, tuple[int, int, Id]] = field(default_factory=dict)
    """Consumers, pending, the last id that was read."""
    pending: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    consumers: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    bells: list[Id] = field(default_factory=list)
    """Of the topic, and of each group."""


@dataclass
class Sight:
    """Everything, after a step."""

    topic: State
    groups: dict[str, State]
    native: Native
    sights: list[Any]
    stats: dict[str, Any]


@dataclass
class Receipt:
    """A delivery that was made at some time."""

    group: str
    settle: ops.Settle


class History:
    """One topic with its groups, on a server and in memory, to which the same is done."""

    def __init__(self, world: World, seed: int, keep: Keep | None) -> None:
        self.random = random.Random(seed)
        self.world = world
        self.keep = keep
        self.engine = Engine(Clock())
        self.engine.clock.freeze()
        self.keys = TopicKeys("duly", f"topic{next(world.numbers)}")
        self.groups = {name: GroupKeys(self.keys, name, frees=keep is None) for name in GROUPS}
        self.store = Store(world, self.keys)
        self.stores = {name: Store(world, keys) for name, keys in self.groups.items()}
        self.encoder = Encoder(self.keys.name, QueueOptions())
        self.sequences = dict.fromkeys(STREAMS, 0)
        self.last_calls: dict[bytes, tuple[Call[Any], int]] = {}
        self.receipts: list[Receipt] = []
        self.delayed: list[str] = []
        self.numbers = itertools.count()
        self.owed: dict[str, set[Id]] = {name: set() for name in GROUPS}
        """What each group must still be given: it has not read it, or holds it in its store."""
        self.first_given: dict[str, dict[str, Id]] = {name: {} for name in GROUPS}
        """By key, the last entry that a group was given for the first time."""
        self.given: dict[str, set[Id]] = {name: set() for name in GROUPS}
        self.log: list[str] = []
        self.now = NOW
        self._set_clocks(NOW)
        self.sight = self._look()

    # Steps

    def step(self) -> None:
        """Do something at random."""
        steps: list[tuple[int, Callable[[], Any]]] = [
            (5, self.publish), (2, self.publish_later), (10, self.claim), (9, self.settle), (2, self.cancel),
            (1, self.cancel_delayed), (2, self.redrive), (2, self.seek), (2, self.tidy_topic), (1, self.purge),
            (2, self.pause_or_resume), (2, self.look), (3, self.let_time_pass), (1, self.repeat), (1, self.delete),
            (1, self.tidy), (1, self.leave), (1, self.arrive_late),
        ]  # fmt: skip
        weights, functions = zip(*steps, strict=True)
        self.random.choices(functions, weights)[0]()

    def publish(self) -> None:
        entries = []
        for _ in range(self.random.randint(1, 4)):
            fields = self._body()
            if key := self.random.choice(KEYS):
                fields += ("key", key)
            if region := self.random.choice((None, "eu", "us")):
                fields += ("header:region", region)
            dedup = self.random.choice(("", "", "", "x", "y"))
            entries.append(Publication(fields, dedup, self.random.choice((2, 30)) * SECOND if dedup else 0))
        answer = self.do(topic_ops.publish(self.keys, entries, self.keep))
        check(len(answer) == len(entries), "publish said", answer)

    def _body(self) -> list[str | bytes]:
        size = self.random.choice((0, 10, 300, 5000))
        if self.random.random() < 0.3:
            return ["bytes", b"\xff" * size]
        return ["body", '"' + "b" * size + '"']

    def publish_later(self) -> None:
        messages = [self._outgoing() for _ in range(self.random.randint(1, 3))]
        self.delayed += [message.id for message in messages]
        self.do(ops.send(self.keys, messages, QueueOptions(), "all"))

    def _outgoing(self) -> Outgoing:
        dedup = self.random.choice((None, None, "x", "z"))
        send = Send(
            self.random.choice((b"raw", "text", {"a": 1})),
            delay=self.random.choice((0.5, 2, 20)),
            key=self.random.choice(KEYS),
            headers=self.random.choice((None, {"region": "eu"})),
            dedup=dedup,
            dedup_for=self.random.choice((2, 30)) if dedup else None,
        )
        return self.encoder.outgoing(send, f"later{next(self.numbers)}", self.now / SECOND)

    def claim(self) -> None:
        name = self.random.choice(GROUPS)
        start = self.random.choice(("0", "0", "0", "$", self._some_entry()))
        wanted = (("region", "eu"),) if name == "eu" else ()
        if wanted and self.random.random() < 0.1:
            wanted = (*wanted, ("region", "us"))
        on_dead: OnDead = self.random.choice(("continue", "block"))
        dead = self.random.choice((Keep(), Keep(), Keep(count=2)))
        call = ops.claim(
            self.groups[name],
            QueueOptions(crash_limit=CRASH_LIMIT, on_dead=on_dead, dead=dead),
            limit=self.random.choice((1, 2, 3, 10)),
            lease=self.random.choice((0.5, 30)),
            consumer=self.random.choice(CONSUMERS),
            then=self.random.choice(("watch", "stay", "leave", "pass")),
            suspects=self.random.choice(("with", "with", "none", "alone")),
            feed=[start, *(text for pair in wanted for text in pair)],
        )
        answer = self.do(call)
        claimed = replies.claimed(answer)
        for id_, record in zip(claimed.ids, claimed.records, strict=True):
            settle = ops.Settle(id_.decode(), claimed.fence, codec.has_key(record))
            self.receipts.append(Receipt(name, settle))
            self._check_order(name, read_id(id_), codec.read_record(record).key)

    def _check_order(self, name: str, id_: Id, key: str | None) -> None:
        """See that entries of a key come in their order, each for the first time."""
        self.owed[name].discard(id_)
        if key is not None and id_ not in self.given[name]:
            before = self.first_given[name].get(key, (0, 0))
            check(id_ > before, "I7 given before an earlier one of its key", name, key, id_, before)
            self.first_given[name][key] = id_
        self.given[name].add(id_)

    def settle(self) -> None:
        live = [receipt for receipt in self.receipts if self._is_live(receipt)]
        if not self.receipts:
            return
        among = live if live and self.random.random() < 0.9 else self.receipts
        name = self.random.choice(among).group
        settles = [each.settle for each in among if each.group == name]
        settles = self.random.sample(settles, min(self.random.randint(1, 3), len(settles)))
        self.do(self._settling(self.groups[name], settles))

    def _settling(self, keys: GroupKeys, settles: list[ops.Settle]) -> Call[Any]:
        options = QueueOptions(
            crash_limit=CRASH_LIMIT,
            dead=self.random.choice((Keep(), Keep(count=1))),
            on_dead=self.random.choice(("continue", "block")),
        )
        delay = self.random.choice((0, 0, 1, 25))
        return self.random.choice((
            lambda: ops.ack(keys, options, settles),
            lambda: ops.ack(keys, options, settles),
            lambda: ops.ack(keys, options, settles),
            lambda: ops.retry(keys, [(each, delay, "boom", "trace") for each in settles]),
            lambda: ops.defer(keys, [(each, delay, "later") for each in settles]),
            lambda: ops.release(keys, settles),
            lambda: ops.recycle(keys, [(each, delay, b"") for each in settles]),
            lambda: ops.reject(keys, options, [(each, "bad", "", "") for each in settles]),
            lambda: ops.extend(keys, [(each, delay + 0.1) for each in settles]),
            lambda: ops.extend(keys, [(each, 30) for each in settles], renews=True),
        ))()  # fmt: skip

    def _is_live(self, receipt: Receipt) -> bool:
        lease = self.sight.groups[receipt.group].leases.get(receipt.settle.id)
        return lease is not None and lease.fence == receipt.settle.fence

    def cancel(self) -> None:
        name = self.random.choice(GROUPS)
        self.do(ops.cancel(self.groups[name], self.random.choice((*self.sight.groups[name].msgs, "1-1"))))

    def cancel_delayed(self) -> None:
        if self.delayed:
            self.do(ops.cancel(self.keys, self.random.choice(self.delayed)))

    def redrive(self) -> None:
        name = self.random.choice(GROUPS)
        self.do(ops.redrive(self.groups[name], self.random.choice((1, 100)), at_end=self.random.random() < 0.5))

    def seek(self) -> None:
        name = self.random.choice(GROUPS)
        makes = self.random.random() < 0.4
        to = self.random.choice(("0", "0", "$", self._some_entry(), self._some_entry(), f"{self.now // 1000 + 5}-0"))
        was_there = name in self.sight.native.groups
        answer = self.do(topic_ops.seek(self.groups[name], to, makes=makes))
        check(answer == int(not (makes and was_there)), "seek said", answer, was_there)

    def _some_entry(self) -> str:
        return written_id(self.random.choice((*self.sight.native.entries, (0, 0)))).decode()

    def tidy_topic(self) -> None:
        self.do(topic_ops.tidy(self.keys, self.keep))

    def tidy(self) -> None:
        options = QueueOptions(dead=self.random.choice((Keep(), Keep(count=1), Keep(age=10))))
        self.do(ops.tidy(self.groups[self.random.choice(GROUPS)], options))

    def purge(self) -> None:
        state = self.random.choice(("ready", "delayed", "parked", "leased", "dead"))
        self.do(ops.purge(self.groups[self.random.choice(GROUPS)], state, self.random.choice((1, 100))))

    def pause_or_resume(self) -> None:
        keys = self.groups[self.random.choice(GROUPS)]
        self.do(ops.resume(keys) if self.random.random() < 0.7 else ops.pause(keys, "me"))

    def leave(self) -> None:
        self.do(topic_ops.leave_group(self.groups[self.random.choice(GROUPS)], self.random.choice(CONSUMERS)))

    def delete(self) -> None:
        if self.random.random() < 0.5:
            self.do(ops.delete(self.groups[self.random.choice(GROUPS)]))
        elif self.random.random() < 0.2:
            self.do(topic_ops.delete(self.keys))

    def look(self) -> None:
        """Ask what writes nothing, or nearly so."""
        name = self.random.choice(GROUPS)
        keys, viewer = self.groups[name], replies.Viewer(name, lambda _, body: body)
        state = self.random.choice(("ready", "delayed", "parked", "leased", "dead"))
        begin = self.random.choice(("-", "$", f"({self._some_entry()}", self._some_entry()))
        self.do(topic_ops.read(self.keys, begin, self.random.choice((1, 3, 100))))
        self.do(topic_ops.foreign_pending(keys, self.random.choice(("-", f"({self._some_entry()}")), 2))
        self.do(ops.pending(keys, 0, 10))
        self.do(ops.list_(keys, viewer, state, 2, None))
        self.do(ops.list_(self.keys, viewer, "delayed", 2, None))
        for id_ in self.random.sample(sorted(self.sight.groups[name].msgs), min(1, len(self.sight.groups[name].msgs))):
            self.do(ops.explain(keys, viewer, id_))

    def let_time_pass(self) -> None:
        us = self.random.choice((1, 1000, SECOND, 3 * SECOND, 31 * SECOND, 31 * SECOND, 4000 * SECOND, -1, -SECOND))
        if us >= 3600 * SECOND:
            self.last_calls.clear()  # no longer known, and a repeat would be a new call
        self._set_clocks(self.now + us)
        self.log.append(f"time {us}")
        before, self.sight = self.sight, self._look()
        self._same(before, "time")

    def repeat(self) -> None:
        """Lose a reply, and ask again."""
        stream = self.random.choice(STREAMS)
        if stream in self.last_calls:
            call, sequence = self.last_calls[stream]
            before = self.sight
            self.do(call, stream, sequence)
            check(self.sight.groups == before.groups, "I6 a repeat changed a group", call.script.name)
            check(self.sight.native == before.native, "I6 a repeat changed the stream", call.script.name)

    def arrive_late(self) -> None:
        """Have a call arrive after its successor."""
        stream = self.random.choice(STREAMS)
        if stream in self.last_calls:
            call, sequence = self.last_calls[stream]
            self.do(ops.correct(call.keys, {"corrected": 0}), stream)
            before = self.sight
            answer = self.do(call, stream, sequence)
            check("OVERTAKEN" in str(answer), "I6 an overtaken call ran", answer)
            check(self.sight.groups == before.groups, "I6 an overtaken call changed a group", call.script.name)

    # Both sides

    def do(self, call: Call[Any], stream: bytes | None = None, sequence: int | None = None) -> Any:
        """Run a call on both sides; compare, look, check."""
        stream = stream or self.random.choice(STREAMS)
        if sequence is None:
            self.sequences[stream] += 1
            sequence = self.sequences[stream]
            if call.writes:
                self.last_calls[stream] = (call, sequence)
        args = [arg if len(str(arg)) < 50 else f"{str(arg)[:20]}..." for arg in call.args]
        self.log.append(f"{call.title} {args} {stream.decode()} {sequence}")
        answer, *seen = self.world.wire.post([self.world.wire.spelled(call, stream, sequence), *self._looks()])
        if isinstance(answer, Exception):
            check("OVERTAKEN" in str(answer), f"{call.script.name} failed", answer)
            answer = str(answer)
        try:
            expected = self.engine.call(call, stream, sequence)
        except ErrorReply as error:
            expected = str(error)
        check(answer == expected, f"the engines differ on {call.title}", answer, expected)
        before, self.sight = self.sight, self._seen(seen)
        self._same(before, call.script.name)
        return answer

    def _look(self) -> Sight:
        """Read all that there is on the server."""
        return self._seen(self.world.wire.post(self._looks()))

    def _looks(self) -> list[Sequence[Any]]:
        wire, stream = self.world.wire, self.keys.stream
        stores = [self.store, *self.stores.values()]
        bells = [("XREVRANGE", store.keys.key("wake"), "+", "-", "COUNT", 1) for store in stores]
        return [
            *(store.spelled_dump() for store in stores),
            *bells,
            wire.spelled(topic_ops.stats(self.keys), b"", 0),
            *(wire.spelled(ops.stats(keys), b"", 0) for keys in self.groups.values()),
            ("XRANGE", stream, "-", "+"),
            *(("XPENDING", stream, name, "-", "+", 1000) for name in GROUPS),
            *(("XINFO", "CONSUMERS", stream, name) for name in GROUPS),
        ]  # fmt: skip

    def _seen(self, answers: list[Any]) -> Sight:
        """Read what was answered to looks at everything."""
        stores, answer = [self.store, *self.stores.values()], iter(answers)
        topic, *groups = [store.read_dump(next(answer)) for store in stores]
        rings = [next(answer) for _ in stores]
        sights = next(answer)
        stats = {name: next(answer) for name in GROUPS}
        native = Native(bells=[read_id(ring[0][0]) if ring else (0, 0) for ring in rings])
        native.entries = {read_id(id_): fields for id_, fields in next(answer)}
        for name, consumers, pending, last, _, _ in _rows(sights[6], 6, (0, 2, 1, 3, 4, 5)):
            native.groups[name.decode()] = (consumers, pending, read_id(last))
        pending_rows, consumer_rows = [next(answer) for _ in GROUPS], [next(answer) for _ in GROUPS]
        for name, pending, consumers in zip(GROUPS, pending_rows, consumer_rows, strict=True):
            if not isinstance(pending, Exception):
                native.pending[name] = [(read_id(id_), who, idle, count) for id_, who, idle, count in pending]
                native.consumers[name] = [tuple(row[1:6:2]) for row in consumers]
        return Sight(topic, dict(zip(GROUPS, groups, strict=True)), native, sights, stats)

    def _same(self, before: Sight, script: str) -> None:
        """See that both sides hold the same, and that what must hold holds."""
        self._same_topic()
        for name in GROUPS:
            self._same_group(name)
            self._check_group(name)
        self._check_removed(before, script)
        self._check_owed(before, script)

    def _same_topic(self) -> None:
        expected = self.engine.call(topic_ops.stats(self.keys), b"", 0)
        mine, theirs = [topic_ops.topic_sight(reply)._replace(bytes=0) for reply in (self.sight.sights, expected)]
        check(mine == theirs, "the engines differ on topic_stats", mine, theirs)
        state = self.engine._queue(self.keys).state
        assert isinstance(state, TopicState)
        entries = {entry.id: list(entry.fields) for entry in state.stream.from_((0, 0), 10_000)}
        check(entries == self.sight.native.entries, "the engines differ on entries", entries, self.sight.native.entries)
        found = alike.differences(self.sight.topic, alike.stored(self.engine, self.keys))
        check(not found, "the engines differ on what waits to enter", *found)
        check(self.sight.native.bells[0] == state.bell, "the engines differ on the topic's bell", state.bell)

    def _same_group(self, name: str) -> None:
        keys, native = self.groups[name], self.sight.native
        state = self.engine._queue(keys).state
        assert isinstance(state, GroupState)
        found = alike.differences(self.sight.groups[name], alike.stored(self.engine, keys))
        check(not found, "the engines differ on what a group stores", name, *found)
        fed = {"fed": written_id(state.fed) if state.fed else None, "swept": state.swept}
        mine = self.stores[name].fed
        check(
            mine == {field: str(value).encode() if isinstance(value, int) else value for field, value in fed.items() if value},
            "the engines differ on how far a group was fed", name, mine, fed,
        )  # fmt: skip
        bell = native.bells[1 + GROUPS.index(name)]
        check(bell == state.bell, "the engines differ on a group's bell", name, bell, state.bell)
        expected = self.engine.call(ops.stats(keys), b"", 0)
        check(self.sight.stats[name][:12] == expected[:12], "the engines differ on stats", name, expected[:12])
        mine_stats, theirs = replies.stats(self.sight.stats[name]), replies.stats(expected)
        check(mine_stats == theirs, "the engines differ on counters", name, mine_stats, theirs)
        consumers = state.consumers
        check(
            (consumers is None) == (name not in native.groups), "the engines differ on whether there is a group", name
        )
        if consumers is not None:
            idle = state.server_us // 1000
            rows = [
                (id_, row.consumer, max(idle - row.delivered_ms, 0), row.deliveries)
                for id_, row in consumers.pending_from((0, 0))
            ]
            check(
                rows == native.pending[name], "the engines differ on what is pending", name, native.pending[name], rows
            )
            members = [
                (who, row.pending, max(idle - row.seen_ms, 0)) for who, row in sorted(consumers.consumers.items())
            ]
            check(members == native.consumers[name], "the engines differ on members", native.consumers[name], members)

    # What must hold

    def _check_group(self, name: str) -> None:
        state, native = self.sight.groups[name], self.sight.native
        waiting = {id_ for ids in state.waiting.values() for id_ in ids}
        placed = {*waiting, *state.leased, *state.dead, *state.done, *state.parked_ids()}
        check(placed == set(state.msgs), "I2 a place without a body, or the reverse", name, placed ^ set(state.msgs))
        for id_ in placed:
            check(len(state.places(id_)) == 1, "I2 not in exactly one place", name, id_, state.places(id_))
        check(set(state.leased) == set(state.leases), "I2 leased to nobody", name)
        leased = {read_id(id_.encode()) for id_ in state.leased}
        pending = {row[0] for row in native.pending.get(name, ())}
        check(pending <= leased, "pending, but nobody has a lease", name, pending - leased)
        if name in native.groups and read_id(b"0") <= native.groups[name][2]:
            there = set(native.entries)
            check(pending & there == leased & there, "the pending list is not what is leased", name, pending ^ leased)
        keys = [codec.read_record(state.msgs[id_]).key for id_ in state.leased]
        keyed = [key for key in keys if key is not None]
        check(len(keyed) == len(set(keyed)), "I7 two of a key are out", name, keyed)
        stats = replies.stats(self.sight.stats[name])
        difference = Audit("", stats, 0, (), repaired=False).difference
        check(difference == 0, "I1 the accounts are wrong by", name, difference)
        live = sum(len(record) for id_, record in state.msgs.items() if id_ not in state.dead)
        dead = sum(len(state.msgs[id_]) for id_ in state.dead)
        check((live, dead) == (stats.bytes, stats.dead_bytes), "I1 bytes", name, live, dead, stats)
        unread = self._unread(name, self.sight)
        check(stats.unread == len(unread), "unread entries", name, stats.unread, unread)

    @staticmethod
    def _unread(name: str, sight: Sight) -> set[Id]:
        if name not in sight.native.groups:
            return set()
        last = sight.native.groups[name][2]
        return {id_ for id_ in sight.native.entries if id_ > last}

    def _check_removed(self, before: Sight, script: str) -> None:
        """See that nothing goes that somebody wants, or that it is counted."""
        removed = set(before.native.entries) - set(self.sight.native.entries)
        new = set(self.sight.native.entries) - set(before.native.entries)
        come_and_gone = _added(self.sight) - _added(before) - len(new)
        if script == "delete_topic":
            return
        for name, (_, _, last) in self.sight.native.groups.items():
            missed = {id_ for id_ in removed if id_ > last}
            counted = [_missed(sight, name) for sight in (before, self.sight)]
            if self.keep is None:
                check(not missed, "freed before a group had read it", name, missed)
                pending = {row[0] for row in self.sight.native.pending[name]}
                check(not removed & pending, "freed while somebody holds it", name, removed & pending)
            elif name in before.native.groups:
                expected = len(missed) + come_and_gone
                check(counted[1] - counted[0] == expected, "missed", name, counted, missed, come_and_gone)

    def _check_owed(self, before: Sight, script: str) -> None:
        """See that each group has, or will read, all that it was not given yet."""
        entries = self.sight.native.entries
        new = set(entries) - set(before.native.entries)
        for name in GROUPS:
            owed, stored = self.owed[name], {read_id(id_.encode()) for id_ in self.sight.groups[name].msgs}
            unread = self._unread(name, self.sight)
            if script in ("seek_group", "delete", "delete_topic") or name not in before.native.groups:
                if before.native.groups.get(name) != self.sight.native.groups.get(name):
                    self.first_given[name].clear()
                    self.given[name] = set(stored)
                owed &= stored | unread
                owed |= unread - stored
            if name in self.sight.native.groups:
                owed |= new & (unread | stored)
            gone = owed - stored - unread
            allowed = self._allowed_to_go(name, before, script, gone)
            check(gone <= allowed, f"{script} lost what a group was never given", name, gone - allowed)
            owed -= gone

    def _allowed_to_go(self, name: str, before: Sight, script: str, gone: set[Id]) -> set[Id]:
        trimmed = {id_ for id_ in gone if id_ not in self.sight.native.entries} if self.keep is not None else set()
        given = {read_id(id_.encode()) for id_ in self.sight.groups[name].leased}
        filtered = {
            id_
            for id_ in gone
            if name == "eu" and id_ in before.native.entries and not _is_of(before.native.entries[id_], b"eu")
        }
        let_in = {id_ for id_ in gone if name == "eu" and id_ in self.sight.native.entries}
        told = gone if script in REMOVING - {"claim"} else set()
        return (
            trimmed
            | given
            | filtered
            | told
            | {id_ for id_ in let_in if not _is_of(self.sight.native.entries[id_], b"eu")}
        )

    def _set_clocks(self, us: int) -> None:
        self.now = us
        self.world.clock.freeze(us)
        self.engine.clock.set_us(us)

    def close(self) -> None:
        wire = self.world.wire
        keys = wire.run("KEYS", self.keys.prefix + b"*")
        if keys:
            wire.run("UNLINK", *keys)


def _rows(flat: Sequence[Any], size: int, order: Sequence[int]) -> Iterator[list[Any]]:
    for at in range(0, len(flat), size):
        yield [flat[at + number] for number in order]


def _missed(sight: Sight, name: str) -> int:
    return sight.topic.stats.get(f"missed:{name}", 0)


def _added(sight: Sight) -> int:
    return sight.topic.stats.get("published", 0) + sight.topic.stats.get("entered", 0)


def _is_of(fields: Sequence[bytes], region: bytes) -> bool:
    return (b"header:region", region) in set(zip(fields[0::2], fields[1::2], strict=True))


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    need("valkey")
    with started_world("valkey") as world:
        yield world


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "keep", [None, Keep(count=6), Keep(count=3, age=20), Keep()], ids=["freeing", "count", "age", "all"]
)
def test_the_real_scripts_and_the_memory_engine_agree_on_topics(world: World, keep: Keep | None) -> None:
    first = random.randrange(10**9) if os.environ.get("DULY_MODEL_SEED") == "random" else 1
    for seed in range(first, first + HISTORIES):
        history = History(world, seed, keep)
        try:
            for _ in range(STEPS):
                history.step()
        except Exception as error:
            error.add_note(f"history {seed} of {keep}:\n" + "\n".join(history.log[-60:]))
            raise
        finally:
            history.close()
