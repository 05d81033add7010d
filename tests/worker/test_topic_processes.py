"""Worker processes that serve groups of topics: killed, stopped, disconnected, and in parallel."""

import random
import textwrap
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import redis

import duly
from duly import Send
from tests.conftest import StartedServer, need
from tests.servers import Server
from tests.waiting import wait_until
from tests.worker.rig import WorkerProcess, ids_of

pytestmark = [pytest.mark.fault, pytest.mark.slow]

MANNERS: Final = ("async", "def")
GROUPS: Final = ("archive", "live")
KILLS: Final = 8

HANDLERS: Final = {
    "async": """
        async def handle(body, d):
            note("begin", id=d.id, group=d.queue, body=body, key=d.key, crashes=d.crashes)
            await asyncio.sleep(0.002)
            note("end", id=d.id, group=d.queue, body=body, key=d.key)
    """,
    "def": """
        def handle(body, d):
            note("begin", id=d.id, group=d.queue, body=body, key=d.key, crashes=d.crashes)
            time.sleep(0.002)
            note("end", id=d.id, group=d.queue, body=body, key=d.key)
    """,
}

# The first process that gets a message keeps it until it is killed, or until the file "open" exists.
HOLDING: Final = """
async def handle(body, d):
    note("begin", id=d.id, crashes=d.crashes)
    while body == "held" and d.crashes == 0 and not os.path.exists("open"):
        await asyncio.sleep(0.01)
    note("end", id=d.id, lost=d.lost)
"""

DEADLY: Final = """
async def handle(body, d):
    note("begin", id=d.id, crashes=d.crashes)
    if body == "poison":
        os.kill(os.getpid(), signal.SIGKILL)
    note("end", id=d.id)
"""

ONLY_WHAT_IS_HEARD: Final = """
from duly._core import patience

patience._LONGEST_PERIOD = 3600.0  # the worker does not poll: an entry that does not wake it is never found

async def handle(body, d):
    note("end", id=d.id)
"""


def module_of(topic: str, options: str, source: str, *groups: str, concurrency: int = 10) -> str:
    """Return the source of a module that serves groups of a topic with the function `handle`."""
    lines = [f"events.handler(group={group!r}, concurrency={concurrency})(handle)" for group in groups]
    return "\n".join([textwrap.dedent(source), f"events = app.topic({topic!r}, {options})", *lines])


@contextmanager
def opened(url: str, topic: str) -> Iterator[tuple[Any, duly.Topic]]:
    with redis.Redis.from_url(url) as client, duly.Duly(url) as app:
        yield client, app.topic(topic)


def members(client: Any, topic: duly.Topic, group: str = "archive") -> list[int]:
    """Return the processes that are members of a group, as the server shows them."""
    rows = client.xinfo_consumers(topic.stream, group)
    return sorted(int(row["name"].split(b":")[1]) for row in rows)


def is_through(topic: duly.Topic, count: int, *groups: str) -> bool:
    return all(topic.group(group).stats().acked == count for group in groups)


@pytest.mark.parametrize("manner", MANNERS)
def test_order_within_a_key_holds_over_two_processes(
    manner: str, server: StartedServer, tmp_path: Path, queue_name: str
) -> None:
    url, keys = server("valkey").url, [f"key {n}" for n in range(5)]
    source = module_of(queue_name, "lease=30", HANDLERS[manner], *GROUPS)
    with opened(url, queue_name) as (_, topic), ExitStack() as stack:
        first, second = (stack.enter_context(WorkerProcess(url, tmp_path, source)) for _ in range(2))
        for worker in (first, second):
            worker.wait_for_start()
        for begin in range(0, 100, 10):
            topic.publish_many([Send(n, key=key) for n in range(begin, begin + 10) for key in keys])
        wait_until(lambda: is_through(topic, 500, *GROUPS))
        assert [worker.stop() for worker in (first, second)] == [0, 0]

        handled: defaultdict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
        for note in first.notes():  # one file, and one write per line: in the order of the events
            handled[note["group"], note["key"]].append((note["body"], note["what"]))
        in_turn = [(n, what) for n in range(100) for what in ("begin", "end")]
        assert handled == {(f"{queue_name}/{group}", key): in_turn for group in GROUPS for key in keys}
        assert {note["pid"] for note in first.notes()} == {first.pid, second.pid}
        assert all(topic.group(group).audit().ok for group in GROUPS)


