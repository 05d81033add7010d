"""Move your own Redis list and sorted set to a queue: `duly import list`, `duly import sorted-set`.

You can stop it at any point and start it again: each message arrives once.
"""

import json
import tempfile
import time

import redis

import duly
from duly import importing
from duly.embedded import open_server


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        server = open_server(directory)  # a real server, because memory:// has no lists
        old = redis.Redis(unix_socket_path=server.socket_path)
        for to in ("ann", "bob", "bob"):  # two equal entries become two messages
            old.lpush("mails", json.dumps({"to": to}))
        old.zadd("mails:later", {json.dumps({"to": "eve"}): time.time() + 1800})

        app = duly.Duly(old)  # the same server; it may be another one
        mails = app.queue("mails")
        print(importing.move(importing.PlainList(app, "mails"), mails))
        print(importing.move(importing.PlainSortedSet(app, "mails:later"), mails))

        assert [message.body["to"] for message in mails.list("ready")] == ["ann", "bob", "bob"]
        assert [message.body["to"] for message in mails.list("delayed")] == ["eve"]
        assert not old.exists("mails", "mails:later")
        app.close()
        old.close()
        server.release()


if __name__ == "__main__":
    main()
