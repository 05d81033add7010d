"""taskiq on Redis Streams, with orjson. Its delays want a scheduler process beside the worker: left out."""

import asyncio
from typing import Any

from taskiq.api import run_receiver_task
from taskiq.serializers import ORJSONSerializer
from taskiq_redis import RedisStreamBroker

from benchmarks.peers.adapters import BaseAdapter


class Adapter(BaseAdapter):
    def build(self) -> None:
        note = self.note
        self.broker = RedisStreamBroker(self.url, xread_count=100).with_serializer(ORJSONSerializer())

        @self.broker.task(task_name="handle")
        async def handle(text: str) -> None:
            note(text)

        self.task = handle

    async def open(self) -> None:
        await self.broker.startup()

    def send(self, text: str) -> Any:
        return self.task.kiq(text)

    def work(self) -> None:
        asyncio.run(
            run_receiver_task(
                self.broker, max_async_tasks=100, max_prefetch=100, validate_params=False, run_startup=True
            )
        )
