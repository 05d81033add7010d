"""The drains of the migration pages move every message once, wherever they are killed."""

import importlib.util
import json
import os
import pickle
import signal
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import redis
from redis.client import Pipeline

import duly
from duly.testing import clock
from tests import warm
from tests.conftest import StartedServer

ROOT = Path(__file__).parents[2]


def old_url(url: str) -> str:
    """Return another database than that of Duly: the old system may well be on another server."""
    return url.removesuffix("/0") + "/1"


def load(example: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{example}", ROOT / "examples" / f"{example}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


lists, delayqueue = load("40_drain_lists"), load("41_drain_delayqueue")
redisson, celery, arq = load("42_drain_redisson"), load("43_drain_celery"), load("44_drain_arq")


class Killed(BaseException):
    """The end of the process, for a drain."""


class Fuse:
    """Ends the process at the n-th call to the old server: before it is sent, or before its answer is read."""

    def __init__(self, calls: int, *, is_sent: bool, end: Callable[[], None]) -> None:
        self.calls = calls
        self._is_sent = is_sent
        self._end = end

    def run(self, call: Callable[[], Any]) -> Any:
        self.calls -= 1
        if self.calls == 0 and not self._is_sent:
            self._end()
        answer = call()
        if self.calls == 0:
            self._end()
        return answer


class FusedPipeline(Pipeline):
    fuse: Fuse

    def execute(self, *args: Any, **options: Any) -> Any:
        run = super().execute
        return self.fuse.run(lambda: run(*args, **options))


class FusedRedis(redis.Redis):
    fuse: Fuse

    def execute_command(self, *args: Any, **options: Any) -> Any:
        run: Callable[..., Any] = super().execute_command
        return self.fuse.run(lambda: run(*args, **options))

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> Pipeline:
        made = FusedPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)
        made.fuse = self.fuse
        return made


def end_here() -> None:
    raise Killed


def kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fused(url: str, calls: int, *, is_sent: bool, end: Callable[[], None] = end_here) -> FusedRedis:
    client = FusedRedis(connection_pool=redis.ConnectionPool.from_url(old_url(url)))
    client.fuse = Fuse(calls, is_sent=is_sent, end=end)
    return client


def fill_lists(old: redis.Redis, name: str) -> list[object]:
    for to in ("ann", "bob", "bob"):
        old.lpush(name, json.dumps({"to": to}))
    return [{"to": "ann"}, {"to": "bob"}, {"to": "bob"}]


def fill_sorted_set(old: redis.Redis, name: str) -> list[object]:
    for to, delay in (("ann", -5), ("bob", 3600), ("eve", 3600)):
        old.zadd(name, {json.dumps({"to": to}): time.time() + delay})
    return [{"to": "ann"}, {"to": "bob"}, {"to": "eve"}]


def fill_delayqueue(old: redis.Redis, name: str) -> list[object]:
    for where, score in (("pending", time.time() + 3600), ("ready", None), ("retry", None), ("unack", time.time())):
        old.set(f"dp:{name}:msg:id-{where}", where, ex=3600)
        old.hset(f"dp:{name}:retry:cnt", f"id-{where}", "3")
        if score is None:
            old.lpush(f"dp:{name}:{where}", f"id-{where}")
        else:
            old.zadd(f"dp:{name}:{where}", {f"id-{where}": int(score)})
    return ["pending", "ready", "retry", "unack"]


def fill_redisson(old: redis.Redis, name: str) -> list[object]:
    for value, delay in (("a", -5), ("b", 3600), ("b", 3600)):
        redisson.offer(old, name, value, time.time() + delay)
    return [b"a", b"b", b"b"]


def fill_celery(old: redis.Redis, name: str) -> list[object]:
    in_an_hour = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    old.lpush(f"{name}:orders", celery.envelope_of("shop.close", ["a"], "1"))
    old.lpush(f"{name}:orders", celery.envelope_of("shop.close", ["b"], "2", eta=in_an_hour))
    old.lpush(celery.list_name(f"{name}:orders", 9), celery.envelope_of("shop.close", ["c"], "3"))
    taken = [json.loads(celery.envelope_of("shop.close", ["d"], "4")), "", "orders"]
    old.hset(f"{name}:unacked", "4", json.dumps(taken))
    old.zadd(f"{name}:unacked_index", {"4": time.time()})
    return [{"task": "close", "args": [arg], "kwargs": {}} for arg in "abcd"]


