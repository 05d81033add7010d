"""One wait over several queues in the sync client."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from duly import Duly, Queue
from duly._sync.several import Several
from duly._sync.wire import Wire
from tests.conftest import StartedServer
from tests.waiting import wait_until


@pytest.fixture
def app(server: StartedServer) -> Iterator[Duly]:
    with Duly(server("valkey").url) as app:
        yield app


@pytest.fixture
def queues(app: Duly, queue_name: str) -> list[Queue[str]]:
    return [app.queue(f"{queue_name}-{number}") for number in range(3)]


def received(several: Several, queues: list[Queue[str]], limit: int = 10, wait: float = 20.0) -> list[str]:
    return [delivery.body for delivery in several.receive(dict.fromkeys(queues, limit), wait)]


def test_a_send_to_any_queue_ends_the_wait(app: Duly, queues: list[Queue[str]]) -> None:
    several = Several(app, 30)
    for queue in queues:
        sender = threading.Timer(0.2, queue.send, [queue.name])
        sender.start()
        assert received(several, queues) == [queue.name]
        sender.join()


def test_a_due_time_of_any_queue_ends_the_wait_and_not_before(app: Duly, queues: list[Queue[str]]) -> None:
    several = Several(app, 30)
    assert received(several, queues, wait=0) == []
    queues[1].send("late", delay=0.5)

    (delivery,) = several.receive(dict.fromkeys(queues, 10), 20)

    assert delivery.body == "late"
    assert time.time() >= delivery.due_at.timestamp()


def test_queues_take_turns(app: Duly, queues: list[Queue[str]]) -> None:
    for queue in queues:
        queue.send_many([queue.name] * 2)
    several = Several(app, 30)

    order = [body for _ in range(6) for body in received(several, queues, limit=1)]

    assert order == [queue.name for queue in queues] * 2


def test_a_wait_without_messages_ends_in_time(app: Duly, queues: list[Queue[str]]) -> None:
    assert received(Several(app, 30), queues, wait=0.1) == []


def test_another_thread_interrupts_the_wait(app: Duly, queues: list[Queue[str]]) -> None:
    several, results = Several(app, 30), list[list[str]]()
    thread = threading.Thread(target=lambda: results.append(received(several, queues, wait=600)))
    thread.start()
    wait_until(lambda: several._blocked, "it waits")

    several.interrupt()

    thread.join(60)
    assert results == [[]]


def test_an_interruption_before_the_wait_counts(app: Duly, queues: list[Queue[str]]) -> None:
    several = Several(app, 30)
    several.interrupt()

    assert received(several, queues, wait=600) == []


def test_a_queue_that_is_left_out_is_watched_by_others(app: Duly, queues: list[Queue[str]]) -> None:
    """A consumer that has taken the wake token passes it on, so that another one keeps the due time."""
    queues[0].send("later", delay=1.5)
    several = Several(app, 3000)
    assert received(several, queues, wait=0) == []
    thread_results: list[list[str]] = []
    other = Duly(app)
    thread = threading.Thread(
        target=lambda: thread_results.append([d.body for d in other.queue(queues[0].name).receive(wait=600)])
    )

    several.leave()
    thread.start()

    thread.join(60)
    assert thread_results == [["later"]]
    other.close()


def test_leases_are_renewed(app: Duly, queue_name: str) -> None:
    queue = app.queue(queue_name)
    queue.send("body")
    (delivery,) = Several(app, 0.6).receive({queue: 1}, 5)
    time.sleep(1.5)

    delivery.ack()

    assert queue.stats().crashed == 0


def test_an_interruption_does_not_hold_up_a_wait_that_has_just_ended(
    app: Duly, queues: list[Queue[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the event loop of a worker stands still until the interruption gives up."""
    several, wait, poll = Several(app, 30), app._link.wait_for_any_token, Wire.poll
    has_returned, polls, interruptions = threading.Event(), list[bool](), list[threading.Thread]()

    def interrupt_after_the_reply(*arguments: Any, **options: Any) -> Any:
        woken = wait(*arguments, **options)
        interruptions.append(threading.Thread(target=several.interrupt))
        interruptions[0].start()
        wait_until(lambda: polls)
        return woken

    def poll_until_the_wait_has_returned(wire: Wire, seconds: float) -> bool:
        if threading.current_thread() not in interruptions:
            return poll(wire, seconds)
        polls.append(True)
        return has_returned.wait(5)

    monkeypatch.setattr(app._link, "wait_for_any_token", interrupt_after_the_reply)
    monkeypatch.setattr(Wire, "poll", poll_until_the_wait_has_returned)

    assert received(several, queues, wait=1) == []
    has_returned.set()
    interruptions[0].join()

    assert len(polls) == 1
