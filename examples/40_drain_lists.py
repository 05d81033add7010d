"""Move messages from your own Redis list or sorted set to a queue of Duly without losing any.

A list is LPUSH and BRPOP, or RPOPLPUSH with a backup list. A sorted set is ZADD with the due time as the score.
An entry of a list has no identity: two equal entries are two messages. So each one gets its own id on the way.
A member of a sorted set is unique, and is identified by its value and its time.
You can kill the program at any point and start it again: each message arrives once.
"""

import hashlib
import json
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from typing import Any

import redis

import duly
from duly.embedded import open_server

DAY = 86400.0

# One atomic step: the entry leaves the list and is stored under its id, even if other programs take from that list.
# A call that is repeated with the same id, after a lost reply, returns the same entry, and takes nothing more.
TAKE = """
local held = redis.call('HGET', KEYS[2], ARGV[1])
if held then return held end
local entry = redis.call(ARGV[2], KEYS[1])
if entry then redis.call('HSET', KEYS[2], ARGV[1], entry) end
return entry
"""


def drain(
    old: redis.Redis,
    name: str,
    queue: duly.Queue,
    *,
    pop: str = "RPOP",
    decode: Callable[[bytes], Any] = json.loads,
) -> int:
    """Move all entries of a list, in the order in which `pop` would have taken them. Return how many were moved.

    An entry that cannot be decoded is kept under `NAME:moving`, and named in an error at the end.
    """
    holding = f"{name}:moving"
    take = old.register_script(TAKE)
    unread: list[str] = []

    def move(entry_id: str, entry: bytes) -> int:
        try:
            body = decode(entry)
        except (LookupError, TypeError, ValueError) as problem:
            unread.append(f"{entry[:40]!r}, {problem!r}")
            return 0
        # First send, then remove. A crash in between sends it again, and the dedup value stores it once: even if
        # the first copy has already been handled and acked, which an `id=` alone would not notice.
        queue.send(body, dedup=f"drain-{entry_id}", dedup_for=DAY)
        old.hdel(holding, entry_id)
        return 1

    moved = 0
    for left_behind, entry in old.hgetall(holding).items():  # by a run that was killed
        moved += move(left_behind.decode(), entry)
    while (entry := take(keys=[name, holding], args=[entry_id := uuid.uuid4().hex, pop])) is not None:
        moved += move(entry_id, entry)
    if unread:
        raise ValueError(f"{len(unread)} entries cannot be decoded, and are kept in {holding}: {'; '.join(unread)}")
    if not moved:
        print(f"nothing was found in the list {name!r}: is it the right name, server and database?", file=sys.stderr)
    return moved


def drain_sorted_set(
    old: redis.Redis,
    name: str,
    queue: duly.Queue,
    *,
    unit: float = 1.0,
    decode: Callable[[bytes], Any] = json.loads,
) -> int:
    """Move all members of a sorted set, each with its score as the due time. Return how many were moved.

    Scores are seconds since the epoch; with `unit=0.001`, milliseconds. First stop the program that takes due members
    out of the set: it would take some that were just sent. A member that cannot be decoded stays, and an error names
    it.
    """
    moved, unread = 0, []
    for member, score in old.zrange(name, 0, -1, withscores=True):
        try:
            body = decode(member)
        except (LookupError, TypeError, ValueError) as problem:
            unread.append(f"{member[:40]!r}, {problem!r}")
            continue
        # The time is part of the value: the same member may have been there before, with another time.
        entry = hashlib.sha256(f"{score} ".encode() + member).hexdigest()
        queue.send(body, at=score * unit, dedup=f"drain-{entry}", dedup_for=DAY)  # first send, then remove
        old.zrem(name, member)
        moved += 1
    if unread:
        raise ValueError(f"{len(unread)} members cannot be decoded, and stay in {name}: {'; '.join(unread)}")
    if not moved:
        print(f"nothing was found in the sorted set {name!r}: is it the right name and server?", file=sys.stderr)
    return moved


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        server = open_server(directory)  # a real server, because memory:// has no lists
        old = redis.Redis(unix_socket_path=server.socket_path)
        app = duly.Duly(old)  # the same server; it may be another one
        mails = app.queue("mails")

        # The old program left three entries in the list, two of them equal, one in the backup list of a
        # consumer that was killed, and one in the sorted set, for later.
        for to in ("ann", "bob", "bob"):
            old.lpush("mails", json.dumps({"to": to}))
        old.lpush("mails:processing", json.dumps({"to": "zoe"}))
        old.zadd("mails:later", {json.dumps({"to": "eve"}): time.time() + 1800})

        # The backup list first, since its entries are the oldest: only when the old consumers have been stopped.
        print("from the backup list:", drain(old, "mails:processing", mails))
        print("from the list:", drain(old, "mails", mails))
        print("from the sorted set:", drain_sorted_set(old, "mails:later", mails))
        print("in the queue:", [message.body["to"] for message in mails.list("ready")])
        assert [message.body["to"] for message in mails.list("ready")] == ["zoe", "ann", "bob", "bob"]
        assert [message.body["to"] for message in mails.list("delayed")] == ["eve"]
        assert not old.exists("mails", "mails:processing", "mails:moving", "mails:later")

        app.close()
        old.close()
        server.release()


if __name__ == "__main__":
    main()
