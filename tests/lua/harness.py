"""Runs calls of scripts on a server, and reads all stored data of a queue."""

import hashlib
import re
import socket
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from importlib.resources import files
from typing import Any, Final, Self, TypeVar

import hiredis

from duly._core import codec, ops, replies, topic_ops
from duly._core.call import Call, CallStream
from duly._core.keys import EVERY_PRIORITY, GroupKeys, QueueKeys, TopicKeys
from duly._core.outgoing import Encoder, Outgoing
from duly._core.pieces import Pieces
from duly.options import Keep, QueueOptions, Send
from tests.servers import Server

SECOND: Final = 1_000_000
NOW: Final = 1_800_000_000 * SECOND
"""The time of the tests' clocks, in microseconds."""

STREAM: Final = b"tests"
ENCODING_GUARD: Final = b"\1" * 65
"""The member that lib/leased.lua adds to the leases, and the value that lib/lanes.lua adds to the lanes."""

DUE_DIGITS: Final = int(re.findall(r"DUE_DIGITS = (\d+)", (files("duly._lua") / "lib/lane_layout.lua").read_text())[0])
"""How a due time is written in a member of `parked`."""

T = TypeVar("T")


class Refused(Exception):
    """The server answered with an error."""


class Wire:
    """One raw connection. A script named in `texts` is sent with that text."""

    def __init__(self, server: Server, texts: Mapping[str, str] = {}) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(60)
        self._socket.connect(str(server.socket))
        self._reader = hiredis.Reader()
        self._texts = texts
        self._shas: dict[str, bytes] = {}

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def post(self, commands: Iterable[Iterable[Any]]) -> list[Any]:
        """Send commands together and return the answers; errors are values here."""
        packed = [hiredis.pack_command(tuple(command)) for command in commands]
        self._socket.sendall(b"".join(packed))
        return [self._read() for _ in packed]

    def run(self, *command: Any) -> Any:
        """Send one command and return the answer."""
        (answer,) = self.post([command])
        return _unless_refused(answer)

    def cpu_seconds(self) -> float:
        """Return the processor time that the server has used."""
        told = dict(line.split(b":", 1) for line in self.run("INFO", "cpu").splitlines() if b":" in line)
        return float(told[b"used_cpu_user"]) + float(told[b"used_cpu_sys"])

    def spelled(self, call: Call[Any], stream: bytes, sequence: int, late_after: int = -1) -> list[Any]:
        """Return a call as an EVALSHA command, after loading its script."""
        sha = self._sha_of(call.script.name, call.script.text)
        command = call.command(b"EVALSHA", sha, CallStream(stream, sequence), late_after)
        return [bytes(arg) if isinstance(arg, Pieces) else arg for arg in command]

    def carry(self, call: Call[Any], stream: bytes, sequence: int) -> Any:
        """Run a call and return the raw answer."""
        return self.run(*self.spelled(call, stream, sequence))

    def sha_of_text(self, text: str) -> bytes:
        """Load a script of the test."""
        return self._sha_of("", text)

    def _sha_of(self, name: str, text: str) -> bytes:
        text = self._texts.get(name, text)
        sha = self._shas.get(text)
        if sha is None:
            sha = self._shas[text] = hashlib.sha1(text.encode()).hexdigest().encode()
            self.run("SCRIPT", "LOAD", text)
        return sha

    def _read(self) -> Any:
        while (answer := self._reader.gets()) is False:
            received = self._socket.recv(1 << 16)
            if not received:
                raise ConnectionError("the server has closed the connection")
            self._reader.feed(received)
        return answer


def fill(wire: Wire) -> None:
    """Have the server refuse new data, as at its maxmemory."""
    # The limit is well above the server's own needs. SETRANGE makes a large value without sending it.
    wire.run("SETRANGE", "filler", 30_000_000, ".")
    wire.run("CONFIG", "SET", "maxmemory", "20mb")
    (answer,) = wire.post([("SET", "x", "1")])
    assert str(answer).startswith("OOM"), answer


def free(wire: Wire) -> None:
    """Have the server take new data again."""
    wire.run("CONFIG", "SET", "maxmemory", "0")
    wire.run("DEL", "filler")


def _unless_refused(answer: Any) -> Any:
    if isinstance(answer, hiredis.ReplyError):
        raise Refused(str(answer))
    return answer


