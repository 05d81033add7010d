"""The everyday calls of each role on every server, with the permissions of the role only."""

import struct

import pytest
import redis

import duly
from duly._core.keys import ScheduleKeys
from duly.errors import ServerError, UsageError
from tests.acl.conftest import NewUser
from tests.acl.test_worker import refusals
from tests.acl.users import SECRET
from tests.binaries import Kind
from tests.conftest import StartedServer


def test_a_producer_sends_steers_schedules_and_locks(new_user: NewUser, root: "redis.Redis", queue_name: str) -> None:
    url = new_user("producer")
    with duly.Duly(url) as app:
        queue, events = app.queue(queue_name, max_length=100, done=duly.Keep(count=9)), app.topic(queue_name)
        first, second = queue.send_many(["a", "b"], durable=None)
        later = queue.send("c", delay=60, dedup="c", key="k", ttl=600)
        assert queue.promote(later)
        assert queue.reschedule(later, delay=30)
        assert queue.cancel(first)
        with pytest.raises(duly.NotFinished):
            queue.result(second, wait=0.01)
        events.publish("e", dedup="e")
        assert events.cancel(events.publish("f", delay=60))
        assert app.schedule(queue_name, queue, "tick", every=3600)
        assert app.unschedule(queue_name)
        with app.lock(queue_name, ttl=5) as lock:
            lock.extend(9)

    assert refusals(root, url) == []


def test_an_observer_can_inspect_everything(new_user: NewUser, root: "redis.Redis", queue_name: str) -> None:
    with duly.Duly(new_user("consumer")) as consumer:
        consumer.queue(queue_name).send_many(range(3))
        consumer.queue(queue_name).receive(limit=1)
        consumer.topic(queue_name).publish_many(range(3))
        consumer.topic(queue_name).group("archive").receive(limit=1)
        consumer.schedule(queue_name, queue_name, "tick", every=3600)
    url = new_user("observer")
    with duly.Duly(url) as app:
        queue, events = app.queue(queue_name), app.topic(queue_name)
        archive = events.group("archive")
        for inbox in (queue, archive):
            (held,) = inbox.pending().messages
            message = inbox.get(held.id)
            assert message is not None
            assert message.state == "leased"
            assert "leased" in inbox.explain(held.id)
            assert len(inbox.list("ready")) == 2
            assert inbox.stats().leased == 1
            assert inbox.audit().ok
        assert events.audit().ok
        assert events.dead() == []
        assert queue_name in app.queues()
        assert queue_name in app.topics()
        assert [each.name for each in events.groups()] == ["archive"]
        assert events.stats().length == 3
        assert [each.name for each in app.schedules() if each.name == queue_name] == [queue_name]
        app.workers()
        assert len(events.read(limit=10)) == 3

    assert refusals(root, url) == []


def test_an_observer_reads_a_topic_without_moving_due_entries(
    new_user: NewUser, root: "redis.Redis", queue_name: str
) -> None:
    """Reading moves due entries into the stream. A user without that permission reads the stream as it is."""
    with duly.Duly(new_user("producer")) as producer, duly.Duly(new_user("observer")) as observer:
        events = producer.topic(queue_name)
        events.publish("there")
        id_ = events.publish("due", delay=60)
        root.zadd(f"duly:{{@{queue_name}}}:waiting0", {id_: 1})  # it is due

        assert [entry.body for entry in observer.topic(queue_name).read()] == ["there"]
        producer.topic(queue_name).publish("next")
        assert [entry.body for entry in observer.topic(queue_name).read()] == ["there", "due", "next"]


def test_an_admin_can_do_everything(new_user: NewUser, root: "redis.Redis", queue_name: str) -> None:
    url = new_user("admin")
    with duly.Duly(url) as app:
        queue, events = app.queue(queue_name), app.topic(queue_name)
        queue.send_many(range(4))
        queue.pause()
        queue.resume()
        (delivery,) = queue.receive(limit=1)
        delivery.reject("no use")
        assert queue.redrive() == 1
        assert queue.audit(repair=True).ok
        assert queue.purge("ready") == 4
        events.publish(1)
        events.group("archive").seek("end")
        events.group("archive").delete()
        events.delete()
        queue.delete()

    assert refusals(root, url) == []


def test_own_keys_are_changed_only_with_rules_for_them(new_user: NewUser, root: "redis.Redis", queue_name: str) -> None:
    effects = [("INCR", f"{queue_name}:own")]
    without, with_them = new_user("consumer"), new_user("consumer", own_keys=[f"{queue_name}:*"])
    with duly.Duly(without) as app:
        queue = app.queue(queue_name)
        queue.send("body")
        (delivery,) = queue.receive()
        with pytest.raises((UsageError, ServerError)):
            delivery.commit(redis=effects)
        delivery.release()
    with duly.Duly(with_them) as app:
        (delivery,) = app.queue(queue_name).receive()
        delivery.commit(redis=effects)

    assert root.get(f"{queue_name}:own") == b"1"


def test_durable_fails_for_lack_of_replicas_and_not_of_permissions(
    new_user: NewUser, root: "redis.Redis", queue_name: str
) -> None:
    """The session's servers do not sync. WAIT asks for no replica, since a missing one would take seconds."""
    url = new_user("producer", fsync=True)
    with duly.Duly(url) as app, pytest.raises(duly.NotDurable):
        app.queue(queue_name).send("body", durable="fsync")
    assert refusals(root, url) == []

    with redis.Redis.from_url(url) as client:
        assert client.wait(0, 1) == 0


def test_another_database_and_a_name_are_allowed(new_user: NewUser, root: "redis.Redis", queue_name: str) -> None:
    url = new_user("producer").removesuffix("/0") + "/3?client_name=shop"
    with duly.Duly(url) as app:
        app.queue(queue_name).send("body")

    assert refusals(root, url) == []


def test_the_password_of_the_line_is_the_password_of_the_user(
    server: StartedServer, kind: Kind, new_user: NewUser
) -> None:
    url = new_user("producer")

    with redis.Redis.from_url(url.replace(SECRET, "PASSWORD")) as client, pytest.raises(redis.AuthenticationError):
        client.ping()
    assert server(kind).url.partition("://")[2] in url


def test_an_observer_lists_schedules_in_spite_of_a_stale_entry(
    new_user: NewUser, root: "redis.Redis", queue_name: str
) -> None:
    registry = ScheduleKeys(queue_name).key("schedules")
    root.hset(registry, "gone", struct.pack("<d", 0) + b"gone")
    with duly.Duly(new_user("observer", namespace=queue_name), namespace=queue_name) as observer:
        assert observer.schedules() == []
    assert root.hexists(registry, "gone")

    with duly.Duly(new_user("admin", namespace=queue_name), namespace=queue_name) as admin:
        assert admin.schedules() == []
    assert not root.hexists(registry, "gone")


def test_a_topic_has_statistics_without_the_right_to_measure_memory(
    new_user: NewUser, root: "redis.Redis", queue_name: str
) -> None:
    url = new_user("admin")
    with duly.Duly(url) as app:
        app.topic(queue_name).publish("x")
        assert app.topic(queue_name).stats().bytes > 0
        root.execute_command("ACL", "SETUSER", url.partition("://")[2].partition(":")[0], "-memory")  # type: ignore[no-untyped-call]
        stats = app.topic(queue_name).stats()

    assert (stats.length, stats.bytes) == (1, 0)
