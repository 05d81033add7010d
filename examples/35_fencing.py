"""Pass on the fencing token: a consumer that was frozen for too long cannot overwrite a later write in another store.

The rule is the same for a table in SQL and a hash in Redis: store the token with the value, and refuse a smaller one.
"""

import os
import sqlite3
from typing import Any

import duly

# For SQLite. PostgreSQL needs %s for each parameter, and BIGINT for the fencing token.
TABLE = "CREATE TABLE shipments (item TEXT PRIMARY KEY, state TEXT, fence INTEGER NOT NULL)"
WRITE_ROW = """
INSERT INTO shipments (item, state, fence) VALUES (?, ?, ?)
ON CONFLICT (item) DO UPDATE SET state = excluded.state, fence = excluded.fence
WHERE shipments.fence <= excluded.fence
"""

# For another Redis or Valkey server. On the server of the queue, d.commit(redis=...) checks the token.
WRITE_HASH = """
if tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) > tonumber(ARGV[1]) then
  return 0
end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'value', ARGV[2])
return 1
"""


def write_row(db: sqlite3.Connection, item: str, state: str, fence: int) -> bool:
    """Write a row, unless a later delivery has written it."""
    with db:
        return db.execute(WRITE_ROW, (item, state, fence)).rowcount == 1


def write_hash(client: Any, key: str, value: str, fence: int) -> bool:
    """Write a hash with a client of redis-py, unless a later delivery has written it."""
    return bool(client.eval(WRITE_HASH, 1, key, fence, value))


def main() -> None:
    app = duly.Duly(os.environ.get("DULY_URL", "memory://"))
    shipping = app.queue("example-fencing", lease=0.1)
    db = sqlite3.connect(":memory:")
    db.execute(TABLE)

    shipping.send("lamp")
    slow = shipping.receive(wait=5)[0]  # this consumer freezes, and its lease expires
    quick = shipping.receive(wait=5)[0]  # another one gets the message
    assert quick.fence > slow.fence
    assert write_row(db, "lamp", "sent", quick.fence)
    assert not write_row(db, "lamp", "packed", slow.fence)  # it wakes up, and is refused
    assert write_row(db, "lamp", "sent, again", quick.fence)  # its own repetitions are accepted
    print(db.execute("SELECT item, state FROM shipments").fetchall())

    quick.ack()
    shipping.delete()
    app.close()


if __name__ == "__main__":
    main()
