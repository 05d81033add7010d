"""The proxy itself: each fault strikes exactly where declared, and without a fault nothing changes."""

import contextlib
import gc
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.conftest import StartedServer
from tests.fault.proxy import (
    BlackHole,
    CutAt,
    Delay,
    DelayEach,
    Fault,
    FaultAt,
    Frames,
    LoseReplies,
    Policy,
    Proxy,
    Stage,
)

INCREMENT = "return redis.call('INCR', KEYS[1])"


@pytest.fixture
def port(server: StartedServer) -> int:
    return server("valkey").port


@pytest.fixture
def direct(port: int) -> Iterator[redis.Redis]:
    """Past the proxy, to see what the server has done."""
    with redis.Redis(port=port) as client:
        yield client


def connect(proxy: Proxy, *, timeout: float = 10.0, protocol: int = 2) -> redis.Redis:
    """Connect without redis-py's own repeats, which would hide what the proxy does."""
    return redis.Redis(
        port=proxy.port,
        retry=Retry(NoBackoff(), 0),
        retry_on_error=[],
        socket_timeout=timeout,
        protocol=protocol,
    )


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    return condition()


def request_for(key: str) -> bytes:
    return f"*2\r\n$4\r\nINCR\r\n${len(key)}\r\n{key}\r\n".encode()


def values_left(direct: redis.Redis, key: str) -> int:
    return int(direct.get(key) or 0)


# --- Frames ------------------------------------------------------------------------------------------------

FRAMES = [
    b"+OK\r\n",
    b"-ERR no\r\n",
    b":-12\r\n",
    b"$-1\r\n",
    b"$0\r\n\r\n",
    b"$6\r\na\r\n$1b\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"*2\r\n*2\r\n$1\r\na\r\n*-1\r\n*1\r\n*0\r\n",
    b"_\r\n",
    b"#t\r\n",
    b",1.5\r\n",
    b"(3492890328409238509324850943850943825024385\r\n",
    b"=7\r\ntxt:a\r\n\r\n",
    b"!5\r\nERR x\r\n",
    b"%2\r\n+a\r\n:1\r\n+b\r\n~2\r\n:1\r\n:2\r\n",
    b"|1\r\n+ttl\r\n:9\r\n*2\r\n:1\r\n|1\r\n+x\r\n:2\r\n:3\r\n",
    b">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n",
    b"PING\r\n",
]


@pytest.mark.parametrize("piece", [1, 2, 7, 10_000])
def test_frames_are_found_in_pieces_of_any_size(piece: int) -> None:
    stream = b"".join(FRAMES)
    frames = Frames()
    found = []

    for at in range(0, len(stream), piece):
        frames.feed(stream[at : at + piece])
        while (frame := frames.next()) is not None:
            found.append(frame)

    assert found == FRAMES


# --- No fault ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [2, 3])
def test_replies_pass_unchanged(port: int, direct: redis.Redis, queue_name: str, protocol: int) -> None:
    script = "return {1, {'a', false, {}}, redis.error_reply('no'), {ok='fine'}}"
    with Proxy(port) as proxy, connect(proxy, protocol=protocol) as client:
        client.hset(queue_name, mapping={"a": "1", "b": "x" * 300_000})

        assert client.hgetall(queue_name) == direct.hgetall(queue_name)
        assert str(client.eval(script, 0)) == str(direct.eval(script, 0))
        assert client.get("no such key") is None
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            client.incr(queue_name)
        assert proxy.counts["HSET"] == 1
        assert proxy.policy.fired == 0


def test_a_unix_socket_is_reached(server: StartedServer, queue_name: str) -> None:
    with Proxy(Path(server("valkey").socket)) as proxy, connect(proxy) as client:
        assert client.incr(queue_name) == 1


def test_a_blocking_command_waits_and_passes(port: int, direct: redis.Redis, queue_name: str) -> None:
    with Proxy(port) as proxy, connect(proxy) as client:
        pusher = threading.Thread(
            target=lambda: (eventually(lambda: proxy.counts["BLPOP"] == 1), direct.rpush(queue_name, "a"))
        )
        pusher.start()

        assert client.blpop([queue_name], timeout=10) == (queue_name.encode(), b"a")
        pusher.join()


