"""Topics under attack: each message reaches each group, despite kills, stops, lost replies and restarts."""

import itertools
import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

import pytest
import redis

import duly
from tests.binaries import Kind
from tests.clock import ServerClock
from tests.conftest import StartedServer, need
from tests.fault.history import History, Recorder, Report, assert_clean, check
from tests.fault.proxy import CutAt, LoseReplies, Policy, Proxy, Stage
from tests.fault.recorded_topic import RecordedMember, RecordedTopic
from tests.fault.test_server_faults import ALWAYS
from tests.servers import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.fault

SEED: Final = 11
LEASE: Final = 0.8
PRODUCERS: Final = 3
ROUNDS: Final = 50
"""Of each producer, at least: it goes on until the last attack is over, so that there is something to attack."""
KEYS: Final = 20
GROUPS: Final = ("early", "midway", "late")
MEMBERS: Final = 2
ATTACKS: Final = 4
DEADLINE: Final = 60.0
ENOUGH: Final = "enough"
"""The file that ends the producers."""


def topic_of(app: duly.Duly, name: str) -> duly.Topic:
    """Open the topic; one of this name frees what every group has acked."""
    keep = None if name.endswith("-freed") else duly.Keep()
    return app.topic(name, keep=keep, lease=LEASE, crash_limit=1_000_000)


def group_of(app: duly.Duly, name: str, group: str) -> duly.Group:
    return topic_of(app, name).group(group, start="new" if group == "new" else "beginning")


def produce(url: str, name: str, folder: Path, number: int) -> None:
    """Act as a producer of keyed entries, one by one and in batches, and of delayed ones, until the file appears.

    No other has its keys.
    """
    chance, serial = random.Random(f"{SEED} producer {number}"), itertools.count()
    process = f"producer {number}"
    with Recorder(process, folder / f"{process}.sent") as recorder, duly.Duly(url) as app:
        topic = RecordedTopic(topic_of(app, name), recorder)
        for rounds in itertools.count():
            if rounds >= ROUNDS and (folder / ENOUGH).exists():
                return
            key = f"{number}-{chance.randrange(KEYS)}"
            topic.publish_many([f"{number}-{next(serial)}" for _ in range(10)], key=key)
            topic.publish(f"{number}-{next(serial)}", key=key)
            delay = chance.uniform(0.05, 1.5)
            not_before = time.time() + delay
            topic.publish(f"{number}-{next(serial)}>{not_before:.6f}", delay=delay)
            time.sleep(0.15)


def consume(url: str, name: str, folder: Path, group: str, process: str) -> None:
    """Act as a member of a group until killed, slow enough to be killed in the middle of something."""
    chance = random.Random(f"{SEED} {process}")
    with Recorder(process, folder / f"{process}.{group}") as recorder, duly.Duly(url) as app:
        member = RecordedMember(group_of(app, name, group), recorder, LEASE)
        while True:
            found = member.receive(chance.choice([1, 5, 20]), wait=0.2)
            if found:
                time.sleep(chance.uniform(0, 0.02))
                member.ack_many(found)


Member = tuple[str, str, BaseProcess]
"""Its name, its group, and its process."""


class Troop:
    """The members of all groups, as processes. A killed one is replaced; all is recorded."""

    def __init__(self, url: str, name: str, folder: Path) -> None:
        self.recorder = Recorder("troop", folder / "troop.marks")
        self.members: list[Member] = []
        self._args = (url, name, folder)
        self._numbers = itertools.count()
        self._chance = random.Random(SEED)
        self._context = multiprocessing.get_context("fork")

    def start(self, target: Callable[..., None], *args: Any) -> BaseProcess:
        process = self._context.Process(target=target, args=(*self._args, *args), daemon=True)
        process.start()
        return process

    def enlist(self, group: str, count: int = 1) -> None:
        """Start members."""
        for _ in range(count):
            name = f"{group} {next(self._numbers)}"
            self.members.append((name, group, self.start(consume, group, name)))

    def kill_one(self, app: duly.Duly) -> None:
        """Kill -9 a member in the middle of something, and replace it."""
        name, group, process = self._stopped(app)
        process.kill()
        process.join(10)
        self.recorder.record("kill", "ok", process=name)
        self.enlist(group)

    @contextmanager
    def one_stopped(self, app: duly.Duly) -> Iterator[None]:
        """SIGSTOP a member in the middle of something, for longer than its lease. It continues later."""
        stopped = self._stopped(app)
        try:
            yield
            time.sleep(LEASE * 1.3)
        finally:
            os.kill(stopped[2].pid or 0, signal.SIGCONT)
            self.members.append(stopped)

    def _stopped(self, app: duly.Duly) -> Member:
        """Stop a member that holds something: then it is no more among the members."""
        deadline = time.monotonic() + DEADLINE
        while True:
            assert time.monotonic() < deadline, "no member holds anything"
            chosen = self._chance.choice(self.members)
            _, group, process = chosen
            os.kill(process.pid or 0, signal.SIGSTOP)
            holders = group_of(app, self._args[1], group).pending(limit=0).consumers
            if any(f":{process.pid}:" in holder for holder in holders):
                self.members.remove(chosen)
                return chosen
            os.kill(process.pid or 0, signal.SIGCONT)

    def end(self) -> None:
        for _, _, process in self.members:
            process.kill()
            process.join(10)
        self.recorder.close()