def drain_celery(old: redis.Redis, name: str, queue: duly.Queue) -> None:
    for drain in (celery.drain_unacked, celery.drain):
        drain(old, "orders", queue, {"shop.close": "close"}, prefix=f"{name}:")


def arq_line(job_id: str, order: str, function: str = "close", due_ms: int = 0) -> str:
    """Write a line as the program in arq's environment does."""
    return json.dumps({"id": job_id, "due_ms": due_ms, "function": function, "args": [order], "kwargs": {}})


def fill_arq(old: redis.Redis, name: str) -> list[object]:
    for order in "abc":
        old.zadd(f"{name}:queue", {f"{name}-{order}": 1})
        old.set(f"arq:job:{name}-{order}", b"only arq can read this")
        old.set(f"arq:retry:{name}-{order}", 2)
    return [{"task": "close", "args": [order], "kwargs": {}} for order in "abc"]


def drain_arq(old: redis.Redis, name: str, queue: duly.Queue) -> None:
    lines = [arq_line(f"{name}-{order}", order) for order in "abc"] if old.exists(f"{name}:queue") else []
    arq.drain(lines, old, queue, {"close": "close"}, arq_queue=f"{name}:queue")


@dataclass(frozen=True)
class Case:
    """An old system: how it is filled, which returns the bodies that must arrive, and how it is drained."""

    fill: Callable[[redis.Redis, str], list[object]]
    drain: Callable[[redis.Redis, str, duly.Queue], object]


CASES = {
    "lists": Case(fill_lists, lists.drain),
    "sorted set": Case(fill_sorted_set, lists.drain_sorted_set),
    "delayqueue": Case(fill_delayqueue, delayqueue.drain),
    "redisson": Case(fill_redisson, redisson.drain),
    "celery": Case(fill_celery, drain_celery),
    "arq": Case(fill_arq, drain_arq),
}


@pytest.fixture
def url(server: StartedServer) -> str:
    return server("valkey").url


@pytest.fixture
def moved_clock() -> Iterator[None]:
    yield
    clock.reset()


def consume(queue: duly.Queue) -> list[object]:
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


@pytest.mark.parametrize("consumers", ["idle", "quick"])
@pytest.mark.parametrize("is_sent", [False, True], ids=["before a call", "after a call"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_drain_that_is_killed_anywhere_and_run_again_moves_each_message_once(
    case: Case, is_sent: bool, consumers: str, url: str, queue_name: str
) -> None:
    with redis.Redis.from_url(old_url(url)) as old, duly.Duly(url) as app:
        kills = 0
        while True:
            name = f"{queue_name[-40:]}.{kills}"
            queue = app.queue(name)
            expected = case.fill(old, name)
            client = fused(url, kills + 1, is_sent=is_sent)
            try:
                case.drain(client, name, queue)
            except Killed:
                kills += 1
            else:
                break
            finally:
                client.close()
            arrived = consume(queue) if consumers == "quick" else []
            case.drain(old, name, queue)

            assert count(arrived + consume(queue)) == count(expected), f"killed at call {kills}"
            assert list(old.scan_iter(f"*{name}*")) == []
            queue.delete()

    assert kills > len(expected)  # at least one kill for each message: the fuse was in the way of all of them


def run_and_die(case: str, url: str, name: str) -> None:
    """Act as the process that is killed: between the send of the second message and its removal from the old system."""
    queue = duly.Duly(url).queue(name)
    client = fused(url, -1, is_sent=False, end=kill_this_process)
    send = queue.send

    def send_and_light(*args: Any, **options: Any) -> duly.MessageId:
        sent = send(*args, **options)
        if queue.stats().live == 2:
            client.fuse.calls = 1
        return sent

    queue.send = send_and_light  # type: ignore[method-assign]
    CASES[case].drain(client, name, queue)


@pytest.mark.parametrize("case", CASES)
def test_a_process_killed_between_send_and_removal_is_made_good_by_the_next(
    case: str, url: str, queue_name: str
) -> None:
    name = queue_name[-40:]
    with redis.Redis.from_url(old_url(url)) as old, duly.Duly(url) as app:
        queue = app.queue(name)
        expected = CASES[case].fill(old, name)
        code = "import sys; from tests.docs import test_drains; test_drains.run_and_die(*sys.argv[1:])"
        done = warm.run([sys.executable, "-c", code, case, url, name], cwd=ROOT, timeout=60)
        assert done.returncode == -signal.SIGKILL
        assert queue.stats().live == 2

        CASES[case].drain(old, name, queue)

        assert count(consume(queue)) == count(expected)
        assert queue.stats().duplicates == 1


def test_an_id_of_ones_own_is_not_enough_when_consumers_are_quick(url: str, queue_name: str) -> None:
    """Why the drains use dedup: a finished id may be used again."""
    with duly.Duly(url) as app:
        queue = app.queue(queue_name)
        queue.send("a", id="old-1")
        assert consume(queue) == ["a"]
        queue.send("a", id="old-1")

        assert consume(queue) == ["a"]


def test_drains_of_one_list_at_the_same_time_share_it(url: str, queue_name: str) -> None:
    with redis.Redis.from_url(old_url(url)) as old, duly.Duly(url) as app:
        queue = app.queue(queue_name)
        old.lpush(queue_name, *range(200))

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda _: lists.drain(old, queue_name, queue), range(4)))

        assert sorted(map(int, map(str, consume(queue)))) == list(range(200))