def test_messages_of_a_killed_process_are_redelivered_and_its_consumer_is_removed(
    server: StartedServer, tmp_path: Path, queue_name: str
) -> None:
    url = server("valkey").url
    source = module_of(queue_name, "lease=3", HOLDING, "archive")
    with opened(url, queue_name) as (client, topic), ExitStack() as stack:
        held = topic.publish_many(["held"] * 5)
        victim = stack.enter_context(WorkerProcess(url, tmp_path, source))
        wait_until(lambda: len(victim.notes("begin")) == 5)
        assert members(client, topic) == [victim.pid]
        victim.kill9()
        heir = stack.enter_context(WorkerProcess(url, tmp_path, source))
        wait_until(lambda: is_through(topic, 5, "archive"))
        assert members(client, topic) == [heir.pid]

        again = [note for note in heir.notes("begin") if note["pid"] == heir.pid]
        assert {(note["id"], note["crashes"]) for note in again} == {(id_, 1) for id_ in held}
        assert client.xpending(topic.stream, "archive")["pending"] == 0
        assert heir.stop() == 0, heir.log()
        assert members(client, topic) == []
        audit = topic.group("archive").audit()
        assert audit.ok, audit
        assert (audit.stats.crashed, audit.stats.delivered) == (5, 10)


@pytest.mark.parametrize("keep", ["duly.Keep(age=600)", "None"])
def test_kills_at_random_moments_lose_nothing_in_any_group(
    keep: str, server: StartedServer, tmp_path: Path, queue_name: str
) -> None:
    """Every entry reaches every group at least once. With keep=None the stream is empty after that."""
    url, seed = server("valkey").url, random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    chance = random.Random(seed)
    source = module_of(queue_name, f"lease=2, crash_limit=1000, keep={keep}", HANDLERS["async"], *GROUPS)
    with opened(url, queue_name) as (client, topic), ExitStack() as stack:

        def start() -> WorkerProcess:
            return stack.enter_context(WorkerProcess(url, tmp_path, source))

        published: list[str] = []
        workers = [start() for _ in range(3)]
        for _ in range(KILLS):
            published += topic.publish_many([Send(n, key=chance.choice([None, "a", "b"])) for n in range(300)])
            victim = workers.pop(chance.randrange(3)).wait_for_start()
            time.sleep(chance.uniform(0, 0.3))
            victim.kill9()
            workers.append(start())
        wait_until(lambda: is_through(topic, len(published), *GROUPS))
        ends = Counter((note["group"], note["id"]) for note in workers[0].notes("end"))
        assert set(ends) == {(f"{queue_name}/{group}", id_) for group in GROUPS for id_ in published}
        assert [worker.wait_for_start().stop() for worker in workers] == [0, 0, 0]
        for group in GROUPS:
            audit = topic.group(group).audit()
            assert audit.ok, audit
            assert audit.stats.dead == 0
            assert client.xpending(topic.stream, group)["pending"] == 0
            assert not {worker.pid for worker in workers} & set(members(client, topic, group))
        assert topic.stats().length == (0 if keep == "None" else len(published))


def test_a_message_that_kills_its_process_is_dead_in_its_group_at_the_limit(
    server: StartedServer, tmp_path: Path, queue_name: str
) -> None:
    url = server("valkey").url
    deadly = module_of(queue_name, "lease=0.5, crash_limit=3", DEADLY, "archive")
    with (
        opened(url, queue_name) as (_, topic),
        WorkerProcess(url, tmp_path, deadly, "--processes", "1") as worker,
    ):
        poison = topic.publish("poison")
        others = topic.publish_many(range(20))
        group = topic.group("archive")
        wait_until(lambda: group.stats().dead == 1 and group.stats().acked == 20)
        message = group.get(poison)
        assert message is not None
        assert (message.reason, message.crashes) == ("poison", 3)
        assert set(others) <= set(ids_of(worker.notes("end")))
        assert Counter(ids_of(worker.notes("begin")))[poison] == 3
        assert worker.stop() == 0, worker.log()
        assert group.audit().ok


