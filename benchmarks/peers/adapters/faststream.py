"""faststream on Redis Streams. With `min_idle_time`, a second subscriber takes over the messages of a dead worker."""

import asyncio
from contextlib import suppress
from typing import Any

import redis.asyncio
from faststream import AckPolicy, FastStream
from faststream.redis import RedisBroker, StreamSub

from benchmarks.peers.adapters import BaseAdapter

_STREAM, _GROUP = "contest", "workers"


class Adapter(BaseAdapter):
    def build(self) -> None:
        handle_text = self.handle_async
        self.broker = RedisBroker(self.url, logger=None)
        stream = StreamSub(_STREAM, group=_GROUP, consumer="first", max_records=100)

        @self.broker.subscriber(stream=stream, max_workers=self.options["workers"], ack_policy=AckPolicy.NACK_ON_ERROR)
        async def handle(text: str) -> None:
            await handle_text(text)

        if "min_idle_time" in self.options:
            idle = StreamSub(_STREAM, group=_GROUP, consumer="second", min_idle_time=self.options["min_idle_time"])

            @self.broker.subscriber(stream=idle, ack_policy=AckPolicy.NACK_ON_ERROR)
            async def take_over(text: str) -> None:
                await handle_text(text)

    async def open(self) -> None:
        await self.broker.connect()
        with suppress(redis.asyncio.ResponseError):  # the group exists already
            await redis.asyncio.from_url(self.url).xgroup_create(_STREAM, _GROUP, id="0", mkstream=True)

    def send(self, text: str) -> Any:
        return self.broker.publish(text, stream=_STREAM)

    def work(self) -> None:
        asyncio.run(FastStream(self.broker, logger=None).run())
