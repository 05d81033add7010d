"""A move of another queue's messages delivers each message once, wherever it is killed."""

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis

import duly
from duly import _port, importing
from duly.importing.fence import Fence, holding_key
from tests import warm
from tests.conftest import StartedServer
from tests.importing.foreign import CASES, HOUR, Case, add_job, celery_message, fill_celery, fill_delayqueue, offer
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


class Killed(BaseException):
    """The end of the process."""


@pytest.fixture
def url(server: StartedServer) -> str:
    return server("valkey").url


@pytest.fixture
def old_url(url: str) -> str:
    """Another database than that of Duly: the other queue may be on another server."""
    return url.removesuffix("/0") + "/1"


@pytest.fixture
def old(old_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(old_url) as client:
        client.flushdb()
        yield client


@pytest.fixture
def origin(old_url: str) -> Iterator[duly.Duly]:
    with duly.Duly(old_url) as app:
        yield app


@pytest.fixture
def app(url: str) -> Iterator[duly.Duly]:
    with duly.Duly(url) as app:
        yield app


def consume(queue: duly.Queue[Any]) -> list[object]:
    """Take and finish all that there is, whenever it is due."""
    for message in queue.list("delayed", limit=1000):
        queue.promote(message.id)
    taken = []
    while batch := queue.receive(limit=1000, wait=0):
        taken += [d.body for d in batch]
        queue.ack_many(batch)
    return taken


def count(bodies: list[object]) -> Counter[str]:
    return Counter(map(repr, bodies))


class Fuse:
    """Kills the move at the n-th call to either server: before it is sent, or before its reply is read."""

    def __init__(self, calls: int, *, is_sent: bool) -> None:
        self.calls = calls
        self._is_sent = is_sent

    def guard(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            self.calls -= 1
            if self.calls == 0 and not self._is_sent:
                raise Killed
            reply = call(*args, **options)
            if self.calls == 0:
                raise Killed
            return reply

        return run


@pytest.mark.parametrize("consumers", ["idle", "quick"])
@pytest.mark.parametrize("is_sent", [False, True], ids=["before a call", "after a call"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_move_that_is_killed_anywhere_and_repeated_delivers_each_message_once(
    case: Case,
    is_sent: bool,
    consumers: str,
    old: redis.Redis,
    origin: duly.Duly,
    app: duly.Duly,
    queue_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kills = 0
    while True:
        name = f"q{queue_name[-38:]}.{kills}"
        queue = app.queue(name)
        expected = case.fill(old, name)
        fuse = Fuse(kills + 1, is_sent=is_sent)
        try:
            with monkeypatch.context() as patch:
                patch.setattr(_port, "foreign_command", fuse.guard(_port.foreign_command))
                patch.setattr(queue, "send_many", fuse.guard(queue.send_many))
                importing.move(case.source(origin, name), queue)
        except Killed:
            kills += 1
        else:
            break
        arrived = consume(queue) if consumers == "quick" else []
        importing.move(case.source(origin, name), queue)

        assert count(arrived + consume(queue)) == count(expected), f"killed at call {kills}"
        left = [key.decode() for key in old.scan_iter(f"*{name}*")]
        assert [key for key in left if not any(each in key for each in case.stays)] == []
        old.flushdb()
        queue.delete()

    assert kills >= 4  # one to read, one to take, one to send, one to forget


def move_and_die(case: str, url: str, old_url: str, name: str) -> None:
    """Kill this process between the send of a page and the removal of its messages."""
    queue = duly.Duly(url).queue(name)
    send = queue.send_many

    def send_and_die(*args: Any) -> None:
        send(*args)
        os.kill(os.getpid(), signal.SIGKILL)

    queue.send_many = send_and_die  # type: ignore[method-assign,assignment]
    importing.move(CASES[case].source(duly.Duly(old_url), name), queue)


@pytest.mark.parametrize("case", ["list", "celery"])
def test_a_process_that_is_killed_after_the_send_is_resumed_by_the_next(
    case: str, url: str, old_url: str, old: redis.Redis, origin: duly.Duly, app: duly.Duly, queue_name: str
) -> None:
    name = "q" + queue_name[-38:]
    queue = app.queue(name)
    expected = CASES[case].fill(old, name)
    code = "import sys; from tests.importing import test_moves; test_moves.move_and_die(*sys.argv[1:])"
    done = warm.run([sys.executable, "-c", code, case, url, old_url, name], cwd=ROOT, timeout=60)
    assert done.returncode == -signal.SIGKILL
    sent = queue.stats().live
    assert sent > 0

    report = importing.move(CASES[case].source(origin, name), queue)

    assert report.resumed == sent
    assert count(consume(queue)) == count(expected)
    assert queue.stats().duplicates == sent


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_dry_run_counts_and_changes_nothing(
    case: Case, old: redis.Redis, origin: duly.Duly, app: duly.Duly, queue_name: str
) -> None:
    name = "q" + queue_name[-38:]
    case.fill(old, name)
    before = {key: old.dump(key) for key in old.scan_iter()}

    dry = importing.move(case.source(origin, name), app.queue(name), dry_run=True)

    assert {key: old.dump(key) for key in old.scan_iter()} == before
    assert app.queue(name).stats().sent == 0
    assert importing.move(case.source(origin, name), app.queue(name)) == dry


def test_moves_of_one_list_at_the_same_time_share_it(
    old: redis.Redis, origin: duly.Duly, app: duly.Duly, queue_name: str
) -> None:
    queue = app.queue(queue_name)
    old.lpush(queue_name, *range(500))

    with ThreadPoolExecutor(4) as threads:
        moves = [threads.submit(importing.move, importing.PlainList(origin, queue_name), queue) for _ in range(4)]
        for each in moves:
            each.result()

    assert Counter(consume(queue)) == Counter(range(500))


def test_old_consumers_and_producers_may_run_during_a_move(
    old: redis.Redis, origin: duly.Duly, app: duly.Duly, queue_name: str
) -> None:
    queue = app.queue(queue_name)
    old.lpush(queue_name, *range(1000))
    taken: list[int] = []

    def consume_there() -> None:
        for number in range(1000, 1200):
            old.lpush(queue_name, number)
            if (raw := old.rpop(queue_name)) is not None:
                taken.append(int(str(raw, "ascii")))  # type: ignore[arg-type]

    with ThreadPoolExecutor(1) as threads:
        there = threads.submit(consume_there)
        importing.move(importing.PlainList(origin, queue_name), queue)
        there.result()
    importing.move(importing.PlainList(origin, queue_name), queue)

    assert Counter(taken + consume(queue)) == Counter(range(1200))


@pytest.mark.parametrize(("push", "pop"), [("lpush", "right"), ("rpush", "left")])
def test_a_list_keeps_its_order(
    push: str, pop: str, old: redis.Redis, origin: duly.Duly, app: duly.Duly, queue_name: str
) -> None:
    queue = app.queue(queue_name)
    for number in range(250):  # more than two pages
        getattr(old, push)(queue_name, number)

    importing.move(importing.PlainList(origin, queue_name, pop=pop), queue)

    assert consume(queue) == list(range(250))


def test_a_message_that_cannot_be_read_stays_and_does_not_block_others(
    old: redis.Redis, origin: duly.Duly, app: duly.Duly, queue_name: str
) -> None:
    queue = app.queue(queue_name)
    for number in range(250):
        old.lpush(queue_name, "not json" if number % 2 else str(number))

    report = importing.move(importing.PlainList(origin, queue_name), queue)

    assert report.moved == {"list": 125}
    assert report.left == {"not json: b'not json'": 125}
    assert old.llen(queue_name) == 125
    assert consume(queue) == list(range(0, 250, 2))


def test_a_message_that_the_queue_refuses_stays_and_does_not_block_others(
    old: redis.Redis, origin: duly.Duly, app: duly.Duly, queue_name: str
) -> None:
    queue = app.queue(queue_name, max_message_bytes=100)
    old.lpush(queue_name, "1", json.dumps("x" * 200), "NaN", r'"\ud800"', "2")

    dry = importing.move(importing.PlainList(origin, queue_name), queue, dry_run=True)
    report = importing.move(importing.PlainList(origin, queue_name), queue)

    assert report == dry
    assert report.moved == {"list": 2}
    assert sum(report.left.values()) == 3
    assert any("max_message_bytes=100" in reason for reason in report.left)
    assert old.llen(queue_name) == 3
    assert old.exists(holding_key(queue_name)) == 0
    assert consume(queue) == [1, 2]


def test_a_sorted_set_can_be_moved_after_an_attempt_with_the_wrong_unit(
    old: redis.Redis, origin: duly.Duly, app: duly.Duly, queue_name: str
) -> None:
    queue = app.queue(queue_name)
    old.zadd(queue_name, {'"body"': (time.time() + HOUR) * 1000})

    [refused] = importing.move(importing.PlainSortedSet(origin, queue_name), queue).left
    report = importing.move(importing.PlainSortedSet(origin, queue_name, unit=0.001), queue)

    assert "it seems to be in milliseconds" in refused
    assert report.total == 1
    assert consume(queue) == ["body"]


def test_a_member_that_is_added_again_after_it_was_moved_is_another_message(
    old: redis.Redis, origin: duly.Duly, app: duly.Duly, queue_name: str
) -> None:
    queue = app.queue(queue_name)
    taken: list[object] = []
    for _ in range(2):
        old.zadd(queue_name, {'"report"': 1000})
        importing.move(importing.PlainSortedSet(origin, queue_name), queue)
        taken += consume(queue)

    assert taken == ["report", "report"]


def test_a_job_of_rq_with_the_id_of_a_moved_one_is_another_message(
    old: redis.Redis, origin: duly.Duly, app: duly.Duly, queue_name: str
) -> None:
    queue = app.queue(queue_name)
    taken = []
    for day in ("monday", "tuesday"):
        add_job(old, "report", json.dumps(["shop.report", None, [day], {}]).encode())
        old.rpush(f"rq:queue:{queue_name}", "report")
        importing.move(importing.RqQueue(origin, queue_name), queue)
        taken += consume(queue)

    assert [body["args"] for body in taken] == [["monday"], ["tuesday"]]  # type: ignore[index]


@pytest.mark.parametrize(("unit", "factor"), [(1.0, 1), (0.001, 1000)])
def test_a_sorted_set_keeps_its_due_times(
    unit: float, factor: int, old: redis.Redis, origin: duly.Duly, app: duly.Duly, queue_name: str
) -> None:
    later = time.time() + HOUR
    old.zadd(queue_name, {'"body"': later * factor})

    importing.move(importing.PlainSortedSet(origin, queue_name, unit=unit), app.queue(queue_name))

    [message] = app.queue(queue_name).list("delayed")
    assert message.due_at is not None
    assert abs(message.due_at.timestamp() - later) < 0.01


def test_delayqueue_keeps_due_times_and_remaining_retries(
    old: redis.Redis, origin: duly.Duly, app: duly.Duly, queue_name: str
) -> None:
    queue = app.queue(queue_name, retry=duly.Retry(attempts=9, first=0, jitter=0))
    fill_delayqueue(old, queue_name)
    old.delete(f"dp:{queue_name}:msg:id-ready")

    report = importing.move(importing.Delayqueue(origin, queue_name, unfinished=True), queue)

    assert report.moved == {"retry": 1, "unfinished": 1, "delayed": 1}
    assert report.gone == {"ready": 1}
    [later] = queue.list("delayed")
    assert later.due_at is not None
    assert HOUR - 10 < later.due_at.timestamp() - time.time() <= HOUR
    rounds = []
    while taken := queue.receive(limit=10, wait=0):
        rounds.append({d.body for d in taken})
        for d in taken:
            d.retry(0)
    assert rounds == [{"retry", "unack"}] * 3 + [{"retry"}]  # an unfinished message has spent one of its deliveries


@pytest.mark.parametrize(
    ("root", "bodies", "prefix"),
    [("{{dp:{}}}", "{{dp:{}}}", None), ("shop:{}", "dp:{}", "shop")],
    ids=["tag", "prefix"],
)
def test_delayqueue_with_a_hash_tag_or_a_prefix(
    root: str, bodies: str, prefix: str | None, old: redis.Redis, origin: duly.Duly, app: duly.Duly, queue_name: str
) -> None:
    expected = fill_delayqueue(old, queue_name, root, bodies)

    importing.move(importing.Delayqueue(origin, queue_name, prefix=prefix, unfinished=True), app.queue(queue_name))

    assert count(consume(app.queue(queue_name))) == count(expected)


def test_messages_that_consumers_have_stay_unless_asked_for(
    old: redis.Redis, origin: duly.Duly, app: duly.Duly, queue_name: str
) -> None:
    fill_delayqueue(old, queue_name)

    report = importing.move(importing.Delayqueue(origin, queue_name), app.queue(queue_name))

    assert report.total == 3
    assert report.left == {"a consumer has it": 1}
    assert old.zcard(f"dp:{queue_name}:unack") == 1


def test_redisson_json_loses_the_names_of_java_classes(
    old: redis.Redis, origin: duly.Duly, app: duly.Duly, queue_name: str
) -> None:
    written = {"@class": "shop.Order", "id": ["java.lang.Long", 17], "tags": ["java.util.ArrayList", ["a", "b"]]}
    offer(old, queue_name, json.dumps(written).encode(), time.time() - 1)

    importing.move(importing.RedissonQueue(origin, queue_name, body="json"), app.queue(queue_name))

    assert consume(app.queue(queue_name)) == [{"id": 17, "tags": ["a", "b"]}]


def test_redisson_entries_of_old_versions_are_read(
    old: redis.Redis, origin: duly.Duly, app: duly.Duly, queue_name: str
) -> None:
    old.zadd(f"redisson_delay_queue_timeout:{{{queue_name}}}", {b"12345678" + (3).to_bytes(8, "little") + b"tea": 1})
    old.zadd(f"redisson_delay_queue_timeout:{{{queue_name}}}", {b"something else": 2})

    report = importing.move(importing.RedissonQueue(origin, queue_name), app.queue(queue_name))

    assert consume(app.queue(queue_name)) == [b"tea"]
    assert report.left == {"not an entry of an RDelayedQueue: b'something else'": 1}


def test_chains_and_groups_of_celery_stay_for_celery(
    old: redis.Redis, origin: duly.Duly, app: duly.Duly, queue_name: str
) -> None:
    old.lpush("orders", celery_message("shop.close", ["a"], "1", chain=[{"task": "shop.tell"}]))
    old.lpush("orders", celery_message("shop.close", ["b"], "2", expires="2001-01-01T00:00:00+00:00"))
    old.lpush("orders", celery_message("shop.open", ["c"], "3"))

    report = importing.move(importing.CeleryQueue(origin, "orders", tasks={}), app.queue(queue_name))

    assert consume(app.queue(queue_name)) == [{"task": "open", "args": ["c"], "kwargs": {}}]
    assert report.left == {"part of a chain, group or chord": 1}
    assert report.gone == {"ready": 1}
    assert old.llen("orders") == 1


def test_tasks_of_celery_go_to_different_queues_by_one_move_for_each(
    old: redis.Redis, origin: duly.Duly, app: duly.Duly, queue_name: str
) -> None:
    old.lpush("orders", celery_message("shop.charge", ["a"], "1"))
    old.lpush("orders", celery_message("shop.remind", ["b"], "2"))
    charges, reminders = app.queue(f"{queue_name[-38:]}.1"), app.queue(f"{queue_name[-38:]}.2")

    first = importing.move(importing.CeleryQueue(origin, "orders", tasks={"shop.charge": "charge"}), charges)
    second = importing.move(importing.CeleryQueue(origin, "orders", tasks={"shop.remind": "remind"}), reminders)

    assert first.left == {"no task is named for shop.remind": 1}
    assert not second.left
    assert consume(charges) == [{"task": "charge", "args": ["a"], "kwargs": {}}]
    assert consume(reminders) == [{"task": "remind", "args": ["b"], "kwargs": {}}]


def test_unfinished_messages_of_other_celery_queues_stay(
    old: redis.Redis, origin: duly.Duly, app: duly.Duly, queue_name: str
) -> None:
    fill_celery(old, queue_name)

    source = importing.CeleryQueue(origin, "others", prefix=f"{queue_name}:", tasks={}, unfinished=True)

    assert importing.move(source, app.queue(queue_name)).left == {"unfinished, of another queue": 1}
    assert old.hlen(f"{queue_name}:unacked") == 1


def test_pickled_jobs_of_rq_stay_and_are_never_read(
    old: redis.Redis, origin: duly.Duly, app: duly.Duly, queue_name: str
) -> None:
    bomb = b"\x80\x04cos\n_exit\n(K\x07tR."  # reading this pickle ends the process
    add_job(old, "pickled", bomb)
    add_job(old, "parent", json.dumps(["shop.close", None, ["a"], {}]).encode())
    old.sadd("rq:job:parent:dependents", "child")
    add_job(old, "method", json.dumps(["close", {"order": 1}, [], {}]).encode())
    old.rpush(f"rq:queue:{queue_name}", "pickled", "parent", "method", "vanished")

    report = importing.move(importing.RqQueue(origin, queue_name), app.queue(queue_name))

    assert report.total == 0
    assert report.left == {
        "pickled: reading a pickle runs it": 1,
        "other jobs depend on it": 1,
        "a method of an object": 1,
    }
    assert report.gone == {"ready": 1}
    assert old.lrange(f"rq:queue:{queue_name}", 0, -1) == [b"pickled", b"parent", b"method"]


def test_an_app_in_memory_is_refused() -> None:
    app = duly.Duly("memory://")

    with pytest.raises(duly.UsageError, match="open the source on their server"):
        importing.move(importing.PlainList(app, "mails"), app.queue("mails"))


def test_the_messages_on_their_way_are_in_the_slot_of_their_place() -> None:
    for key in ("orders", "{orders}:ready", "redisson_delay_queue_timeout:{orders}"):
        assert duly._core.topology.slot_of(holding_key(key).encode()) == duly._core.topology.slot_of(key.encode())


def test_the_expiry_and_the_priority_of_celery_are_kept(
    old: redis.Redis, origin: duly.Duly, app: duly.Duly, queue_name: str
) -> None:
    soon = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    old.lpush("orders", celery_message("shop.close", ["expires"], "1", expires=soon))
    urgent = json.loads(celery_message("shop.close", ["urgent"], "2"))
    late = json.loads(celery_message("shop.close", ["late"], "3"))
    late["properties"]["priority"] = 6
    old.lpush("orders\x06\x166", json.dumps(late))
    old.lpush("orders", json.dumps(urgent))
    queue = app.queue(queue_name)

    importing.move(importing.CeleryQueue(origin, "orders", tasks={}), queue)

    assert [(each.body["args"], each.priority) for each in queue.list("ready")][-1] == (["late"], 3)
    wait_until(lambda: (datetime.now(UTC) - timedelta(seconds=1)).isoformat() > soon)
    assert [d.body["args"] for d in queue.receive(limit=10, wait=0)] == [["urgent"], ["late"]]
    assert queue.stats().expired == 1


def test_a_message_that_expires_before_a_killed_move_is_repeated_is_not_delivered(
    old: redis.Redis, origin: duly.Duly, app: duly.Duly, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = app.queue(queue_name)
    soon = datetime.now(UTC) + timedelta(seconds=10)
    old.lpush("orders", celery_message("shop.close", ["expires"], "1", expires=soon.isoformat()))
    with monkeypatch.context() as patch:
        patch.setattr(queue, "send_many", Fuse(1, is_sent=False).guard(queue.send_many))
        with pytest.raises(Killed):
            importing.move(importing.CeleryQueue(origin, "orders", tasks={}), queue)
    monkeypatch.setattr(time, "time", lambda: soon.timestamp() + 1)

    assert importing.move(importing.CeleryQueue(origin, "orders", tasks={}), queue).resumed == 1
    wait_until(lambda: not queue.receive(wait=0) and queue.stats().expired == 1)


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_move_to_another_queue_is_refused_until_a_stopped_one_is_repeated(
    dry_run: bool,
    old: redis.Redis,
    origin: duly.Duly,
    app: duly.Duly,
    queue_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stopped move has sent the messages, and could not record it: another queue would get them again."""
    source = importing.PlainList(origin, queue_name)
    first, other = app.queue(f"{queue_name[-38:]}.1"), app.queue(f"{queue_name[-38:]}.2")
    old.lpush(queue_name, '"a"')
    with monkeypatch.context() as patch:
        patch.setattr(first, "send_many", Fuse(1, is_sent=True).guard(first.send_many))
        with pytest.raises(Killed):
            importing.move(source, first)
    old.lpush(queue_name, '"b"')

    with pytest.raises(duly.UsageError, match=f"repeat it to that queue, then import to '{other.name}'") as refusal:
        importing.move(source, other, dry_run=dry_run)

    assert repr(first.name) in str(refusal.value)
    assert old.llen(queue_name) == 1
    assert importing.move(source, first).resumed == 1
    old.lpush(queue_name, '"c"')
    importing.move(source, other)
    assert (consume(first), consume(other)) == (["a", "b"], ["c"])


def test_a_move_takes_nothing_that_a_running_move_to_another_queue_has_taken(
    old: redis.Redis, origin: duly.Duly, app: duly.Duly, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other move begins after the check of this one, and takes a message that this one has read."""
    source = importing.Delayqueue(origin, queue_name)
    fill_delayqueue(old, queue_name)
    (place,) = [each for each in source.places() if each.key == f"dp:{queue_name}:pending"]
    ours, theirs = (
        Fence(origin, place, _port.destination_of(app.queue(f"{queue_name[-38:]}.{number}"))) for number in (1, 2)
    )
    entries = ours.read(0, 10)
    moving: Any = list(zip(entries, source.judge(place, entries), strict=True))

    taken = theirs.take(moving)
    with pytest.raises(duly.UsageError, match="repeat it to that queue"):
        ours.take(moving)

    assert theirs.held() == taken != []
    theirs.forget(taken)
    assert ours.take(moving) == []


def test_a_move_to_a_queue_of_that_name_elsewhere_is_refused_as_well(
    old: redis.Redis, origin: duly.Duly, app: duly.Duly, url: str, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = app.queue(queue_name)
    old.lpush(queue_name, '"a"')
    with monkeypatch.context() as patch:
        patch.setattr(queue, "send_many", Fuse(1, is_sent=True).guard(queue.send_many))
        with pytest.raises(Killed):
            importing.move(importing.PlainList(origin, queue_name), queue)

    with (
        duly.Duly(url, namespace="other") as elsewhere,
        pytest.raises(duly.UsageError, match="namespace 'duly' was stopped"),
    ):
        importing.move(importing.PlainList(origin, queue_name), elsewhere.queue(queue_name))


def test_a_move_resumes_only_messages_that_are_still_held_when_it_comes_to_their_place(
    old: redis.Redis, origin: duly.Duly, app: duly.Duly, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another move has sent the message of the second place, and a cancel has freed its dedup value."""
    queue = app.queue(queue_name)
    lists = [importing.PlainList(origin, f"{queue_name[-38:]}.{number}") for number in (1, 2)]
    first, second = (place.key for each in lists for place in each.places())
    old.lpush(first, '"a"')
    old.lpush(second, '"b"')
    with monkeypatch.context() as patch:
        patch.setattr(queue, "send_many", Fuse(1, is_sent=False).guard(queue.send_many))
        with pytest.raises(Killed):
            importing.move(lists[1], queue)
    monkeypatch.setattr(lists[0], "places", lambda: [*importing.PlainList(origin, first).places(), *lists[1].places()])

    def finish_the_second(_done: int) -> None:
        if old.hlen(holding_key(second)):
            assert importing.move(lists[1], queue).resumed == 1
            (id_,) = [each.id for each in queue.list("ready") if each.body == "b"]
            assert queue.cancel(id_)

    report = importing.move(lists[0], queue, on_progress=finish_the_second)
    assert (report.resumed, consume(queue)) == (0, ["a"])


def test_messages_that_an_earlier_version_has_taken_go_to_any_queue(
    old: redis.Redis, origin: duly.Duly, app: duly.Duly, queue_name: str
) -> None:
    taken = {"id": "1", "raw": b'"a"', "format": "json"}
    old.hset(holding_key(queue_name), "1", msgspec.msgpack.encode(taken))

    assert importing.move(importing.PlainList(origin, queue_name), app.queue(queue_name)).resumed == 1
    assert consume(app.queue(queue_name)) == ["a"]