@dataclass(frozen=True)
class State:
    """All stored data of a queue, except times to live. Equal states are equal queues."""

    msgs: dict[str, bytes]
    waiting: dict[int, dict[str, int]]
    """By priority; a priority without messages is absent."""
    leased: dict[str, int]
    leases: dict[str, codec.Lease]
    counts: dict[str, codec.Counts]
    why: dict[str, codec.Why]
    expires: dict[str, int]
    dead: dict[str, int]
    done: dict[str, int]
    dedup: dict[str, str]
    dedup_ends: dict[str, int]
    schedules: dict[str, bytes]
    slots: dict[str, int]
    lanes: dict[str, str]
    """By key: `+` if messages are parked in the lane, otherwise `-`, and the id of the owner."""
    parked: list[bytes]
    """The members, in their order."""
    wake: int
    stats: dict[str, int]
    """The counters of `meta`."""
    meta: dict[str, str]
    """The other fields of `meta`."""
    history: dict[str, bytes]
    """Points by their places in the rings, and sums of times."""
    calls: dict[bytes, bytes]

    def places(self, id_: str) -> list[str]:
        """Name every place of a message: one or none (I2)."""
        found = [f"waiting{priority}" for priority, ids in self.waiting.items() if id_ in ids]
        found += ["parked"] * self._times_parked[id_]
        return found + [name for name in ("leased", "dead", "done") if id_ in getattr(self, name)]

    @cached_property
    def _times_parked(self) -> Counter[str]:
        return Counter(self.parked_ids())

    def parked_ids(self, key: str | None = None) -> list[str]:
        """Name the parked messages of one key or of all, in order."""
        rows = [member.split(b"\0") for member in self.parked]
        return [rest[1 + DUE_DIGITS :].decode() for lane, rest in rows if key is None or lane == key.encode()]

    def due(self, id_: str) -> int:
        """Return when a waiting message is due."""
        (due,) = (ids[id_] for ids in self.waiting.values() if id_ in ids)
        return due

    def differences(self, other: "State") -> list[str]:
        """Name the keys that differ."""
        return [f.name for f in fields(self) if getattr(self, f.name) != getattr(other, f.name)]


_HASHES = ("msgs", "leases", "counts", "why", "dedup", "lanes", "schedules", "meta", "history")
_NO_COUNTERS = frozenset(
    {
        "clock",
        "paused",
        "priorities",
        "large",
        "lateness",
        "keyed",
        "tat",
        "limited",
        "retry_credit",
        *(f"before_{kind}{priority}" for kind in ("new", "retry") for priority in range(10)),
        "slot",
        "fed",
        "swept",
        "sweeping",
        "point",
        "dead_why",
        "done_why",
    }
)
_SETS = ("leased", "expires", "dead", "done", "dedup_ends", "slots")
_DUMPED = (*_HASHES, *_SETS, "parked", "wake", *(f"waiting{digit}" for digit in EVERY_PRIORITY))

_DUMP = """
local dump = {}
for i, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  if kind == 'hash' then
    dump[i] = redis.call('HGETALL', key)
  elseif kind == 'zset' then
    dump[i] = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif kind == 'list' then
    dump[i] = redis.call('LLEN', key)
  elseif kind == 'string' then
    dump[i] = redis.call('GET', key)
  else
    dump[i] = false
  end
end
return dump
"""


