"""The broker in the process of the test: names, priorities, prefetch, settles, outages."""

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

import dramatiq
import pytest
from dramatiq.errors import ConnectionClosed, QueueJoinTimeout, QueueNotFound
from dramatiq.results.errors import ResultMissing, ResultTimeout

import duly
from duly._sync.outbox import Outbox
from duly.dramatiq import DulyBackend, DulyBroker
from tests.conftest import StartedServer
from tests.servers import Server
from tests.waiting import wait_until


@pytest.fixture
def url(server: StartedServer) -> str:
    return server("valkey").url


@pytest.fixture
def broker(url: str) -> Iterator[DulyBroker]:
    broker = DulyBroker(url, namespace=f"dramatiq-{uuid.uuid4().hex[:12]}", lease=5)
    broker.declare_queue("default")
    yield broker
    broker.flush_all()
    broker.close()


def message_of(name: str, queue: str = "default", **options: Any) -> dramatiq.Message[Any]:
    return dramatiq.Message(queue_name=queue, actor_name="work", args=(name,), kwargs={}, options=options)


def taken(consumer: dramatiq.Consumer) -> Any:
    """Return the next message, within 10 s."""
    give_up_at = time.monotonic() + 10
    while (found := next(consumer)) is None:
        assert time.monotonic() < give_up_at, "no message"
    return found


def test_a_consumer_holds_no_more_than_its_prefetch(broker: DulyBroker) -> None:
    for name in "abc":
        broker.enqueue(message_of(name))
    consumer = broker.consume("default", prefetch=2, timeout=10)
    first, second = taken(consumer), taken(consumer)

    assert next(consumer) is None
    consumer.ack(first)
    third = taken(consumer)

    assert [each.args[0] for each in (first, second, third)] == ["a", "b", "c"]


def test_a_higher_broker_priority_comes_first(broker: DulyBroker) -> None:
    @dramatiq.actor(broker=broker, broker_priority=5)
    def work(name: str) -> None: ...

    broker.enqueue(message_of("low", broker_priority=0))
    work.send("of the actor")
    broker.enqueue(message_of("high", broker_priority=9))
    consumer = broker.consume("default", prefetch=1, timeout=10)

    found = []
    for _ in range(3):
        message = taken(consumer)
        found.append(message.args[0])
        consumer.ack(message)
    assert found == ["high", "of the actor", "low"]


def test_a_message_with_a_delay_is_not_delivered_early(broker: DulyBroker) -> None:
    consumer = broker.consume("default", timeout=100)
    sent = time.monotonic()
    broker.enqueue(message_of("later"), delay=700)

    message = taken(consumer)

    assert time.monotonic() - sent >= 0.7
    assert message.options == {}


def test_a_failed_message_is_dead_and_a_requeued_one_is_delivered_again(broker: DulyBroker) -> None:
    for name in ("first", "second"):
        broker.enqueue(message_of(name))
    consumer = broker.consume("default", prefetch=2, timeout=100)
    first, second = taken(consumer), taken(consumer)
    first.stuff_exception(ValueError("no"))

    consumer.nack(first)
    consumer.requeue([second])

    assert [each.reason for each in broker.queues["default"].list("dead")] == ["ValueError: no"]
    again = taken(consumer)
    assert again.message_id == second.message_id
    consumer.ack(again)
    broker.join("default", timeout=10000)


def test_a_lost_message_changes_nothing(broker: DulyBroker) -> None:
    broker.enqueue(message_of("lost"))
    consumer = broker.consume("default", timeout=100)
    message = taken(consumer)
    broker.flush("default")

    consumer.ack(message)

    assert broker.queues["default"].stats().acked == 0


def test_a_body_of_another_program_is_dead(broker: DulyBroker) -> None:
    queue = broker.queues["default"]
    queue.send(b"no JSON")
    queue.send(json.dumps({"other": 1}).encode())
    broker.enqueue(message_of("ours"))

    message = taken(broker.consume("default", prefetch=5, timeout=100))

    assert message.args == ("ours",)
    assert queue.stats().dead == 2


def test_a_waiting_message_is_cancelled(broker: DulyBroker) -> None:
    message = broker.enqueue(message_of("later"), delay=3600_000)

    assert broker.cancel(message) is True
    assert broker.cancel(message) is False
    broker.join("default", timeout=1000)


