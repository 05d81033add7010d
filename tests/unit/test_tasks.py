"""Tasks: arguments to messages and back, and how handlers, tasks and hooks are registered."""

import functools
import typing
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import pydantic
import pytest

from duly import AsyncDelivery, AsyncDuly, AsyncTask, Batch, CodecError, Delivery, Duly, Message, Retry, UsageError
from duly._core import codec
from duly._core.handlers import Bound, TaskDefinition, TaskSet, UnknownTask
from duly.worker import WorkerOptions

D: Any = object()
"""Stands for a delivery."""


@dataclass
class Order:
    number: int


class Point(msgspec.Struct):
    x: int


class Customer(pydantic.BaseModel):
    name: str = pydantic.Field(alias="customerName")


def made(source: str, block: str = "...") -> TaskDefinition:
    """Define a task as a module of the user's own would."""
    names = {
        "Delivery": Delivery, "AsyncDelivery": AsyncDelivery, "typing": typing, "datetime": datetime,
        "Order": Order, "Point": Point, "Customer": Customer,
    }  # fmt: skip
    exec(f"{source}: {block}", names)
    return TaskDefinition(typing.cast("Callable[..., Any]", names["work"]))


def carried(task: TaskDefinition, /, *args: Any, **kwargs: Any) -> Bound:
    """Send and receive."""
    return received(task, bytes(task.encoded(args, kwargs)))


def received(task: TaskDefinition, body: bytes) -> Bound:
    tasks = TaskSet()
    tasks.add(task)
    tasks.resolve()
    found, call = tasks.find(codec.CONTENT_JSON, body)
    assert found is task
    return found.bind(call, D)


# From the sender to the worker

CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("def work()", (), {}),
    ("def work(a, b=2)", (1,), {}),
    ("def work(a, b=2)", (1, None), {}),
    ("def work(a, b=2)", (), {"a": 1}),
    ("def work(a: int, /, b: str, *, c: bool)", (1,), {"b": "x", "c": True}),
    ("def work(*args: int)", (1, 2, 3), {}),
    ("def work(**kwargs: int)", (), {"a": 1, "task": 2, "args": 3}),
    ("def work(a, *args: str, b: int = 2, **kwargs)", (1, "x", "y"), {"b": 3, "c": [4]}),
    ("def work(a, /, **kwargs)", (1,), {"a": 2}),
    ("def work(order: Order, point: Point)", (Order(1),), {"point": Point(2)}),
    ("def work(customer: Customer, others: list[Customer])", (Customer(customerName="Li"), []), {}),
    ("def work(customer: Customer | None)", (Customer(customerName="Li"),), {}),
    ("def work(when: datetime)", (datetime(2030, 1, 2, tzinfo=UTC),), {}),
    ("def work(data: bytes, text: str)", (b"\xff\x00", "订单"), {}),
    ("def work(when: 'datetime')", (datetime(2030, 1, 2, tzinfo=UTC),), {}),
    ("async def work(kind: typing.Literal['a'], rest: dict[str, set[int]])", ("a", {"x": {1}}), {}),
]


