"""taskiq on Redis Streams, with orjson. Its delays need a scheduler process next to the worker: `accompany`."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from taskiq import TaskiqScheduler
from taskiq.api import run_receiver_task, run_scheduler_task
from taskiq.serializers import ORJSONSerializer
from taskiq_redis import ListRedisScheduleSource, RedisStreamBroker

from benchmarks.peers.adapters import BaseAdapter


class Adapter(BaseAdapter):
    def build(self) -> None:
        handle_text = self.handle_async
        recovery = {"idle_timeout": self.options["idle_timeout"]} if "idle_timeout" in self.options else {}
        broker = RedisStreamBroker(self.url, xread_count=100, **recovery)
        self.broker = broker.with_serializer(ORJSONSerializer())
        self.source = ListRedisScheduleSource(self.url, buffer_size=500)

        @self.broker.task(task_name="handle")
        async def handle(text: str) -> None:
            await handle_text(text)

        self.task = handle

    async def open(self) -> None:
        await self.broker.startup()
        await self.source.startup()

    def send(self, text: str) -> Any:
        return self.task.kiq(text)

    def send_at(self, text: str, due: float) -> Any:
        return self.task.schedule_by_time(self.source, datetime.fromtimestamp(due, UTC), text)

    def work(self) -> None:
        asyncio.run(
            run_receiver_task(
                self.broker, max_async_tasks=100, max_prefetch=100, validate_params=False, run_startup=True
            )
        )

    def accompany(self) -> None:
        scheduler = TaskiqScheduler(self.broker, [self.source])
        asyncio.run(run_scheduler_task(scheduler, run_startup=True, interval=timedelta(seconds=1)))
