"""Photograph the dashboard for the README: a shop at work, in a browser without a window.

Run it after a change of the pages: `python tools/dashboard_picture.py`. It takes a minute and a half, and a Chromium:
/usr/bin/chromium unless CHROMIUM names another. The messages are made up; the server is an embedded Valkey.
"""

import asyncio
import itertools
import math
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Final

import uvicorn
from playwright.async_api import async_playwright

import duly
from duly.web import create_app

PICTURE: Final = Path(__file__).parents[1] / "docs/images/dashboard.png"
LARGEST: Final = 150_000
SIZE: Final = (1120, 700)
SECONDS: Final = 90
"""Long enough for the course of the rates to be seen."""
PACES: Final = {"invoices": 9, "mails": 60, "orders": 34, "payments": 14, "thumbnails": 22}
"""Messages a second."""
CHANCE: Final = random.Random(17)  # noqa: S311 - nothing is to be guessed here


async def main() -> None:
    """Take the picture, and refuse a file that is too large."""
    with tempfile.TemporaryDirectory() as directory:
        await show(f"embedded://{directory}/shop")
    if PICTURE.stat().st_size > LARGEST:
        sys.exit(f"{PICTURE.name} has {PICTURE.stat().st_size} bytes: at most {LARGEST} are meant")


async def show(url: str) -> None:
    """Run a shop on the server of `url` until the picture is taken."""
    async with duly.AsyncDuly(url) as app:
        await fill(app)
        server = uvicorn.Server(uvicorn.Config(create_app(app), port=0, log_level="warning", lifespan="off"))
        serving = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.05)
        register(app)
        async with duly.Worker(app, grace=5):
            sending = asyncio.create_task(send(app))
            await photograph(server.servers[0].sockets[0].getsockname()[1])
            sending.cancel()
        server.should_exit = True
        await serving


async def fill(app: duly.AsyncDuly) -> None:
    """Leave what a shop has after a day: orders that wait to be closed, a few dead payments, a group that lags."""
    await app.queue("orders").send_many([duly.Send({"n": n}, delay=600 + n) for n in range(4310)])
    await app.queue("mails").send_many([{"n": n} for n in range(480)])
    await app.queue("payments").send_many([duly.Send({"n": n}, key=f"user-{n % 30}") for n in range(55)])
    payments = app.queue("payments", retry=duly.Retry(attempts=1))
    for d in await payments.receive(limit=2, wait=0):
        await d.retry(error="TimeoutError: the bank does not answer")
    await app.queue("newsletters").send_many([duly.Send({"n": n}, delay=86400) for n in range(1200)])
    await app.queue("newsletters").pause()
    events = app.topic("events")
    await events.publish_many([{"n": n} for n in range(830)])
    for name in ("archive", "totals"):
        for d in await events.group(name).receive(limit=700 if name == "totals" else 20, wait=0):
            await d.ack()


def register(app: duly.AsyncDuly) -> None:
    """Handle what comes, each kind at its own speed."""

    async def handle(body: dict[str, int]) -> None:
        await asyncio.sleep(0.1 + body["n"] % 7 / 20)

    for name, pace in PACES.items():
        app.queue(name).handler(concurrency=pace)(handle)
    app.topic("events").handler(group="totals")(handle)


async def send(app: duly.AsyncDuly) -> None:
    """Let messages come, in waves, until somebody ends it."""
    for moment in itertools.count():
        for place, (name, pace) in enumerate(PACES.items()):
            wave = 1 + 0.6 * math.sin(moment / (4 + 3 * place)) + CHANCE.uniform(-0.2, 0.2)
            keyed = name == "payments"
            bodies = [duly.Send({"n": n}, key=f"user-{n % 4}" if keyed else None) for n in range(int(pace * wave / 2))]
            await app.queue(name).send_many(bodies)
        await app.topic("events").publish_many([{"n": n} for n in range(5)])
        await asyncio.sleep(0.5)


async def photograph(port: int) -> None:
    """Look at the overview for a while, and take the picture."""
    async with async_playwright() as browsers:
        path = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        browser = await browsers.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = await browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]}, color_scheme="light")
        await page.goto(f"http://127.0.0.1:{port}/")
        await asyncio.sleep(SECONDS)
        await page.screenshot(path=PICTURE)
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
