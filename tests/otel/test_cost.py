"""An app that is not instrumented runs no code for it."""

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import duly
import duly.otel
from duly import Send
from duly._core import observing
from tests.otel.recording import Recorder
from tests.worker.rig import eventually

MESSAGES = 50


@contextmanager
def calls_counted() -> Iterator[Counter[str]]:
    """Count the calls of functions of the port and of the extra, in all threads that are started from now on."""
    counted: Counter[str] = Counter()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and (module == observing.__name__ or module.startswith("duly.otel")):
            counted[f"{module}.{frame.f_code.co_name}"] += 1

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        yield counted
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


async def use(app: duly.AsyncDuly) -> None:
    """Send, receive and handle messages in all ways."""
    orders, mail, events = app.queue("orders"), app.queue("mail"), app.topic("events")
    handled, seen = app.queue("handled"), set[int]()

    @handled.handler
    async def on_message(body: int) -> None:
        seen.add(body)

    for number in range(MESSAGES):
        await orders.send(number)
        await orders.send(number, key="k")
        await events.publish(number)
    await orders.send_many([1, Send(2)])
    await handled.send_many(range(MESSAGES))
    async with duly.Worker(app):
        await eventually(lambda: len(seen) == MESSAGES)
    for delivery in await orders.receive(wait=0):
        async with delivery as d:
            await d.commit(send=[(mail, 1)], publish=[(events, 2)])


async def test_without_an_observer_none_of_its_code_runs() -> None:
    with calls_counted() as counted:
        async with duly.AsyncDuly("memory://") as app:
            await use(app)

    assert counted == {}


async def test_the_count_finds_the_code_of_an_instrumented_app(recorder: Recorder) -> None:
    with calls_counted() as counted:
        async with duly.AsyncDuly("memory://") as app:
            recorder.instrument(app)
            await use(app)

    assert counted["duly.otel.tracing.processing"] >= MESSAGES
    assert counted["duly._core.observing.encoded"] >= 2 * MESSAGES