def test_a_process_that_was_stopped_for_longer_than_its_lease_settles_nothing(
    server: StartedServer, tmp_path: Path, queue_name: str
) -> None:
    url = server("valkey").url
    source = module_of(queue_name, "lease=3", HOLDING, "archive")
    with opened(url, queue_name) as (client, topic), ExitStack() as stack:
        group = topic.group("archive")
        held = topic.publish_many(["held"] * 3)
        zombie = stack.enter_context(WorkerProcess(url, tmp_path, source))
        wait_until(lambda: len(zombie.notes("begin")) == 3)
        zombie.freeze()
        heir = stack.enter_context(WorkerProcess(url, tmp_path, source))
        wait_until(lambda: is_through(topic, 3, "archive"))
        (tmp_path / "open").touch()
        zombie.thaw()
        wait_until(lambda: members(client, topic) == sorted([zombie.pid, heir.pid]))  # it reads again
        later = topic.publish_many(["free"] * 50)
        wait_until(lambda: is_through(topic, 53, "archive"))
        assert [worker.stop() for worker in (zombie, heir)] == [0, 0]

        ends = Counter(note["id"] for note in zombie.notes("end") if not note["lost"])
        assert set(ends) == {*held, *later}
        stats = group.stats()
        assert (stats.acked, stats.crashed, stats.dead, stats.leased) == (53, 3, 0, 0)
        assert group.audit().ok


def test_a_worker_whose_connections_are_cut_is_still_woken(tmp_path: Path) -> None:
    need("valkey")
    with (
        Server("valkey", {"appendonly": "yes", "appendfsync": "always"}) as own,
        opened(own.url, "events") as (client, topic),
        WorkerProcess(own.url, tmp_path, module_of("events", "lease=36_000", ONLY_WHAT_IS_HEARD, *GROUPS)) as worker,
    ):
        for round_ in range(1, 4):
            wait_until(lambda: client.info("clients")["blocked_clients"] == 1)
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            topic.publish(round_)
            wait_until(lambda count=round_: is_through(topic, count, *GROUPS))  # type: ignore[misc]
        wait_until(lambda: client.info("clients")["blocked_clients"] == 1)
        own.restart()
        client.xadd(topic.stream, {"by": "another program"})
        wait_until(lambda: is_through(topic, 4, *GROUPS))
        assert worker.stop() == 0, worker.log()
        for sign in ("Traceback", "never retrieved", "worker.broken", "claim.failed", "settle.failed"):
            assert sign not in worker.log(), worker.log()


def test_an_overwritten_topic_does_not_block_the_others(tmp_path: Path) -> None:
    """A blocking call that names a key of the wrong type fails as a whole, so the broken topic is left out."""
    need("valkey")
    source = module_of("broken", "lease=36_000", ONLY_WHAT_IS_HEARD, "archive")
    source += "\n" + module_of("events", "lease=36_000", "", *GROUPS)
    with (
        Server("valkey") as own,
        opened(own.url, "events") as (client, topic),
        WorkerProcess(own.url, tmp_path, source) as worker,
    ):
        wait_until(lambda: client.info("clients")["blocked_clients"] == 1)
        began, broken = time.monotonic(), b"duly:{@broken}:stream"
        client.delete(broken)
        client.set(broken, "not a stream")
        for count in range(1, 6):
            topic.publish(count)
            wait_until(lambda count=count: is_through(topic, count, *GROUPS))  # type: ignore[misc]
            time.sleep(0.2)
        assert 1 <= worker.log().count("claim.failed") <= 2 + (time.monotonic() - began) / 5, worker.log()
        client.delete(broken)
        assert worker.stop() == 0, worker.log()


def test_a_process_may_serve_some_groups_only(server: StartedServer, tmp_path: Path, queue_name: str) -> None:
    url = server("valkey").url
    source = module_of(queue_name, "lease=30", HANDLERS["async"], *GROUPS)
    with (
        opened(url, queue_name) as (_, topic),
        WorkerProcess(url, tmp_path, source, "--queues", f"{queue_name}/live") as one,
    ):
        topic.publish_many(range(10))
        wait_until(lambda: is_through(topic, 10, "live"))
        assert [(info.name, info.unread) for info in topic.groups()] == [("archive", 10), ("live", 0)]
        with WorkerProcess(url, tmp_path, source, "--queues", queue_name) as both:
            wait_until(lambda: is_through(topic, 10, *GROUPS))
            assert both.stop() == 0, both.log()
        assert one.stop() == 0, one.log()
        assert f"queues={queue_name}/live" in one.log()