class Queue:
    """A queue under test: its keys, one stream of calls, and the wire to its server."""

    def __init__(self, wire: Wire, name: str, **options: Any) -> None:
        self.wire = wire
        self.keys = QueueKeys("duly", name)
        self.options = QueueOptions(**options)
        self.sequence = 0
        self._streams = [STREAM]

    def call(self, call: Call[Any], *, stream: bytes = STREAM, sequence: int | None = None) -> Any:
        """Run a call, with the next sequence number unless one is given, and return the raw answer."""
        if stream not in self._streams:
            self._streams.append(stream)
        if sequence is None:
            self.sequence += 1
            sequence = self.sequence
        return self.wire.carry(call, stream, sequence)

    def watch_streams(self, *streams: bytes) -> None:
        """Include the records of these streams of calls in dumps."""
        self._streams = list(streams)

    def dump(self) -> State:
        """Read everything, at one moment."""
        return self.read_dump(self.wire.run(*self.spelled_dump()))

    def spelled_dump(self) -> list[Any]:
        """Return the dump as a command, to be posted together with a call."""
        names = [self.keys.key(name) for name in _DUMPED] + [self.keys.call(stream) for stream in self._streams]
        return [b"EVALSHA", self.wire.sha_of_text(_DUMP), len(names), *names]

    def read_dump(self, answer: list[Any]) -> State:
        """Turn the answer to a dump into a value."""
        found = dict(zip(_DUMPED, answer, strict=False))
        hashes = {name: _pairs(found[name]) for name in _HASHES}
        found["leased"] = _without_guard(found["leased"] or [])
        sets = {name: _scores(found[name]) for name in _SETS}
        waiting = {int(digit): _scores(found[f"waiting{digit}"]) for digit in EVERY_PRIORITY}
        meta = hashes["meta"]
        calls = zip(self._streams, answer[len(_DUMPED) :], strict=True)
        return State(
            msgs=hashes["msgs"],
            waiting={priority: ids for priority, ids in waiting.items() if ids},
            leases={id_: _certain(codec.read_lease(lease)) for id_, lease in hashes["leases"].items()},
            counts={id_: codec.read_counts(counts) for id_, counts in hashes["counts"].items()},
            why={id_: _certain(codec.read_why(why)) for id_, why in hashes["why"].items()},
            dedup={value: id_.decode() for value, id_ in hashes["dedup"].items()},
            schedules=hashes["schedules"],
            lanes=_lanes(hashes["lanes"]),
            parked=_parked(found["parked"] or []),
            stats={name: int(value) for name, value in meta.items() if name not in _NO_COUNTERS},
            meta={name: value.decode() for name, value in meta.items() if name in _NO_COUNTERS},
            wake=found["wake"] or 0,
            history=hashes["history"],
            calls={stream: stored for stream, stored in calls if stored is not None},
            **sets,
        )

    def key_names(self) -> set[str]:
        """Name every key that the server has of this queue, known to us or not, except the history."""
        prefix = self.keys.prefix
        # Braces and dots mean nothing to a pattern; names hold no other special character.
        return {key[len(prefix) :].decode() for key in self.wire.run("KEYS", prefix + b"*")} - {"history"}

    # Helpers that bring a queue into a state. They use real scripts.

    def outgoing(self, id_: str, body: Any = b"body", **options: Any) -> Outgoing:
        """Prepare a message with a chosen id, which scripts treat like one made by a client."""
        is_own = options.pop("own", False)
        send = Send(body, id=id_ if is_own else None, **options)
        return Encoder(self.keys.name, self.options).outgoing(send, id_, NOW / SECOND)

    def send(self, *ids: str, on_refusal: ops.OnRefusal = "each", **options: Any) -> Any:
        """Send messages with the same options; return the raw answer."""
        return self.send_all([self.outgoing(id_, **options) for id_ in ids], on_refusal)

    def send_all(self, messages: list[Outgoing], on_refusal: ops.OnRefusal = "each") -> Any:
        """Send messages of one call; return the raw answer."""
        return self.call(ops.send(self.keys, messages, self.options, on_refusal))

    def claim_call(
        self,
        limit: int = 10,
        lease: float = 30,
        consumer: str = "c",
        then: ops.Then = "leave",
        suspects: ops.Suspects = "with",
    ) -> Any:
        """Make the call of a claim."""
        return ops.claim(
            self.keys, self.options, limit=limit, lease=lease, consumer=consumer, then=then, suspects=suspects
        )

    def claim(
        self,
        limit: int = 10,
        lease: float = 30,
        consumer: str = "c",
        then: ops.Then = "leave",
        suspects: ops.Suspects = "with",
    ) -> replies.Claimed:
        """Claim messages and return them."""
        return replies.claimed(self.call(self.claim_call(limit, lease, consumer, then, suspects)))

    def claim_by(self, late_after: int) -> replies.Claimed:
        """Make a claim that is late after a time of the server."""
        self.sequence += 1
        return replies.claimed(self.wire.run(*self.wire.spelled(self.claim_call(), STREAM, self.sequence, late_after)))

    def tidy(self) -> bool:
        """Tidy up once, and return whether there may be more to do."""
        call = ops.tidy(self.keys, self.options)
        return call.decode(self.call(call))

    def hold(self, *ids: str, lease: float = 30, **options: Any) -> list[ops.Settle]:
        """Send messages and claim them; return their leases in the order of the ids."""
        self.send(*ids, **options)
        fence = self.claim(len(ids), lease).fence
        return [ops.Settle(id_, fence, "key" in options) for id_ in ids]

    def bury(self, *ids: str, reason: str = "why", **options: Any) -> None:
        """Send messages and make them dead."""
        settles = self.hold(*ids, **options)
        self.call(ops.reject(self.keys, self.options, [(settle, reason, "", "") for settle in settles]))

    def lose_body(self, id_: str) -> None:
        """Remove a record, as only another program would."""
        self.wire.run("HDEL", self.keys.key("msgs"), id_)


