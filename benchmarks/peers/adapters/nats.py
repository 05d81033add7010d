"""NATS JetStream by nats-py: a stream in files, a pull consumer in batches, and an ack after the work."""

import asyncio
from typing import Any

import nats
from nats.js.api import ConsumerConfig, RetentionPolicy, StorageType, StreamConfig

from benchmarks.peers.adapters import BaseAdapter

_SUBJECT, _STREAM, _CONSUMER = "contest", "CONTEST", "workers"


class Adapter(BaseAdapter):
    def build(self) -> None:
        """Leave it to `open` and `work`: a connection belongs to its event loop."""

    async def open(self) -> None:
        self.connection = await nats.connect(self.url, max_reconnect_attempts=0)
        self.stream = self.connection.jetstream(timeout=60)
        await self.stream.add_stream(
            StreamConfig(
                name=_STREAM,
                subjects=[_SUBJECT],
                retention=RetentionPolicy.WORK_QUEUE,
                storage=StorageType.FILE,
            )
        )

    async def send(self, text: str) -> Any:
        return await self.stream.publish(_SUBJECT, text.encode())

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        await self.open()
        config = ConsumerConfig(ack_wait=self.options["ack_wait"], max_ack_pending=self.options["batch"] * 10)
        consumer = await self.stream.pull_subscribe(_SUBJECT, durable=_CONSUMER, config=config)
        while True:
            try:
                messages = await consumer.fetch(self.options["batch"], timeout=5)
            except nats.errors.TimeoutError:
                continue
            await asyncio.gather(*(self._take(message) for message in messages))

    async def _take(self, message: Any) -> None:
        await self.handle_async(message.data.decode())
        await message.ack()
