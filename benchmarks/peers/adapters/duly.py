"""Duly, by the rules of all parties. Options: `handler` async, sync or slow; `lease`; `queues`; `group`."""

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any, Final

import duly
from benchmarks.peers.adapters import BaseAdapter

QUEUE: Final = "contest"


class Adapter(BaseAdapter):
    def build(self) -> None:
        self.app = duly.Duly(self.url)
        if "group" in self.options:
            self._build_topic(self.options["group"])
            return
        self.queue = self.app.queue(QUEUE, lease=self.options.get("lease", 30.0))
        kind = self.options.get("handler", "async")
        handlers = {"async": self._define_async, "sync": self._define_sync, "slow": self._define_slow}
        handlers[kind](self.queue)
        others = [self.app.queue(f"{QUEUE}-{number}") for number in range(1, self.options.get("queues", 1))]
        for queue in others:
            handlers[kind](queue)
        self.producer: Any = self.queue if kind == "sync" else self.queue.aio
        self.in_turn: Iterator[Any] = cycle([self.producer, *(queue.aio for queue in others)])

    def _build_topic(self, group: str) -> None:
        """Have a topic instead of a queue. It is only drained."""
        topic = self.app.topic(QUEUE)
        note = self.handle

        @topic.handler(group=group)
        async def handle(text: str) -> None:
            note(text)

        self.topic = topic.aio

    def _define_async(self, queue: duly.Queue) -> None:
        note = self.handle

        @queue.handler
        async def handle(text: str) -> None:
            note(text)

    def _define_sync(self, queue: duly.Queue) -> None:
        note = self.handle

        @queue.handler
        def handle(text: str) -> None:
            note(text)

    def _define_slow(self, queue: duly.Queue) -> None:
        handle_text = self.handle_async

        @queue.handler(concurrency=100)
        async def handle(text: str) -> None:
            await handle_text(text)

    def send(self, text: str) -> Any:
        return self.producer.send(text)

    def send_many(self, texts: Sequence[str]) -> Any:
        if "group" in self.options:
            return self.topic.publish_many(texts)
        return self.producer.send_many(texts)

    def send_at(self, text: str, due: float) -> Any:
        return next(self.in_turn).send(text, at=due)

    def work(self) -> None:
        self.app.run()