A_WEEK: Final = Keep(age=7 * 86400)


class Topic:
    """A topic under test: its keys, one stream of calls, and the wire to its server."""

    def __init__(self, wire: Wire, name: str, keep: Keep | None = A_WEEK) -> None:
        self.wire = wire
        self.keys = TopicKeys("duly", name)
        self.keep = keep
        self.sequence = 0

    def call(self, call: Call[T], *, stream: bytes = STREAM, sequence: int | None = None) -> T:
        """Run a call, with the next sequence number unless one is given."""
        if sequence is None:
            self.sequence += 1
            sequence = self.sequence
        return call.decode(self.wire.carry(call, stream, sequence))

    def group(self, name: str = "g", start: str = "0", wanted: Sequence[str] = (), **options: Any) -> "Group":
        """Name a group of it, with the options of a queue. `wanted` are headers and their values, in turn."""
        return Group(self, name, start, wanted, **options)

    def run(self, command: str, *args: Any) -> Any:
        """Do what another program would do with the stream."""
        verb, *more = command.split()
        return self.wire.run(verb, *more, self.keys.stream, *args)

    def ids(self) -> list[str]:
        """Name the entries that the stream has."""
        return [id_.decode() for id_, _ in self.run("XRANGE", "-", "+")]

    def publish_call(self, *bodies: bytes, **options: Any) -> Call[list[str]]:
        """Make the call of a publish, with the same options for all."""
        return topic_ops.publish(self.keys, [_publication(body, **options) for body in bodies], self.keep)

    def publish(self, *bodies: bytes, **options: Any) -> list[str]:
        """Publish bytes and return the ids of the entries."""
        return self.call(self.publish_call(*bodies, **options))

    def publish_later(self, *ids: str, delay: float, body: bytes = b"body", **options: Any) -> list[str]:
        """Publish bodies with chosen ids and a delay in seconds."""
        encoder = Encoder(self.keys.name, QueueOptions())
        late = [encoder.outgoing(Send(body, delay=delay, **options), id_, NOW / SECOND) for id_ in ids]
        return self.call(ops.send(self.keys, late, QueueOptions(), "all")).ids

    def read(self, begin: str = "-", limit: int = 100) -> topic_ops.Reading:
        """Read entries."""
        return self.call(topic_ops.read(self.keys, begin, limit))

    def stats(self) -> topic_ops.TopicOverview:
        """Read sizes, counters and groups."""
        return self.call(topic_ops.stats(self.keys))

    def tidy(self) -> bool:
        """Tidy up once, and return whether there may be more to do."""
        return self.call(topic_ops.tidy(self.keys, self.keep))

    def memory(self) -> int:
        """Sum up the memory of all keys of the topic and its groups, except records of calls."""
        keys = [key for key in self.wire.run("KEYS", self.keys.prefix + b"*") if b":call:" not in key]
        return sum(self.wire.run("MEMORY", "USAGE", key, "SAMPLES", 0) for key in keys)


def _publication(
    body: bytes,
    key: bytes | str | None = None,
    headers: Mapping[str, bytes | str] = {},
    dedup: str = "",
    dedup_for: float = 300,
) -> topic_ops.Publication:
    fields: list[bytes | str] = ["bytes", body]
    if key is not None:
        fields += ("key", key)
    for name, value in headers.items():
        fields += (f"header:{name}", value)
    return topic_ops.Publication(fields, dedup, round(dedup_for * SECOND))