def is_drained(app: duly.Duly, name: str) -> bool:
    topic = topic_of(app, name)
    live = (group_of(app, name, group).stats().live for group in (*GROUPS, "new"))
    return topic.stats().delayed == 0 and not any(live)


def judged(folder: Path, group: str) -> tuple[History, Report]:
    files = [*folder.glob("*.sent"), *folder.glob(f"*.{group}"), folder / "troop.marks"]
    history = History.read(*files)
    return history, check(history, seed=SEED, left=0)


def check_never_early(history: History) -> int:
    """Fail if a delayed one was claimed before its time, and return how many there were."""
    delayed = [event for event in history.select("claim") if ">" in (event.id or "")]
    for event in delayed:
        assert event.id is not None
        assert event.fence is not None
        assert event.fence / 1e6 >= float(event.id.partition(">")[2]), event
    return len(delayed)


def attack(server: Server, app: duly.Duly, name: str, folder: Path, troop: Troop) -> int:
    """Publish, consume, kill, stop and restart until all is done, and return since when "new" exists."""
    producers = [troop.start(produce, number) for number in range(PRODUCERS)]
    troop.enlist("early", MEMBERS)
    time.sleep(0.5)
    troop.enlist("midway", MEMBERS)
    assert group_of(app, name, "new").create()
    is_new_since = time.monotonic_ns()
    troop.enlist("new")
    for number in range(ATTACKS):
        with troop.one_stopped(app):
            troop.kill_one(app)
            if number == 1:
                server.kill9()
                server.start()
            if number == 2:
                troop.enlist("late", MEMBERS)
            troop.kill_one(app)
    (folder / ENOUGH).touch()
    deadline = time.monotonic() + DEADLINE
    while any(producer.is_alive() for producer in producers) or not is_drained(app, name):
        assert time.monotonic() < deadline, topic_of(app, name).groups()
        time.sleep(0.05)
    time.sleep(0.3)  # the last acks are in the files
    return is_new_since


@pytest.mark.timeout(300)
@pytest.mark.parametrize("keeping", ["kept", "freed"])
def test_each_message_reaches_each_group_through_kills_stops_a_restart_and_new_groups(
    queue_name: str, tmp_path: Path, keeping: str
) -> None:
    """I1: three groups, one there from the beginning, two that come while others publish; and one for new entries.

    Where entries are freed all three must exist, or they would miss freed entries; the members come later all the same.
    """
    need("valkey")
    name = f"{queue_name}-{keeping}"
    with Server("valkey", ALWAYS) as server, duly.Duly(server.url) as app:
        for group in GROUPS if keeping == "freed" else GROUPS[:1]:
            group_of(app, name, group).create()
        troop = Troop(server.url, name, tmp_path)
        try:
            is_new_since = attack(server, app, name, tmp_path, troop)
        finally:
            troop.end()
        audits = [group_of(app, name, group).audit() for group in (*GROUPS, "new")]
        topic = topic_of(app, name).stats()

    total = topic.published
    assert total >= PRODUCERS * ROUNDS * 12
    causes: Counter[str] = Counter()
    for group in GROUPS:
        history, report = judged(tmp_path, group)
        assert_clean(report)
        assert (report.total.attempts, report.total.acknowledged, len(report.total.lost)) == (total, total, 0)
        assert check_never_early(history) >= PRODUCERS * ROUNDS
        causes.update(report.causes)
    assert causes.keys() == {"holder killed", "lease expired"}
    assert all(audit.ok for audit in audits), audits
    assert topic.length == (total if keeping == "kept" else 0)
    check_all_that_is_new(judged(tmp_path, "new")[0], is_new_since)


