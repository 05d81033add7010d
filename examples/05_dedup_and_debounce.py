"""Send one message for many presses of a button (dedup); and search only for the last text (debounce)."""

import os

import duly

with duly.Duly(os.environ.get("DULY_URL", "memory://")) as app:
    work = app.queue("example-work")

    presses = {work.send({"pay": 17}, dedup="pay-17", dedup_for=3600) for _ in range(5)}
    print("five presses,", len(presses), "message")

    for typed in ("r", "re", "red", "redis"):
        work.send({"search": typed}, dedup="search-of-user-9", replace=True, delay=0.2)

    while batch := work.receive(wait=0.5):
        for d in batch:
            with d:
                print(d.body)

    print("duplicates", work.stats().duplicates, "replaced", work.stats().replaced)
    work.delete()
