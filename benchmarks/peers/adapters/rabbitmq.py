"""RabbitMQ by aio-pika: a durable queue, persistent messages, publisher confirms, and an ack after the work."""

import asyncio
from typing import Any

import aio_pika

from benchmarks.peers.adapters import BaseAdapter

_QUEUE = "contest"


class Adapter(BaseAdapter):
    def build(self) -> None:
        """Leave it to `open` and `work`: a connection belongs to its event loop."""

    async def open(self) -> None:
        self.connection = await aio_pika.connect(self.url)
        self.channel = await self.connection.channel(publisher_confirms=True)
        self.queue = await self.channel.declare_queue(
            _QUEUE, durable=True, arguments={"x-queue-type": self.options["kind"]}
        )

    def send(self, text: str) -> Any:
        message = aio_pika.Message(text.encode(), delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        return self.channel.default_exchange.publish(message, _QUEUE)

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        await self.open()
        await self.channel.set_qos(prefetch_count=self.options["prefetch"])
        await self.queue.consume(self._take)
        await asyncio.Event().wait()

    async def _take(self, message: aio_pika.abc.AbstractIncomingMessage) -> None:
        await self.handle_async(message.body.decode())
        await message.ack()
