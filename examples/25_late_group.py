"""A topic retains its entries: a late group reads them all, and any group may seek back and read them again."""

import os
from datetime import UTC, datetime, timedelta

import duly

app = duly.Duly(os.environ.get("DULY_URL", "memory://"))
orders = app.topic("example-orders", keep=duly.Keep(count=1000, age=7 * 86400))  # a week, and 1,000 at the most


def taken(group: duly.Group) -> list[str]:
    """Receive the unread entries of a group, ack them, and return their orders."""
    batch = group.receive(limit=100, wait=0.2)
    assert group.ack_many(batch) == []
    return [d.body["order"] for d in batch]


# The shop has been running for a while, with one group.
mails = orders.group("mails")
ids = orders.publish_many([{"order": name} for name in ("tea", "cups", "pots")])
print("mails:", taken(mails))

# Statistics are added later. Their group starts with the oldest entry.
statistics = orders.group("statistics")
assert taken(statistics) == ["tea", "cups", "pots"]
print("statistics, created late, has seen everything")

# Another group needs no history. Create it before the entries that it should get.
screen = orders.group("screen", start="new")
assert screen.create()
orders.publish({"order": "trays"})
assert taken(screen) == ["trays"]
print("screen has seen the entries since its creation")

# The statistics were wrong: read everything again, from the beginning, after an entry, or from a time on.
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

# Any program can read, without a group and without changing anything.
page = orders.read(limit=2)
rest = orders.read(after=page[-1].id)
print("in the stream:", [entry.body["order"] for entry in page + rest])
assert [entry.id for entry in page][1] == ids[1]
assert rest[-1].id == orders.stats().last_id

orders.delete()
app.close()
