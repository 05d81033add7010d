"""rq with a worker that does not fork. A job that a dead worker held is failed, so it is at most once in effect."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from redis import Redis
from rq import Queue, SimpleWorker

from benchmarks.peers.adapters import BaseAdapter

_QUEUE = "contest"
_PATH = "benchmarks.peers.adapters.rq.handle"
_HANDLERS: list[Callable[[str], None]] = []


class Adapter(BaseAdapter):
    def build(self) -> None:
        _HANDLERS.append(self.handle)
        self.queue = Queue(_QUEUE, connection=Redis.from_url(self.url))

    def send(self, text: str) -> Any:
        return self.queue.enqueue(_PATH, text, result_ttl=0)

    def send_many(self, texts: Sequence[str]) -> Any:
        return self.queue.enqueue_many([Queue.prepare_data(_PATH, (text,), result_ttl=0) for text in texts])

    def send_at(self, text: str, due: float) -> Any:
        return self.queue.enqueue_at(datetime.fromtimestamp(due, UTC), _PATH, text, result_ttl=0)

    def work(self) -> None:
        connection = Redis.from_url(self.url)
        worker = SimpleWorker([Queue(_QUEUE, connection=connection)], connection=connection, **self.options)
        worker.work(with_scheduler=True, logging_level="CRITICAL")


def handle(text: str) -> None:
    """Handle a message. A job names its function by its path."""
    _HANDLERS[0](text)
