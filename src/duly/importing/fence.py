"""Takes messages out of a place so that no other consumer gets them, and keeps them until they have been sent.

A message that is taken is in a hash next to its place, as the `Arrival` that will be sent. So a move that is killed
loses nothing: the next one sends what it finds there first. It is sent with the same dedup value, so that a message
whose removal was not recorded is stored once. It has the queue that it moves to: a move to another queue could send it
a second time, and is refused.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import msgspec

import duly
from duly import _port
from duly._port import Arg
from duly.errors import UsageError
from duly.importing.source import Arrival, Command, Entry, Key, Place

_TAKE: Final = b"""
local kind, name, to, taken = ARGV[1], ARGV[2], ARGV[3], {}
for i = 4, #ARGV, 3 do
  local held = redis.call('HGET', KEYS[2], ARGV[i])
  if held and string.find(held, name, 1, true) and string.sub(held, -#name - #to) ~= name .. to then
    return false
  end
end
for i = 4, #ARGV, 3 do
  local id, member, arrival = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local is_ours = redis.call('HEXISTS', KEYS[2], id) == 1
  if not is_ours then
    local removed
    if kind == 'sorted' then
      removed = redis.call('ZREM', KEYS[1], member)
    elseif kind == 'hash' then
      removed = redis.call('HDEL', KEYS[1], member)
    else
      removed = redis.call('LREM', KEYS[1], kind == 'left' and 1 or -1, member)
    end
    is_ours = removed == 1
    if is_ours then redis.call('HSET', KEYS[2], id, arrival) end
  end
  taken[#taken + 1] = is_ours and 1 or 0
end
return taken
"""
"""An entry leaves its place and is kept under its id in one step. A repeated call takes nothing more.

It takes none, and returns false, if a move to another queue has taken one of them and not recorded its send. The queue
is the last field of an `Arrival`: it has `name` and the encoded queue at its end. Scripts cannot read the bytes before.
"""

_decoder = msgspec.msgpack.Decoder(Arrival)


class Held(NamedTuple):
    """A message that was taken and is kept until it has been sent."""

    id: str
    arrival: Arrival


class Fence:
    """The messages of one place that are on their way."""

    def __init__(self, app: duly.Duly, place: Place, to: str) -> None:
        """Take the name of the queue that messages move to."""
        self._app = app
        self._place = place
        self._to = to
        self._source = Key(app, place.key)
        self._holding = Key(app, holding_key(place.key))

    def held(self) -> list[Held]:
        """Return the messages that a stopped move to this queue has not sent. UsageError: it was to another queue."""
        found = self._holding.ask("HGETALL")
        pairs = found.items() if isinstance(found, dict) else zip(found[::2], found[1::2], strict=True)
        held = [Held(id_.decode(), _decoder.decode(raw)) for id_, raw in pairs]
        for _, arrival in held:
            if arrival.to not in (None, self._to):
                raise UsageError(
                    f"an import to the queue {arrival.to} was stopped, or still runs: it has taken messages of "
                    f"{self._place.key!r} and not sent them. Finish it first: repeat it to that queue, then import to "
                    f"{self._to}"
                )
        return held

    def read(self, skip: int, limit: int) -> list[Entry]:
        """Return the next entries of the place, oldest first, after some that stay there. Changes nothing."""
        place, ask = self._place, self._source.ask
        if place.kind == "sorted":
            return list(_scored(ask("ZRANGE", skip, skip + limit - 1, "WITHSCORES")))
        if place.kind == "hash":
            fields = sorted(ask("HKEYS"))[skip : skip + limit]
            values = ask("HMGET", *fields) if fields else []
            return [Entry(field, value=value) for field, value in zip(fields, values, strict=True) if value is not None]
        if place.oldest == "left":
            return [Entry(each) for each in ask("LRANGE", skip, skip + limit - 1)]
        return [Entry(each) for each in reversed(ask("LRANGE", -skip - limit, -skip - 1))]

    def take(self, moving: Sequence[tuple[Entry, Arrival]]) -> list[Held]:
        """Take entries out of the place. Those that another consumer has taken in between are left out.

        UsageError: a move to another queue has taken one of them, and still runs or was stopped.
        """
        if not moving:
            return []
        held = [Held(arrival.id or uuid.uuid4().hex, replace(arrival, to=self._to)) for _, arrival in moving]
        kind = self._place.oldest if self._place.kind == "list" else self._place.kind
        arguments: list[Arg] = [kind, msgspec.msgpack.encode("to"), msgspec.msgpack.encode(self._to)]
        for (entry, _), (id_, arrival) in zip(moving, held, strict=True):
            arguments += [id_, entry.member, msgspec.msgpack.encode(arrival)]
        taken = self._source.run(_TAKE, [self._holding.name], arguments)
        if taken is None:
            self.held()  # raises, unless the other move has gone on
            return []
        return [each for each, is_taken in zip(held, taken, strict=True) if is_taken]

    def remove(self, entry: Entry) -> None:
        """Remove an entry that has nothing to move. Safe to repeat: such an entry is the id of a message."""
        if self._place.kind == "list":
            self._source.ask("LREM", 0, entry.member)
        else:
            self._source.ask("ZREM" if self._place.kind == "sorted" else "HDEL", entry.member)

    def forget(self, sent: Sequence[Held]) -> None:
        """Delete the rest of messages that have been sent. Safe to repeat."""
        for each in sent:
            delete(self._app, each.arrival.then or [])
        if sent:
            self._holding.ask("HDEL", *(each.id for each in sent))


def delete(app: duly.Duly, commands: Sequence[Command]) -> None:
    """Run commands that delete the rest of a message."""
    for name, key, *arguments in commands:
        _port.foreign_command(app, key.decode(errors="surrogateescape"), name, key, *arguments)


def holding_key(key: str) -> str:
    """Return the key of the messages of a place that are on their way, in the same slot of a cluster."""
    return f"duly-import:{key}" if "{" in key else f"duly-import:{{{key}}}"


def _scored(reply: Sequence[Any]) -> Iterator[Entry]:
    """Read members with scores: a flat list, or pairs in RESP3."""
    is_paired = bool(reply) and isinstance(reply[0], (list, tuple))
    pairs: Iterable[Any] = reply if is_paired else zip(reply[::2], reply[1::2], strict=True)
    for member, score in pairs:
        yield Entry(member, float(score))
