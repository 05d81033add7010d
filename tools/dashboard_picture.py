"""Photograph the dashboard for the docs: a shop at work, in a browser without a window.

Run it after a change of the pages: `PYTHONPATH=. python tools/dashboard_picture.py`. It takes about three minutes: the
clock of the server starts an hour ago, and each minute of this hour takes two seconds. It needs a Chromium,
/usr/bin/chromium unless CHROMIUM names another, a font with Chinese characters, gcc, and port 6379. The messages are
made up; the server is a private Valkey.
"""

import asyncio
import itertools
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import uvicorn
from playwright.async_api import Page, ViewportSize, async_playwright

import duly
from duly.web import create_app
from tests.binaries import find_binary
from tests.clock import ServerClock

PICTURES: Final = Path(os.environ.get("PICTURES", Path(__file__).parents[1] / "docs/images"))
LARGEST: Final = 150_000
PORT: Final = 6379
URL: Final = f"redis://localhost:{PORT}/0"
MINUTES: Final = int(os.environ.get("PICTURE_MINUTES", "63"))
"""Charts show the last hour of them, without the first messages, which are many."""
SECONDS: Final = float(os.environ.get("PICTURE_SECONDS", "60"))
"""How long the shop works at the usual speed of time, for the rates."""
PACES: Final = {"invoices": 2, "mails": 12, "orders": 8, "payments": 5, "thumbnails": 4}
"""Messages per second."""
PER_MINUTE: Final = 10
"""The seconds whose messages a minute of the history has."""
BACKLOG: Final = 1.5
"""The seconds whose messages wait at the end of a minute."""
CHANCE: Final = random.Random(17)  # noqa: S311 - nothing is to be guessed here


async def main() -> None:
    """Take the pictures, and refuse files that are too large."""
    with ServerClock() as clock, running_server(clock):
        await show(clock)
    for each in PICTURES.glob("dashboard*.png"):
        if each.stat().st_size > LARGEST:
            sys.exit(f"{each.name} has {each.stat().st_size} bytes: at most {LARGEST} are allowed")


@contextmanager
def running_server(clock: ServerClock) -> Iterator[None]:
    """Run a server on the usual port, so that the pages show the usual address."""
    clock.step(-60 * MINUTES)
    with tempfile.TemporaryDirectory() as directory:
        options = ("--bind", "127.0.0.1", "--port", str(PORT), "--dir", directory, "--save", "")
        environment = os.environ | clock.environment()
        server = subprocess.Popen([find_binary("valkey"), *options], stdout=subprocess.DEVNULL, env=environment)
        try:
            time.sleep(1)
            if server.poll() is not None:
                sys.exit(f"a server cannot be started on port {PORT}: is there another?")
            yield
        finally:
            server.terminate()
            server.wait(30)


async def show(clock: ServerClock) -> None:
    """Run a shop until the pictures are taken."""
    async with duly.AsyncDuly(URL) as app:
        register(app)
        await fill(app)
        await pass_minutes(app, clock)
        server = uvicorn.Server(uvicorn.Config(create_app(app), port=0, log_level="warning", lifespan="off"))
        serving = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.05)
        async with duly.Worker(app, grace=5):
            sending = asyncio.create_task(send(app))
            await photograph(app, server.servers[0].sockets[0].getsockname()[1])
            sending.cancel()
        server.should_exit = True
        await serving


async def fill(app: duly.AsyncDuly) -> None:
    """Leave messages as a shop has them after a day: a newsletter, a group that lags."""
    await app.queue("newsletters").send_many([duly.Send({"n": n}, delay=86400) for n in range(1200)])
    await app.queue("newsletters").pause()
    events = app.topic("events")
    await events.group("archive").create()
    await events.publish_many([{"n": n} for n in range(120)])


