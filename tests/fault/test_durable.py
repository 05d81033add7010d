"""`durable=` is true: a confirmed message survives, and a missing confirmation raises."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import pytest
import redis

import duly
from tests.binaries import Kind
from tests.conftest import need
from tests.fault.proxy import CutAt, LoseReplies, Policy, Proxy, Stage
from tests.servers import LOOPBACK, Server
from tests.waiting import wait_until

pytestmark = pytest.mark.fault

ALWAYS: Final = {"appendonly": "yes", "appendfsync": "always"}
EVERY_SECOND: Final = {"appendonly": "yes", "appendfsync": "everysec"}


@contextmanager
def replica_of(primary: Server) -> Iterator[Server]:
    """Start a replica and wait until it follows."""
    with redis.Redis.from_url(primary.url) as client:
        client.config_set("repl-diskless-sync-delay", "0")
    with Server(primary.kind, {"replicaof": f"{LOOPBACK} {primary.port}"}) as replica:
        with redis.Redis.from_url(replica.url) as client:
            wait_until(lambda: client.info("replication")["master_link_status"] == "up")
        yield replica


@contextmanager
def stopped(server: Server) -> Iterator[None]:
    """Stop a server as a hang would, for a while."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def stored_ids(queue: duly.Queue) -> set[str]:
    return {message.id for message in queue.list("ready", limit=1000)}


# --- Confirmed ---------------------------------------------------------------------------------------------


def test_fsync_is_confirmed_by_a_server_that_syncs_every_write(kind: Kind, queue_name: str) -> None:
    with Server(kind, ALWAYS) as server, duly.Duly(server.url) as app:
        queue = app.queue(queue_name)
        ids = [queue.send(1, durable="fsync"), *queue.send_many(range(2500), durable="fsync")]
        assert queue.stats().ready == len(set(ids)) == 2501
        assert {each.durable for each in ids} == {"fsync"}
        assert {queue.send(1).durable, *(each.durable for each in queue.send_many([1, 2]))} == {None}
        topic = app.topic(queue_name)
        published = [topic.publish(1, durable="fsync"), topic.publish(1, delay=60, durable="fsync")]
        assert {each.durable for each in published} == {"fsync"}


@pytest.mark.parametrize("durable", ["replica", 1])
def test_a_live_replica_confirms(kind: Kind, queue_name: str, durable: Literal["replica", 1]) -> None:
    with Server(kind) as primary, replica_of(primary) as replica, duly.Duly(primary.url) as app:
        message_id = app.queue(queue_name).send("kept", durable=durable)
        assert message_id.durable == 1
        with redis.Redis.from_url(replica.url) as client:
            assert client.hexists(f"duly:{{{queue_name}}}:msgs", message_id)


# --- Not confirmed -----------------------------------------------------------------------------------------


def test_fsync_is_not_confirmed_by_a_server_that_syncs_every_second(kind: Kind, queue_name: str) -> None:
    # Not even where there is WAITAOF: with this setting it may answer before the file is synced.
    with Server(kind, EVERY_SECOND) as server, duly.Duly(server.url) as app:
        queue = app.queue(queue_name)
        with pytest.raises(duly.NotDurable, match="does not sync every write") as caught:
            queue.send(1, durable="fsync")
        assert set(caught.value.ids) == stored_ids(queue)


def test_fsync_is_not_confirmed_by_a_server_that_hides_its_settings(kind: Kind, queue_name: str) -> None:
    with Server(kind, ALWAYS) as server:
        with redis.Redis.from_url(server.url) as client:
            client.acl_setuser("app", enabled=True, passwords=["+secret"], keys="*", commands=["+@all", "-config"])
        with duly.Duly(server.url.replace("//", "//app:secret@")) as app:
            queue = app.queue(queue_name)
            with pytest.raises(duly.NotDurable, match="does not show") as caught:
                queue.send(1, durable="fsync")
            assert set(caught.value.ids) == stored_ids(queue)


def test_fsync_is_not_confirmed_without_an_append_only_file(kind: Kind, queue_name: str) -> None:
    with Server(kind) as server, duly.Duly(server.url) as app:
        queue = app.queue(queue_name)
        with pytest.raises(duly.NotDurable, match=queue_name) as caught:
            queue.send_many(["a", "b"], durable="fsync")
        assert set(caught.value.ids) == stored_ids(queue)
        assert {each.body for each in queue.receive(wait=0)} == {"a", "b"}


def test_more_replicas_than_there_are_do_not_confirm(queue_name: str) -> None:
    need("valkey")
    with Server("valkey") as primary, replica_of(primary), duly.Duly(primary.url) as app:
        queue = app.queue(queue_name)
        with pytest.raises(duly.NotDurable, match="1 of 2 replicas") as caught:
            queue.send(1, durable=2)
        assert set(caught.value.ids) == stored_ids(queue)


