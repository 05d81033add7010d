"""Publishing and consuming with kombu: delivery, order, time, settles."""

import os
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import kombu
import pytest
from kombu.asynchronous.hub import Hub

import duly
from tests.kombu.conftest import Connect, kept
from tests.waiting import wait_until


def publish(connection: kombu.Connection, queue: kombu.Queue, *bodies: Any, **options: Any) -> None:
    producer = connection.Producer()
    for body in bodies:
        producer.publish(body, exchange=queue.exchange, routing_key=queue.routing_key, declare=[queue], **options)


def get(connection: kombu.Connection, name: str = "q", seconds: float = 0) -> kombu.Message | None:
    """Return the next message. With `seconds`, wait for it."""
    channel, end = connection.default_channel, time.monotonic() + seconds
    while (message := channel.basic_get(name)) is None and time.monotonic() < end:
        time.sleep(0.01)
    return message


def consume(connection: kombu.Connection, queue: kombu.Queue, count: int, **options: Any) -> list[kombu.Message]:
    """Consume and keep this many messages."""
    found: list[kombu.Message] = []
    with kombu.Consumer(connection.channel(), [queue], on_message=found.append, **options):
        while len(found) < count:
            connection.drain_events(timeout=60)
    return found


QUEUE = kombu.Queue("q", routing_key="q")


def test_a_message_returns_as_it_was_published(connection: kombu.Connection) -> None:
    publish(connection, QUEUE, {"a": [1, "é"]}, headers={"k": "v"})

    message = get(connection)

    assert message is not None
    assert (message.payload, message.headers, message.content_type) == ({"a": [1, "é"]}, {"k": "v"}, "application/json")
    message.ack()
    assert get(connection) is None


def test_a_message_that_is_published_again_is_another_one(connection: kombu.Connection, app: duly.Duly) -> None:
    publish(connection, QUEUE, "first")
    message = get(connection)
    assert message is not None

    connection.Producer().publish(message.payload, routing_key="q", headers=message.headers, **message.properties)

    assert app.queue("q").stats().sent == 2


@pytest.mark.parametrize("body", [b"\xff\x00", b""])
def test_bytes_return_as_they_were_published(connection: kombu.Connection, body: bytes) -> None:
    publish(
        connection, QUEUE, body, serializer=None, content_type="application/octet-stream", content_encoding="binary"
    )

    message = get(connection)

    assert message is not None
    assert (message.body or b"") == body


def test_text_is_readable_in_the_queue(connection: kombu.Connection, app: duly.Duly) -> None:
    publish(connection, QUEUE, {"order": 42}, headers={"task": "shop.pay", "id": "t-1"})

    (message,) = app.queue("q").list("ready")

    assert b"order" in (message.raw or b"")
    assert message.headers == {"task": "shop.pay", "task_id": "t-1"}


def test_a_time_in_the_eta_header_is_kept_by_the_server(connection: kombu.Connection, app: duly.Duly) -> None:
    eta = datetime.now(UTC) + timedelta(seconds=1)
    publish(connection, QUEUE, "later", headers={"eta": eta.isoformat()})
    assert app.queue("q").stats().delayed == 1
    assert get(connection) is None

    assert get(connection, seconds=60) is not None
    assert datetime.now(UTC) >= eta


@pytest.mark.parametrize("eta", ["2999-01-01T00:00:00", "soon", 7, None, "2001-01-01T00:00:00+00:00"])
def test_other_times_are_left_to_the_worker(connection: kombu.Connection, eta: object) -> None:
    """A time without a zone is in the zone of the Celery app, which the transport does not know."""
    publish(connection, QUEUE, "now", headers={"eta": eta})

    assert get(connection) is not None


def test_a_distant_eta_is_accepted(connection: kombu.Connection, app: duly.Duly) -> None:
    publish(connection, QUEUE, "later", headers={"eta": "2999-01-01T00:00:00+00:00"})

    assert app.queue("q").stats().delayed == 1


def test_the_worker_keeps_times_if_you_want(connect: Connect) -> None:
    connection = connect(eta="worker")
    publish(connection, QUEUE, "later", headers={"eta": "2999-01-01T00:00:00+00:00"})

    assert get(connection) is not None


def test_an_expired_message_is_not_delivered(connection: kombu.Connection, app: duly.Duly) -> None:
    publish(connection, QUEUE, "gone", expiration=0.2)
    publish(connection, QUEUE, "stays", expiration=600)
    time.sleep(0.3)

    message = get(connection)

    assert message is not None
    assert message.payload == "stays"
    assert app.queue("q").stats().expired == 1


def test_a_message_that_expires_before_its_eta_is_not_stored(connection: kombu.Connection, app: duly.Duly) -> None:
    eta = (datetime.now(UTC) + timedelta(seconds=60)).isoformat()
    publish(connection, QUEUE, "never", headers={"eta": eta}, expiration=30)
    publish(connection, QUEUE, "later", headers={"eta": eta}, expiration=90)

    assert app.queue("q").stats().delayed == 1


