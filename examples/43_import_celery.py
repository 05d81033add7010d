"""Move a queue of Celery to tasks of Duly, with ETA, expiry and priority: `duly import celery --task OLD=NEW`.

Without names of tasks the messages stay those of Celery, and Celery workers on `duly+redis://` run them.
"""

import base64
import json
import tempfile
from datetime import UTC, datetime, timedelta

import redis

import duly
from duly import importing
from duly.embedded import open_server


def message_of(order: str, tag: str, eta: str | None = None, chain: list[object] | None = None) -> str:
    """Write a message as Celery 5 does."""
    call = [[order], {}, {"callbacks": None, "errbacks": None, "chain": chain, "chord": None}]
    return json.dumps(
        {
            "body": base64.b64encode(json.dumps(call).encode()).decode(),
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": {"lang": "py", "task": "shop.close", "id": f"id-of-{tag}", "eta": eta, "expires": None},
            "properties": {"priority": 0, "body_encoding": "base64", "delivery_tag": tag},
        }
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        server = open_server(directory)  # a real server, because memory:// has no lists
        old = redis.Redis(unix_socket_path=server.socket_path)
        in_an_hour = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        old.lpush("celery", message_of("A", "1"))
        old.lpush("celery", message_of("B", "2", eta=in_an_hour))
        old.lpush("celery", message_of("C", "3", chain=[{"task": "shop.tell", "args": []}]))

        app = duly.Duly(old)  # the same server; it may be another one

        @app.task(queue="orders")
        def close(order: str) -> None:
            """Close an order that was not paid."""

        print(importing.move(importing.CeleryQueue(app, "celery", tasks={"shop.close": "close"}), close.queue))

        assert [message.body["args"] for message in close.queue.list("ready")] == [["A"]]
        assert [message.body["args"] for message in close.queue.list("delayed")] == [["B"]]
        assert old.llen("celery") == 1  # the one with a chain is for the old workers
        app.close()
        old.close()
        server.release()


if __name__ == "__main__":
    main()
