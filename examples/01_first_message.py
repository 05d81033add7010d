"""Send a message, receive it, ack it.

In memory unless DULY_URL names a server: `DULY_URL=embedded://./data python examples/01_first_message.py`.
"""

import os

import duly

with duly.Duly(os.environ.get("DULY_URL", "memory://")) as app:
    orders = app.queue("example-orders")
    orders.send({"order": 1, "item": "tea"})
    orders.send({"order": 2, "item": "cups"})

    for d in orders.receive(limit=10, wait=1):
        with d:  # acked when the block ends, retried if it raises
            print("handling", d.body, "attempt", d.attempt)

    stats = orders.stats()
    print(f"{stats.sent} sent, {stats.acked} finished, {stats.live} left")
    orders.delete()