def test_a_stopped_replica_does_not_confirm_and_the_message_is_stored(queue_name: str) -> None:
    need("valkey")
    with Server("valkey") as primary, replica_of(primary) as replica, duly.Duly(primary.url) as app:
        queue = app.queue(queue_name)
        queue.send("before", durable="replica")
        with stopped(replica), pytest.raises(duly.NotDurable, match="0 of 1 replicas") as caught:
            queue.send("kept", durable="replica")
        assert caught.value.ids[0] in stored_ids(queue)
        assert queue.send("after", durable="replica")


def test_an_unconfirmed_message_sent_again_with_its_id_is_stored_once_and_not_confirmed_falsely(
    queue_name: str,
) -> None:
    need("valkey")
    with Server("valkey") as primary, replica_of(primary) as replica:
        with stopped(replica), duly.Duly(primary.url) as app:
            app.queue(queue_name).send("kept", id="mine")
            with pytest.raises(duly.NotDurable):  # it is found stored: that alone confirms nothing
                app.queue(queue_name).send("kept", id="mine", durable="replica")
        with duly.Duly(primary.url) as app:
            assert app.queue(queue_name).send("kept", id="mine", durable="replica") == "mine"
            assert app.queue(queue_name).stats().ready == 1


# --- Repeats -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lost", "stage"), [("EVALSHA", Stage.EXECUTED), ("WAIT", Stage.BEFORE)])
def test_a_call_repeated_after_a_cut_is_not_confirmed_by_a_stopped_replica(
    queue_name: str, lost: str, stage: Stage
) -> None:
    need("valkey")
    policy = Policy()
    with (
        Server("valkey") as primary,
        replica_of(primary) as replica,
        Proxy(primary.port, policy) as proxy,
        duly.Duly(proxy.url) as app,
    ):
        queue = app.queue(queue_name)
        assert queue.send("before", durable="replica")
        policy = proxy.policy = CutAt(1, stage, only={lost})
        with stopped(replica), pytest.raises(duly.NotDurable, match="0 of 1 replicas"):
            queue.send("once", durable="replica")
        assert policy.fired == 1
        assert not policy.faults[0].was_refused
        assert proxy.counts["EVALSHA"] >= 3, "the call was not repeated"
        assert sorted(message.body for message in queue.list("ready")) == ["before", "once"]


def test_a_call_repeated_after_a_lost_reply_is_confirmed_once_it_is_safe(queue_name: str) -> None:
    need("valkey")
    policy = LoseReplies(0.3, 5, only={"EVALSHA", "WAIT", "WAITAOF"})
    with (
        Server("valkey", ALWAYS) as primary,
        replica_of(primary) as replica,
        Proxy(primary.port, policy) as proxy,
        duly.Duly(proxy.url) as app,
    ):
        queue = app.queue(queue_name)
        ids = [queue.send(number, durable="replica" if number % 2 else "fsync") for number in range(60)]
        assert policy.fired > 20
        assert queue.stats().sent == 60
        with redis.Redis.from_url(replica.url) as client:
            found = client.hmget(f"duly:{{{queue_name}}}:msgs", ids[1::2])
            assert all(found)


# --- The power fails ---------------------------------------------------------------------------------------


class PowerSupply:
    """The data that a server has synced, by the shim's record; cutting the power leaves no more than that."""

    def __init__(self, directory: Path) -> None:
        if not shutil.which("gcc"):
            (pytest.fail if os.environ.get("CI") else pytest.skip)("no gcc for the power-loss shim: `make servers`")
        library, source = directory / "power_loss_shim.so", Path(__file__).parents[1] / "power_loss_shim.c"
        subprocess.run(["gcc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, source], check=True)
        self._record = directory / "synced"
        self.environment = {"LD_PRELOAD": str(library), "DULY_SYNC_FILE": str(self._record)}

    def cut(self, server: Server) -> int:
        """Kill the server and take away what it had not synced; return how many bytes that was."""
        server.kill9()
        synced: dict[Path, int] = {}
        for line in self._record.read_text().splitlines():
            length, _, name = line.partition(" ")
            synced[Path(name)] = int(length)
        lost = 0
        for path in server.directory.rglob("*.incr.aof"):
            kept = synced.get(path, 0)
            lost += path.stat().st_size - kept
            os.truncate(path, kept)
        return lost


def test_a_power_failure_takes_no_message_whose_fsync_was_confirmed(queue_name: str, tmp_path: Path) -> None:
    need("valkey")
    supply = PowerSupply(tmp_path)
    confirmed: list[str] = []
    hoped_for: list[str] = []
    lost = 0
    with Server("valkey", ALWAYS, supply.environment) as server:
        for _ in range(3):
            with duly.Duly(server.url) as app, redis.Redis.from_url(server.url) as client:
                queue = app.queue(queue_name)
                confirmed += queue.send_many(range(50), durable="fsync")
                client.config_set("appendfsync", "no")  # later writes are at the mercy of the kernel
                hoped_for += queue.send_many(range(50))
            lost += supply.cut(server)
            server.start()
        with duly.Duly(server.url) as app:
            kept = stored_ids(app.queue(queue_name))
    assert set(confirmed) <= kept
    assert lost, "the power failures took nothing: they show nothing"
    assert set(hoped_for) - kept, "unconfirmed messages were kept: this was not a power failure"