def test_a_take_with_a_lost_reply_takes_nothing_more(url: str, queue_name: str) -> None:
    with redis.Redis.from_url(old_url(url)) as old:
        old.lpush(queue_name, "a", "b")
        take = old.register_script(lists.TAKE)
        keys = [queue_name, f"{queue_name}:moving"]

        assert take(keys=keys, args=["one", "RPOP"]) == take(keys=keys, args=["one", "RPOP"]) == b"a"
        assert old.lrange(queue_name, 0, -1) == [b"b"]
        old.delete(*keys)


@pytest.mark.parametrize(("push", "pop"), [("lpush", "RPOP"), ("rpush", "LPOP")])
def test_a_list_keeps_its_order(push: str, pop: str, url: str, queue_name: str) -> None:
    with redis.Redis.from_url(old_url(url)) as old, duly.Duly(url) as app:
        queue = app.queue(queue_name)
        for number in range(5):
            getattr(old, push)(queue_name, number)

        assert lists.drain(old, queue_name, queue, pop=pop) == 5
        assert consume(queue) == [0, 1, 2, 3, 4]


def test_delayqueue_keeps_due_times_and_the_deliveries_that_are_left(url: str, queue_name: str) -> None:
    with redis.Redis.from_url(old_url(url)) as old, duly.Duly(url) as app:
        queue = app.queue(queue_name)
        fill_delayqueue(old, queue_name)
        old.delete(f"dp:{queue_name}:msg:id-ready")

        assert delayqueue.drain(old, queue_name, queue) == {"moved": 3, "expired": 1}
        [later] = queue.list("delayed")
        assert later.body == "pending"
        assert later.due_at is not None
        assert 3590 < later.due_at.timestamp() - time.time() <= 3600
        for d in queue.receive(limit=10, wait=0):  # each has failed now, for the first time
            d.retry(0)
        taken = queue.receive(limit=10, wait=0)
        for d in taken:
            d.retry(0)
        assert {d.body: d.attempt for d in taken} == {"retry": 2, "unack": 2}
        for d in (third := queue.receive(limit=10, wait=0)):
            d.retry(0)
        assert {d.body for d in third} == {"retry", "unack"}
        assert [message.body for message in queue.list("dead")] == ["unack"]  # three were left; of "retry", four


def test_the_time_of_a_sorted_set_is_kept_in_seconds_or_milliseconds(url: str, queue_name: str) -> None:
    later = time.time() + 3600
    with redis.Redis.from_url(old_url(url)) as old, duly.Duly(url) as app:
        queue = app.queue(queue_name)
        for unit, body in ((1.0, '"s"'), (0.001, '"ms"')):
            old.zadd(queue_name, {body: later / unit})
            assert lists.drain_sorted_set(old, queue_name, queue, unit=unit) == 1

        assert {each.body for each in queue.list("delayed")} == {"s", "ms"}  # in any order: floats are not exact
        for each in queue.list("delayed"):
            assert each.due_at is not None
            assert abs(each.due_at.timestamp() - later) < 0.01