def check_all_that_is_new(history: History, since_ns: int) -> None:
    """Fail unless all that was published since came out."""
    sent = {event.id for event in history.select("send") if (event.invoked_ns or 0) > since_ns}
    out = {event.id for event in (*history.select("ack"), *history.select("ack", type="info"))}
    assert len(sent) > PRODUCERS * ROUNDS
    assert sent <= out, sent - out


# --- Lost replies ------------------------------------------------------------------------------------------


def test_publishes_whose_replies_are_lost_are_stored_once(server: StartedServer, queue_name: str) -> None:
    """I6."""
    upstream = server("valkey")
    policy = LoseReplies(0.15, SEED)
    with Proxy(upstream.port, policy) as proxy, duly.Duly(proxy.url) as app:
        events = app.topic(queue_name)
        groups = [events.group("one"), events.group("two")]
        expected: list[str] = []
        for number in range(150):
            names = [f"{number}-{kind}" for kind in ("now", "a", "b", "later")]
            events.publish(names[0])
            events.publish_many([names[1], duly.Send(names[2], dedup=names[2])])
            events.publish(names[3], delay=0.01)
            expected += names
        time.sleep(0.02)
        found = {group.name: Counter[str]() for group in groups}
        for group in groups:
            while deliveries := group.receive(50, wait=0.05):
                found[group.name].update(each.body for each in deliveries)
                assert group.ack_many(deliveries) == []
        stats = events.stats()
        audits = [group.audit() for group in groups]

    assert policy.fired > 50
    assert found == {"one": Counter(expected), "two": Counter(expected)}
    assert (stats.length, stats.published, stats.duplicates, stats.delayed) == (600, 600, 0, 0)
    for audit in audits:
        assert audit.ok
        assert (audit.stats.sent, audit.stats.delivered, audit.stats.acked, audit.stats.crashed) == (600, 600, 600, 0)


def live_through_everything(url: str, name: str) -> None:
    """Do one of each to a topic and a group."""
    with duly.Duly(url) as app:
        events = app.topic(name, keep=None)
        group = events.group("g")
        assert group.create() is True
        first = events.publish("first", key="k")
        events.publish_many(["second", duly.Send("third", key="k")])
        later = events.publish("later", delay=600)
        events.publish("soon", delay=0.01)
        time.sleep(0.02)
        taken = group.receive(10, wait=5)
        assert [each.body for each in taken] == ["first", "second", "soon"]
        taken[0].extend(60)
        taken[0].retry(0)
        assert group.ack_many(taken[1:]) == []
        (again,) = group.receive(10, wait=5)
        assert (again.id, again.attempt) == (first, 2)
        again.ack()
        (third,) = group.receive(10, wait=5)
        third.reject("no use")
        assert group.redrive() == 1
        (third,) = group.receive(10, wait=5)
        third.commit(send=[(app.queue(name), "sent")])
        assert events.cancel(later)
        group.seek("end")
        group.pause()
        group.resume()


def run_once(server: Server, name: str, policy: Policy) -> None:
    """Live through it with an empty script cache, so that both ways of a script to the server are met."""
    with redis.Redis.from_url(server.url) as client:
        client.script_flush()
    with Proxy(server.port, policy) as proxy:
        live_through_everything(proxy.url, name)
    check_effects(server, name)


def check_effects(server: Server, name: str) -> None:
    with duly.Duly(server.url) as app:
        events = app.topic(name, keep=None)
        group = events.group("g")
        audit, topic, queue = group.audit(), events.stats(), app.queue(name)
        stats = audit.stats
        assert audit.ok, audit
        assert (stats.sent, stats.delivered, stats.acked, stats.retried, stats.redriven) == (4, 6, 4, 1, 1)
        assert (stats.live, stats.dead, stats.crashed, stats.paused) == (0, 0, 0, None)
        assert (topic.length, topic.published, topic.delayed, topic.groups) == (0, 4, 0, 1)
        assert queue.stats().sent == 1
        events.delete()
        queue.delete()


