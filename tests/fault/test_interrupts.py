"""A signal handler raises in the middle of a sync call (Ctrl-C): nothing stays leased, no settle is forgotten."""

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

import duly
from tests.conftest import need
from tests.fault.proxy import SCRIPT_COMMANDS, DelayEach, Policy, Proxy, Stage
from tests.servers import Server

pytestmark = pytest.mark.fault

HELD = 0.3
"""Seconds by which the proxy holds each reply back: the server has carried the call out long before."""
SOON = 0.1


class Enough(Exception):
    """Errors that a handler of the user may raise."""


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    need("valkey")
    with Server("valkey") as server, Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def app(proxy: Proxy) -> Iterator[duly.Duly]:
    proxy.policy = Policy()
    with duly.Duly(proxy.url) as app:
        yield app
        proxy.policy = Policy()


@contextmanager
def interrupted(seconds: float, kind: type[BaseException] = KeyboardInterrupt) -> Iterator[None]:
    """Have a signal handler raise after a while, and expect that it gets through."""

    def interrupt(*_: object) -> None:
        raise kind

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(kind):  # noqa: PT012 - the other statements are the user's
            signal.setitimer(signal.ITIMER_REAL, seconds)
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def load_scripts(app: duly.Duly, name: str) -> None:
    """Have the server know all scripts, so that a call is one command."""
    warm = app.queue(f"{name}-warm")
    for verb in ("ack", "retry", "release", "commit"):
        warm.send("x")
        (delivery,) = warm.receive(1, wait=0)
        getattr(delivery, verb)()
    warm.delete()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Enough])
def test_a_receive_that_is_interrupted_gives_its_messages_back(
    app: duly.Duly, proxy: Proxy, queue_name: str, kind: type[BaseException]
) -> None:
    load_scripts(app, queue_name)
    queue = app.queue(queue_name)
    queue.send_many(["a", "b"])
    proxy.policy = policy = DelayEach(HELD, Stage.EXECUTED, only=SCRIPT_COMMANDS)
    with interrupted(SOON, kind):
        queue.receive(2)
    assert policy.fired
    proxy.policy = Policy()
    stats = queue.stats()
    assert (stats.ready, stats.leased, stats.released, stats.delivered) == (2, 0, 2, 2)
    assert [each.attempt for each in queue.receive(2, wait=0)] == [1, 1]


def test_a_receive_that_found_nothing_passes_its_watch_on(app: duly.Duly, proxy: Proxy, queue_name: str) -> None:
    load_scripts(app, queue_name)
    queue = app.queue(queue_name)
    queue.send("later", delay=1000)
    proxy.policy = DelayEach(HELD, Stage.EXECUTED, only=SCRIPT_COMMANDS)
    with interrupted(SOON):
        queue.receive(1)
    with redis.Redis.from_url(proxy.url) as client:
        assert client.llen(queue._keys.key("wake")) == 1


@pytest.mark.parametrize(
    "settle",
    [
        lambda d, _: d.ack(),
        lambda d, _: d.retry(delay=5),
        lambda d, n: d.commit(redis=[("INCR", n)]),
        lambda d, _: d._queue.ack_many([d]),
    ],
    ids=["ack", "retry", "commit", "ack_many"],
)
def test_a_settle_that_is_interrupted_and_repeated_is_a_success(
    app: duly.Duly, proxy: Proxy, queue_name: str, settle: Callable[[Any, str], Any]
) -> None:
    load_scripts(app, queue_name)
    queue, counter = app.queue(queue_name), f"{queue_name}:n"
    queue.send("x")
    (delivery,) = queue.receive(1, wait=0)
    proxy.policy = DelayEach(HELD, Stage.EXECUTED, only=SCRIPT_COMMANDS)
    with interrupted(SOON):
        settle(delivery, counter)
    proxy.policy = Policy()
    assert delivery.is_settled
    assert not delivery.lost
    assert settle(delivery, counter) in (None, [], [1])  # commit: the replies of the first one
    stats = queue.stats()
    assert (stats.leased, stats.acked + stats.retried) == (0, 1)
    with redis.Redis.from_url(proxy.url) as client:
        assert client.get(counter) in (None, b"1")


def test_a_lock_that_is_being_taken_is_freed(app: duly.Duly, proxy: Proxy, queue_name: str) -> None:
    load_scripts(app, queue_name)
    with app.lock(queue_name):
        pass
    proxy.policy = DelayEach(HELD, Stage.EXECUTED, only=SCRIPT_COMMANDS)
    taken = []
    with interrupted(SOON), app.lock(queue_name):
        taken.append(queue_name)
    assert taken == []
    proxy.policy = Policy()
    with app.lock(queue_name, on_busy="raise"):
        pass


# An interrupt in the middle of a connect leaves a socket to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts_at_any_moment_leave_nothing_leased(app: duly.Duly, proxy: Proxy, queue_name: str) -> None:
    load_scripts(app, queue_name)
    queue = app.queue(queue_name, lease=600)
    queue.send_many(list(range(200)))
    proxy.policy = DelayEach(0.002, Stage.EXECUTED, only=SCRIPT_COMMANDS)
    chance, ends_at, held = random.Random(7), time.monotonic() + 4, list[Any]()
    interrupts = 0
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        while time.monotonic() < ends_at and interrupts < 150:
            taken: list[Any] = []
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.0005, 0.008))
                taken = queue.receive(3, wait=0)
                for each in taken:
                    each.release()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupts += 1
            held = [each for each in (*held, *taken) if not each.is_settled]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    proxy.policy = Policy()
    assert interrupts > 10
    for each in held:
        each.release()
    stats = queue.stats()
    assert (stats.ready, stats.leased) == (200, 0)
    assert queue.audit().ok