def test_the_worker_ends_expired_messages_if_you_want(connect: Connect) -> None:
    connection = connect(expires="worker")
    publish(connection, QUEUE, "old", expiration=0.1)
    time.sleep(0.2)

    assert get(connection) is not None


def test_higher_priorities_come_first(connection: kombu.Connection) -> None:
    for priority in (0, 9, 3, 12):
        publish(connection, QUEUE, priority, priority=priority)

    assert [message.payload for message in consume(connection, QUEUE, 4)] == [9, 12, 3, 0]


def test_a_rejected_message_is_dead_without_a_line_in_the_log(
    connection: kombu.Connection, app: duly.Duly, caplog: pytest.LogCaptureFixture
) -> None:
    publish(connection, QUEUE, "bad")
    message = get(connection)
    assert message is not None

    message.reject()

    (dead,) = app.queue("q").list("dead")
    assert dead.reason == "rejected by the consumer"
    assert not caplog.records


def test_a_requeued_message_is_marked_as_redelivered(connection: kombu.Connection) -> None:
    publish(connection, QUEUE, "again")
    first = get(connection)
    assert first is not None
    first.requeue()

    second = get(connection)

    assert second is not None
    assert "redelivered" not in first.delivery_info
    assert second.delivery_info["redelivered"] is True
    assert second.headers["x-delivery-count"] == 1


def test_a_message_that_is_requeued_too_often_is_dead(connect: Connect, app: duly.Duly) -> None:
    connection = connect(delivery_limit=3)
    publish(connection, QUEUE, "again")

    for _ in range(4):
        message = get(connection)
        assert message is not None
        message.requeue()

    assert get(connection) is None
    (dead,) = app.queue("q").list("dead")
    assert dead.reason == "requeued after 4 deliveries, and the delivery_limit is 3"


def test_a_lease_is_renewed_while_the_connection_lives(connect: Connect, app: duly.Duly) -> None:
    connection = connect(lease=0.6)
    publish(connection, QUEUE, "long")
    (message,) = consume(connection, QUEUE, 1)
    time.sleep(1.5)

    assert app.queue("q").receive(wait=0) == []
    message.ack()
    assert app.queue("q").stats().crashed == 0


def test_the_prefetch_count_limits_the_messages_that_are_fetched(connection: kombu.Connection, app: duly.Duly) -> None:
    publish(connection, QUEUE, *range(10))
    found: list[kombu.Message] = []
    with kombu.Consumer(connection.channel(), [QUEUE], on_message=found.append, prefetch_count=3) as consumer:
        while len(found) < 3:
            connection.drain_events(timeout=60)
        assert app.queue("q").stats().leased == 3
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.2)

        found[0].ack()
        connection.drain_events(timeout=60)
        consumer.qos(prefetch_count=5)
        while len(found) < 6:
            connection.drain_events(timeout=60)

    assert sorted(message.payload for message in found) == [0, 1, 2, 3, 4, 5]
    assert app.queue("q").stats().leased == 5


def test_a_cancelled_consumer_returns_what_it_has_fetched(connection: kombu.Connection, app: duly.Duly) -> None:
    publish(connection, QUEUE, *range(5))
    consumer = kombu.Consumer(connection.channel(), [QUEUE], on_message=print)
    consumer.consume()
    wait_until(lambda: app.queue("q").stats().leased, "messages are fetched")

    consumer.cancel()

    stats = app.queue("q").stats()
    assert (stats.ready, stats.leased) == (5, 0)


def test_a_consumer_that_was_cancelled_keeps_delivered_messages(connection: kombu.Connection, app: duly.Duly) -> None:
    publish(connection, QUEUE, "running")
    (message,) = consume(connection, QUEUE, 1)
    assert app.queue("q").stats().leased == 1

    message.ack()

    assert app.queue("q").stats().acked == 1


def test_a_closed_connection_returns_messages_that_were_not_acked(connection: kombu.Connection, app: duly.Duly) -> None:
    publish(connection, QUEUE, 1, 2)
    consume(connection, QUEUE, 2)

    connection.release()

    assert app.queue("q").stats().ready == 2


def test_a_consumer_without_acks_finishes_messages(connection: kombu.Connection, app: duly.Duly) -> None:
    publish(connection, QUEUE, 1, 2)

    consume(connection, QUEUE, 2, no_ack=True)

    assert app.queue("q").stats().acked == 2


def test_one_connection_consumes_several_queues(connection: kombu.Connection) -> None:
    queues = [kombu.Queue(f"several-{number}", routing_key=f"several-{number}") for number in range(5)]
    found: list[str] = []
    with kombu.Consumer(connection.channel(), queues, on_message=lambda message: kept(found, message)):
        for queue in queues:
            publish(connection, queue, queue.name)
            while queue.name not in found:
                connection.drain_events(timeout=60)

    assert sorted(found) == [queue.name for queue in queues]


def test_a_message_of_another_program_is_dead(
    connection: kombu.Connection, app: duly.Duly, caplog: pytest.LogCaptureFixture
) -> None:
    app.queue("q").send({"not": "of kombu"})
    publish(connection, QUEUE, "good")

    (message,) = consume(connection, QUEUE, 1)

    assert message.payload == "good"
    (dead,) = app.queue("q").list("dead")
    assert (dead.reason or "").startswith("not a message of kombu")


