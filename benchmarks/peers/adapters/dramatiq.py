"""dramatiq: threads, each with one message at a time."""

import os
import threading
import time
from typing import Any

from benchmarks.peers.adapters import BaseAdapter


class Adapter(BaseAdapter):
    def build(self) -> None:
        os.environ["dramatiq_queue_prefetch"] = str(self.options["prefetch"])  # noqa: SIM112 - read when it is imported
        import dramatiq
        from dramatiq.brokers.redis import RedisBroker

        handle_text = self.handle
        recovery = {name: self.options[name] for name in ("heartbeat_timeout",) if name in self.options}
        self.broker = RedisBroker(url=self.url, **recovery)

        @dramatiq.actor(broker=self.broker, queue_name="contest", actor_name="handle")
        def handle(text: str) -> None:
            handle_text(text)

        self.actor = handle

    def send(self, text: str) -> Any:
        return self.actor.send(text)

    def send_at(self, text: str, due: float) -> Any:
        return self.actor.send_with_options(args=(text,), delay=max(0, round((due - time.time()) * 1000)))

    def work(self) -> None:
        from dramatiq.worker import Worker

        Worker(self.broker, worker_threads=self.options["threads"]).start()
        threading.Event().wait()
