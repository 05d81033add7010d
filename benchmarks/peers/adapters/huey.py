"""huey with threads. A worker pops a message before it handles it: at most once."""

from datetime import UTC, datetime
from typing import Any

from huey import RedisHuey

from benchmarks.peers.adapters import BaseAdapter


class Adapter(BaseAdapter):
    def build(self) -> None:
        handle_text = self.handle
        self.huey = RedisHuey("contest", url=self.url, results=False, utc=True)

        @self.huey.task(name="handle")
        def handle(text: str) -> None:
            handle_text(text)

        self.task = handle

    def send(self, text: str) -> Any:
        self.task(text)

    def send_at(self, text: str, due: float) -> Any:
        self.task.schedule((text,), eta=datetime.fromtimestamp(due, UTC))

    def work(self) -> None:
        self.huey.create_consumer(worker_type="thread", periodic=False, scheduler_interval=1, **self.options).run()