def register(app: duly.AsyncDuly) -> None:
    """Handle messages, each kind at its own speed. Some payments fail."""

    async def handle(body: dict[str, int]) -> None:
        await asyncio.sleep(0.05 + body["n"] % 7 / 20)

    async def pay(body: dict[str, Any]) -> None:
        await asyncio.sleep(0.05 + body["order"] % 9 / 60)
        if body["order"] % 97 == 0:
            raise ValueError(f"card of customer {body['customer']} has expired")
        if body["order"] % 41 == 0:
            raise TimeoutError("the bank does not answer")
        if body["order"] % 61 == 0:
            raise ConnectionError("the bank answered with status 503")

    for name in PACES.keys() - {"payments"}:
        app.queue(name).handler(concurrency=60)(handle)
    retry = duly.Retry(attempts=3, first=0.2, factor=2, jitter=0.2)
    app.queue("payments", retry=retry, rate="50/s", lease=60).handler(concurrency=60)(pay)
    app.topic("events").handler(group="totals")(handle)


async def pass_minutes(app: duly.AsyncDuly, clock: ServerClock) -> None:
    """Work until the server's clock is that of this machine. Each minute is cut short after a second or two.

    Each minute has its own worker, which reports its times when it stops.
    """
    orders = itertools.count(1)
    behind = 60.0 * MINUTES
    while behind:
        await send_wave(app, orders, -behind, PER_MINUTE)
        await app.queue("orders").send_many([duly.Send({"n": n}, delay=behind + 900, spread=2700) for n in range(15)])
        for d in await app.topic("events").group("archive").receive(limit=20, wait=0):
            await d.ack()
        async with duly.Worker(app, grace=10):
            await asyncio.sleep(2)
        for left in (3, -1):
            step = min(behind, max(0.0, seconds_of_minute(behind) - left))
            clock.step(step)
            behind -= step
            if left > 0:
                await send_wave(app, orders, -behind, BACKLOG)


def seconds_of_minute(behind: float) -> float:
    """Return how many seconds are left of the minute of a clock that is `behind` seconds slow."""
    return 60 - (time.time() - behind) % 60


async def send(app: duly.AsyncDuly) -> None:
    """Send messages in waves, until the task is cancelled."""
    orders = itertools.count(100_000)
    for moment in itertools.count():
        await send_wave(app, orders, moment, 0.4)
        await asyncio.sleep(1)


async def send_wave(app: duly.AsyncDuly, orders: Iterator[int], moment: float, seconds: float) -> None:
    """Send what arrives in this time."""
    for place, (name, pace) in enumerate(PACES.items()):
        wave = 1 + 0.6 * math.sin(moment / (40 + 30 * place)) + CHANCE.uniform(-0.2, 0.2)
        bodies = [duly.Send({"n": n}) for n in range(int(pace * wave * seconds))]
        if name == "payments":
            bodies = [payment(next(orders)) for _ in bodies]
        await app.queue(name).send_many(bodies)
    await app.topic("events").publish_many([{"n": n} for n in range(int(2 * seconds))])


def payment(order: int) -> duly.Send:
    """Make the message of a payment."""
    customer = CHANCE.randrange(1000, 9999)
    body = {"order": order, "customer": customer, "amount": CHANCE.randrange(5, 200) + 0.95, "currency": "EUR"}
    return duly.Send(body, key=f"customer-{customer}", headers={"source": "web"})


async def photograph(app: duly.AsyncDuly, port: int) -> None:
    """Wait, and take the pictures."""
    async with async_playwright() as browsers:
        path = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        browser = await browsers.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = await browser.new_page(viewport={"width": 1120, "height": 700}, color_scheme="light")
        await page.goto(f"http://127.0.0.1:{port}/")
        await asyncio.sleep(SECONDS)
        await take(page, "dashboard", 1040)
        await page.goto(f"http://127.0.0.1:{port}/queues/orders")
        await asyncio.sleep(20)  # for the rates
        await take(page, "dashboard-queue", 1010)
        await page.goto(f"http://127.0.0.1:{port}/queues/payments/dead")
        await take(page, "dashboard-dead", 900)
        [letter] = await app.queue("payments").find_dead(duly.Where(error="*bank*"), limit=1)
        await page.goto(f"http://127.0.0.1:{port}/queues/payments/messages/{letter.id}")
        await take(page, "dashboard-message", 1180)
        await browser.close()


async def take(page: Page, name: str, height: int) -> None:
    """Save the upper part of a page."""
    await page.set_viewport_size(ViewportSize(width=1120, height=height))
    await page.screenshot(path=PICTURES / f"{name}.png")


if __name__ == "__main__":
    asyncio.run(main())
