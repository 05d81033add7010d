"""repid: Redis Streams, entries in batches of 100. Those of a dead worker are claimed only if an option asks for it."""

import asyncio
from typing import Any

import repid
from repid.connections.redis.message_broker import RedisServer

from benchmarks.peers.adapters import BaseAdapter


class Adapter(BaseAdapter):
    def build(self) -> None:
        handle_text = self.handle_async
        router = repid.Router()

        @router.actor(channel="contest")
        async def handle(text: str) -> None:
            await handle_text(text)

        recovery = {name: self.options[name] for name in ("claim_interval", "min_idle_ms") if name in self.options}
        self.server = RedisServer(self.url, batch_size=100, **recovery)
        self.app = repid.Repid()
        self.app.servers.register_server("default", self.server, is_default=True)
        self.app.include_router(router)

    async def open(self) -> None:
        await self.server.connect()

    def send(self, text: str) -> Any:
        return self.app.send_message_json(channel="contest", payload={"text": text}, headers={"topic": "handle"})

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        async with self.server.connection():
            await self.app.run_worker(tasks_limit=self.options.get("tasks", 100), register_signals=[])