@pytest.mark.parametrize(("source", "args", "kwargs"), CALLS)
def test_arguments_arrive_as_they_were(source: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    task = made(source)

    assert carried(task, *args, **kwargs) == Bound(task.function, args, kwargs)


def test_an_argument_without_annotation_is_the_json_value() -> None:
    assert carried(made("def work(a, b)"), Order(1), (1, 2)).args == ({"number": 1}, [1, 2])


def test_plain_values_of_the_right_shape_are_arguments_as_well() -> None:
    assert carried(made("def work(order: Order)"), {"number": 1}).args == (Order(1),)


def test_the_message_can_be_read() -> None:
    task = made("def work(user_id: int, lang: str = 'en')")

    assert bytes(task.encoded((42,), {"lang": "zh"})) == b'{"task":"work","args":[42],"kwargs":{"lang":"zh"}}'
    assert bytes(task.encoded((42,), {})) == b'{"task":"work","args":[42]}'
    assert bytes(made("def work()").encoded((), {})) == b'{"task":"work"}'


@pytest.mark.parametrize(
    "body",
    [
        b'{"task":"work","args":[1]}',
        b' { "kwargs": {"a": 1}, "task": "work" } ',
        b'{"task":"work","args":[],"kwargs":{"a":1}}',
    ],
)
def test_a_message_may_be_written_by_hand(body: bytes) -> None:
    call = received(made("def work(a: int)"), body)

    assert call.function(*call.args, **call.kwargs) is None
    assert (*call.args, *call.kwargs.values()) == (1,)


MISFITS: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("def work(a)", (), {}, "lacks 'a'"),
    ("def work(a, *, b, c=3)", (1,), {}, "lacks 'b'"),
    ("def work(a, /)", (), {"a": 1}, "lacks 'a'"),
    ("def work(a)", (1, 2), {}, "takes 1 positional argument, not 2"),
    ("def work()", (1,), {}, "takes 0 positional arguments, not 1"),
    ("def work(a, *, b=1)", (1, 2), {}, "takes 1 positional argument, not 2"),
    ("def work(a)", (1,), {"a": 2}, "'a' is given twice"),
    ("def work(a)", (1,), {"b": 2}, "no parameter 'b'"),
    ("def work(a: int)", ("1",), {}, "argument 'a': Expected `int`, got `str`"),
    ("def work(a: int)", (), {"a": 1.5}, "argument 'a'"),
    ("def work(order: Order)", ({"number": "x"},), {}, "argument 'order'"),
    ("def work(customer: Customer)", ({},), {}, "argument 'customer'"),
    ("def work(*args: int)", (1, "x"), {}, "argument 'args'"),
    ("def work(**kwargs: int)", (), {"x": "y"}, "argument 'kwargs'"),
    ("def work(a, d: Delivery)", (1, 2), {}, "takes 1 positional argument"),
    ("def work(a, d: Delivery)", (1,), {"d": 2}, "'d' is the delivery"),
    ("def work(a, d: Delivery, **kwargs)", (1,), {"d": 2}, "'d' is the delivery"),
]


@pytest.mark.parametrize(("source", "args", "kwargs", "problem"), MISFITS)
def test_arguments_that_a_sender_refuses_are_refused_by_a_worker(
    source: str, args: tuple[Any, ...], kwargs: dict[str, Any], problem: str
) -> None:
    task = made(source)
    body = msgspec.json.encode({"task": "work", "args": args, "kwargs": kwargs})

    with pytest.raises(UsageError, match=f"task 'work': .*{problem}"):
        task.encoded(args, kwargs)
    with pytest.raises(CodecError, match=f"task 'work': .*{problem}"):
        received(task, body)


@pytest.mark.parametrize("value", [object(), float("nan"), [float("inf")], "\ud800", [object()]])
def test_an_argument_that_json_cannot_carry_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match="task 'work': argument 'a' of type"):
        made("def work(a)").encoded((value,), {})