def test_a_client_that_leaves_while_blocked_takes_nothing(port: int, direct: redis.Redis, queue_name: str) -> None:
    with Proxy(port) as proxy:
        with connect(proxy, timeout=0.05) as client, pytest.raises(redis.TimeoutError):
            client.execute_command("BLPOP", queue_name, 0)
        assert eventually(lambda: proxy.connections == 0)
        assert eventually(lambda: direct.info("clients")["blocked_clients"] == 0)

        direct.rpush(queue_name, "a")

    assert direct.llen(queue_name) == 1


def test_fifty_thousand_pipelined_commands_pass(port: int, queue_name: str) -> None:
    with Proxy(port) as proxy, connect(proxy) as client:
        pipeline = client.pipeline(transaction=False)
        for _ in range(50_000):
            pipeline.execute_command("INCR", queue_name)

        assert pipeline.execute() == list(range(1, 50_001))
        assert proxy.counts["INCR"] == 50_000


def test_a_client_that_reads_late_does_not_stall_the_proxy(port: int) -> None:
    count = 200_000  # both directions exceed all socket buffers
    with Proxy(port) as proxy, socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as client:
        client.sendall(b"*2\r\n$4\r\nECHO\r\n$20\r\n01234567890123456789\r\n" * count)
        with client.makefile("rb") as replies:
            assert replies.read(27 * count) == b"$20\r\n01234567890123456789\r\n" * count


def test_published_messages_pass(port: int, direct: redis.Redis, queue_name: str) -> None:
    with Proxy(port) as proxy, connect(proxy) as client, client.pubsub() as pubsub:
        pubsub.subscribe(queue_name, queue_name + "2")
        for _ in range(2):
            assert (pubsub.get_message(timeout=10) or {})["type"] == "subscribe"

        direct.publish(queue_name, "a")

        assert (pubsub.get_message(timeout=10) or {})["data"] == b"a"


# --- Replies lost ------------------------------------------------------------------------------------------


def test_lost_replies_were_executed(port: int, direct: redis.Redis, queue_name: str) -> None:
    policy = LoseReplies(rate=0.1, seed=7, only={"INCR"})
    with Proxy(port, policy) as proxy, connect(proxy) as client:
        answered = sum(is_answered(client, queue_name) for _ in range(1_000))

    assert 50 < policy.fired < 150
    assert policy.seen == 1_000
    assert answered == 1_000 - policy.fired
    assert values_left(direct, queue_name) == 1_000


def test_the_same_seed_loses_the_same_replies(port: int, queue_name: str) -> None:
    def lost(seed: int) -> list[int]:
        policy = LoseReplies(rate=0.2, seed=seed, only=None)
        with Proxy(port, policy) as proxy, connect(proxy) as client:
            outcomes = [is_answered(client, queue_name) for _ in range(200)]
        return [at for at, answered in enumerate(outcomes) if not answered]

    assert lost(1) == lost(1)
    assert lost(1) != lost(2)


def is_answered(client: redis.Redis, key: str) -> bool:
    """Return whether INCR got its reply. (redis-py's own `incr` sends INCRBY.)"""
    try:
        client.execute_command("INCR", key)  # type: ignore[no-untyped-call]
    except redis.ConnectionError:
        return False
    return True


def test_only_scripts_lose_replies_by_default(port: int, direct: redis.Redis, queue_name: str) -> None:
    policy = LoseReplies(rate=1, seed=0)
    with Proxy(port, policy) as proxy, connect(proxy) as client:
        client.incr(queue_name)
        client.ping()
        with pytest.raises(redis.ConnectionError):
            client.eval(INCREMENT, 1, queue_name)

    assert [fault.command.name for fault in policy.faults] == ["EVAL"]
    assert policy.faults[0].reply == b":2\r\n"
    assert policy.faults[0].command.args() == [INCREMENT.encode(), b"1", queue_name.encode()]
    assert values_left(direct, queue_name) == 2


