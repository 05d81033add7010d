"""Locks whose replies are lost: no caller is kept out by its own lock, and no lock is held without a holder."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import duly
from tests.conftest import StartedServer
from tests.fault.proxy import LoseReplies, Proxy

pytestmark = pytest.mark.fault

HOLDERS, HOLDINGS = 4, 50
EFFECTS = 200


def test_locks_are_held_one_after_the_other_when_replies_are_lost(server: StartedServer, queue_name: str) -> None:
    policy = LoseReplies(0.2, 5)
    inside, fences, lost = list[int](), list[int](), list[bool]()

    def hold(app: duly.Duly, number: int) -> None:
        for _ in range(HOLDINGS):
            # A lock without a holder would hold the others up for longer than they wait.
            with app.lock(queue_name, ttl=600, on_busy=duly.Wait(60)) as lock:
                inside.append(number)
                fences.append(lock.fence)
                assert inside == [number]
                inside.remove(number)
            lost.append(lock.lost)

    with Proxy(server("valkey").port, policy) as proxy, duly.Duly(proxy.url) as app:
        with ThreadPoolExecutor(HOLDERS) as pool:
            for work in [pool.submit(hold, app, number) for number in range(HOLDERS)]:
                work.result()
        with app.lock(queue_name):
            pass

    assert policy.fired > 50
    assert lost == [False] * HOLDERS * HOLDINGS
    assert fences == sorted(set(fences))


def test_an_effect_is_granted_once_when_replies_are_lost(server: StartedServer, queue_name: str) -> None:
    policy = LoseReplies(0.2, 6)
    with Proxy(server("valkey").port, policy) as proxy, duly.Duly(proxy.url) as app:
        queue = app.queue(queue_name)
        queue.send_many(["one", "two"])
        one, two = queue.receive()
        names = [f"{queue_name} {number}" for number in range(EFFECTS)]
        granted = [[duly.once(each, name, 60) for each in (one, two, one)] for name in names]
        queue.ack_many([one, two])

    assert policy.fired > 50
    assert granted == [[True, False, False]] * EFFECTS
