"""Claims and handlers overlap: the server carries out the next claim while the handlers of the last one run."""

from typing import Any, Final

import pytest

import duly
from duly._async.link import AsyncLink
from tests.conftest import StartedServer
from tests.worker.rig import eventually

MESSAGES: Final = 1200
SLOTS: Final = 600
"""More than one claim brings, so that there is room for another one."""


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note the claims of a worker and their answers in the order in which they happen. Handlers add themselves."""
    steps: list[str] = []
    run_claim = AsyncLink.run_claim

    async def noted(link: AsyncLink, call: Any, *args: Any) -> Any:
        steps.append("claim")
        answer = await run_claim(link, call, *args)
        steps.append("answer")
        return answer

    monkeypatch.setattr(AsyncLink, "run_claim", noted)
    return steps


async def test_in_a_backlog_the_next_claim_is_sent_before_handlers_start(
    server: StartedServer, queue_name: str, steps: list[str]
) -> None:
    async with duly.AsyncDuly(server("valkey").url) as app:
        queue = app.queue(queue_name)

        @queue.handler(concurrency=SLOTS)
        async def handle(_body: str) -> None:
            steps.append("handler")

        await queue.send_many(["x"] * MESSAGES)
        async with duly.Worker(app, duly.WorkerOptions()):
            await eventually(lambda: steps.count("handler") == MESSAGES)

    assert steps[:4] == ["claim", "answer", "claim", "handler"]


async def test_without_room_for_more_handlers_come_before_the_next_claim(
    server: StartedServer, queue_name: str, steps: list[str]
) -> None:
    async with duly.AsyncDuly(server("valkey").url) as app:
        queue = app.queue(queue_name)

        @queue.handler(concurrency=10)
        async def handle(_body: str) -> None:
            steps.append("handler")

        await queue.send_many(["x"] * 100)
        async with duly.Worker(app, duly.WorkerOptions()):
            await eventually(lambda: steps.count("handler") == 100)

    assert steps[:12] == ["claim", "answer", *["handler"] * 10]


async def test_a_stop_releases_the_messages_of_a_claim_that_is_sent_ahead(
    server: StartedServer, queue_name: str, steps: list[str]
) -> None:
    async with duly.AsyncDuly(server("valkey").url) as app:
        queue = app.queue(queue_name, lease=3600)

        @queue.handler(concurrency=SLOTS)
        async def handle(_body: str) -> None:
            steps.append("handler")
            worker.stop()

        await queue.send_many(["x"] * MESSAGES)
        worker = duly.Worker(app, duly.WorkerOptions())
        async with worker:
            await eventually(lambda: "handler" in steps)
        stats = await queue.stats()

    assert steps[:4] == ["claim", "answer", "claim", "handler"]
    assert steps.count("claim") == steps.count("answer") == 2
    assert stats.acked == steps.count("handler")
    assert (stats.leased, stats.ready) == (0, MESSAGES - stats.acked)
