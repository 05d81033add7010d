"""redis-message-queue with a visibility timeout: at least once. Many loops, each with one message at a time."""

import asyncio
from typing import Any

import redis.asyncio
from redis_message_queue.asyncio import RedisMessageQueue

from benchmarks.peers.adapters import BaseAdapter


class Adapter(BaseAdapter):
    def build(self) -> None:
        """Leave it to `open` and `work`: a client belongs to its event loop."""

    def _queue(self) -> RedisMessageQueue:
        return RedisMessageQueue(
            "contest",
            client=redis.asyncio.from_url(self.url),
            deduplication=False,
            visibility_timeout_seconds=self.options["visibility_timeout"],
        )

    async def open(self) -> None:
        self.queue = self._queue()

    def send(self, text: str) -> Any:
        return self.queue.publish(text)

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        queue = self._queue()
        await asyncio.gather(*(self._take(queue) for _ in range(self.options["loops"])))

    async def _take(self, queue: RedisMessageQueue) -> None:
        while True:
            async with queue.process_message() as message:
                if message is not None:
                    await self.handle_async(message.decode() if isinstance(message, bytes) else message)