def test_names_that_duly_does_not_allow_are_encoded(broker: DulyBroker) -> None:
    broker.declare_queue("mail/out@host")
    broker.enqueue(message_of("named", "mail/out@host"))

    assert taken(broker.consume("mail/out@host")).queue_name == "mail/out@host"
    assert broker.queues["mail/out@host"].name == "mail_x2fout_x40host"


def test_queues_must_be_declared_before_they_are_consumed(broker: DulyBroker) -> None:
    with pytest.raises(QueueNotFound):
        broker.consume("unknown")
    broker.enqueue(message_of("early", "unknown"))  # a producer need not know the actors
    broker.declare_queue("unknown")
    with pytest.raises(QueueJoinTimeout):
        broker.join("unknown", timeout=50)


def test_results_are_stored_for_a_while(broker: DulyBroker) -> None:
    backend = DulyBackend(broker.app)
    message = message_of("result")
    with pytest.raises(ResultMissing):
        backend.get_result(message)
    with pytest.raises(ResultTimeout):
        backend.get_result(message, block=True, timeout=30)

    backend.store_result(message, {"answer": 42}, 60_000)

    assert backend.get_result(message, block=True) == {"answer": 42}


def test_an_app_of_the_program_stays_open(url: str) -> None:
    with duly.Duly(connect=False) as app:
        broker = DulyBroker(app)
        app.connect(url)
        broker.close()
        assert app.is_closed is False


def test_a_broker_in_memory_is_refused() -> None:
    with pytest.raises(duly.UsageError, match="embedded://"):
        DulyBroker("memory://")


def test_passwords_are_not_shown() -> None:
    broker = DulyBroker("redis://:geheim@localhost:1/0", patience=0.2)

    with pytest.raises(ConnectionClosed) as caught:
        broker.enqueue(message_of("unsent"))

    assert "geheim" not in f"{caught.value} {broker.app!r}"


@pytest.mark.parametrize("lost", ["retry", "next of a pipeline"])
def test_a_message_runs_again_if_its_retry_or_the_next_of_its_pipeline_was_not_stored(
    broker: DulyBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, lost: str
) -> None:
    """Dramatiq logs the error of the middleware, and acks the message."""
    begun: list[str] = []

    @dramatiq.actor(broker=broker, min_backoff=10)
    def first() -> str:
        begun.append("first")
        if lost == "retry" and begun.count("first") < 3:
            raise ValueError("once more")
        return "result"

    @dramatiq.actor(broker=broker)
    def second(result: str) -> None:
        begun.append("second")

    dramatiq.pipeline([first.message(), second.message_with_options()], broker=broker).run()
    send, outages = Outbox.send, [duly.Unavailable("the server is away")]

    def send_in_an_outage(outbox: Outbox, message: Any) -> str | None:
        if outages:
            raise outages.pop()
        return send(outbox, message)

    monkeypatch.setattr(Outbox, "send", send_in_an_outage)
    worker = dramatiq.Worker(broker, worker_timeout=100, worker_threads=1)
    worker.start()
    try:
        wait_until(lambda: "second" in begun, "the pipeline has ended", lambda: begun)
        broker.join("default", timeout=60_000)
    finally:
        worker.stop()

    assert begun == ["first"] * (3 if lost == "retry" else 2) + ["second"]
    assert "runs again" in caplog.text
    assert broker.queues["default"].stats().dead == 0


@pytest.mark.fault
def test_a_message_is_settled_after_the_server_was_away() -> None:
    with Server("valkey", {"appendonly": "yes"}) as server:
        broker = DulyBroker(server.url, patience=0.5, lease=60)
        broker.declare_queue("default")
        broker.enqueue(message_of("held"))
        consumer = broker.consume("default", timeout=100)
        message = taken(consumer)
        server.stop()
        with pytest.raises(ConnectionClosed):  # the worker of Dramatiq calls it again
            consumer.ack(message)
        with pytest.raises(ConnectionClosed):
            next(broker.consume("default", timeout=100))
        server.start()

        consumer.ack(message)

        broker.join("default", timeout=10000)
        broker.close()