def test_a_name_that_json_cannot_carry_is_refused() -> None:
    with pytest.raises(UsageError, match="task 'work'"):
        made("def work(**kwargs)").encoded((), {"\ud800": 1})


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("def work(a: complex)", "task 'work': parameter 'a': complex"),
        ("def work(a: 'Nowhere')", "task work: the annotation 'Nowhere' of 'a'"),
        ("def work(a: Delivery, b: AsyncDelivery)", "task 'work': both a and b"),
        ("def work(*a: Delivery)", "task 'work': a cannot be"),
    ],
)
def test_unusable_annotations_are_refused_before_anything_is_sent(source: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        made(source).encoded((1,), {})


# The delivery

INJECTED: list[tuple[str, tuple[Any, ...], dict[str, Any], dict[str, Any]]] = [
    ("def work(d: Delivery)", (), {}, {"d": D}),
    ("def work(a, d: Delivery)", (1,), {}, {"a": 1, "d": D}),
    ("def work(d: AsyncDelivery, a)", (1,), {}, {"d": D, "a": 1}),
    ("def work(d: 'AsyncDelivery', a)", (), {"a": 1}, {"d": D, "a": 1}),
    ("def work(a, d: Delivery, b)", (1, 2), {}, {"a": 1, "d": D, "b": 2}),
    ("def work(a, d: Delivery, b)", (), {"a": 1, "b": 2}, {"a": 1, "d": D, "b": 2}),
    ("def work(a=0, b=0, d: Delivery | None = None)", (1,), {}, {"a": 1, "b": 0, "d": D}),
    ("def work(a, *, d: Delivery)", (1,), {}, {"a": 1, "d": D}),
    ("def work(a, d: Delivery, *rest)", (1, 2, 3), {}, {"a": 1, "d": D, "rest": (2, 3)}),
    ("def work(d: Delivery, /, a)", (1,), {}, {"d": D, "a": 1}),
    ("def work(a=0, d: Delivery | None = None, /)", (), {}, {"a": 0, "d": None}),
]


@pytest.mark.parametrize(("source", "args", "kwargs", "seen"), INJECTED)
def test_the_worker_gives_the_delivery(
    source: str, args: tuple[Any, ...], kwargs: dict[str, Any], seen: dict[str, Any]
) -> None:
    task = made(source, "return locals()")

    call = carried(task, *args, **kwargs)

    assert call.function(*call.args, **call.kwargs) == seen


# Options of a message


def test_a_task_that_is_not_here_is_unknown() -> None:
    tasks = TaskSet()
    tasks.add(made("def work()"))

    with pytest.raises(UnknownTask, match=r"'walk'.*'work'"):
        tasks.find(codec.CONTENT_JSON, b'{"task":"walk"}')


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"[]",
        b"{",
        b"5",
        b'{"task":5}',
        b'{"task":"work","args":{}}',
        b'{"task":"work","arg":[1]}',
        b"[" * 100_000,
    ],
    ids=lambda body: repr(body)[:40],
)
def test_a_body_that_asks_for_no_task_is_a_codec_error(body: bytes) -> None:
    tasks = TaskSet()
    tasks.add(made("def work()"))

    with pytest.raises(CodecError, match="does not name a task") as caught:
        tasks.find(codec.CONTENT_JSON, body)

    assert not isinstance(caught.value, UnknownTask)


def test_raw_bytes_ask_for_no_task() -> None:
    with pytest.raises(CodecError, match="raw bytes"):
        TaskSet().find(codec.CONTENT_BYTES, b'{"task":"work"}')


# Definitions


def test_concurrency_is_the_largest_that_was_asked_for() -> None:
    def plain() -> None: ...

    async def quick() -> None: ...

    def concurrency(*tasks: TaskDefinition) -> int:
        all_of_them = TaskSet()
        for task in tasks:
            all_of_them.add(task)
        return all_of_them.concurrency

    assert concurrency(TaskDefinition(plain)) == 16
    assert concurrency(TaskDefinition(plain), TaskDefinition(quick)) == 100
    assert concurrency(TaskDefinition(plain, concurrency=5), TaskDefinition(quick)) == 5
    assert concurrency(TaskDefinition(plain, concurrency=5), TaskDefinition(quick, concurrency=7)) == 7


def test_a_task_has_its_options() -> None:
    async def work() -> None: ...

    task = TaskDefinition(work, name="mail.work", retry=Retry(attempts=3), timeout=5)

    assert (task.name, task.retry, task.timeout, task.is_async) == ("mail.work", Retry(attempts=3), 5.0, True)


@pytest.mark.parametrize(
    "options", [{"name": ""}, {"name": 5}, {"retry": 3}, {"timeout": 0}, {"concurrency": 0}], ids=repr
)
def test_bad_options_of_a_task_are_refused(options: dict[str, Any]) -> None:
    def work() -> None: ...

    with pytest.raises(UsageError):
        TaskDefinition(work, **options)


@pytest.mark.parametrize("function", [lambda: None, functools.partial(print, "x")])
def test_a_function_without_a_name_needs_one(function: Any) -> None:
    with pytest.raises(UsageError, match="give it a name="):
        TaskDefinition(function)

    assert TaskDefinition(function, name="work").name == "work"