def test_a_lost_refusal_is_distinguished_from_a_lost_success(port: int) -> None:
    policy = LoseReplies(rate=1, seed=0)
    with Proxy(port, policy) as proxy, connect(proxy) as client, pytest.raises(redis.ConnectionError):
        client.evalsha("0" * 40, 0)

    assert policy.faults[0].was_refused


def test_in_a_pipeline_earlier_replies_arrive_and_later_commands_do_not(
    port: int, direct: redis.Redis, queue_name: str
) -> None:
    request = request_for(queue_name)
    with Proxy(port, CutAt(3, Stage.EXECUTED)) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as client:
            client.sendall(request * 5)
            received = read_to_end(client)
        assert proxy.policy.fired == 1

    assert received == b":1\r\n:2\r\n"
    assert values_left(direct, queue_name) == 3


def read_to_end(client: socket.socket) -> bytes:
    received = b""
    try:
        while piece := client.recv(4096):
            received += piece
    except ConnectionResetError:
        pass
    return received


def test_a_lost_blpop_reply_took_the_value(port: int, direct: redis.Redis, queue_name: str) -> None:
    direct.rpush(queue_name, "a")
    with (
        Proxy(port, LoseReplies(1, 0, only={"BLPOP"})) as proxy,
        connect(proxy) as client,
        pytest.raises(redis.ConnectionError),
    ):
        client.blpop([queue_name], timeout=1)

    assert direct.llen(queue_name) == 0


# --- Cuts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "executed", "answered"),
    [
        (Stage.BEFORE, 0, False),
        (Stage.MID_FRAME, 0, False),
        (Stage.EXECUTED, 1, False),
        (Stage.REPLIED, 1, True),
    ],
)
def test_a_cut_strikes_at_its_stage(
    port: int, direct: redis.Redis, queue_name: str, stage: Stage, executed: int, answered: bool
) -> None:
    policy = CutAt(1, stage)
    with Proxy(port, policy) as proxy, connect(proxy) as client:
        assert is_answered(client, queue_name) is answered
        assert policy.fired == 1
        assert eventually(lambda: proxy.connections == 0)
        assert values_left(direct, queue_name) == executed

        assert client.incr(queue_name) == executed + 1  # the next connection is whole


def test_no_part_of_a_frame_is_executed(port: int, direct: redis.Redis, queue_name: str) -> None:
    request = request_for(queue_name)
    with Proxy(port) as proxy:
        for length in range(1, len(request) + 1):
            proxy.policy = CutAt(1, Stage.MID_FRAME, after_bytes=length)
            with connect(proxy) as client:
                assert not is_answered(client, queue_name)
            assert proxy.policy.fired == 1

    assert direct.exists(queue_name) == 0


@pytest.mark.parametrize("stage", [Stage.BEFORE, Stage.MID_FRAME])
def test_a_cut_in_a_pipeline_lets_the_earlier_commands_finish(
    port: int, direct: redis.Redis, queue_name: str, stage: Stage
) -> None:
    request = request_for(queue_name)
    with (
        Proxy(port, CutAt(3, stage, after_bytes=9)) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as client,
    ):
        client.sendall(request * 5)

        assert read_to_end(client) == b":1\r\n:2\r\n"
        assert values_left(direct, queue_name) == 2


def test_on_fire_runs_before_the_client_notices(port: int, queue_name: str) -> None:
    struck: list[Fault] = []
    policy = CutAt(2, Stage.BEFORE, on_fire=struck.append)
    with Proxy(port, policy) as proxy, connect(proxy) as client:
        assert is_answered(client, queue_name)
        assert not is_answered(client, queue_name)

        assert [fault.command.name for fault in struck] == ["INCR"]


def test_an_error_in_a_policy_is_raised_by_close(port: int, queue_name: str) -> None:
    def fail(fault: Fault) -> None:
        raise LookupError("from the policy")

    proxy = Proxy(port, CutAt(1, Stage.BEFORE, on_fire=fail))
    with connect(proxy) as client:
        assert not is_answered(client, queue_name)
    with pytest.raises(LookupError, match="from the policy"):
        proxy.close()


