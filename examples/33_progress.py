"""Report how far a handler is, and read it elsewhere while the handler runs: for a progress bar, or an impatient user.

The dashboard and the HTTP API show the same report.
"""

import asyncio
import os

import duly

app = duly.AsyncDuly(os.environ.get("DULY_URL", "memory://"))
imports = app.queue("example-imports", type=list[str], done=duly.Keep(count=10))
was_read = asyncio.Event()


@imports.handler
async def on_import(rows: list[str], d: duly.AsyncDelivery[list[str]]) -> int:
    for number, row in enumerate(rows):
        was_read.clear()
        await d.progress(number / len(rows), f"row {number + 1}: {row}")
        await was_read.wait()  # in place of the work
    return len(rows)


async def main() -> None:
    id_ = await imports.send(["tea", "cups", "spoons"])

    async with duly.Worker(app):
        shown: list[str] = []
        while len(shown) < 3:
            message = await imports.get(id_)
            if message is not None and message.progress is not None and str(message.progress) not in shown:
                shown.append(str(message.progress))
                print(shown[-1])  # 0%: row 1: tea
                was_read.set()
            await asyncio.sleep(0.01)
        print("imported", await imports.result(id_), "rows")

    message = await imports.get(id_)
    assert message is not None
    print("and now:", message.state, message.progress)  # the report ends with its delivery
    await imports.delete()
    await app.aclose()


asyncio.run(main())
