"""`Retry(only=..., never=...)`: which exceptions are tried again. Workers, `work_off` and `with d:` judge alike."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import duly
from duly import Batch, Delivery, Duly, Message, Retry, RetryIn, UsageError
from duly.testing import Clock, work_off

POLICY = Retry(only=(ConnectionError, OSError), never=(ConnectionRefusedError,), first=0, jitter=0, attempts=2)
REFUSED = "failed with ConnectionRefusedError, which is not retried"


@pytest.fixture
def app(duly_clock: Clock) -> Iterator[Duly]:
    with Duly("memory://") as app:
        yield app


def dead_of(queue: duly.Queue) -> Message:
    (message,) = queue.list("dead")
    return message


@pytest.mark.parametrize(
    ("error", "attempts", "reason"),
    [
        (ConnectionResetError("cut"), 2, "failed at attempt 2 of 2"),
        (ConnectionRefusedError("closed"), 1, REFUSED),
        (ValueError("no number"), 1, "failed with ValueError, which is not retried"),
    ],
    ids=["in only", "in never and in only", "outside only"],
)
def test_an_exception_that_is_not_retried_makes_the_message_dead_at_once(
    app: Duly, error: Exception, attempts: int, reason: str
) -> None:
    queue = app.queue("orders", retry=POLICY)

    @queue.handler
    def handle(body: Any) -> None:
        raise error

    queue.send(1)

    assert [each.outcome for each in work_off(app)] == ["retry"] * (attempts - 1) + ["dead"]
    message = dead_of(queue)
    assert (message.reason, message.failures, message.timeline[-1].what) == (reason, attempts, "fail")
    assert message.errors[-1].error == f"{type(error).__name__}: {error}"
    assert "raise error" in message.errors[-1].traceback


@pytest.mark.parametrize("given", [RetryIn(0), False], ids=repr)
def test_an_outcome_and_a_returned_false_are_not_exceptions(app: Duly, given: Any) -> None:
    queue = app.queue("orders", retry=POLICY)

    @queue.handler
    def handle(body: Any) -> Any:
        return given

    queue.send(1)

    assert [each.outcome for each in work_off(app)] == ["retry", "dead"]
    assert dead_of(queue).reason == "failed at attempt 2 of 2"


def test_each_message_of_a_batch_is_judged_by_its_own_exception(app: Duly) -> None:
    queue = app.queue("orders", retry=POLICY)

    @queue.handler(batch=Batch(wait=0))
    def handle(bodies: list[int]) -> list[Any]:
        errors = {0: ConnectionResetError("cut"), 1: ValueError("no number"), 2: None}
        return [errors[body] for body in bodies]

    queue.send_many([0, 1, 2])

    handled = [(each.body, each.outcome) for each in work_off(app)]
    assert handled == [(0, "retry"), (1, "dead"), (2, "ack"), (0, "dead")]


def test_the_policy_of_a_task_counts_even_for_a_message_with_its_own_attempts(app: Duly) -> None:
    @app.task(queue="tasks", retry=Retry(never=ValueError))
    def work(text: str) -> None:
        raise ValueError(text)

    work.using(retry=Retry(attempts=9)).send("no number")

    assert [each.outcome for each in work_off(app)] == ["dead"]
    assert dead_of(work.queue).reason == "failed with ValueError, which is not retried"


def test_a_timeout_of_a_handler_is_a_timeout_error(app: Duly) -> None:
    queue = app.queue("orders", retry=Retry(only=ConnectionError))

    @queue.handler(timeout=0.01)
    async def handle(body: Any) -> None:
        await asyncio.sleep(60)

    queue.send(1)

    assert [each.outcome for each in work_off(app)] == ["dead"]
    assert dead_of(queue).reason == "failed with TimeoutError, which is not retried"


def test_a_block_around_a_delivery_decides_by_the_same_rules(app: Duly) -> None:
    queue = app.queue("orders", retry=POLICY)
    queue.send(1)
    (delivery,) = queue.receive(1, wait=0)

    with pytest.raises(ConnectionRefusedError), delivery:
        raise ConnectionRefusedError("closed")

    assert dead_of(queue).reason == REFUSED


def test_on_dead_is_called_for_a_message_that_a_block_inside_the_handler_made_dead(app: Duly) -> None:
    queue = app.queue("orders", retry=POLICY)
    told: list[str | None] = []

    @queue.handler
    def handle(d: Delivery) -> None:
        with d:
            raise ConnectionRefusedError("closed")

    @queue.on_dead
    def tell(message: Message) -> None:
        told.append(message.reason)

    queue.send(1)
    work_off(app)

    assert told == [REFUSED]


@pytest.mark.parametrize("policy", [Retry(only=ValueError), Retry(never=(ValueError,))], ids=["only", "never"])
def test_exceptions_cannot_travel_with_a_message(app: Duly, policy: Retry) -> None:
    with pytest.raises(UsageError, match=r"cannot be stored with a message: .* Give it to the queue or the task"):
        app.queue("orders").send(1, retry=policy)
    assert app.queue("orders").stats().sent == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"only": ()}, "Retry.only must not be empty"),
        ({"only": "ValueError"}, "Retry.only must be exceptions like"),
        ({"never": (ValueError("x"),)}, "Retry.never must be exceptions like"),
        ({"never": (KeyboardInterrupt,)}, "Retry.never must be exceptions like"),
        ({"never": None}, "Retry.never must be exceptions like"),
    ],
)
def test_a_value_that_is_not_an_exception_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Retry(**options)
