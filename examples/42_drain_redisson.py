"""Move messages of an RDelayedQueue of Redisson (Java) to a queue of Duly, with due times.

Stop the Java processes that hold the RDelayedQueue first: they move entries when they become due. Values that are
already due are in the destination list, without an id: `drain(..., pop="LPOP")` of 40_drain_lists.py moves that list.
You can kill this program at any point and start it again: each message arrives once.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import redis

import duly
from duly.embedded import open_server

DAY = 86400.0
ID_BYTES = 8


def unpack(entry: bytes) -> tuple[bytes, bytes]:
    """Split an entry into its random id and the value as the codec wrote it.

    Redisson packs them with Lua's struct: a byte with the length of the id, the id, eight bytes with the length of the
    value, the value ('Bc0Lc0'). Old versions began with the id at once, as a double ('dLc0').
    """
    for start in (1, 0):
        id_, size = entry[start : start + ID_BYTES], entry[start + ID_BYTES : start + ID_BYTES + 8]
        value = entry[start + ID_BYTES + 8 :]
        is_whole = len(size) == 8 and len(value) == int.from_bytes(size, "little")
        if is_whole and (start == 0 or entry[0] == ID_BYTES):
            return id_, value
    raise ValueError(f"not an entry of an RDelayedQueue: {entry!r}")


def drain(old: redis.Redis, name: str, queue: duly.Queue, *, decode: Callable[[bytes], Any] = bytes) -> int:
    """Move all entries of the RDelayedQueue on top of the queue `name`. Return how many were moved.

    `decode` reads what the codec of Java wrote: `json.loads` if it is JSON, also as the text of a StringCodec;
    `bytes.decode` only for handlers that take a str. Without one the bytes are passed on as they are.
    An entry that cannot be read stays where it is, and is named in an error at the end.
    """
    tagged = name if "{" in name else "{" + name + "}"
    timeouts, entries = f"redisson_delay_queue_timeout:{tagged}", f"redisson_delay_queue:{tagged}"
    moved, unread = 0, []
    for entry, due_ms in old.zrange(timeouts, 0, -1, withscores=True):
        try:
            id_, value = unpack(entry)
            body = decode(value)
        except (LookupError, TypeError, ValueError) as problem:
            unread.append(f"{entry[:40]!r}, {problem!r}")
            continue
        # First sent, then forgotten: a crash in between sends it again, and the dedup value stores it once.
        queue.send(body, at=due_ms / 1000, dedup=f"redisson-{id_.hex()}", dedup_for=DAY)
        with old.pipeline(transaction=True) as step:
            step.zrem(timeouts, entry)
            step.lrem(entries, 1, entry)
            step.execute()
        moved += 1
    if unread:
        raise ValueError(f"{len(unread)} entries cannot be read, and stay in {timeouts}: {'; '.join(unread)}")
    if not moved:
        print(f"nothing was found in {timeouts}: is it the right name, server and database?", file=sys.stderr)
    return moved


def plain(value: Any) -> Any:
    """Take the names of Java classes out of what JsonJacksonCodec wrote."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items() if name != "@class"}
    if isinstance(value, list):
        if len(value) == 2 and isinstance(value[0], str) and value[0].startswith("java."):
            return plain(value[1])  # ["java.util.ArrayList", [...]], ["java.lang.Long", 17]
        return [plain(item) for item in value]
    return value


# The same commands as RDelayedQueue.offer(), so that there are entries to move.
OFFER = """
local entry = struct.pack('Bc0Lc0', #ARGV[2], ARGV[2], #ARGV[3], ARGV[3])
redis.call('ZADD', KEYS[1], ARGV[1], entry)
redis.call('RPUSH', KEYS[2], entry)
"""


def offer(old: redis.Redis, name: str, value: str, due: float) -> None:
    keys = [f"redisson_delay_queue_timeout:{{{name}}}", f"redisson_delay_queue:{{{name}}}"]
    old.eval(OFFER, 2, *keys, str(int(due * 1000)), os.urandom(ID_BYTES), value)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        server = open_server(directory)  # a real server, because memory:// has no such keys
        old = redis.Redis(unix_socket_path=server.socket_path)
        app = duly.Duly(old)  # the same server; it may be another one
        orders = app.queue("orders")

        now = time.time()
        for order, delay in ((1, 1800), (2, 60), (2, 60)):  # two that are alike are two
            value = {"@class": "shop.Order", "order": order, "items": ["java.util.ArrayList", ["tea"]]}
            offer(old, "orders", json.dumps(value), now + delay)

        print("moved:", drain(old, "orders", orders, decode=lambda value: plain(json.loads(value))))
        for message in orders.list("delayed"):
            print(f"{message.body}, due in {message.due_at.timestamp() - now:.0f} s")
        assert [message.body["order"] for message in orders.list("delayed")] == [2, 2, 1]
        assert orders.list("delayed")[0].body == {"order": 2, "items": ["tea"]}
        assert list(old.scan_iter("redisson*")) == []

        app.close()
        old.close()
        server.release()


if __name__ == "__main__":
    main()
