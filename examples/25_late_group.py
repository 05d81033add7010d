"""A topic remembers: a group that is made late sees what is kept, and any group may go back and read it again."""

import os
from datetime import UTC, datetime, timedelta

import duly

app = duly.Duly(os.environ.get("DULY_URL", "memory://"))
orders = app.topic("example-orders", keep=duly.Keep(count=1000, age=7 * 86400))  # a week, and 1,000 at the most


def taken(group: duly.Group) -> list[str]:
    """Take what the group has not had yet, finish it, and return it."""
    batch = group.receive(limit=100, wait=0.2)
    assert group.ack_many(batch) == []
    return [d.body["order"] for d in batch]


# The shop has been running for a while, with one group.
mails = orders.group("mails")
ids = orders.publish_many([{"order": name} for name in ("tea", "cups", "pots")])
print("mails:", taken(mails))

# Statistics are added later. Its group begins with the first entry that is kept.
statistics = orders.group("statistics")
assert taken(statistics) == ["tea", "cups", "pots"]
print("statistics, made late, has seen everything")

# Another one wants nothing of the past. It has to exist before what it is to get.
screen = orders.group("screen", start="new")
assert screen.create()
orders.publish({"order": "trays"})
assert taken(screen) == ["trays"]
print("screen has seen what came since it was made")

# The statistics were wrong: read everything again, from the beginning, behind an entry, or from a time on.
assert taken(statistics) == ["trays"]
statistics.seek("beginning")
assert taken(statistics) == ["tea", "cups", "pots", "trays"]
statistics.seek(ids[1])
assert taken(statistics) == ["pots", "trays"]
statistics.seek(datetime.now(UTC) - timedelta(hours=1))
assert len(taken(statistics)) == 4
print("statistics has read everything again, and no other group has noticed:")
for group in orders.groups():
    print(f"  {group.name}: {group.unread} unread, {group.missed} missed")

# And anybody may look, without a group and without a trace.
page = orders.read(limit=2)
rest = orders.read(after=page[-1].id)
print("in the stream:", [entry.body["order"] for entry in page + rest])
assert [entry.id for entry in page][1] == ids[1]
assert rest[-1].id == orders.stats().last_id

orders.delete()
app.close()
