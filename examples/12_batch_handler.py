"""A batch handler: one insert for many messages, and an outcome for each of them."""

import asyncio
import os
import sqlite3

import duly

app = duly.AsyncDuly(os.environ.get("DULY_URL", "memory://"))
visits = app.queue("example-visits", retry=duly.Retry(attempts=2, first=0.1))
db = sqlite3.connect(":memory:")
db.execute("CREATE TABLE visit (message TEXT PRIMARY KEY, page TEXT NOT NULL)")


@visits.handler(batch=duly.Batch(max=100, wait=0.1))  # at most a hundred, or the messages of 0.1 s
async def on_visits(pages: list[str], deliveries: list[duly.AsyncDelivery]) -> list[object]:
    outcomes: list[object] = []
    with db:  # one transaction for all; the ids make it safe to repeat
        for page, d in zip(pages, deliveries, strict=True):
            if page == "/robots.txt":
                outcomes.append(duly.Reject("not a page"))
            elif page == "/busy" and d.attempt == 1:
                outcomes.append(ConnectionError("not now"))  # this one is retried, by the policy
            else:
                db.execute("INSERT OR IGNORE INTO visit VALUES (?, ?)", (d.id, page))
                outcomes.append(None)  # acked
    print("a batch of", len(pages))
    return outcomes


async def main() -> None:
    await visits.send_many([f"/{number}" for number in range(248)] + ["/busy", "/robots.txt"])
    async with duly.Worker(app):
        while (await visits.stats()).live:  # noqa: ASYNC110 - until nothing is left
            await asyncio.sleep(0.05)

    print("stored", db.execute("SELECT count(*) FROM visit").fetchone()[0], "dead", (await visits.stats()).dead)
    assert db.execute("SELECT count(*) FROM visit").fetchone() == (249,)
    db.close()
    await visits.delete()
    await app.aclose()


asyncio.run(main())