class Group(Queue):
    """A group of a topic under test. It is a queue whose messages come from a stream."""

    keys: GroupKeys

    def __init__(self, topic: Topic, name: str, start: str, wanted: Sequence[str], **options: Any) -> None:
        super().__init__(topic.wire, name, **options)
        self.topic = topic
        self.name = name
        self.start = start
        self.wanted = wanted
        self.keys = GroupKeys(topic.keys, name, frees=topic.keep is None)

    def claim_call(
        self,
        limit: int = 10,
        lease: float = 30,
        consumer: str = "c",
        then: ops.Then = "leave",
        suspects: ops.Suspects = "with",
    ) -> Any:
        return ops.claim(
            self.keys,
            self.options,
            limit=limit,
            lease=lease,
            consumer=consumer,
            then=then,
            suspects=suspects,
            feed=[self.start, *self.wanted],
        )

    def take(self, limit: int = 10, **options: Any) -> list[ops.Settle]:
        """Claim and return the leases."""
        return settles_of(self.claim(limit, **options))

    def held_bodies(self, limit: int = 10, **options: Any) -> list[bytes]:
        """Claim and return the bodies, in order."""
        return list(bodies_of(self.claim(limit, **options)).values())

    def ack(self, settles: Sequence[ops.Settle]) -> Any:
        """Ack held messages; return the positions of lost leases."""
        return self.call(ops.ack(self.keys, self.options, settles))

    def drain(self) -> list[bytes]:
        """Claim and ack until nothing is left; return the bodies in the order of delivery."""
        bodies: list[bytes] = []
        while True:
            claimed = self.claim(1000)
            bodies += bodies_of(claimed).values()
            if claimed.ids:
                self.ack(settles_of(claimed))
            elif claimed.next_in != 0:
                return bodies

    def seek(self, to: str, *, makes: bool = False) -> bool:
        """Move the group to the position after an id."""
        call = topic_ops.seek(self.keys, to, makes=makes)
        return call.decode(self.call(call))

    def pending(self) -> dict[str, str]:
        """Return the stream's pending list: ids and their consumers."""
        rows = self.topic.run("XPENDING", self.name, "-", "+", 1000)
        return {id_.decode(): consumer.decode() for id_, consumer, _, _ in rows}

    def consumers(self) -> set[str]:
        """Name the consumers that the stream knows."""
        rows = [_pairs(row) for row in self.topic.run("XINFO CONSUMERS", self.name)]
        return {row["name"].decode() for row in rows}


def settles_of(claimed: replies.Claimed) -> list[ops.Settle]:
    """Read the leases in the reply of a claim, in order."""
    rows = zip(claimed.ids, claimed.records, strict=True)
    return [ops.Settle(id_.decode(), claimed.fence, codec.has_key(record)) for id_, record in rows]


def _pairs(flat: list[bytes] | None) -> dict[str, bytes]:
    flat = flat or []
    return {name.decode(): value for name, value in zip(flat[0::2], flat[1::2], strict=True)}


def _without_guard(flat: list[bytes]) -> list[bytes]:
    """Remove the encoding guard. It is the last member, and exists while anything is leased."""
    if flat:
        assert flat[-2:] == [ENCODING_GUARD, b"inf"], "leases without an encoding guard"
        assert len(flat) > 2, "an encoding guard without leases"
    return flat[:-2]


def _lanes(found: dict[str, bytes]) -> dict[str, str]:
    """Remove the encoding guard. It exists while any lane is in use."""
    guard = found.pop("", None)
    assert guard == (ENCODING_GUARD if found else None), "lanes without a guard, or a guard without lanes"
    return {key: owner.decode() for key, owner in found.items()}


def _parked(flat: list[bytes]) -> list[bytes]:
    assert set(flat[1::2]) <= {b"0"}, "members of parked have the score 0"
    return flat[0::2]


def _scores(flat: list[bytes] | None) -> dict[str, int]:
    return {id_: int(float(score)) for id_, score in _pairs(flat).items()}


def _certain(value: T | None) -> T:
    assert value is not None
    return value


def bodies_of(claimed: replies.Claimed) -> dict[str, bytes]:
    """Read the bodies in the reply of a claim."""
    rows = zip(claimed.ids, claimed.records, strict=True)
    return {id_.decode(): codec.read_record(record).envelope.body for id_, record in rows}


def ids_of(claimed: replies.Claimed) -> list[str]:
    """Read the ids in the reply of a claim, in order."""
    return [id_.decode() for id_ in claimed.ids]