# --- Pauses ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [Stage.BEFORE, Stage.EXECUTED])
def test_a_delay_holds_the_command_or_its_reply(port: int, queue_name: str, stage: Stage) -> None:
    policy = DelayEach(0.02, stage)
    with Proxy(port, policy) as proxy, connect(proxy) as client:
        started = time.monotonic()
        assert client.pipeline(transaction=False).incr(queue_name).incr(queue_name).execute() == [1, 2]
        assert time.monotonic() - started >= 0.04
        assert policy.fired == 2


def test_a_delayed_request_is_executed_though_the_client_left(port: int, direct: redis.Redis, queue_name: str) -> None:
    policy = FaultAt(1, Delay(0.2))
    with Proxy(port, policy) as proxy:
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as client:
            client.sendall(request_for(queue_name))
            assert eventually(lambda: policy.fired == 1)

        assert eventually(lambda: values_left(direct, queue_name) == 1)
        assert time.monotonic() - began >= 0.2
        assert eventually(lambda: proxy.connections == 0)


@pytest.mark.parametrize(("stage", "executed"), [(Stage.BEFORE, 0), (Stage.EXECUTED, 1)])
def test_a_black_hole_keeps_the_socket_and_heals(
    port: int, direct: redis.Redis, queue_name: str, stage: Stage, executed: int
) -> None:
    request = request_for(queue_name)
    policy = FaultAt(1, BlackHole(stage))
    with (
        Proxy(port, policy) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), timeout=0.1) as client,
    ):
        client.sendall(request * 2)
        assert eventually(lambda: policy.fired == 1)
        with pytest.raises(TimeoutError):
            client.recv(1)
        assert values_left(direct, queue_name) == executed

        proxy.heal()
        client.settimeout(10)
        with client.makefile("rb") as replies:
            assert replies.read(8) == b":1\r\n:2\r\n"


def test_the_whole_proxy_falls_silent_and_heals(port: int, direct: redis.Redis, queue_name: str) -> None:
    request = request_for(queue_name)
    with Proxy(port) as proxy, socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as old:
        old.sendall(request)
        assert old.recv(64) == b":1\r\n"
        proxy.black_hole()

        with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as new:
            for client in (old, new):
                client.sendall(request)
                client.settimeout(0.1)
                with pytest.raises(TimeoutError):
                    client.recv(1)
                client.settimeout(10)
            assert values_left(direct, queue_name) == 1

            proxy.heal()
            assert {old.recv(64), new.recv(64)} == {b":2\r\n", b":3\r\n"}


def test_all_connections_can_be_cut(port: int, queue_name: str) -> None:
    with Proxy(port) as proxy, connect(proxy) as client:
        client.incr(queue_name)
        assert proxy.connections == 1

        proxy.cut_all()

        assert eventually(lambda: proxy.connections == 0)
        assert is_answered(client, queue_name)


# --- Ends --------------------------------------------------------------------------------------------------


def test_without_a_server_the_client_is_turned_away() -> None:
    with socket.socket() as probe:  # bound, not listening: no other process can take the port
        probe.bind(("127.0.0.1", 0))
        with (
            Proxy(probe.getsockname()[1]) as proxy,
            connect(proxy) as client,
            pytest.raises(redis.ConnectionError),
        ):
            client.incr("never")


@pytest.mark.skipif(sys.platform != "linux", reason="counts the files in /proc")
def test_close_leaves_nothing(port: int, queue_name: str) -> None:
    def open_files() -> int:
        gc.collect()  # what tests before this one have left lying about is closed now, not in the middle
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    files, threads = open_files(), threading.active_count()
    for policy in (Policy(), FaultAt(1, BlackHole()), FaultAt(1, Delay(60)), CutAt(1, Stage.EXECUTED)):
        proxy = Proxy(port, policy)
        with connect(proxy, timeout=0.05) as client:
            with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
                client.incr(queue_name)
            proxy.close()
            proxy.close()

    assert threading.active_count() == threads
    assert open_files() == files
