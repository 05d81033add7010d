"""A fence that is passed on: a consumer that stood still for too long cannot overwrite a later write, wherever it is.

The same rule for a table in SQL and for a hash in Redis: store the fence with the value, and refuse a smaller one.
"""

import os
import sqlite3
from typing import Any

import duly

# For SQLite. PostgreSQL takes the same statement with %s for each parameter, and BIGINT for the fence.
TABLE = "CREATE TABLE shipments (item TEXT PRIMARY KEY, state TEXT, fence INTEGER NOT NULL)"
WRITE_ROW = """
INSERT INTO shipments (item, state, fence) VALUES (?, ?, ?)
ON CONFLICT (item) DO UPDATE SET state = excluded.state, fence = excluded.fence
WHERE shipments.fence <= excluded.fence
"""

# For a Redis or Valkey that is not the one of the queue: there, d.commit(redis=...) checks the fence.
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
    slow = shipping.receive(wait=5)[0]  # this consumer stands still, and its lease expires
    quick = shipping.receive(wait=5)[0]  # so another one gets the message
    assert quick.fence > slow.fence
    assert write_row(db, "lamp", "sent", quick.fence)
    assert not write_row(db, "lamp", "packed", slow.fence)  # it wakes up, and is refused
    assert write_row(db, "lamp", "sent, again", quick.fence)  # its own repeats are not
    print(db.execute("SELECT item, state FROM shipments").fetchall())

    quick.ack()
    shipping.delete()
    app.close()


if __name__ == "__main__":
    main()