def test_a_message_of_another_program_is_skipped_by_a_get(connection: kombu.Connection, app: duly.Duly) -> None:
    app.queue("q").send({"not": "of kombu"})
    publish(connection, QUEUE, "good")

    message = get(connection)

    assert message is not None
    assert message.payload == "good"
    assert app.queue("q").stats().dead == 1


def test_sizes_count_messages_that_wait(connection: kombu.Connection, app: duly.Duly) -> None:
    publish(connection, QUEUE, 1, 2)
    publish(connection, QUEUE, 3, headers={"eta": "2999-01-01T00:00:00+00:00"})
    bound = QUEUE(connection.default_channel)

    assert bound.queue_declare(passive=True).message_count == 3
    assert bound.purge() == 3
    assert bound.queue_declare(passive=True).message_count == 0


def test_an_unknown_queue_is_not_found(connection: kombu.Connection, connect: Connect) -> None:
    with pytest.raises(connection.channel_errors, match="NOT_FOUND"):
        QUEUE(connection.default_channel).queue_declare(passive=True)
    publish(connection, QUEUE, "x")

    assert QUEUE(connect().default_channel).queue_declare(passive=True).message_count == 1


def test_names_that_duly_does_not_allow_work(connection: kombu.Connection, app: duly.Duly) -> None:
    queue = kombu.Queue("mail:high/é", routing_key="mail:high/é")
    publish(connection, queue, "x")

    (message,) = consume(connection, queue, 1)

    assert message.payload == "x"
    assert app.queues() == ["mail_x3ahigh_x2f_xc3_xa9"]


def test_an_event_loop_delivers(connection: kombu.Connection) -> None:
    hub, found = Hub(), list[Any]()
    channel = connection.channel()
    connection.register_with_event_loop(hub)
    with kombu.Consumer(channel, [QUEUE], prefetch_count=1, on_message=lambda message: kept(found, message)):
        threading.Timer(0.2, publish, [connection, QUEUE, 1, 2, 3]).start()
        end = time.monotonic() + 60
        while len(found) < 3 and time.monotonic() < end:
            hub.run_once()
    connection.transport.unregister_from_event_loop(connection, hub)
    hub.close()

    assert found == [1, 2, 3]


def test_a_program_may_hold_back_messages(connection: kombu.Connection, app: duly.Duly) -> None:
    """Celery replaces can_consume with worker_disable_prefetch, and no event announces a change."""
    publish(connection, QUEUE, 1, 2)
    found: list[kombu.Message] = []
    channel = connection.channel()
    wants = [False]
    channel.qos.can_consume = lambda: wants[0]
    with kombu.Consumer(channel, [QUEUE], on_message=found.append):
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.5)
        assert app.queue("q").stats().leased == 0

        wants[0] = True
        connection.drain_events(timeout=60)

    assert found


def test_a_forked_process_does_not_return_the_messages_of_its_parent(
    connection: kombu.Connection, app: duly.Duly
) -> None:
    publish(connection, QUEUE, "of the parent")
    (message,) = consume(connection, QUEUE, 1)
    child = os.fork()
    if child == 0:
        try:
            with pytest.raises(duly.UsageError, match="before a fork"):
                kombu.Consumer(connection.default_channel, [QUEUE], on_message=print).consume()
            connection.release()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0

    assert app.queue("q").stats().leased == 1
    message.ack()
    assert app.queue("q").stats().acked == 1


def test_threads_and_descriptors_end_with_the_connection(connect: Connect) -> None:
    others = set(threading.enumerate())  # of connections that other tests have left open

    def threads() -> set[str]:
        return {thread.name for thread in set(threading.enumerate()) - others if "duly-kombu" in thread.name}

    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = descriptors()
    for _ in range(3):
        connection = connect()
        connection.register_with_event_loop(hub := Hub())
        consume(connection, kombu.Queue("idle", routing_key="idle"), 0)
        connection.transport.unregister_from_event_loop(connection, hub)
        hub.close()
        connection.release()

    wait_until(lambda: not threads(), "the threads have ended", threads)
    wait_until(lambda: descriptors() <= before, "the descriptors are closed", descriptors)


def test_a_consumer_that_starts_while_the_last_one_ends_is_not_overlooked(
    connection: kombu.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.kombu.fetcher._ROUND", 600)
    publish(connection, QUEUE, "waiting")
    leaves, goes_on = threading.Event(), threading.Event()
    several = connection.transport.fetcher._several
    leave = several.leave

    def leave_slowly() -> None:
        leave()
        leaves.set()
        goes_on.wait(60)

    monkeypatch.setattr(several, "leave", leave_slowly)
    with kombu.Consumer(connection, [kombu.Queue("other", routing_key="other")], on_message=print):
        pass
    assert leaves.wait(60)
    found: list[kombu.Message] = []
    with kombu.Consumer(connection, [QUEUE], on_message=found.append):
        goes_on.set()
        connection.drain_events(timeout=20)

    assert [message.payload for message in found] == ["waiting"]
