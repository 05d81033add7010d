"""The fixtures for Dramatiq's own tests, on Duly. `tools/test_foreign.py` copies it to the tests."""

import logging
import os
import uuid
from collections.abc import Iterator
from typing import Any

import dramatiq
import pytest
from dramatiq.rate_limits.backends import StubBackend as StubRates
from dramatiq.results.backends import RedisBackend, StubBackend

import duly
from duly.dramatiq import DulyBackend, DulyBroker
from duly.dramatiq.consumer import DulyConsumer

URL = os.environ["BROKER"]
logging.basicConfig(level=logging.INFO)


class NotingConsumer(DulyConsumer):
    """A consumer that notes the errors of dead messages."""

    errors: list[BaseException]

    def nack(self, message: Any) -> None:
        self.errors.append(message._exception or Exception("unknown"))
        super().nack(message)


class OpenQueue:
    """A queue of Duly with two methods of the queues in Dramatiq's broker for tests, which are in memory."""

    def __init__(self, queue: duly.Queue[bytes]) -> None:
        self._queue = queue

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def get(self, timeout: float) -> bytes:
        (delivery,) = self._queue.receive(limit=1, wait=timeout)
        delivery.ack()
        return delivery.raw

    def put(self, raw: bytes) -> None:
        self._queue.send(raw)


class Broker(DulyBroker):
    """The broker, with three services of Dramatiq's broker for tests: `fail_fast`, `dead_letters` and open queues."""

    def __init__(self) -> None:
        super().__init__(URL, namespace=f"test-{uuid.uuid4().hex}")
        self.errors: dict[str, list[BaseException]] = {}

    @property
    def dead_letters(self) -> list[Any]:
        dead = (message.raw for queue in self.queues.values() for message in queue.list("dead"))
        return [dramatiq.Message.decode(raw) for raw in dead if raw is not None]

    def _opened(self, name: str) -> Any:
        return OpenQueue(super()._opened(name))

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 100) -> dramatiq.Consumer:
        consumer = NotingConsumer(self.queues[queue_name], prefetch, timeout / 1000)
        consumer.errors = self.errors.setdefault(queue_name, [])
        return consumer

    def join(self, queue_name: str, *, interval: int = 5, timeout: int | None = None, fail_fast: bool = True) -> None:
        super().join(queue_name, interval=interval, timeout=timeout)
        noted = self.errors.get(queue_name, [])
        errors = noted.copy()
        noted.clear()  # tests check that no error is kept
        if fail_fast and errors:
            raise errors[0] from None


@pytest.fixture
def stub_broker() -> Iterator[Broker]:
    broker = Broker()
    broker.emit_after("process_boot")
    dramatiq.set_broker(broker)
    yield broker
    broker.flush_all()
    broker.close()


@pytest.fixture
def stub_worker(stub_broker: Broker) -> Iterator[dramatiq.Worker]:
    worker = dramatiq.Worker(stub_broker, worker_timeout=100, worker_threads=32)
    worker.start()
    yield worker
    worker.stop()


@pytest.fixture
def info_logging() -> Iterator[None]:
    logging.getLogger().setLevel(logging.INFO)
    yield
    logging.getLogger().setLevel(logging.DEBUG)


@pytest.fixture
def result_backend() -> DulyBackend:
    return DulyBackend(URL, namespace=uuid.uuid4().hex)


@pytest.fixture
def stub_result_backend() -> StubBackend:
    return StubBackend()


@pytest.fixture
def redis_result_backend() -> RedisBackend:
    return RedisBackend(url=URL)


@pytest.fixture
def rate_limiter_backend() -> StubRates:
    return StubRates()


stub_rate_limiter_backend = rate_limiter_backend
