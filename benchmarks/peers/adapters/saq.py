"""saq. At least once only with retries above 1. It counts whole seconds, so a message may be early."""

import asyncio
from typing import Any

import redis.asyncio
from saq import Worker
from saq.queue.redis import RedisQueue

from benchmarks.peers.adapters import BaseAdapter


class Adapter(BaseAdapter):
    def build(self) -> None:
        handle_text = self.handle_async

        async def handle(_context: Any, *, text: str) -> None:
            await handle_text(text)

        self.function = handle
        self.job = {"ttl": -1, "retries": 3, "timeout": self.options.get("timeout", 10)}

    def _queue(self) -> RedisQueue:
        # A connection for each job that waits, more than redis-py's pool has by default.
        client = redis.asyncio.from_url(self.url, max_connections=1000)
        return RedisQueue(client, max_concurrent_ops=100)

    async def open(self) -> None:
        self.queue = self._queue()
        await self.queue.connect()

    def send(self, text: str) -> Any:
        return self.queue.enqueue("handle", text=text, **self.job)

    def send_at(self, text: str, due: float) -> Any:
        return self.queue.enqueue("handle", text=text, scheduled=int(due), **self.job)

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        functions = [("handle", self.function)]
        given = {name: self.options[name] for name in ("concurrency", "timers") if name in self.options}
        await Worker(self._queue(), functions=functions, **given).start()