def test_messages_from_delayqueue_wait_between_attempts_by_the_policy_of_the_queue(url: str, queue_name: str) -> None:
    with redis.Redis.from_url(old_url(url)) as old, duly.Duly(url) as app:
        queue = app.queue(queue_name, retry=duly.Retry(attempts=9, first=700, jitter=0))
        old.set(f"dp:{queue_name}:msg:1", "one")
        old.hset(f"dp:{queue_name}:retry:cnt", "1", "3")
        old.lpush(f"dp:{queue_name}:ready", "1")
        delayqueue.drain(old, queue_name, queue)

        for d in queue.receive():
            d.retry()

        [later] = queue.list("delayed")
        assert later.due_at is not None
        assert 690 < later.due_at.timestamp() - time.time() <= 700


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_drain_that_finds_nothing_reports_it(
    case: Case, url: str, queue_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with redis.Redis.from_url(old_url(url)) as old, duly.Duly(url) as app:
        case.drain(old, queue_name, app.queue(queue_name))
        nothing = capsys.readouterr().err
        case.fill(old, queue_name)
        case.drain(old, queue_name, app.queue(queue_name))

    assert nothing.startswith("nothing was found in ")
    assert queue_name in nothing
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("is_named", [False, True], ids=["found", "named"])
def test_delayqueue_with_a_hash_tag(is_named: bool, url: str, queue_name: str) -> None:
    with redis.Redis.from_url(old_url(url)) as old, duly.Duly(url) as app:
        queue = app.queue(queue_name)
        prefix = f"{{dp:{queue_name}}}"
        old.set(f"{prefix}:msg:1", "tagged")
        old.lpush(f"{prefix}:ready", "1")

        assert delayqueue.drain(old, queue_name, queue, prefix=prefix if is_named else None) == {"moved": 1}
        assert consume(queue) == ["tagged"]


def test_redisson_entries_of_old_and_new_versions_are_read() -> None:
    assert redisson.unpack(b"\x08" + b"12345678" + struct.pack("<Q", 3) + b"tea") == (b"12345678", b"tea")
    assert redisson.unpack(b"12345678" + struct.pack("<Q", 3) + b"tea") == (b"12345678", b"tea")
    with pytest.raises(ValueError, match="not an entry of an RDelayedQueue"):
        redisson.unpack(b"something else")


def test_redisson_classes_are_taken_out_of_json() -> None:
    written = {
        "@class": "shop.Order",
        "id": ["java.lang.Long", 17],
        "tags": ["java.util.ArrayList", ["a", {"@class": "b"}]],
    }

    assert redisson.plain(written) == {"id": 17, "tags": ["a", {}]}


def test_celery_messages_that_duly_cannot_do_stay_for_the_old_workers(url: str, queue_name: str) -> None:
    strange = json.loads(celery.envelope_of("shop.close", [], "5"))
    strange["content-type"] = "application/x-python-serialize"
    stay = [
        celery.envelope_of("shop.close", [], "1", chain=[{"task": "shop.tell"}]),
        celery.envelope_of("shop.tell", [], "2"),
        celery.envelope_of("shop.close", [], "3", group="g"),
        celery.envelope_of("shop.close", [], "4", compression="gzip"),
        json.dumps(strange),
        celery.envelope_of("shop.close", [{"__type__": "datetime", "__value__": "2026-12-01T09:00:00"}], "7"),
    ]
    with redis.Redis.from_url(old_url(url)) as old, duly.Duly(url) as app:
        queue = app.queue(queue_name)
        for envelope in (stay[0], stay[1], celery.envelope_of("shop.close", ["a"], "6"), *stay[2:]):
            old.lpush(queue_name, envelope)

        assert celery.drain(old, queue_name, queue, {"shop.close": "close"}) == {"moved": 1, "left alone": 6}
        assert [body["args"] for body in consume(queue) if isinstance(body, dict)] == [["a"]]
        assert [raw.decode() for raw in reversed(old.lrange(queue_name, 0, -1))] == stay
        old.delete(queue_name)


@pytest.mark.usefixtures("moved_clock")
def test_celery_expiry_and_priority_are_kept(url: str, queue_name: str) -> None:
    soon = (datetime.now(UTC) + timedelta(minutes=10)).isoformat()
    past = (datetime.now(UTC) - timedelta(minutes=10)).isoformat()
    queue = duly.Duly("memory://").queue(queue_name)
    with redis.Redis.from_url(old_url(url)) as old:
        old.lpush(queue_name, celery.envelope_of("shop.close", ["gone"], "1", expires=past))
        old.lpush(queue_name, celery.envelope_of("shop.close", ["first"], "2"))
        old.lpush(celery.list_name(queue_name, 6), celery.envelope_of("shop.close", ["then"], "3", expires=soon))

        assert celery.drain(old, queue_name, queue, {"shop.close": "close"}) == {"moved": 2, "expired": 1}

    assert [(each.body["args"], each.priority) for each in queue.list("ready")] == [(["first"], 9), (["then"], 3)]
    clock.advance(601)
    assert [d.body["args"] for d in queue.receive(wait=0)] == [["first"]]
    assert queue.stats().expired == 1


def test_messages_that_celery_workers_of_other_queues_hold_are_left_to_them(url: str, queue_name: str) -> None:
    with redis.Redis.from_url(old_url(url)) as old, duly.Duly(url) as app:
        queue = app.queue(queue_name)
        prefix = f"{queue_name}:"
        taken = [json.loads(celery.envelope_of("shop.close", ["a"], "1")), "", "others"]
        old.hset(f"{prefix}unacked", "1", json.dumps(taken))

        assert celery.drain_unacked(old, "orders", queue, {"shop.close": "close"}, prefix=prefix) == {}
        assert old.hexists(f"{prefix}unacked", "1")
        old.delete(f"{prefix}unacked")


def broken_envelopes() -> dict[str, bytes]:
    def with_header(name: str, value: object) -> bytes:
        return str(celery.envelope_of("shop.close", ["x"], f"broken-{name}", **{name: value})).encode()

    whole = json.loads(celery.envelope_of("shop.close", ["x"], "broken"))
    return {
        "no JSON": b"not json",
        "no text": b"\xff\x00",
        "a list": b"[]",
        "no headers": b'{"x": 1}',
        "an eta that is not a time": with_header("eta", "soon"),
        "an eta that is a number": with_header("eta", 17),
        "a body that is not a list": json.dumps({**whole, "body": "bnVsbA=="}).encode(),
        "a body that is not base64": json.dumps({**whole, "body": "?"}).encode(),
        "no delivery tag": json.dumps({**whole, "properties": {"body_encoding": "base64"}}).encode(),
    }


BROKEN = broken_envelopes()


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_message_of_celery_that_cannot_be_read_is_named_and_the_others_are_moved(
    broken: bytes, url: str, queue_name: str
) -> None:
    names = {"shop.close": "close"}
    with redis.Redis.from_url(old_url(url)) as old, duly.Duly(url) as app:
        queue = app.queue(queue_name)
        whole = [celery.envelope_of("shop.close", [arg], arg) for arg in "ab"]
        old.lpush(queue_name, whole[0], broken, whole[1])
        unacked = f"{queue_name}:unacked"
        taken = [json.loads(celery.envelope_of("shop.close", ["c"], "c")), "", queue_name]
        old.hset(unacked, mapping={"broken": broken, "c": json.dumps(taken)})

        waiting = celery.drain(old, queue_name, queue, names)
        held = celery.drain_unacked(old, queue_name, queue, names, prefix=f"{queue_name}:")

        assert (waiting.pop("moved"), held.pop("moved")) == (2, 1)
        for drained in (waiting, held):
            (named,) = drained
            assert named.startswith("cannot be read: ")
            assert repr(broken[:40])[:-1] in named

        assert sorted(each.body["args"][0] for each in queue.list("ready")) == ["a", "b", "c"]
        assert old.lrange(queue_name, 0, -1) == [broken]
        assert old.hgetall(unacked) == {b"broken": broken}
        old.delete(queue_name, unacked)


def test_an_entry_of_a_list_that_cannot_be_decoded_is_named_and_the_others_are_moved(url: str, queue_name: str) -> None:
    with redis.Redis.from_url(old_url(url)) as old, duly.Duly(url) as app:
        queue = app.queue(queue_name)
        old.lpush(queue_name, '"a"', b"not json", '"b"')
        for _ in range(2):  # the second run finds it among what the first one held
            with pytest.raises(ValueError, match=r"1 entries cannot be decoded, and are kept.*not json"):
                lists.drain(old, queue_name, queue)

        assert [each.body for each in queue.list("ready")] == ["a", "b"]
        assert list(old.hgetall(f"{queue_name}:moving").values()) == [b"not json"]
        assert lists.drain(old, queue_name, queue, decode=bytes.decode) == 1
        assert [each.body for each in queue.list("ready")] == ["a", "b", "not json"]


def test_a_payload_of_delayqueue_that_cannot_be_decoded_is_named_and_the_others_are_moved(
    url: str, queue_name: str
) -> None:
    with redis.Redis.from_url(old_url(url)) as old, duly.Duly(url) as app:
        queue, prefix = app.queue(queue_name), f"dp:{queue_name}"
        for id_, payload in (("1", b"\xff"), ("2", b"two")):
            old.set(f"{prefix}:msg:{id_}", payload)
            old.lpush(f"{prefix}:ready", id_)

        counted = delayqueue.drain(old, queue_name, queue)

        assert counted.pop("moved") == 1
        (named,) = counted
        assert "cannot be decoded: 1 " in named
        assert [each.body for each in queue.list("ready")] == ["two"]
        assert delayqueue.drain(old, queue_name, queue, decode=bytes) == {"moved": 1}


def test_an_entry_of_redisson_that_cannot_be_read_is_named_and_the_others_are_moved(url: str, queue_name: str) -> None:
    with redis.Redis.from_url(old_url(url)) as old, duly.Duly(url) as app:
        queue, timeouts = app.queue(queue_name), f"redisson_delay_queue_timeout:{{{queue_name}}}"
        old.zadd(timeouts, {b"broken": 1})
        redisson.offer(old, queue_name, "whole", time.time() + 3600)

        with pytest.raises(ValueError, match=r"1 entries cannot be read, and stay.*broken"):
            redisson.drain(old, queue_name, queue)

        assert [each.body for each in queue.list("delayed")] == [b"whole"]
        assert old.zrange(timeouts, 0, -1) == [b"broken"]
        old.delete(timeouts)


def test_arq_jobs_keep_their_times_and_those_without_a_new_name_stay(url: str, queue_name: str) -> None:
    key, later = f"{queue_name}:queue", int(time.time() + 3600) * 1000
    with redis.Redis.from_url(old_url(url)) as old, duly.Duly(url) as app:
        queue = app.queue(queue_name)
        old.zadd(key, {"1": later, "2": later})
        lines = [arq_line("1", "a", due_ms=later), arq_line("2", "b", "tell"), arq_line("3", "c"), '{"id": "4"}', "{"]

        counted = arq.drain(lines, old, queue, {"close": "close"}, arq_queue=key)
        unread = [outcome for outcome in counted if outcome.startswith("cannot be read: ")]

        assert (counted["moved"], counted["left alone"], counted["gone"], len(unread)) == (1, 1, 1, 2)
        assert [(each.body["args"], each.due_at) for each in queue.list("delayed")] == [
            (["a"], datetime.fromtimestamp(later / 1000, UTC))
        ]
        assert old.zrange(key, 0, -1) == [b"2"]
        old.delete(key)


def test_no_drain_reads_a_pickle(url: str, queue_name: str) -> None:
    """A pickle is a program: reading one of an old system would run any code that it contains."""
    for example in sorted((ROOT / "examples").glob("4[0-4]_*.py")):
        assert "pickle" not in example.read_text()
    with redis.Redis.from_url(old_url(url)) as old, duly.Duly(url) as app:
        old.lpush(queue_name, pickle.dumps({"to": "ann"}))

        with pytest.raises(ValueError, match="cannot be decoded"):
            lists.drain(old, queue_name, app.queue(queue_name))

        assert list(old.hgetall(f"{queue_name}:moving").values()) == [
            pickle.dumps({"to": "ann"})
        ]  # kept, for inspection
        old.delete(f"{queue_name}:moving")
