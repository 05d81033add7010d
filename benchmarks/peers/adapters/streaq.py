"""streaq: Redis Streams, and separate keys for each job."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from streaq import Worker

from benchmarks.peers.adapters import BaseAdapter


class Adapter(BaseAdapter):
    def build(self) -> None:
        handle_text = self.handle_async
        self.worker = Worker(
            redis_url=self.url, handle_signals=False, anyio_kwargs={"use_uvloop": True}, **self.options
        )

        @self.worker.task(silent=True, ttl=0, max_tries=5)
        async def handle(text: str) -> None:
            await handle_text(text)

        self.task = handle

    async def open(self) -> None:
        await self.worker.__aenter__()

    async def send(self, text: str) -> Any:
        return await self.task.enqueue(text)

    def send_many(self, texts: Sequence[str]) -> Any:
        return self.worker.enqueue_many([self.task.enqueue(text) for text in texts])

    async def send_at(self, text: str, due: float) -> Any:
        return await self.task.enqueue(text).start(schedule=datetime.fromtimestamp(due, UTC))

    def work(self) -> None:
        self.worker.run_sync()
