"""Move messages of github.com/hdt3213/delayqueue (Go), with due times and retries: `duly import delayqueue`."""

import tempfile
import time

import redis

import duly
from duly import importing
from duly.embedded import open_server


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        server = open_server(directory)  # a real server, because memory:// has no such keys
        old = redis.Redis(unix_socket_path=server.socket_path)
        for number, delay in ((1, 1800), (2, 3600)):  # the keys that SendScheduleMsg writes
            old.set(f"dp:orders:msg:id-{number}", f"close order {number}", ex=delay + 3600)
            old.hset("dp:orders:retry:cnt", f"id-{number}", "3")
            old.zadd("dp:orders:pending", {f"id-{number}": int(time.time()) + delay})

        app = duly.Duly(old)  # the same server; it may be another one
        orders = app.queue("orders")
        print(importing.move(importing.Delayqueue(app, "orders"), orders))

        assert [message.body for message in orders.list("delayed")] == ["close order 1", "close order 2"]
        assert list(old.scan_iter("dp:*")) == []
        app.close()
        old.close()
        server.release()


if __name__ == "__main__":
    main()
