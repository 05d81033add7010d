"""Check a fixed set of accounts again and again with several consumers.

An ack and a new message in one atomic step: each account exists exactly once, even if consumers are killed. No account
is checked twice at a time, and none is lost.
"""

import os
import threading
from collections import Counter

import duly

ACCOUNTS, CHECKS = 20, 200
checks: Counter[str] = Counter()
lock = threading.Lock()


def check_accounts(circle: duly.Queue) -> None:
    while sum(checks.values()) < CHECKS:
        for d in circle.receive(limit=2, wait=0.2):
            with lock:
                checks[d.body["account"]] += 1
            d.recycle(delay=0.01)  # acked, and sent again with a delay


with duly.Duly(os.environ.get("DULY_URL", "memory://")) as app:
    circle = app.queue("example-circle")
    circle.send_many([{"account": f"account-{n}"} for n in range(ACCOUNTS)])

    workers = [threading.Thread(target=check_accounts, args=(circle,)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    print(f"{sum(checks.values())} checks of {len(checks)} accounts; in the circle: {circle.stats().live}")
    assert circle.stats().live == ACCOUNTS
    assert circle.audit()
    circle.delete()
