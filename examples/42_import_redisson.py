"""Move a queue of Redisson (Java) and its RDelayedQueue, with due times: `duly import redisson --body json`."""

import os
import struct
import tempfile
import time

import redis

import duly
from duly import importing
from duly.embedded import open_server


def offer(old: redis.Redis, name: str, value: bytes, due: float) -> None:
    """Write the keys that RDelayedQueue.offer() writes."""
    entry = b"\x08" + os.urandom(8) + struct.pack("<Q", len(value)) + value
    old.zadd(f"redisson_delay_queue_timeout:{{{name}}}", {entry: int(due * 1000)})
    old.rpush(f"redisson_delay_queue:{{{name}}}", entry)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        server = open_server(directory)  # a real server, because memory:// has no such keys
        old = redis.Redis(unix_socket_path=server.socket_path)
        offer(old, "orders", b'{"@class": "shop.Order", "id": 17}', time.time() + 1800)
        old.rpush("orders", b'{"@class": "shop.Order", "id": 16}')  # it is due

        app = duly.Duly(old)  # the same server; it may be another one
        orders = app.queue("orders")
        print(importing.move(importing.RedissonQueue(app, "orders", body="json"), orders))

        assert [message.body for message in orders.list("ready")] == [{"id": 16}]
        assert [message.body for message in orders.list("delayed")] == [{"id": 17}]
        assert not old.exists("orders", "redisson_delay_queue:{orders}", "redisson_delay_queue_timeout:{orders}")
        app.close()
        old.close()
        server.release()


if __name__ == "__main__":
    main()