@pytest.fixture
def app() -> Duly:
    return Duly("memory://")


def noop() -> None: ...


def on_body(body: Any) -> None: ...


def on_two(d: Any, other: Any) -> None: ...


async def on_body_async(body: Any) -> None: ...


def test_a_handler_stays_a_function(app: Duly) -> None:
    orders, mail = app.queue("orders", lease=7), app.queue("mail")

    @orders.handler
    def on_order(body: int) -> int:
        return body + 1

    @mail.handler(concurrency=5, batch=Batch(max=3))
    def on_mail(bodies: list[int]) -> int:
        return sum(bodies)

    assert on_order(1) + on_mail([1, 2]) == 5
    registered = app._definitions.handlers
    assert registered["orders"].queue is orders
    assert registered["orders"].handler.concurrency == 16
    assert registered["mail"].handler.batch == Batch(max=3)


def test_a_queue_has_one_handler(app: Duly) -> None:
    app.queue("orders").handler(on_body)

    with pytest.raises(UsageError, match=r"'orders' already has a handler, on_body.*on_body_async"):
        app.queue("orders").handler(on_body_async)
    with pytest.raises(UsageError, match="'orders' already has a handler"):
        app.aio.queue("orders").handler(timeout=5)(on_body_async)


def test_a_queue_has_a_handler_or_tasks(app: Duly) -> None:
    app.queue("orders", type=int).handler(on_body)
    app.task(queue="mail")(noop)

    with pytest.raises(UsageError, match=r"'orders' cannot have both <handler on_body> and <task noop>"):
        app.task(queue="orders")(noop)
    with pytest.raises(UsageError, match=r"'mail' cannot have both <handler on_body> and <tasks noop>"):
        app.queue("mail").handler(on_body)


def test_the_async_counterpart_has_the_same_definitions(app: Duly) -> None:
    app.queue("orders").aio.handler(on_body_async)
    app.aio.on_start(noop)
    mail = app.aio.task(queue="mail")(noop)

    assert isinstance(mail, AsyncTask)
    assert list(app._definitions.handlers) == ["orders", "mail"]
    assert app._definitions.hooks.on_start == [noop]


def test_tasks_share_a_queue_but_no_name(app: Duly) -> None:
    app.task(noop)
    app.task(on_body)
    app.task(name="other")(noop)

    tasks = app._definitions.handlers["default"].handler
    assert isinstance(tasks, TaskSet)
    assert list(tasks.tasks) == ["noop", "on_body", "other"]
    with pytest.raises(UsageError, match="already a task 'noop' on this queue"):
        app.task(noop)


def test_tasks_of_a_queue_have_the_same_options(app: Duly) -> None:
    mail = app.queue("mail", lease=7)
    first = app.task(queue=mail)(noop)
    by_name = app.task(queue="mail")(on_body)
    again = app.task(queue=app.queue("mail", lease=7), name="again")(noop)
    from_the_counterpart = app.task(queue=typing.cast("Any", mail.aio), name="counterpart")(noop)

    for task in (first, by_name, again, from_the_counterpart):
        assert task.queue.options == mail.options
        assert type(task.queue) is type(mail)
    assert app._definitions.handlers["mail"].queue is mail
    with pytest.raises(UsageError, match="'mail' already has tasks with other options"):
        app.task(queue=app.queue("mail", lease=8), name="more")(noop)


def test_a_queue_of_tasks_is_of_this_app_and_has_no_type(app: Duly) -> None:
    for queue in (Duly("memory://").queue("mail"), None, 5):
        with pytest.raises(UsageError, match="a queue of this app"):
            app.task(queue=typing.cast("Any", queue))(noop)
    with pytest.raises(UsageError, match="has a type="):
        app.task(queue=app.queue("mail", type=int))(noop)
    assert app._definitions.handlers == {}


def test_a_task_is_still_its_function(app: Duly) -> None:
    @app.task(queue="mail")
    def add(a: int, b: int = 2) -> int:
        """Add."""
        return a + b

    assert add(1) == 3
    assert (add.name, add.queue.name, add.__name__, add.__doc__) == ("add", "mail", "add", "Add.")
    assert repr(add) == "<Task 'add' of queue 'mail'>"


