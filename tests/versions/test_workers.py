"""Workers of two versions share queues and a topic while they are killed: all is handled, and both audits agree."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from tests.binaries import Kind
from tests.conftest import StartedServer
from tests.versions.pair import Peer, environment_of
from tests.waiting import wait_until
from tests.worker.rig import WorkerProcess

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(300)]

WORKERS: Final = 4
KILLS: Final = 6
MESSAGES_PER_KILL: Final = 48
WAYS: Final = ("ack", "fail once", "defer once", "recycle once", "reject", "commit", "in order", "in order")
HELD: Final = "hold until the worker dies"

JOBS: Final = """
import random

NAME = {name!r}
often = duly.Retry(attempts=1000, max=0.1)
orders = app.queue(NAME, lease=2, crash_limit=1000, retry=often, done=duly.Keep(count=10_000))
mails = app.queue(NAME + "-mails", lease=2, crash_limit=1000)
events = app.topic(NAME, lease=2, crash_limit=1000)
note("version", source=duly.__file__)


@orders.handler(concurrency=5)
async def on_order(body, d):
    note("order", n=body["n"], way=body["way"], fence=d.fence)
    await asyncio.sleep(random.uniform(0, 0.05))
    if body["way"] == {held!r} and d.crashes == 0:
        await asyncio.sleep(3600)
    if body["way"] == "fail once" and d.failures == 0:
        raise ValueError("no answer")
    if body["way"] == "defer once" and d.defers == 0:
        raise duly.Defer(0.1)
    if body["way"] == "recycle once" and d.cycles == 0:
        return duly.Recycle(0.1)
    if body["way"] == "reject":
        raise duly.Reject("no use")
    if body["way"] == "commit":
        await d.commit(send=[(mails, body["n"])], publish=[(events, body["n"])])
    return body["n"]


@mails.handler
def on_mail(n):
    note("mail", n=n)


@events.handler(group="archive", concurrency=5)
async def on_event(n):
    note("event", n=n)


@app.task(name="add", queue=app.queue(NAME + "-tasks", lease=2, crash_limit=1000))
async def add(one, two=0):
    note("task", n=one + two)
