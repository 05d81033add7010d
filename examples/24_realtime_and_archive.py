"""One message for two uses: totals in real time, and an archive. A topic with two groups.

Meters publish each reading once. The group "totals" adds up the readings of each minute in memory. The group "archive"
writes them to a file, in batches; its disk fails until all totals are there. Each group has its own progress and its
own retries, and does not wait for the other.
"""

import asyncio
import json
import logging
import os
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import duly

MINUTES = ("09:00", "09:01", "09:02")
METERS = 20

app = duly.AsyncDuly(os.environ.get("DULY_URL", "memory://"))
readings = app.topic(
    "example-readings",
    keep=None,  # an entry is freed as soon as both groups have acked it
    retry=duly.Retry(attempts=1000, first=0.1, factor=1),
)


@dataclass
class Reading:
    meter: int
    minute: str
    watts: int


totals: dict[str, dict[str, int]] = defaultdict(dict)  # minute -> id of the reading -> watts: twice changes nothing
disk_is_there = asyncio.Event()


@readings.handler(group="totals")
async def on_reading(reading: Reading, d: duly.AsyncDelivery) -> None:
    totals[reading.minute][d.id] = reading.watts


@readings.handler(group="archive", batch=duly.Batch(max=20, wait=0.1), concurrency=1)
async def on_readings(batch: list[Reading], deliveries: list[duly.AsyncDelivery]) -> None:
    if not disk_is_there.is_set():
        raise OSError("the disk does not answer")  # the whole batch is retried, in this group only
    lines = [
        json.dumps({"id": d.id, "meter": reading.meter, "minute": reading.minute, "watts": reading.watts}) + "\n"
        for reading, d in zip(batch, deliveries, strict=True)
    ]
    with archive.open("a") as file:
        file.writelines(lines)  # readers find duplicates by the id in each line


def archived() -> dict[str, dict[str, int | str]]:
    """Read the archive back: each reading once, by its id."""
    if not archive.exists():
        return {}
    return {line["id"]: line for line in map(json.loads, archive.read_text().splitlines())}


async def main() -> None:
    count = len(MINUTES) * METERS
    # With keep=None create the groups first: an entry is removed when all existing groups have acked it.
    for name in ("totals", "archive"):
        await readings.group(name).create()
    # Published before any consumer exists: a group starts with the oldest entry, so nothing is lost.
    for minute in MINUTES:
        await readings.publish_many([Reading(meter, minute, 100 + meter) for meter in range(METERS)])

    async with duly.Worker(app):
        begin = time.monotonic()
        while sum(map(len, totals.values())) < count:  # noqa: ASYNC110 - until all are counted
            await asyncio.sleep(0.01)
        print(f"after {time.monotonic() - begin:.2f} s the totals have all {count} readings:")
        for minute in MINUTES:
            print(f"  {minute} {sum(totals[minute].values())} W")
        print(f"  the archive has {len(archived())} of them, and the totals did not wait for it")
        assert archived() == {}

        while not (await readings.group("archive").stats()).retried:  # noqa: ASYNC110 - until it has tried
            await asyncio.sleep(0.01)
        disk_is_there.set()
        while len(archived()) < count:  # noqa: ASYNC110 - until all are written
            await asyncio.sleep(0.05)
        print(f"after {time.monotonic() - begin:.2f} s the archive has all {count} as well")

    for minute in MINUTES:
        assert sum(totals[minute].values()) == sum(range(100, 100 + METERS))
        lines = [line for line in archived().values() if line["minute"] == minute]
        assert sorted(line["meter"] for line in lines) == list(range(METERS))
    for group in await readings.groups():
        print(f"group {group.name}: {group.unread} unread, {group.pending} pending, {group.dead} dead")
    retried = (await readings.group("archive").stats()).retried
    print(f"the archive had {retried} retries, the totals {(await readings.group('totals').stats()).retried}")
    assert retried > 0

    left = (await readings.stats()).length
    print(f"entries left in the stream: {left}")
    assert left == 0

    await readings.delete()
    await app.aclose()


logging.getLogger("duly.worker").setLevel(logging.ERROR)  # a disk that fails is expected here
with tempfile.TemporaryDirectory() as directory:
    archive = Path(directory) / "readings.jsonl"
    asyncio.run(main())