def test_a_connection_cut_before_or_after_any_command_leaves_every_effect_exactly_once(queue_name: str) -> None:
    """I6 I12."""
    need("valkey")
    with Server("valkey") as server:
        uncut = Policy()
        run_once(server, queue_name, uncut)
        assert uncut.seen > 30

        for k, stage in itertools.product(range(1, uncut.seen + 1), (Stage.BEFORE, Stage.EXECUTED)):
            policy = CutAt(k, stage)
            run_once(server, f"{queue_name}-{k}", policy)
            assert policy.fired == 1, (k, stage, uncut.seen)


# --- The server --------------------------------------------------------------------------------------------


def test_a_durable_publish_survives_a_kill_of_the_server(
    kind: Kind, queue_name: str, server_clock: ServerClock
) -> None:
    with Server(kind, ALWAYS, server_clock.environment()) as server, duly.Duly(server.url) as app:
        events = app.topic(queue_name)
        group = events.group("g")
        events.publish("held")
        (held,) = group.receive(wait=0)
        ids = [
            events.publish("now", durable="fsync"),
            *events.publish_many(["many", duly.Send("later", delay=3600)], durable="fsync"),
        ]

        server.kill9()
        server.start()

        assert [entry.id for entry in events.read()] == [held.id, *ids[:2]]
        held.ack()
        server_clock.step(3601)
        found = [each.body for _ in range(3) for each in group.receive(1, wait=5)]
        assert found == ["now", "many", "later"]
        assert group.stats().crashed == 0


def used_memory(client: Any) -> int:
    return int(client.info("memory")["used_memory"])


def test_memory_returns_to_where_it_was_after_every_group_has_acked(kind: Kind, queue_name: str) -> None:
    """I9."""
    count, size = 10_000, 400
    with Server(kind) as server, duly.Duly(server.url) as app, redis.Redis.from_url(server.url) as client:
        events = app.topic(queue_name, keep=None)
        groups = [events.group(name) for name in GROUPS]
        for group in groups:
            group.create()

        def publish_and_drain(count: int) -> int:
            """Return how much memory it took before any group had acked all."""
            events.publish_many("x" * size for _ in range(count))
            most = used_memory(client)
            for group in groups:
                while deliveries := group.receive(1000, wait=0):
                    assert group.ack_many(deliveries) == []
            return most

        publish_and_drain(100)  # scripts, counters and consumers are there
        keys, before = set(client.keys()), used_memory(client)

        most = publish_and_drain(count)

        assert most - before > count * size
        wait_until(lambda: used_memory(client) - before < 500_000)
        assert set(client.keys()) <= keys
        assert events.stats().length == 0
        taken = sum(client.memory_usage(key, samples=0) or 0 for key in client.keys(f"duly:{{@{queue_name}}}:*"))
        assert taken < 50_000


WOKEN: Final = 4.0
"""Seconds within which a consumer that was woken has acted. Others poll only after 5 s."""


def test_a_slow_group_delays_no_other(server: StartedServer, queue_name: str) -> None:
    """One group is far behind, with a member that sleeps over a full batch; the other gets each entry at once."""
    count = 100
    with duly.Duly(server("valkey").url) as app, duly.Duly(server("valkey").url) as other:
        events = app.topic(queue_name)
        quick, slow = events.group("quick", start="new"), other.topic(queue_name).group("slow")
        events.publish_many(["old"] * 20_000)
        quick.create()
        held = slow.receive(1000, wait=0)
        got: dict[int, float] = {}

        def follow() -> None:
            while len(got) < count:
                for each in quick.receive(10, wait=5):
                    got[each.body] = time.monotonic()
                    each.ack()

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        published = {}
        for number in range(count):
            published[number] = time.monotonic()
            events.publish(number)
            time.sleep(0.005)
        follower.join(30)

        late = sorted(got[number] - published[number] for number in range(count))
        assert late[count // 2] < 0.1, late
        assert late[-1] < WOKEN, late
        infos = {info.name: info for info in events.groups()}
        assert (infos["quick"].unread, infos["quick"].pending) == (0, 0)
        assert (infos["slow"].unread, infos["slow"].pending) == (20_000 + count - len(held), len(held))
