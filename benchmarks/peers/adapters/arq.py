"""arq. It asks the server every `poll_delay` seconds: 10 ms here, 500 by default, which drains 200 jobs per second."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import arq
from arq.connections import RedisSettings
from arq.worker import Worker, func

from benchmarks.peers.adapters import BaseAdapter


class Adapter(BaseAdapter):
    def build(self) -> None:
        handle_text = self.handle_async

        async def handle(_context: Any, text: str) -> None:
            await handle_text(text)

        self.settings = RedisSettings.from_dsn(self.url)
        self.function = func(handle, name="handle", max_tries=5)

    async def open(self) -> None:
        self.pool = await arq.create_pool(self.settings)

    def send(self, text: str) -> Any:
        return self.pool.enqueue_job("handle", text)

    def send_at(self, text: str, due: float) -> Any:
        return self.pool.enqueue_job("handle", text, _defer_until=datetime.fromtimestamp(due, UTC))

    def work(self) -> None:
        asyncio.set_event_loop(asyncio.new_event_loop())  # it asks for the current one
        Worker(
            [self.function],
            redis_settings=self.settings,
            keep_result=0,
            log_results=False,
            handle_signals=False,
            **self.options,
        ).run()
