"""Move what waits in a hand-made list (LPUSH and BRPOP, or RPOPLPUSH with a backup list) to a queue, losing nothing.

An entry of a list has no identity: two that look alike are two messages. So each one gets an id of its own on the way.
Kill the program wherever you like and start it again: each message arrives once.
"""

import json
import tempfile
import uuid
from collections.abc import Callable
from typing import Any

import redis

import duly
from duly.embedded import open_server

DAY = 86400.0

# One step on the server: the entry leaves the list and is held under its id, whatever else takes from that list.
# With the same id again, after a lost reply, the same entry comes back, and nothing more is taken.
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
        # First sent, then forgotten. A crash in between sends it again, and the dedup value stores it once: also if
        # the first copy has been handled and acked meanwhile, which an `id=` alone would not notice.
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
    return moved


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        server = open_server(directory)  # a real server of its own, since there are no lists on memory://
        old = redis.Redis(unix_socket_path=server.socket_path)
        app = duly.Duly(old)  # the same server; it may be another one
        mails = app.queue("mails")

        # What the old program left: three entries in the list, two of them alike, and one in the backup list of a
        # consumer that was killed.
        for to in ("ann", "bob", "bob"):
            old.lpush("mails", json.dumps({"to": to}))
        old.lpush("mails:processing", json.dumps({"to": "zoe"}))

        # The backup list first, since its entries are the oldest: only when the old consumers have been stopped.
        print("from the backup list:", drain(old, "mails:processing", mails))
        print("from the list:", drain(old, "mails", mails))
        print("in the queue:", [message.body["to"] for message in mails.list("ready")])
        assert [message.body["to"] for message in mails.list("ready")] == ["zoe", "ann", "bob", "bob"]
        assert not old.exists("mails", "mails:processing", "mails:moving")

        app.close()
        old.close()
        server.release()


if __name__ == "__main__":
    main()