"""

INBOXES: Final = (
    "app.queue(name, done=duly.Keep(count=10_000))",
    "app.queue(name + '-mails')",
    "app.queue(name + '-tasks')",
    "app.topic(name).group('archive')",
)


@pytest.fixture
def senders(
    server: StartedServer, kind: Kind, previous_source: Path, current_source: Path
) -> Iterator[tuple[Peer, Peer]]:
    with ExitStack() as stack:
        url = server(kind).url
        peers = [Peer(name, source, url) for name, source in (("old", previous_source), ("new", current_source))]
        for peer in peers:
            stack.callback(peer.close)
        yield peers[0], peers[1]


def way_of(n: int) -> str:
    """Return the outcome of an order. The first of those that are sent together is held by a worker."""
    return WAYS[n % len(WAYS)] if n % MESSAGES_PER_KILL else HELD


def send_some(peer: Peer, name: str, first: int) -> list[str]:
    """Send messages of every kind: orders, events, and calls of a task by its name."""
    numbers = range(first, first + MESSAGES_PER_KILL)
    orders = [[{"n": n, "way": way_of(n)}, f"key-{n % 3}" if n % 8 > 5 else None] for n in numbers]
    ids = peer.run("app.queue(name).send_many([duly.Send(b, key=k) for b, k in orders])", name=name, orders=orders)
    peer.run("app.topic(name).publish_many(numbers)", name=name, numbers=[-n - 1 for n in numbers])
    peer.run("[call_add(name + '-tasks', n, 1) for n in numbers]", name=name, numbers=[*numbers][:3])
    return list(ids)


def who_holds(workers: list[WorkerProcess], n: int) -> WorkerProcess:
    """Wait until one of these workers holds an order, and give it."""

    def pids() -> list[int]:
        return [note["pid"] for note in workers[0].notes("order") if note["n"] == n]

    wait_until(pids, f"a worker holds order {n}", lambda: "\n".join(worker.log() for worker in workers))
    return next(worker for worker in workers if worker.pid == pids()[0])


def test_workers_of_both_versions_handle_all_messages(
    server: StartedServer,
    kind: Kind,
    tmp_path: Path,
    queue_name: str,
    senders: tuple[Peer, Peer],
    previous_source: Path,
    current_source: Path,
) -> None:
    url, name, sources = server(kind).url, queue_name, [previous_source, current_source]
    with ExitStack() as stack:

        def start(source: Path) -> WorkerProcess:
            jobs = JOBS.format(name=name, held=HELD)
            return stack.enter_context(WorkerProcess(url, tmp_path, jobs, environment=environment_of(source)))

        workers = [start(sources[n % 2]) for n in range(WORKERS)]
        ids: list[str] = []
        for kill in range(KILLS):
            ids += send_some(senders[kill % 2], name, kill * MESSAGES_PER_KILL)
            victim = who_holds(workers, kill * MESSAGES_PER_KILL)
            workers.remove(victim)
            victim.kill9()
            workers.append(start(sources[kill % 2]))
        assert_known(senders, [worker.wait_for_start().pid for worker in workers])
        wait_until(lambda: not any(live_of(senders[0], name)), describe=lambda: live_of(senders[0], name))
        for worker in workers:
            assert worker.stop() == 0, worker.log()

        notes = workers[0].notes()
        assert {note["source"] for note in notes if note["what"] == "version"} == {
            str(source / "duly" / "__init__.py") for source in sources
        }
        assert_all_handled(notes, len(ids))
        assert_order_of_keys(notes)
        assert_accounts(senders, name, len(ids))
        assert_results(senders, name, ids)
        assert senders[0].run(f"{INBOXES[0]}.stats().crashed", name=name) >= KILLS


def assert_known(senders: tuple[Peer, Peer], pids: list[int]) -> None:
    """Each version sees the workers of both."""
    for peer in senders:
        wait_until(lambda peer=peer: set(pids) <= set(peer.run("[worker.pid for worker in app.workers()]")))  # type: ignore[misc]


def live_of(peer: Peer, name: str) -> list[int]:
    return [peer.run(f"{inbox}.stats().live", name=name) for inbox in INBOXES]


def assert_all_handled(notes: list[dict[str, Any]], sent: int) -> None:
    handled = {
        what: {note["n"] for note in notes if note["what"] == what} for what in ("order", "mail", "event", "task")
    }
    committed = {n for n in range(sent) if way_of(n) == "commit"}
    assert handled["order"] == set(range(sent))
    assert handled["mail"] == committed
    assert handled["event"] == committed | {-n - 1 for n in range(sent)}
    assert handled["task"] == {first + n + 1 for first in range(0, sent, MESSAGES_PER_KILL) for n in range(3)}


def assert_order_of_keys(notes: list[dict[str, Any]]) -> None:
    """The messages of a key were first delivered in the order in which they were sent."""
    for key in range(3):
        those = [note for note in notes if note["what"] == "order" and note["n"] % 8 > 5 and note["n"] % 3 == key]
        first = list(dict.fromkeys(note["n"] for note in sorted(those, key=lambda note: note["fence"])))
        assert first == sorted(first)


def assert_accounts(senders: tuple[Peer, Peer], name: str, sent: int) -> None:
    """Nothing is lost, by the audit of each version, and each delivery ended in one way."""
    ways = Counter(way_of(n) for n in range(sent))
    for peer in senders:
        for inbox in INBOXES:
            audit, s = peer.run(f"[(a.explanation, a.stats) for a in [{inbox}.audit()]][0]", name=name)
            assert (inbox, audit) == (inbox, [])
            ended = s["acked"] + s["retried"] + s["deferred"] + s["released"] + s["recycled"] + s["crashed"]
            assert s["delivered"] == ended + s["buried"]
        stats = peer.run(f"{INBOXES[0]}.stats()", name=name)
        assert (stats["sent"], stats["dead"]) == (sent, ways["reject"])
        assert stats["acked"] == sent - ways["reject"]
        assert peer.run(f"{INBOXES[1]}.stats().sent", name=name) == ways["commit"]


def assert_results(senders: tuple[Peer, Peer], name: str, ids: list[str]) -> None:
    """Each version gives what the handlers of both have returned, also what they returned after a commit."""
    by_way = {way: {id_: n for n, id_ in enumerate(ids) if way_of(n) == way} for way in (*WAYS, HELD)}
    for peer in senders:
        look = f"[{INBOXES[0]}.get(id).result for id in ids]"
        for way in ("ack", "fail once", "defer once", "recycle once", "in order", HELD):
            assert peer.run(look, name=name, ids=[*by_way[way]]) == [*by_way[way].values()]
        of_commits = peer.run(look, name=name, ids=[*by_way["commit"]])
        kept = [found == n for found, n in zip(of_commits, by_way["commit"].values(), strict=True) if found is not None]
        assert any(kept)
        assert all(kept)