async def test_an_async_task_is_still_its_function() -> None:
    app = AsyncDuly("memory://")

    @app.task
    async def add(a: int, b: int = 2) -> int:
        return a + b

    assert await add(1) == 3


def test_options_of_sends_are_known(app: Duly) -> None:
    task = app.task(noop)

    with pytest.raises(UsageError, match="task 'noop': a send has no option colour="):
        task.using(**typing.cast("Any", {"colour": "red"}))


# Hooks

ONCE: list[tuple[str, Any]] = [("on_start", noop), ("on_stop", noop), ("before", on_body), ("on_dead", on_body)]
TWICE: list[tuple[str, Any]] = [("after", on_two), ("on_error", on_two)]


@pytest.mark.parametrize(("occasion", "function"), ONCE + TWICE)
def test_hooks_are_kept_in_order(app: Duly, occasion: str, function: Any) -> None:
    other = functools.partial(function)

    assert getattr(app, occasion)(function) is function
    assert getattr(app, occasion)(other) is other

    assert getattr(app._definitions.hooks, occasion) == [function, other]


def test_a_queue_has_its_own_hooks(app: Duly) -> None:
    @app.queue("orders").on_dead
    async def tell(message: Message) -> None: ...

    @app.queue("orders").aio.on_dead
    def tell_too(message: Message) -> None: ...

    assert app._definitions.on_dead == {"orders": [tell, tell_too]}
    assert app._definitions.hooks.on_dead == []


@pytest.mark.parametrize("occasion", ["before", "after", "on_error"])
def test_hooks_of_a_queue_are_plain_functions(app: Duly, occasion: str) -> None:
    async def hook(d: Any, other: Any = None) -> None: ...

    with pytest.raises(UsageError, match=f"{occasion} .*hook must be a plain function"):
        getattr(app, occasion)(hook)


@pytest.mark.parametrize("occasion", ["on_start", "on_stop", "on_dead"])
def test_other_hooks_may_be_async(app: Duly, occasion: str) -> None:
    async def hook(message: Any = None) -> None: ...

    assert getattr(app, occasion)(hook) is hook


@pytest.mark.parametrize(
    ("occasion", "function"),
    [("on_start", on_body), ("before", noop), ("after", on_body), ("on_error", on_body), ("on_dead", on_two)],
)
def test_a_hook_that_cannot_be_called_is_refused(app: Duly, occasion: str, function: Any) -> None:
    with pytest.raises(UsageError, match=f"{occasion} {function.__name__} must take"):
        getattr(app, occasion)(function)


def test_a_value_that_is_not_a_function_is_not_a_hook(app: Duly) -> None:
    with pytest.raises(UsageError, match="on_start must be a function"):
        app.on_start(typing.cast("Any", None))


# Running


@pytest.mark.parametrize("is_clean", [True, False])
def test_running_ends_the_process_with_its_status(app: Duly, monkeypatch: pytest.MonkeyPatch, is_clean: bool) -> None:
    seen: list[Any] = []

    def run(*given: Any) -> bool:
        seen.extend(given)
        return is_clean

    monkeypatch.setattr("duly.worker.run", run)

    with nullcontext() if is_clean else pytest.raises(SystemExit, match="1"):
        app.run(queues="high:3,low", concurrency=5, grace=7)

    assert seen == [app, WorkerOptions({"high": 3, "low": 1}, 5, 7)]


@pytest.mark.parametrize("is_clean", [True, False])
async def test_running_in_a_loop_ends_the_process_likewise(monkeypatch: pytest.MonkeyPatch, is_clean: bool) -> None:
    async def arun(app: AsyncDuly, options: WorkerOptions) -> bool:
        assert options == WorkerOptions()
        return is_clean

    monkeypatch.setattr("duly.worker.arun", arun)

    with nullcontext() if is_clean else pytest.raises(SystemExit, match="1"):
        await AsyncDuly("memory://").run()
