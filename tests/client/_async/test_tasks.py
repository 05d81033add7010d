"""Tasks: calls by name, sent over a queue."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from duly import AsyncDelivery, AsyncDuly, AsyncQueue, AsyncTask, QueueFull, Retry, Send, UsageError
from duly._core.handlers import Bound, TaskSet
from tests.client._async.given import seen, take_one
from tests.client.place import Place


@dataclass
class User:
    name: str


@pytest.fixture
def welcome(app: AsyncDuly, queue: AsyncQueue) -> AsyncTask[Any, Any]:
    @app.task(queue=queue)
    async def welcome(user_id: int, lang: str = "en", user: User | None = None, *, d: AsyncDelivery) -> str:
        return f"{user_id} {lang} {user}"

    return welcome


def asked_for(app: AsyncDuly, delivery: AsyncDelivery) -> Bound:
    """Return the call that a worker would make."""
    tasks = app._definitions.handlers[delivery.queue].handler
    assert isinstance(tasks, TaskSet)
    tasks.resolve()
    envelope = delivery._opened().envelope
    definition, call = tasks.find(envelope.content, envelope.body)
    return definition.bind(call, delivery)


async def test_a_task_that_is_sent_is_a_message_that_can_be_read(
    welcome: AsyncTask[Any, Any], queue: AsyncQueue
) -> None:
    id_ = await welcome.send(42, lang="zh")

    message = await seen(queue, id_)
    assert message.body == {"task": "welcome", "args": [42], "kwargs": {"lang": "zh"}}
    assert message.state == "ready"


async def test_a_worker_gets_the_arguments_and_the_delivery(
    app: AsyncDuly, welcome: AsyncTask[Any, Any], queue: AsyncQueue
) -> None:
    await welcome.send(42, user=User("Li"))
    delivery = await take_one(queue)

    call = asked_for(app, delivery)

    assert (call.args, call.kwargs) == ((42,), {"user": User("Li"), "d": delivery})
    assert await call.function(*call.args, **call.kwargs) == "42 en User(name='Li')"


async def test_a_task_sent_by_hand_is_the_same(app: AsyncDuly, welcome: AsyncTask[Any, Any], queue: AsyncQueue) -> None:
    await queue.send({"task": "welcome", "kwargs": {"user_id": 42}})

    assert asked_for(app, await take_one(queue)).kwargs["user_id"] == 42


async def test_a_task_may_be_sent_for_later(clock: Place, welcome: AsyncTask[Any, Any], queue: AsyncQueue) -> None:
    await welcome.later(30, 42)

    assert await queue.receive(wait=0) == []
    clock.advance(30)
    assert (await take_one(queue)).body["args"] == [42]


async def test_a_task_may_be_sent_for_a_time(welcome: AsyncTask[Any, Any], queue: AsyncQueue) -> None:
    when = datetime(2035, 1, 2, tzinfo=UTC)

    for id_ in (await welcome.at(when, 42), await welcome.at(when.timestamp(), 42)):
        assert (await seen(queue, id_)).due_at == when


async def test_a_task_may_be_sent_with_the_options_of_a_send(welcome: AsyncTask[Any, Any], queue: AsyncQueue) -> None:
    urgent = welcome.using(key="user-42", priority=5, headers={"trace": "1"}, retry=Retry(attempts=1))

    first = await urgent.using(dedup="once").send(42)
    again = await urgent.using(dedup="once").send(42)

    assert first == again
    delivery = await take_one(queue)
    assert (delivery.key, delivery.priority, delivery.headers) == ("user-42", 5, {"trace": "1"})
    await delivery.retry()
    assert (await seen(queue, first)).state == "dead"


async def test_the_body_of_a_call_is_that_of_a_send(
    app: AsyncDuly, welcome: AsyncTask[Any, Any], queue: AsyncQueue
) -> None:
    await queue.send_many([Send(welcome.body(42, user=User("Li")), priority=5), welcome.body(43, lang="zh")])

    first, second = [asked_for(app, delivery) for delivery in await queue.receive(limit=2, wait=0)]

    assert (first.args, first.kwargs["user"]) == ((42,), User("Li"))
    assert (second.args, second.kwargs["lang"]) == ((43,), "zh")
    with pytest.raises(UsageError, match=r"task 'welcome': .*lacks 'user_id'"):
        welcome.body()


def test_a_body_does_not_lose_options(welcome: AsyncTask[Any, Any]) -> None:
    with pytest.raises(UsageError, match=r"duly\.Send\(task\.body\(\.\.\.\), key=\.\.\.\)"):
        welcome.using(priority=5).body(42)


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("foo", "there are delay, at, key, priority, .*, durable$"),
        ("prioritty", r"did you mean priority=\?"),
        ("countdown", "use delay="),
        ("timeout", r"@app\.task\(timeout=\.\.\.\)"),
    ],
)
def test_an_option_that_no_send_has_is_named_with_those_that_are(
    welcome: AsyncTask[Any, Any], option: str, says: str
) -> None:
    unknown: Any = {option: 1}
    with pytest.raises(UsageError, match=f"^task 'welcome': a send has no option {option}=: .*{says}"):
        welcome.using(**unknown)


async def test_the_time_of_a_call_overrules_that_of_the_options(
    clock: Place, welcome: AsyncTask[Any, Any], queue: AsyncQueue
) -> None:
    slow = welcome.using(delay=3600)
    when = datetime(2035, 1, 2, tzinfo=UTC)

    await slow.send(1)
    await slow.later(60, 2)
    dated = await slow.at(when, 3)

    assert (await seen(queue, dated)).due_at == when
    clock.advance(60)
    assert (await take_one(queue)).body["args"] == [2]


@pytest.mark.parametrize(
    ("args", "kwargs", "problem"),
    [
        ((), {}, "lacks 'user_id'"),
        (("42",), {}, "argument 'user_id'"),
        ((42, "en", None, 5), {}, "takes 3 positional arguments"),
        ((42,), {"colour": "red"}, "no parameter 'colour'"),
        ((42,), {"user": {"name": 5}}, "argument 'user'"),
        ((42,), {"d": 5}, "'d' is the delivery"),
    ],
)
async def test_arguments_are_checked_before_anything_is_sent(
    welcome: AsyncTask[Any, Any], queue: AsyncQueue, args: tuple[Any, ...], kwargs: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UsageError, match=f"task 'welcome': .*{problem}"):
        await welcome.send(*args, **kwargs)
    with pytest.raises(UsageError, match=f"task 'welcome': .*{problem}"):
        await welcome.later(30, *args, **kwargs)

    assert (await queue.stats()).sent == 0


async def test_options_of_tasks_are_checked_like_those_of_sends(
    welcome: AsyncTask[Any, Any], queue: AsyncQueue
) -> None:
    with pytest.raises(UsageError, match="priority"):
        await welcome.using(priority=10).send(42)
    with pytest.raises(UsageError, match="delay"):
        await welcome.later(-1, 42)

    assert (await queue.stats()).sent == 0


async def test_a_task_obeys_the_options_of_its_queue(app: AsyncDuly, queue_name: str) -> None:
    @app.task(queue=app.queue(queue_name, max_length=1))
    def work() -> None: ...

    await work.send()

    with pytest.raises(QueueFull):
        await work.send()


async def test_the_retry_policy_of_a_task_comes_between_those_of_message_and_queue(
    welcome: AsyncTask[Any, Any], queue: AsyncQueue
) -> None:
    ids = [await welcome.send(1), await welcome.using(retry=Retry(attempts=2)).send(2)]

    for delivery in await queue.receive(limit=2, wait=0):
        delivery._task_retry = Retry(attempts=1)  # as a worker does when it has found the task
        await delivery.retry()

    assert [(await seen(queue, id_)).state for id_ in ids] == ["dead", "delayed"]
