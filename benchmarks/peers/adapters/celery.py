"""celery with late acks and threads. A worker holds delayed messages in memory; if it dies, they return in an hour."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import cycle
from typing import Any

from celery import Celery

from benchmarks.peers.adapters import BaseAdapter


class Adapter(BaseAdapter):
    def build(self) -> None:
        handle_text = self.handle
        self.app = Celery("contest", broker=self.url)
        self.app.conf.update(
            task_acks_late=True,
            task_reject_on_worker_lost=True,
            task_ignore_result=True,
            worker_prefetch_multiplier=self.options["prefetch"],
            worker_send_task_events=False,
            worker_enable_remote_control=False,
            worker_hijack_root_logger=False,
            broker_connection_retry_on_startup=True,
            broker_transport_options={"visibility_timeout": self.options.get("visibility_timeout", 3600)},
        )

        @self.app.task(name="handle")
        def handle(text: str) -> None:
            handle_text(text)

        self.task = handle
        others = [f"contest-{number}" for number in range(1, self.options.get("queues", 1))]
        self.queues = [self.app.conf.task_default_queue, *others]
        self.in_turn: Iterator[str] = cycle(self.queues)

    def send(self, text: str) -> Any:
        return self.task.delay(text)

    def send_at(self, text: str, due: float) -> Any:
        return self.task.apply_async((text,), eta=datetime.fromtimestamp(due, UTC), queue=next(self.in_turn))

    def work(self) -> None:
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "CRITICAL"]
        threads = str(self.options["threads"])
        queues = ["--queues", ",".join(self.queues)]
        self.app.worker_main(["worker", "--pool", "threads", "--concurrency", threads, "-O", "fair", *queues, *quiet])
